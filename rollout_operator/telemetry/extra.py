"""Metrics of MultiAZRollouts (MAZ-55); they exist only where enabled."""

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Final

import msgspec
from prometheus_client import CollectorRegistry

from rollout_operator.model.policy import PolicySetStatus, PolicyStatus
from rollout_operator.telemetry.metrics import Counter, Gauge, Histogram

# A pod that starts takes seconds, a pod that replays its log an hour.
_POLICY_BUCKETS: Final = (1, 5, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200)

_POLICY: Final = ("namespace", "name")
_POLICY_PREFIX: Final = "rollout_operator_multiaz_"


class _Shown(msgspec.Struct, frozen=True, kw_only=True):
    """What the gauges of a policy say now."""

    phase: str
    reasons: frozenset[str]
    pods: Mapping[tuple[str, str], int]

    @property
    def zones(self) -> Collection[str]:
        """Return the zones with series: a tenant may name others every second, for years."""
        return dict.fromkeys(zone for zone, _ in self.pods)


class PolicyMetrics:
    """The series of all policies of one namespace. Must be used from one event loop."""

    def __init__(
        self, registry: CollectorRegistry, namespace: str, reasons: Collection[str]
    ) -> None:
        """`reasons` are what may block a policy: each has a series, at 0 while it does not."""
        self._namespace = namespace
        self._reasons = reasons
        self._shown: dict[str, _Shown] = {}
        self._info = _make_gauge(
            registry, "info", "Always 1; the label shows the phase of a MultiAZRollout.", "phase"
        )
        self._pods = _make_gauge(
            registry,
            "pods",
            "Desired pods of a zone of a MultiAZRollout by state: updated, outdated, unavailable, "
            "total. They overlap, and make no sum.",
            "zone",
            "state",
        )
        self._blocked = _make_gauge(
            registry,
            "blocked",
            "1 for each reason for which a MultiAZRollout is refused, goes on only when something "
            "is mended, or has made no progress for too long; else 0.",
            "reason",
        )
        self._last_completed = _make_gauge(
            registry,
            "last_completed_timestamp_seconds",
            "Unix time at which a rollout of a MultiAZRollout was last complete; none before.",
        )
        self._batches = _make_policy_counter(
            registry, "batches", "Batches of pods of a MultiAZRollout that this process began."
        )
        self._deleted = _make_policy_counter(
            registry, "pods_deleted", "Pods that this process deleted for a MultiAZRollout."
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
        before = self._shown.get(name, _Shown(phase="", reasons=frozenset(), pods={}))
        shown = _Shown(phase=status.phase, reasons=frozenset(reasons), pods=_count_pods(status))
        if name in self._shown and shown == before:
            return
        self._shown[name] = shown
        if before.phase and before.phase != shown.phase:
            self._info.remove(self._namespace, name, before.phase)
        self._info.labels(self._namespace, name, shown.phase).set(1)
        self._show_reasons(name, before, shown)
        self._show_pods(name, before, shown)
        self._duration.labels(self._namespace, name)

    def show_completion(self, name: str, moment: datetime) -> None:
        self._last_completed.labels(self._namespace, name).set(moment.timestamp())

    def count_batch(self, name: str, zone: str) -> None:
        if self._has_zone(name, zone):
            self._batches.labels(self._namespace, name, zone).inc()

    def record_duration(self, name: str, duration: timedelta) -> None:
        self._duration.labels(self._namespace, name).observe(duration.total_seconds())

    def count_delete(self, name: str, zone: str) -> None:
        if self._has_zone(name, zone):
            self._deleted.labels(self._namespace, name, zone).inc()

    def forget(self, name: str) -> None:
        if self._shown.pop(name, None) is None:
            return
        own = {"namespace": self._namespace, "name": name}
        for family in (
            *(self._info, self._pods, self._blocked, self._last_completed),
            *(self._batches, self._deleted, self._duration),
        ):
            family.remove_by_labels(own)

    def _has_zone(self, name: str, zone: str) -> bool:
        shown = self._shown.get(name)
        return shown is not None and zone in shown.zones

    def _show_reasons(self, name: str, before: _Shown, shown: _Shown) -> None:
        for reason in {*before.reasons, *self._reasons, *shown.reasons}:
            is_blocking = reason in shown.reasons
            self._blocked.labels(self._namespace, name, reason).set(is_blocking)

    def _show_pods(self, name: str, before: _Shown, shown: _Shown) -> None:
        for zone, state in before.pods.keys() - shown.pods.keys():
            self._pods.remove(self._namespace, name, zone, state)
        for (zone, state), number in shown.pods.items():
            self._pods.labels(self._namespace, name, zone, state).set(number)
        for counter in (self._batches, self._deleted):
            for zone in before.zones:
                if zone not in shown.zones:
                    counter.remove(self._namespace, name, zone)
            for zone in shown.zones:
                counter.labels(self._namespace, name, zone)


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


def _make_gauge(registry: CollectorRegistry, name: str, text: str, *labels: str) -> Gauge:
    return Gauge(f"{_POLICY_PREFIX}{name}", text, (*_POLICY, *labels), registry=registry)


def _make_policy_counter(registry: CollectorRegistry, name: str, text: str) -> Counter:
    return Counter(f"{_POLICY_PREFIX}{name}_total", text, (*_POLICY, "zone"), registry=registry)
