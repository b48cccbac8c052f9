"""Metrics of health checks between zones, named as in grafana/rollout-operator#469.

They exist only where a StatefulSet is bound to a health check.
"""

from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Final

from rollout_operator.gates.model import Result
from rollout_operator.telemetry.exposition import Counter, Histogram, Registry

OUTCOMES: Final = ("updated", "deleted", "invalid")
QUERY_TYPES: Final = ("current", "baseline", "success")
_PREFIX: Final = "rollout_operator_health_check_"
_GROUP: Final = ("rollout_group",)
_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class GateMetrics:
    """The series of one namespace."""

    def __init__(self, registry: Registry) -> None:
        self._series: set[tuple[str, str]] = set()
        """Groups and checks that were counted."""
        self._blocked: dict[str, bool] = {}
        self._misconfigured: dict[str, bool] = {}
        self._misconfigurations: dict[str, int] = {}
        self._configurations = Counter(
            f"{_PREFIX}configurations_observed_total",
            "RolloutHealthChecks that were seen, by what became of them.",
            ("outcome",),
            registry=registry,
        )
        for outcome in OUTCOMES:
            self._configurations.labels(outcome)
        self._evaluations = Counter(
            f"{_PREFIX}evaluations_total",
            "Evaluations of a check for a group, by result.",
            (*_GROUP, "check", "result"),
            registry=registry,
        )
        self._duration = Histogram(
            f"{_PREFIX}query_duration_seconds",
            "How long a query, or a request to the URL of a check, took.",
            (*_GROUP, "check", "query_type"),
            registry=registry,
            buckets=_BUCKETS,
        )
        # The library takes a counter of this name for the same as the gauge below.
        registry.show(
            f"{_PREFIX}misconfigured_total",
            "How often a group began to roll out by a health check that cannot be obeyed.",
            _GROUP,
            lambda: (((group,), number) for group, number in [*self._misconfigurations.items()]),
        )
        registry.show(
            f"{_PREFIX}blocked",
            "1 where a health check holds a zone of a group, else 0.",
            _GROUP,
            lambda: (((group,), blocked) for group, blocked in [*self._blocked.items()]),
        )
        registry.show(
            f"{_PREFIX}misconfigured",
            "1 where a group rolls out by a health check that cannot be obeyed, else 0.",
            _GROUP,
            lambda: (((group,), is_so) for group, is_so in [*self._misconfigured.items()]),
        )

    def count_configuration(self, outcome: str) -> None:
        self._configurations.labels(outcome).inc()

    def count_evaluation(self, group: str, check: str, result: Result) -> None:
        self._series.add((group, check))
        for each in Result:
            self._evaluations.labels(group, check, each.value)
        self._evaluations.labels(group, check, result.value).inc()

    def record_query(self, group: str, check: str, query_type: str, took: timedelta) -> None:
        self._series.add((group, check))
        self._duration.labels(group, check, query_type).observe(took.total_seconds())

    def show_group(self, group: str, *, is_blocked: bool, is_misconfigured: bool) -> None:
        is_news = is_misconfigured and not self._misconfigured.get(group)
        self._misconfigurations[group] = self._misconfigurations.get(group, 0) + is_news
        self._blocked[group], self._misconfigured[group] = is_blocked, is_misconfigured

    def keep(self, groups: Mapping[str, Collection[str]]) -> None:
        """Forget all other groups, and all other checks of these."""
        for group in self._blocked.keys() - groups.keys():
            del self._blocked[group], self._misconfigured[group], self._misconfigurations[group]
        for group, check in [*self._series]:
            if check not in groups.get(group, ()):
                self._series.remove((group, check))
                for family in (self._evaluations, self._duration):
                    family.remove_by_labels({"rollout_group": group, "check": check})
