"""Metrics of disruption budgets: which versions were seen, and what is in force (METR-30).

What is in force is decided in `guards.budgets.catalog`.
"""

from typing import Final

from prometheus_client import CollectorRegistry

from rollout_operator.telemetry.families import Counter, Gauge

BUDGET_RESULTS: Final = ("updated", "deleted", "invalid", "ignored", "delete-ignored")


class BudgetMetrics:
    """One counter of all budgets, and two gauges of each."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._observed = Counter(
            "rollout_operator_zpdb_configurations_observed_total",
            "Changes of zone-aware disruption budgets that were observed: updated (now in force), "
            "deleted, invalid (what was in force before stays), ignored and delete-ignored (older "
            "than what is known).",
            ("result",),
            registry=registry,
        )
        for result in BUDGET_RESULTS:
            self._observed.labels(result)
        self._maximum = Gauge(
            "rollout_operator_zpdb_max_unavailable",
            "How many pods a zone-aware disruption budget lets be gone at a time, as in force; 0 "
            "while it cannot be obeyed and none was in force before. None for a percentage.",
            ("zpdb",),
            registry=registry,
        )
        self._valid = Gauge(
            "rollout_operator_zpdb_valid",
            "1 where the newest version of a zone-aware disruption budget can be obeyed, else 0.",
            ("zpdb",),
            registry=registry,
        )

    def count(self, result: str) -> None:
        """Count one change, as one of `BUDGET_RESULTS`."""
        self._observed.labels(result).inc()

    def show(self, name: str, *, maximum: int | None, is_valid: bool) -> None:
        """Show a budget as it is now; `maximum` None for one without a number."""
        self._valid.labels(name).set(is_valid)
        if maximum is None:
            self._maximum.remove_by_labels({"zpdb": name})
        else:
            self._maximum.labels(name).set(maximum)

    def forget(self, name: str) -> None:
        """Remove the series of a budget that is gone."""
        self._valid.remove_by_labels({"zpdb": name})
        self._maximum.remove_by_labels({"zpdb": name})
