"""Metrics of releases; they exist only where releases are enabled."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from rollout_operator.releases.model.plan import HealthCheck, HealthStatus
from rollout_operator.releases.model.releases import (
    BakeStatus,
    HistoryEntry,
    RefusedRelease,
    ReleaseRollout,
    ReleaseStatus,
    ScheduleObject,
)
from rollout_operator.telemetry.exposition import Counter, Histogram, Registry, Series

# A bake takes minutes or hours.
_RELEASE_BUCKETS: Final = (10, 30, 60, 300, 600, *(h * 3600 for h in (0.5, 1, 3, 6, 12, 24)))
_TRIGGERS: Final = ("User", "System")
_CAUSES: Final = ("before_bake", "in_bake")

_FOUND: Final = frozenset(HealthStatus)
# Reasons of conditions; what other writers put there is one series together.
_BLOCKING: Final = frozenset(
    {
        *("BakeTimeFailed", "FluxNotInstalled", "GateListFailed", "HealthCheckListFailed"),
        *("InvalidSpec", "RecoveryTimeout", "RolloutFailed", "TargetConflict"),
        *("UpgradePathUnknown", "WantedVersionNotFound", "WantedVersionNotVerified"),
    }
)
# Time alone, or health, may change these; or a person wants it so, or another condition says more.
_WAITING: Final = frozenset(
    {
        *("BakeTimeRetrying", "NoReleasesAvailable", "NothingDeployed", "WritingTargets"),
        *("Suspended", "UnhealthyHealthChecks"),
    }
)
# By condition, what it is where a person has to act.
_BLOCKED: Final = {
    "Ready": "False",
    "Stalled": "True",
    "TargetConflict": "True",
    "DeploymentBlocked": "True",
    "UpgradePathUnknown": "True",
}
_RELEASE_PREFIX: Final = "rollout_operator_release_"
_ROLLOUT: Final = ("namespace", "rollout")

AnyRollout = ReleaseRollout | RefusedRelease


def show_releases(
    registry: Registry,
    list_rollouts: Callable[[], Iterable[AnyRollout]],
    list_checks: Callable[[], Iterable[HealthCheck]],
) -> None:
    """Show Rollouts and HealthChecks of one namespace at each scrape."""

    def add(
        name: str, text: str, labels: Sequence[str], read: Callable[[AnyRollout], Series]
    ) -> None:
        registry.show(
            f"{_RELEASE_PREFIX}{name}",
            text,
            (*_ROLLOUT, *labels),
            lambda: (series for rollout in list_rollouts() for series in read(rollout)),
        )

    add("info", "Always 1; the label shows the version of a Rollout.", ["version"], _read_version)
    add("bake_status", "1 for what the current release of a Rollout is at.", ["status"], _read_bake)
    add(
        "candidates",
        "Releases that may come next: all (raw), and those whose versions gates allow (gated).",
        ["stage"],
        _read_candidates,
    )
    add(
        "blocked",
        "1 for each reason for which a Rollout goes on only when something is mended.",
        ["reason"],
        _read_blocked,
    )
    add("gate_passing", "1 where a gate of a Rollout passes, else 0.", ["gate"], _read_gates)
    registry.show(
        f"{_RELEASE_PREFIX}healthcheck_status",
        "1 for what a HealthCheck found.",
        ("namespace", "name", "status"),
        lambda: (
            ((check.head.namespace, check.head.name, _show_status(check)), 1)
            for check in list_checks()
            if check.status.status
        ),
    )


def show_schedules(
    registry: Registry, list_schedules: Callable[[], Iterable[ScheduleObject]]
) -> None:
    labels = ("kind", "namespace", "name")
    registry.show(
        f"{_RELEASE_PREFIX}schedule_active",
        "1 while a schedule of releases is active, else 0.",
        labels,
        lambda: ((_name(schedule), schedule.status.active) for schedule in list_schedules()),
    )
    registry.show(
        f"{_RELEASE_PREFIX}schedule_next_transition_timestamp_seconds",
        "Unix time at which a schedule of releases changes next; none where it never does.",
        labels,
        lambda: (
            (_name(schedule), schedule.status.next_transition.timestamp())
            for schedule in list_schedules()
            if schedule.status.next_transition is not None
        ),
    )


class ReleaseCounters:
    """What happened to the Rollouts of one namespace. Must be used from one event loop."""

    def __init__(self, registry: Registry, namespace: str, results: Iterable[str]) -> None:
        """`results` are the outcomes of look-ups in registries: each exists at zero."""
        self._registry = registry
        self._namespace = namespace
        self._deployments = Counter(
            f"{_RELEASE_PREFIX}deployments_total",
            "Releases that were deployed, by origin.",
            (*_ROLLOUT, "trigger"),
            registry=registry,
        )
        self._failures = Counter(
            f"{_RELEASE_PREFIX}bake_failures_total",
            "Releases that failed, before their bake or in it.",
            (*_ROLLOUT, "cause"),
            registry=registry,
        )
        self._retries = Counter(
            f"{_RELEASE_PREFIX}retries_total",
            "Releases that were tried again.",
            _ROLLOUT,
            registry=registry,
        )
        self._duration = Histogram(
            f"{_RELEASE_PREFIX}bake_duration_seconds",
            "How long a bake took, from its start until it passed or failed.",
            _ROLLOUT,
            registry=registry,
            buckets=_RELEASE_BUCKETS,
        )
        self._requests = Counter(
            f"{_RELEASE_PREFIX}registry_requests_total",
            "Look-ups of releases in registries, by outcome.",
            ("result",),
            registry=registry,
        )
        for result in results:
            self._requests.labels(result)

    def count_request(self, result: str) -> None:
        self._requests.labels(result).inc()

    def record(self, name: str, before: ReleaseStatus, after: ReleaseStatus) -> None:
        self._begin(name)
        current, earlier = after.current, before.current
        if current is not None and not _is_same(current, earlier):
            trigger = str(current.triggered_by.kind) if current.triggered_by else "System"
            self._deployments.labels(self._namespace, name, trigger).inc()
        then = next((entry for entry in after.history[:2] if _is_same(entry, earlier)), None)
        if earlier is not None and then is not None:
            self._retries.labels(self._namespace, name).inc(max(then.retries - earlier.retries, 0))
            self._record_end(name, earlier, then)

    def forget(self, name: str) -> None:
        self._registry.forget(namespace=self._namespace, rollout=name)

    def _begin(self, name: str) -> None:
        for trigger in _TRIGGERS:
            self._deployments.labels(self._namespace, name, trigger)
        for cause in _CAUSES:
            self._failures.labels(self._namespace, name, cause)
        self._retries.labels(self._namespace, name)
        self._duration.labels(self._namespace, name)

    def _record_end(self, name: str, before: HistoryEntry, then: HistoryEntry) -> None:
        if not before.is_active or then.bake_status == before.bake_status:
            return
        began, ended = then.bake_start_time, then.bake_end_time
        if then.has_failed:
            cause = _CAUSES[began is not None]
            self._failures.labels(self._namespace, name, cause).inc()
        is_over = then.has_failed or then.bake_status == BakeStatus.SUCCEEDED
        if is_over and began is not None and ended is not None:
            span = max((ended - began).total_seconds(), 0)
            self._duration.labels(self._namespace, name).observe(span)


def _is_same(entry: HistoryEntry, other: HistoryEntry | None) -> bool:
    return other is not None and (entry.id, entry.timestamp) == (other.id, other.timestamp)


def _name(schedule: ScheduleObject) -> tuple[str, str, str]:
    return schedule.kind, schedule.head.namespace, schedule.head.name


def _show_status(check: HealthCheck) -> str:
    """Return what it found: another client writes that, and each text would be one more series."""
    return check.status.status if check.status.status in _FOUND else "Other"


def _place(rollout: AnyRollout) -> tuple[str, str]:
    return rollout.head.namespace, rollout.head.name


def _read_version(rollout: AnyRollout) -> Series:
    current = rollout.status.current
    if current is not None:
        yield (*_place(rollout), current.version.tag), 1


def _read_bake(rollout: AnyRollout) -> Series:
    current = rollout.status.current
    if current is not None and current.bake_status is not None:
        yield (*_place(rollout), current.bake_status), 1


def _read_blocked(rollout: AnyRollout) -> Series:
    reasons = {
        condition.reason if condition.reason in _BLOCKING else "Other"
        for condition in rollout.status.conditions
        if condition.status == _BLOCKED.get(condition.type) and condition.reason not in _WAITING
    }
    yield from (((*_place(rollout), reason), 1) for reason in sorted(reasons))


def _read_candidates(rollout: AnyRollout) -> Series:
    status = rollout.status
    yield (*_place(rollout), "raw"), len(status.release_candidates)
    yield (*_place(rollout), "gated"), len(status.gated_release_candidates)


def _read_gates(rollout: AnyRollout) -> Series:
    for gate in rollout.status.gates:
        yield (*_place(rollout), gate.name), bool(gate.passing)
