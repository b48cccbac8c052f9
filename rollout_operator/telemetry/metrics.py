"""All metrics of the operator: names, labels and buckets, and when their series exist.

Names and labels that the specs fix never change. `GroupStates` holds the last plan of each group
for pages, gauges and the log, which says a reason when it is new for its zone, has another text or
is more severe. How series are read and written is decided in `exposition`.
"""

import dataclasses
import math
import platform
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from enum import StrEnum
from operator import attrgetter
from typing import Any, Final, Generic, TypeVar

import msgspec
from msgspec.structs import replace
from prometheus_client.process_collector import ProcessCollector

from rollout_operator import __version__
from rollout_operator.aio.clock import Clock
from rollout_operator.aio.queue import Recent
from rollout_operator.model.names import GroupName
from rollout_operator.model.outcome import (
    Code,
    Family,
    Plan,
    Reason,
    Severity,
    ZoneProgress,
    find_leading,
    list_codes,
)
from rollout_operator.telemetry.exposition import (
    Counter,
    Gauge,
    Histogram,
    MetricFamily,
    Registry,
    Series,
    render,
    render_openmetrics,
)
from rollout_operator.telemetry.logs import log
from rollout_operator.telemetry.spans import tracing

F = TypeVar("F", bound=MetricFamily)

_GROUP: Final = ("rollout_group",)
_ZONE_PODS: Final = {
    "desired": "Pods that a zone is to have.",
    "ready": "Desired pods of a zone that are up, by the lower of two counts.",
    "updated": "Desired pods of a zone at the update revision, ready or not.",
    "outdated": "Desired pods of a zone that exist at another revision.",
}
"""By number of `ZoneProgress`."""

MAX_USERS: Final = 64
OTHER: Final = "other"
# After so long a refusal counts half: a name that was refused a thousand times makes room for one
# that is refused now after some hours, and what was refused once within minutes.
_HALF_LIFE: Final = timedelta(hours=1)
# Names without series whose refusals are counted; those refused longest ago are forgotten first.
_MAX_CANDIDATES: Final = 1024

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

_GROUP_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
REQUEST_BUCKETS: Final = (*_GROUP_BUCKETS, 25, 50, 100)
# 4 bytes to 1 GiB: sizes of messages differ by magnitudes.
_SIZE_BUCKETS: Final = tuple(float(4**power) for power in range(1, 16))
# The promise is 50 ms from event to delete; a wait of seconds means too few workers.
_WAIT_BUCKETS: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 10, 60)

WAIT_CODES: Final = list_codes(Family.WAITS, Family.HELD, Family.ZONE_HELD)
DELETE_OUTCOMES: Final = ("accepted", "conflict", "refused", "unknown", "gone")
EVENT_OUTCOMES: Final = ("written", "repeated", "limited", "dropped", "denied", "failed")
_SCALING_DIRECTIONS: Final = ("up", "down")
_SCALING_OUTCOMES: Final = ("accepted", "conflict", "refused", "unknown", "failed")
# What keeps a count from being decided or written.
_SCALING_FAILURES: Final = (
    Code.SCALE_REFUSED,
    Code.LIVE_READ_EXPIRED,
    Code.COUNT_CONTESTED,
    Code.NO_LEADING_ZONE,
    Code.LEADING_ZONES_CIRCLE,
    Code.WAIT_TIME_MISSING,
    Code.BAD_DOWNSCALE_TIME,
    Code.BAD_REFERENCE,
    Code.BAD_DELAY,
)

# A reason whose numbers change with each event is written at most this often per zone.
QUIET: Final = timedelta(seconds=1)
# A reason that passes by in every rollout is worth a line only when it stays: a zone whose only pod
# is replaced owns none for a moment.
PATIENCE: Final = {Code.PODS_MISSING: timedelta(seconds=30)}

# Severities are strings, which are ordered by their letters.
_LOUDNESS: Final = {severity: place for place, severity in enumerate(Severity)}
_FAULT: Final = "Group is held by a fault"
_MESSAGES: Final = {
    Code.UP_TO_DATE: "Group is up to date",
    Code.BACKING_OFF: "Group waits after an error",
    Code.SHADOW_MODE: "Group would move",
    Code.WRONG_STRATEGY: _FAULT,
    Code.REVISION_EMPTY: _FAULT,
    Code.OBJECT_UNREADABLE: _FAULT,
    Code.PODS_MISSING: _FAULT,
}


class _Score(msgspec.Struct):
    """How often a name was refused, each time worth less as time goes by, in half lives."""

    value: float
    at: float

    def read(self, now: float) -> float:
        return self.value * math.exp2(self.at - now)

    def add(self, now: float) -> None:
        self.value, self.at = self.value * math.exp2(self.at - now) + 1, now


class Denials:
    """Counts refused reviews by hook and user.

    A hostile client may send any number of names, so only the names refused most often lately have
    series of their own; the others share one. A name sent once displaces none.
    """

    def __init__(self, registry: Registry) -> None:
        self._counter = Counter(
            "rollout_operator_webhook_denials_total",
            "Admission reviews that were refused, or that failed, by the user who sent the "
            "request; user is other beyond those that are refused most often of late.",
            ("hook", "user"),
            registry=registry,
        )
        self._children: dict[tuple[str, str], Counter] = {}
        self._shown: dict[str, _Score] = {}
        self._candidates: Recent[str, _Score] = Recent(_MAX_CANDIDATES)

    def begin(self, hook: str) -> None:
        self._counter.labels(hook, OTHER)

    def count(self, hook: str, user: str, now: timedelta) -> None:
        """Count one refusal, `now` on a clock's `elapsed`; without a user it is of the others."""
        labels = (hook, self._choose_label(user, now / _HALF_LIFE))
        child = self._children.get(labels)
        if child is None:  # looking it up by labels costs more than counting
            child = self._children[labels] = self._counter.labels(*labels)
        child.inc()

    def _choose_label(self, user: str, now: float) -> str:
        score = self._shown.get(user)
        if score is not None:
            score.add(now)
            return user
        if not user or user == OTHER:
            return OTHER
        score = self._candidates.pop(user, None) or _Score(0, now)
        score.add(now)
        if not self._make_room(score.value, now):
            self._candidates.put(user, score)
            return OTHER
        self._shown[user] = score
        return user

    def _make_room(self, score: float, now: float) -> bool:
        """Drop the name refused least of late for one of this score; return whether there is room.

        By one refusal at least: names that are refused alike do not take turns.
        """
        if len(self._shown) < MAX_USERS:
            return True
        if score <= 1:
            return False
        seldom = min(self._shown, key=lambda user: self._shown[user].read(now))
        if self._shown[seldom].read(now) + 1 > score:
            return False
        self._candidates[seldom] = self._shown.pop(seldom)
        self._counter.remove_by_labels({"user": seldom})
        self._children.clear()
        return True


class _BudgetMetrics:
    """One counter of all budgets, and two gauges of each."""

    def __init__(self, registry: Registry) -> None:
        self._shown: dict[str, tuple[int | None, bool]] = {}
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
        registry.show(
            "rollout_operator_zpdb_max_unavailable",
            "How many pods a zone-aware disruption budget lets be gone at a time, as in force; 0 "
            "while it cannot be obeyed and none was in force before. None for a percentage.",
            ("zpdb",),
            lambda: (
                ((name,), maximum)
                for name, (maximum, _) in [*self._shown.items()]
                if maximum is not None
            ),
        )
        registry.show(
            "rollout_operator_zpdb_valid",
            "1 where the newest version of a zone-aware disruption budget can be obeyed, else 0.",
            ("zpdb",),
            lambda: (((name,), is_valid) for name, (_, is_valid) in [*self._shown.items()]),
        )

    def count(self, result: str) -> None:
        self._observed.labels(result).inc()

    def show(self, name: str, *, maximum: int | None, is_valid: bool) -> None:
        """Show a budget as it is now; `maximum` None for a budget without a number."""
        self._shown[name] = (maximum, is_valid)

    def forget(self, name: str) -> None:
        self._shown.pop(name, None)


class DisruptionMetrics:
    """Disruptions requested of the arbiter (METR-31, METR-32).

    The values of `reason` are those of all releases, which dashboards select on: one for several of
    our codes. The exact reason is in the log and in `rollout_operator_reviews_total`.
    """

    def __init__(self, registry: Registry) -> None:
        self._requests = Counter(
            "rollout_operator_zpdb_eviction_requests_total",
            "Disruptions that evictions and rollouts request, by reason and HTTP status.",
            ("reason", "status"),
            registry=registry,
        )
        for code, status in _FROM_START:
            self._requests.labels(_REASONS[code], str(status))
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

    def count(self, code: Code, status: int = 0) -> None:
        """Count one answer; without a status it was granted."""
        self._requests.labels(_REASONS.get(code, _DENIED), str(status or _ALLOWED)).inc()


class _Row(Generic[F]):
    """A family of `Metrics`; read as an attribute, it is that of the instance."""

    def __init__(
        self,
        kind: type[F],
        name: str,
        labels: tuple[str, ...],
        text: str,
        *,
        buckets: tuple[float, ...] = (),
        zeros: Iterable[str] = (),
        is_of_process: bool = False,
    ) -> None:
        """`zeros`: values of the only label whose series exist at zero from the start.

        `is_of_process`: there is one for the process, whatever namespaces it watches.
        """
        self._kind = kind
        self._name = f"rollout_operator_{name}"
        self._labels = labels
        self._text = text
        self._more: dict[str, Any] = {"buckets": buckets} if buckets else {}
        self._zeros = tuple(zeros)
        self.is_of_process = is_of_process

    def __get__(self, metrics: object, owner: type) -> F:
        raise AttributeError(f"only instances have {self._name}")

    def make(self, registry: Registry) -> F:
        family = self._kind(self._name, self._text, self._labels, registry=registry, **self._more)
        for value in self._zeros:
            family.labels(value)
        return family


class _GroupSeries(msgspec.Struct):
    """What the gauges say of one group."""

    has_counters: bool = False
    held: frozenset[Code] | None = None
    since: datetime | None = None
    zones: dict[str, tuple[ZoneProgress, datetime]] = {}
    """With when a number changed last, as far as this process has seen."""


# fmt: off
class Metrics:
    """The metrics of a process, or of one of its namespaces. Must be used from one event loop."""

    group_reconciles = _Row(
        Counter, "group_reconciles_total", _GROUP,
        "Reconciles of a rollout group that were started.",
    )
    group_reconciles_failed = _Row(
        Counter, "group_reconciles_failed_total", _GROUP,
        "Reconciles of a rollout group that failed.",
    )
    group_reconcile_duration = _Row(
        Histogram, "group_reconcile_duration_seconds", _GROUP,
        "How long a reconcile of a rollout group took.",
        buckets=_GROUP_BUCKETS,
    )
    group_last_success = _Row(
        Gauge, "last_successful_group_reconcile_timestamp_seconds", _GROUP,
        "Unix time of the last reconcile of a rollout group that did not fail; 0 before.",
    )
    pods_deleted = _Row(
        Counter, "pods_deleted_total", (*_GROUP, "outcome"),
        "Deletes of outdated pods, by what the API server answered: accepted, conflict "
        "(changed meanwhile), refused, unknown (no answer), gone (already deleted).",
    )
    pods_deleted_by_others = _Row(
        Counter, "pods_deleted_by_others_total", _GROUP,
        "Outdated ready pods that were deleted, but not by this process; evictions and "
        "downscales do not count.",
    )
    shadow_differences = _Row(
        Counter, "shadow_differences_total", _GROUP,
        "In shadow mode: pods that another operator deleted and this one would have kept, or "
        "that this one would have deleted and that stayed for a minute.",
    )
    scalings = _Row(
        Counter, "scalings_total", (*_GROUP, "direction", "outcome"),
        "Changes of spec.replicas that the operator sent, by direction (up, down) and by what "
        "the API server answered: accepted, conflict (changed meanwhile), refused, unknown (no "
        "answer), failed.",
    )
    scaling_failures = _Row(
        Counter, "scaling_failures_total", (*_GROUP, "reason"),
        "Reconciles of a rollout group that could not decide or write the replicas of a zone.",
    )
    next_downscale = _Row(
        Gauge, "next_downscale_seconds", _GROUP,
        "Seconds until the next zone of a rollout group may be scaled down; 0 where nothing "
        "waits for that. Only of groups whose zones are scaled together.",
    )
    http_request_duration = _Row(
        Histogram, "request_duration_seconds", ("method", "route", "status_code", "ws"),
        "Time spent on answering HTTP requests.",
        buckets=REQUEST_BUCKETS, is_of_process=True,
    )
    http_request_bytes = _Row(
        Histogram, "request_message_bytes", ("method", "route"),
        "Size of the bodies of HTTP requests received.",
        buckets=_SIZE_BUCKETS, is_of_process=True,
    )
    http_response_bytes = _Row(
        Histogram, "response_message_bytes", ("method", "route"),
        "Size of the bodies of HTTP responses sent.",
        buckets=_SIZE_BUCKETS, is_of_process=True,
    )
    http_inflight = _Row(
        Gauge, "inflight_requests", ("method", "route"), "HTTP requests being answered now.",
        is_of_process=True,
    )
    server_invalid_cluster = _Row(
        Counter, "server_invalid_cluster_validation_label_requests_total",
        ("protocol", "method", "cluster_validation_label", "request_cluster_validation_label"),
        "HTTP requests received with a missing or wrong cluster validation label; "
        "method holds the route.",
        is_of_process=True,
    )
    api_request_duration = _Row(
        Histogram, "kubernetes_api_client_request_duration_seconds",
        ("path", "method", "status_code"),
        "Time spent on requests to the Kubernetes API server, rate limiting not included; "
        "status_code is error where no answer came.",
        buckets=REQUEST_BUCKETS, is_of_process=True,
    )
    # Every operator reads pods and StatefulSets; other groups have a series once held back.
    api_rate_limited = _Row(
        Counter, "kubernetes_api_client_rate_limited_requests_total", ("api_group",),
        "Requests to the Kubernetes API server that our own rate limiter did not let pass.",
        zeros=("core", "apps"), is_of_process=True,
    )
    pod_request_duration = _Row(
        Histogram, "pod_http_client_request_duration_seconds", ("path", "method", "status_code"),
        "Time spent on requests to pods; status_code is error where no answer came, "
        "path is other beyond the first paths.",
        buckets=REQUEST_BUCKETS, is_of_process=True,
    )
    client_invalid_cluster = _Row(
        Counter, "client_invalid_cluster_validation_label_requests_total",
        ("method", "protocol", "request_cluster"),
        "Requests that the server rejected for their cluster validation label; "
        "method holds the route that the server named.",
        is_of_process=True,
    )
    watch_restarts = _Row(
        Counter, "watch_restarts_total", ("kind", "cause"), "Watches opened again, by cause."
    )
    watch_events = _Row(
        Counter, "watch_events_total", ("kind", "type"), "Watch events received, by type."
    )
    watch_age = _Row(
        Gauge, "watch_age_seconds", ("kind",), "Time since a watch last proved to be alive."
    )
    cached_objects = _Row(Gauge, "cached_objects", ("kind",), "Objects in a cache.")
    unreadable_objects = _Row(
        Gauge, "unreadable_objects", ("kind",), "Objects in a cache that could not be decoded."
    )
    reviews = _Row(
        Counter, "reviews_total", ("hook", "verdict", "reason"),
        "Admission reviews answered, by verdict (allowed, refused) and reason.",
    )
    forwarded_reviews = _Row(
        Counter, "forwarded_reviews_total", ("hook", "outcome"),
        "Admission reviews that were to be passed on to the replica that leads: answered, "
        "unreachable, late, unusable (no answer to the review), too_many (in flight).",
        is_of_process=True,
    )
    downscales = _Row(
        Gauge, "downscales", ("state",),
        "Downscales underway, and pods that are still to be un-prepared.",
    )
    certificate_expiry = _Row(
        Gauge, "certificate_expiry_timestamp_seconds", ("certificate",),
        "Unix time at which a certificate expires.",
        is_of_process=True,
    )
    ca_bundle_writes = _Row(
        Counter, "ca_bundle_writes_total", ("outcome",),
        "Attempts to write the CA bundle of a webhook configuration: written, conflict "
        "(changed meanwhile), denied, unknown (no answer), failed.",
        is_of_process=True,
    )
    queue_depth = _Row(Gauge, "queue_depth", (), "Rollout groups waiting for a worker.")
    queue_wait_seconds = _Row(
        Histogram, "queue_wait_seconds", (), "How long a due rollout group waited for a worker.",
        buckets=_WAIT_BUCKETS,
    )
    workers_busy = _Row(Gauge, "workers_busy", (), "Workers that reconcile a group now.")
    loop_lag_seconds = _Row(
        Gauge, "event_loop_lag_seconds", (),
        "Longest delay of the event loop in the last 30 seconds.",
        is_of_process=True,
    )
    leader_status = _Row(
        Gauge, "leader_election_master_status", ("name",),
        "1 where this process acts: elected by the lease, or alone; else 0.",
        is_of_process=True,
    )
    events = _Row(
        Counter, "events_total", ("outcome",),
        "Kubernetes Events, by outcome: written, repeated (as part of a series), limited (too "
        "many of an object), dropped (too many in all), denied (no right, or no such API), "
        "failed.",
        zeros=EVENT_OUTCOMES,
    )
    # fmt: on

    def __init__(
        self, registry: Registry | None = None, *, process: "Metrics | None" = None
    ) -> None:
        """Make those of a process, or on a registry of a namespace those beside `process`."""
        self.registry = Registry() if registry is None else registry
        for name, row in vars(Metrics).items():
            if isinstance(row, _Row):
                is_shared = process is not None and row.is_of_process
                family = getattr(process, name) if is_shared else row.make(self.registry)
                setattr(self, name, family)
        self._groups: dict[str, _GroupSeries] = {}
        self._show_groups()
        self.budgets = _BudgetMetrics(self.registry)
        self.disruptions = DisruptionMetrics(self.registry)
        self.denials = Denials(self.registry)
        if process is None:
            self.registry.show(
                "rollout_operator_build_info",
                "Always 1; the labels show the build.",
                ("version", "python"),
                lambda: [((__version__, platform.python_version()), 1)],
            )
            ProcessCollector(registry=self.registry)

    def for_namespace(self, namespace: str) -> "Metrics":
        """Return the metrics of one of several namespaces, rendered with these and labelled so.

        What the process has once, they share.
        """
        return Metrics(self.registry.for_namespace(namespace), process=self)

    def begin_group(self, name: str) -> None:
        """Create all series of a group, at zero."""
        group = self._groups.setdefault(name, _GroupSeries())
        if group.has_counters:
            return
        group.has_counters = True
        group.held = group.held or frozenset()
        self.group_reconciles.labels(name)
        self.group_reconciles_failed.labels(name)
        self.group_reconcile_duration.labels(name)
        self.group_last_success.labels(name)
        for outcome in DELETE_OUTCOMES:
            self.pods_deleted.labels(name, outcome)
        self.pods_deleted_by_others.labels(name)

    def forget_group(self, name: str) -> None:
        """Remove all series of a group; an unknown name is fine."""
        self._groups.pop(name, None)
        self.registry.forget(rollout_group=name)

    def begin_scaling(self, name: str) -> None:
        self.next_downscale.labels(name)
        for direction in _SCALING_DIRECTIONS:
            for outcome in _SCALING_OUTCOMES:
                self.scalings.labels(name, direction, outcome)
        for code in _SCALING_FAILURES:
            self.scaling_failures.labels(name, code)

    def forget_scaling(self, name: str) -> None:
        self.next_downscale.remove_by_labels({"rollout_group": name})

    def show_blockers(self, name: str, codes: Iterable[Code], since: datetime) -> None:
        """Show what holds a group, and since when its leading reason is the same."""
        group = self._groups.setdefault(name, _GroupSeries())
        group.held, group.since = frozenset(codes), since

    def show_zones(self, name: str, zones: Iterable[ZoneProgress], now: datetime) -> None:
        group = self._groups.setdefault(name, _GroupSeries())
        before, group.zones = group.zones, {}
        for zone in zones:
            shown = before.get(zone.zone)
            is_same = shown is not None and shown[0] == zone
            group.zones[zone.zone] = shown if shown and is_same else (zone, now)

    def failure_policies(self, read: Callable[[], Iterable[tuple[str, str, str]]]) -> None:
        """Show what `read()` returns at each scrape: type, name and failure policy of each hook.

        Of two hooks with one name, that with policy `Fail` is shown.
        """
        self.registry.show(
            "kube_validating_webhook_failure_policy",
            "1 for the failure policy that a webhook has, 0 for the other.",
            ("type", "webhook", "policy"),
            lambda: _list_failure_policies(read()),
        )

    def render(self) -> Iterator[bytes]:
        """Yield all metrics in the Prometheus text format, as pieces of a few milliseconds each.

        Give the event loop a turn in between; groups may come and go there.
        """
        return render(self.registry.collect_all())

    def render_openmetrics(self) -> Iterator[bytes]:
        return render_openmetrics(self.registry.collect_all())

    def _show_groups(self) -> None:
        """Show the gauges of groups; where groups come and go, what is read is of one moment."""
        self.registry.show(
            "rollout_operator_group_waiting",
            "1 for each reason that holds a rollout group where it is, else 0; "
            "reason up_to_date means that there is nothing to do.",
            (*_GROUP, "reason"),
            lambda: (
                ((name, code), code in held)
                for name, group in [*self._groups.items()]
                if (held := group.held) is not None
                for code in WAIT_CODES
            ),
        )
        self.registry.show(
            "rollout_operator_group_state_since_timestamp_seconds",
            "Unix time since when the leading reason of a rollout group is the same.",
            _GROUP,
            lambda: (
                ((name,), group.since.timestamp())
                for name, group in [*self._groups.items()]
                if group.since is not None
            ),
        )
        # One gauge for each number, since the numbers overlap and cannot be added up.
        for number, text in _ZONE_PODS.items():
            self._show_pods(number, text, attrgetter(number))
        self.registry.show(
            "rollout_operator_zone_pods_last_change_timestamp_seconds",
            "Unix time at which the pods of a zone in any state last changed in number, as far as "
            "this process has seen.",
            (*_GROUP, "zone"),
            lambda: ((labels, at.timestamp()) for labels, _, at in self._list_zones()),
        )

    def _show_pods(self, name: str, text: str, read: Callable[[ZoneProgress], int]) -> None:
        self.registry.show(
            f"rollout_operator_zone_pods_{name}",
            text,
            (*_GROUP, "zone"),
            lambda: ((labels, read(zone)) for labels, zone, _ in self._list_zones()),
        )

    def _list_zones(self) -> Iterator[tuple[tuple[str, str], ZoneProgress, datetime]]:
        for name, group in [*self._groups.items()]:
            for zone, (progress, at) in group.zones.items():
                yield (name, zone), progress, at


def _list_failure_policies(hooks: Iterable[tuple[str, str, str]]) -> Series:
    series: dict[tuple[str, str], str] = {}
    for kind, hook, policy in hooks:
        if series.get((kind, hook)) != "Fail":
            series[kind, hook] = policy
    for (kind, hook), policy in series.items():
        for each in ("Fail", "Ignore"):
            yield (kind, hook, each), each == policy


_Key = tuple[Code, str]


class Subject(StrEnum):
    """A part of a group that is decided on its own, in the order in which pages show them."""

    ROLLOUT = "rollout"
    SCALING = "scaling"


_NOT_ROLLOUT: Final = tuple(each for each in Subject if each is not Subject.ROLLOUT)


class GroupState(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one group now."""

    plan: Plan
    since: datetime
    """Since when the leading reason, `model.outcome`, is the same for the same zone."""
    looked: datetime
    is_underway: bool = False


class _Logged(msgspec.Struct):
    """What the log says about one group: the reasons that stand, and when each was written."""

    reasons: dict[_Key, Reason] = {}
    times: dict[_Key, timedelta] = {}
    begun: dict[_Key, timedelta] = {}
    """Since when a reason holds that is written only when it stays."""

    def covers(self, key: _Key, reason: Reason) -> bool:
        """Return whether the log says this already, at this severity or a higher one."""
        stands = self.reasons.get(key)
        if stands is None or _stable_text(stands) != _stable_text(reason):
            return False
        return _LOUDNESS[stands.severity] >= _LOUDNESS[reason.severity]

    def wait_before(self, key: _Key, now: timedelta) -> timedelta:
        """Return how long a reason that is new must still wait; zero or less means write it."""
        if key in self.times:
            return QUIET
        return PATIENCE.get(key[0], timedelta(0)) - (now - self.begun.get(key, now))


class GroupStates:
    """The last plan per group. Must be used from one event loop."""

    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        self._metrics = metrics
        self._clock = clock
        self._entries: dict[GroupName, GroupState] = {}
        self._plans: dict[GroupName, dict[Subject, Plan]] = {}
        self._underway: dict[GroupName, GroupState] = {}
        self._logged: dict[GroupName, _Logged] = {}
        self._callbacks: list[Callable[[Subject, Plan, GroupState], None]] = []

    def on_post(self, callback: Callable[[Subject, Plan, GroupState], None]) -> None:
        """Call back with each plan that is posted, and with what is known of its group by then."""
        self._callbacks.append(callback)

    def post(self, plan: Plan, subject: Subject = Subject.ROLLOUT) -> timedelta | None:
        """Take `plan` as what is known of one subject of its group now.

        Returns after how long to post again where the log still lacks a reason, which changed too
        soon after it was last written or has not stayed long enough; else None.
        """
        tracing.spans.get_current().record_reasons((*plan.waits, *plan.problems))
        plans = self._plans.setdefault(plan.group, {})
        plans[subject] = plan
        posted, plan = plan, merge_plans([plans[each] for each in Subject if each in plans])
        now = self._clock.now()
        before = self._entries.get(plan.group)
        holds_still = before is not None and _leading(before.plan) == _leading(plan)
        since = before.since if before is not None and holds_still else now
        state = self._entries[plan.group] = GroupState(plan=plan, since=since, looked=now)
        self._metrics.show_blockers(plan.group, (reason.code for reason in plan.waits), since)
        if subject is Subject.ROLLOUT:
            self._show_progress(plan)
        for callback in self._callbacks:
            callback(subject, posted, state)
        return self._log_news(plan)

    @contextmanager
    def carrying_out(self, plan: Plan) -> Iterator[None]:
        """Have pages show, inside the block, that `plan` is being carried out.

        A live read waits for its turn and for the API server, and what was posted last may be over
        by then. Pods are counted as the plan saw them. What holds the group, and the log, wait for
        what comes of it: a budget that refuses the same pods again and again never stops holding,
        and an alert that waits for an hour of it must not begin anew.
        """
        if plan.actions:
            self._show_progress(plan)
            now = self._clock.now()
            state = GroupState(plan=plan, since=now, looked=now, is_underway=True)
            self._underway[plan.group] = state
        try:
            yield
        finally:
            self._underway.pop(plan.group, None)

    def forget(self, group: GroupName) -> None:
        self._entries.pop(group, None)
        self._plans.pop(group, None)
        self._logged.pop(group, None)

    def find(self, group: GroupName) -> GroupState | None:
        return self._entries.get(group)

    def find_newest(self, group: GroupName) -> GroupState | None:
        """Return the same, by the plan that is being carried out where there is one.

        What was posted before it may be over: its waits would contradict the pods beside them.
        """
        underway, state = self._underway.get(group), self._entries.get(group)
        if underway is None:
            return state
        plans = self._plans.get(group, {})
        plan = merge_plans(
            [underway.plan, *(plans[each] for each in _NOT_ROLLOUT if each in plans)]
        )
        is_same = state is not None and _leading(state.plan) == _leading(plan)
        since = state.since if state is not None and is_same else underway.since
        return replace(underway, plan=plan, since=since)

    def entries(self) -> tuple[GroupState, ...]:
        return tuple(entry for _, entry in sorted(self._entries.items()))

    def _show_progress(self, plan: Plan) -> None:
        if plan.progress is not None:
            self._metrics.show_zones(plan.group, plan.progress, self._clock.now())

    def _log_news(self, plan: Plan) -> timedelta | None:
        """Write what is new; return when to try again with what was held back."""
        logged = self._logged.setdefault(plan.group, _Logged())
        now = self._clock.elapsed()
        logged.times = {key: at for key, at in logged.times.items() if now - at < QUIET}
        current = _gather(plan)
        # What no longer holds is new when it comes back.
        logged.reasons = {key: reason for key, reason in logged.reasons.items() if key in current}
        logged.begun = {key: logged.begun.get(key, now) for key in current if key[0] in PATIENCE}
        waits: list[timedelta] = []
        for key, reason in current.items():
            if logged.covers(key, reason):
                continue
            wait = logged.wait_before(key, now)
            if wait > timedelta(0):
                waits.append(wait)
                continue
            logged.reasons[key] = reason
            logged.times[key] = now
            _write(plan.group, reason)
        return min(waits, default=None)


def merge_plans(plans: Sequence[Plan]) -> Plan:
    """Return the plans of all subjects of a group as one; with a wait of any, it is not at rest."""
    first = plans[0]
    if len(plans) == 1:
        return first
    waits = tuple(wait for plan in plans for wait in plan.waits)
    held = tuple(wait for wait in waits if wait.code is not Code.UP_TO_DATE)
    problems = tuple(problem for plan in plans for problem in plan.problems)
    return dataclasses.replace(first, waits=held or waits, problems=problems)


def _gather(plan: Plan) -> dict[_Key, Reason]:
    """Return one reason per code and zone, the texts of several joined under the most severe."""
    reasons: dict[_Key, list[Reason]] = {}
    for reason in (*plan.waits, *plan.problems):
        reasons.setdefault(_key(reason), []).append(reason)
    return {key: _join(same) for key, same in reasons.items()}


def _join(same: list[Reason]) -> Reason:
    if len(same) == 1:
        return same[0]
    texts = dict.fromkeys(reason.text for reason in same)
    gists = dict.fromkeys(_stable_text(reason) for reason in same)
    loudest = max((reason.severity for reason in same), key=_LOUDNESS.__getitem__)
    return replace(same[0], text="; ".join(texts), stable_text="; ".join(gists), severity=loudest)


def _stable_text(reason: Reason) -> str:
    return reason.stable_text or reason.text


def _leading(plan: Plan) -> _Key | None:
    leading = find_leading(plan.waits)
    return None if leading is None else _key(leading)


def _key(reason: Reason) -> _Key:
    return (reason.code, reason.zone)


def _write(group: GroupName, reason: Reason) -> None:
    zone = {"zone": reason.zone} if reason.zone else {}
    write = log.at(reason.severity)
    otherwise = "Group waits" if reason.code in WAIT_CODES else "Group has an odd setting"
    write(
        _MESSAGES.get(reason.code, otherwise),
        group=group,
        **zone,
        reason=reason.code,
        why=reason.text,
    )
