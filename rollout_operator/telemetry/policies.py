"""Metrics of MultiAZRollouts (MAZ-55); they exist only where enabled."""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from rollout_operator.model.policy import PolicySetStatus, PolicyStatus
from rollout_operator.telemetry.exposition import Counter, Histogram, Registry, Series

# A pod that starts takes seconds, a pod that replays its log an hour.
_POLICY_BUCKETS: Final = (1, 5, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200)

_POLICY: Final = ("namespace", "name")
_POLICY_PREFIX: Final = "rollout_operator_multiaz_"


class _Shown(msgspec.Struct):
    """What the gauges of a policy say now."""

    phase: str
    reasons: frozenset[str]
    pods: Mapping[tuple[str, str], int]
    completed: datetime | None = None

    @property
    def zones(self) -> Collection[str]:
        """Return the zones with series: a tenant may name others every second, for years."""
        return dict.fromkeys(zone for zone, _ in self.pods)


class PolicyMetrics:
    """The series of all policies of one namespace. Must be used from one event loop."""

    def __init__(self, registry: Registry, namespace: str, reasons: Collection[str]) -> None:
        """`reasons` are what may block a policy: each has a series, at 0 while it does not."""
        self._registry = registry
        self._namespace = namespace
        self._shown: dict[str, _Shown] = {}
        self._show(
            "info",
            "Always 1; the label shows the phase of a MultiAZRollout.",
            ("phase",),
            lambda shown: [((shown.phase,), 1)],
        )
        self._show(
            "pods",
            "Desired pods of a zone of a MultiAZRollout by state: updated, outdated, unavailable, "
            "total. They overlap, and make no sum.",
            ("zone", "state"),
            lambda shown: shown.pods.items(),
        )
        self._show(
            "blocked",
            "1 for each reason for which a MultiAZRollout is refused, goes on only when something "
            "is mended, or has made no progress for too long; else 0.",
            ("reason",),
            lambda shown: (
                ((reason,), reason in shown.reasons)
                for reason in dict.fromkeys([*reasons, *shown.reasons])
            ),
        )
        self._show(
            "last_completed_timestamp_seconds",
            "Unix time at which a rollout of a MultiAZRollout was last complete; none before.",
            (),
            lambda shown: [((), shown.completed.timestamp())] if shown.completed else [],
        )
        self._batches = Counter(
            f"{_POLICY_PREFIX}batches_total",
            "Batches of pods of a MultiAZRollout that this process began.",
            (*_POLICY, "zone"),
            registry=registry,
        )
        self._deleted = Counter(
            f"{_POLICY_PREFIX}pods_deleted_total",
            "Pods that this process deleted for a MultiAZRollout.",
            (*_POLICY, "zone"),
            registry=registry,
        )
        self._duration = Histogram(
            f"{_POLICY_PREFIX}batch_duration_seconds",
            "How long a batch of a MultiAZRollout took, from its beginning until every pod was "
            "available.",
            _POLICY,
            registry=registry,
            buckets=_POLICY_BUCKETS,
        )

    def show(self, name: str, status: PolicyStatus, reasons: Collection[str]) -> None:
        """Show a policy as its status has it; `reasons` block it now."""
        before = self._shown.get(name)
        shown = _Shown(phase=status.phase, reasons=frozenset(reasons), pods=_count_pods(status))
        if before is not None:
            shown.completed = before.completed
            for zone in before.zones:
                if zone not in shown.zones:
                    self._registry.forget(namespace=self._namespace, name=name, zone=zone)
        for zone in shown.zones:
            self._batches.labels(self._namespace, name, zone)
            self._deleted.labels(self._namespace, name, zone)
        self._duration.labels(self._namespace, name)
        self._shown[name] = shown

    def show_completion(self, name: str, moment: datetime) -> None:
        if name in self._shown:
            self._shown[name].completed = moment

    def count_batch(self, name: str, zone: str) -> None:
        if self._has_zone(name, zone):
            self._batches.labels(self._namespace, name, zone).inc()

    def record_duration(self, name: str, duration: timedelta) -> None:
        self._duration.labels(self._namespace, name).observe(duration.total_seconds())

    def count_delete(self, name: str, zone: str) -> None:
        if self._has_zone(name, zone):
            self._deleted.labels(self._namespace, name, zone).inc()

    def forget(self, name: str) -> None:
        self._shown.pop(name, None)
        self._registry.forget(namespace=self._namespace, name=name)

    def _has_zone(self, name: str, zone: str) -> bool:
        shown = self._shown.get(name)
        return shown is not None and zone in shown.zones

    def _show(
        self, name: str, text: str, labels: Sequence[str], read: Callable[[_Shown], Series]
    ) -> None:
        self._registry.show(
            f"{_POLICY_PREFIX}{name}",
            text,
            (*_POLICY, *labels),
            lambda: (
                ((self._namespace, policy, *values), number)
                for policy, shown in [*self._shown.items()]
                for values, number in read(shown)
            ),
        )


def _count_pods(status: PolicyStatus) -> Mapping[tuple[str, str], int]:
    """Return pods by zone and state; a StatefulSet that is a zone may be named like another."""
    pods: dict[tuple[str, str], int] = {}
    for zone in status.zones:
        for sts in zone.stateful_sets:
            for state, number in _count_states(sts).items():
                pods[zone.name, state] = pods.get((zone.name, state), 0) + number
    return pods


def _count_states(status: PolicySetStatus) -> Mapping[str, int]:
    return {
        "updated": status.updated_pods,
        "outdated": status.outdated_pods,
        "unavailable": status.unavailable_pods,
        "total": status.replicas,
    }
