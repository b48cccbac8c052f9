"""Metrics of disruption budgets (METR-30), and of disruptions requested of them (METR-31, METR-32).

What is in force is decided in `guards.budgets.catalog`. The values of `reason` are those of all
releases, one for several of our codes: dashboards select on them. The exact reason is in the log,
and in `rollout_operator_reviews_total`.
"""

from typing import Final

from prometheus_client import CollectorRegistry

from rollout_operator.model.outcome import Code
from rollout_operator.telemetry.families import Counter, Gauge

BUDGET_RESULTS: Final = ("updated", "deleted", "invalid", "ignored", "delete-ignored")

_ALLOWED: Final = 200
_DENIED: Final = "denied"
_UNDETERMINED: Final = "err: sts-pod-status-not-determined"
_REASONS: Final = {
    Code.NOT_AN_EVICTION: "invalid-request",
    Code.OTHER_NAMESPACE: "invalid-request",
    Code.POD_NOT_FOUND: "pod-not-found",
    Code.POD_NOT_RUNNING: "pod-not-ready",
    Code.BUDGETS_OVERLAP: "cfg-not-found",
    Code.BUDGETS_NOT_READ: "cfg-not-found",
    Code.POD_NOT_IN_SCOPE: "pod-not-in-scope",
    Code.OWNER_NOT_STATEFULSET: "sts-no-found",
    Code.BUDGET_ZERO: "max-unavailable-0",
    Code.BUDGET_INVALID: "max-unavailable-0",
    Code.TOO_FEW_ZONES: "min-sts-not-found",
    Code.PARTITION_UNKNOWN: "partition-not-identified",
    Code.GRANT_NOT_RECORDED: _UNDETERMINED,
    Code.SNAPSHOT_STALE: _UNDETERMINED,
    Code.STATUS_BEHIND: _UNDETERMINED,
    Code.OBJECT_UNREADABLE: _UNDETERMINED,
    Code.CANNOT_CHECK: _UNDETERMINED,
    Code.DISRUPTION_BUDGET_USED: _DENIED,
    Code.DISRUPTION_GRANTED: "allowed",
}
# What these come to is known beforehand: an alert sees a zero and not an absence.
_FROM_START: Final = (
    (Code.DISRUPTION_GRANTED, _ALLOWED),
    (Code.POD_NOT_IN_SCOPE, _ALLOWED),
    (Code.DISRUPTION_BUDGET_USED, 429),
)


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
        """Show a budget as it is now; `maximum` None for a budget without a number."""
        self._valid.labels(name).set(is_valid)
        if maximum is None:
            self._maximum.remove_by_labels({"zpdb": name})
        else:
            self._maximum.labels(name).set(maximum)

    def forget(self, name: str) -> None:
        """Remove the series of a budget that is gone."""
        self._valid.remove_by_labels({"zpdb": name})
        self._maximum.remove_by_labels({"zpdb": name})


class DisruptionMetrics:
    """Disruptions that evictions and rollouts requested of the arbiter, and their outcomes."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(
            "rollout_operator_zpdb_eviction_requests_total",
            "Disruptions that evictions and rollouts request, by reason and HTTP status.",
            ("reason", "status"),
            registry=registry,
        )
        self.inflight = Gauge(
            "rollout_operator_zpdb_inflight_eviction_requests",
            "Disruptions that are being decided on now.",
            registry=registry,
        )
        self.unused = Counter(
            "rollout_operator_zpdb_unused_grants_total",
            "Evictions that were allowed and did not happen: the pod stayed until the grant was "
            "released.",
            registry=registry,
        )
        self._children: dict[tuple[Code, int], Counter] = {}
        for code, status in _FROM_START:
            self._get_child(code, status)

    def count(self, code: Code, status: int = 0) -> None:
        """Count one answer; without a status it was granted."""
        self._get_child(code, status or _ALLOWED).inc()

    def _get_child(self, code: Code, status: int) -> Counter:
        child = self._children.get((code, status))
        if child is None:  # looking it up by labels costs more than counting
            child = self._requests.labels(_REASONS.get(code, _DENIED), str(status))
            self._children[code, status] = child
        return child
