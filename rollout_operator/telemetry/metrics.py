"""All metrics: names, labels and buckets, and when their series exist.

Names and labels that the specs fix are listed first and never change; ours follow. What is counted
is decided by the callers, how it reads on the wire in `exposition`.
"""

import platform
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector

from rollout_operator import __version__
from rollout_operator.model.outcome import NEVER_HOLDING, POLICY_CODES, REVIEW_CODES, Code
from rollout_operator.telemetry.budgets import BudgetMetrics, DisruptionMetrics
from rollout_operator.telemetry.denials import Denials
from rollout_operator.telemetry.exposition import render, render_openmetrics
from rollout_operator.telemetry.families import Counter, Gauge, Histogram, Rebuilt
from rollout_operator.telemetry.namespaces import FamilyRegistry, MergedRegistry, list_shared, share
from rollout_operator.telemetry.progress import ProgressMetrics

GROUP_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
REQUEST_BUCKETS: Final = (*GROUP_BUCKETS, 25, 50, 100)
# 4 bytes to 1 GiB: sizes of messages differ by magnitudes.
SIZE_BUCKETS: Final = tuple(float(4**power) for power in range(1, 16))
# The promise is 50 ms from event to delete; a wait of seconds means too few workers.
WAIT_BUCKETS: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 10, 60)

_NOT_OF_GROUPS: Final = NEVER_HOLDING | REVIEW_CODES | POLICY_CODES
WAIT_CODES: Final = tuple(code for code in Code if code not in _NOT_OF_GROUPS)
# Every operator reads pods and StatefulSets; other groups have a series once they are held back.
API_GROUPS: Final = ("core", "apps")
DELETE_OUTCOMES: Final = ("accepted", "conflict", "refused", "unknown", "gone")
EVENT_OUTCOMES: Final = ("written", "repeated", "limited", "dropped", "denied", "failed")
SHADOW_DIFFERENCES: Final = ("deleted", "not_deleted")
SCALING_DIRECTIONS: Final = ("up", "down")
SCALING_OUTCOMES: Final = ("accepted", "conflict", "refused", "unknown", "failed")
# What keeps a count from being decided or written.
SCALING_FAILURES: Final = (
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


class Metrics:
    """The metrics of one process, on a registry of their own, or of one of its namespaces."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = FamilyRegistry() if registry is None else registry
        self._merged: MergedRegistry | None = None
        self._known: set[str] = set()
        self._held: dict[str, frozenset[Code]] = {}
        self._define_group()
        self._define_http()
        self._define_client()
        self._define_watch()
        self._define_webhooks()
        self.progress = ProgressMetrics(self.registry)
        self.budgets = BudgetMetrics(self.registry)
        self.disruptions = DisruptionMetrics(self.registry)
        self.denials = Denials(self.registry)
        self._define_process()

    def for_namespace(self, namespace: str) -> "Metrics":
        """Return the metrics of one of several namespaces, rendered with these and labelled so.

        What the process has once, they share.
        """
        metrics = Metrics()
        share(self, metrics)
        self._merged = self._merged or MergedRegistry(self.registry, list_shared(self))
        self._merged.add(namespace, metrics.registry)
        return metrics

    def begin_group(self, name: str) -> None:
        """Make all series of a group exist, at zero where they are new. Counts nothing."""
        if name in self._known:
            return
        self._known.add(name)
        self.group_reconciles.labels(name)
        self.group_reconciles_failed.labels(name)
        self.group_reconcile_duration.labels(name)
        self.group_last_success.labels(name)
        for code in WAIT_CODES:
            self.group_waiting.labels(name, code)
        for outcome in DELETE_OUTCOMES:
            self.pods_deleted.labels(name, outcome)
        self.pods_deleted_by_others.labels(name)

    def begin_shadow(self, name: str) -> None:
        """Make the differences of a group exist, which only shadow mode counts. Counts nothing."""
        for difference in SHADOW_DIFFERENCES:
            self.shadow_differences.labels(name, difference)

    def forget_group(self, name: str) -> None:
        """Remove all series of a group that no longer exists; an unknown name is fine."""
        self._known.discard(name)
        self._held.pop(name, None)
        self.progress.forget(name)
        for metric in self._of_groups:
            metric.remove_by_labels({"rollout_group": name})

    def begin_scaling(self, name: str) -> None:
        """Make all series exist of a group whose zones are scaled together. Counts nothing."""
        self.next_downscale.labels(name)
        for direction in SCALING_DIRECTIONS:
            for outcome in SCALING_OUTCOMES:
                self.scalings.labels(name, direction, outcome)
        for code in SCALING_FAILURES:
            self.scaling_failures.labels(name, code)

    def forget_scaling(self, name: str) -> None:
        """Remove the gauge of a group whose zones are no longer scaled together."""
        self.next_downscale.remove_by_labels({"rollout_group": name})

    def show_blockers(self, name: str, codes: Iterable[Code]) -> None:
        """Show `codes` as what holds the group now, and nothing else."""
        held = frozenset(WAIT_CODES).intersection(codes)
        # Of some thirty series one or two change.
        for code in held ^ self._held.get(name, frozenset()):
            self.group_waiting.labels(name, code).set(code in held)
        self._held[name] = held

    def watch_age(self, kind: str, read: Callable[[], float]) -> None:
        """Show `read()`, the seconds since the watch last proved to be alive, at each scrape."""
        self._watch_age.labels(kind).set_function(read)

    def failure_policies(self, read: Callable[[], Iterable[tuple[str, str, str]]]) -> None:
        """Show what `read()` returns at each scrape: type, name and failure policy of each hook.

        Of two hooks with one name, that with policy `Fail` is shown.
        """
        self.registry.register(
            Rebuilt(
                "kube_validating_webhook_failure_policy",
                "1 for the failure policy that a webhook has, 0 for the other.",
                ("type", "webhook", "policy"),
                lambda: _list_failure_policies(read()),
            )
        )

    def render(self) -> Iterator[bytes]:
        """Yield all metrics in the Prometheus text format, as pieces of a few milliseconds each.

        Give the event loop a turn in between; groups may come and go there.
        """
        return render(self._merged or self.registry)

    def render_openmetrics(self) -> Iterator[bytes]:
        """Yield the same in OpenMetrics, with the traces of requests as exemplars."""
        return render_openmetrics(self._merged or self.registry)

    def _define_group(self) -> None:
        group = ("rollout_group",)
        self.group_reconciles = self._counter(
            "group_reconciles_total", "Reconciles of a rollout group that were started.", *group
        )
        self.group_reconciles_failed = self._counter(
            "group_reconciles_failed_total", "Reconciles of a rollout group that failed.", *group
        )
        self.group_reconcile_duration = self._histogram(
            "group_reconcile_duration_seconds",
            "How long a reconcile of a rollout group took.",
            GROUP_BUCKETS,
            *group,
        )
        self.group_last_success = self._gauge(
            "last_successful_group_reconcile_timestamp_seconds",
            "Unix time of the last reconcile of a rollout group that did not fail; 0 before.",
            *group,
        )
        self.group_waiting = self._gauge(
            "group_waiting",
            "1 for each reason that holds a rollout group where it is, else 0; "
            "reason up_to_date means that there is nothing to do.",
            "rollout_group",
            "reason",
        )
        self.pods_deleted = self._counter(
            "pods_deleted_total",
            "Deletes of outdated pods, by what the API server answered: accepted, conflict "
            "(changed meanwhile), refused, unknown (no answer), gone (already deleted).",
            "rollout_group",
            "outcome",
        )
        self.pods_deleted_by_others = self._counter(
            "pods_deleted_by_others_total",
            "Outdated ready pods that were deleted, but not by this process; evictions and "
            "downscales do not count.",
            *group,
        )
        self.shadow_differences = self._counter(
            "shadow_differences_total",
            "In shadow mode: pods that another operator deleted and this one would have kept "
            "(deleted), or that this one would have deleted and that stayed for a minute "
            "(not_deleted).",
            "rollout_group",
            "difference",
        )
        self.scalings = self._counter(
            "scalings_total",
            "Changes of spec.replicas that the operator sent, by direction (up, down) and by what "
            "the API server answered: accepted, conflict (changed meanwhile), refused, unknown (no "
            "answer), failed.",
            "rollout_group",
            "direction",
            "outcome",
        )
        self.scaling_failures = self._counter(
            "scaling_failures_total",
            "Reconciles of a rollout group that could not decide or write the replicas of a zone.",
            "rollout_group",
            "reason",
        )
        self.next_downscale = self._gauge(
            "next_downscale_seconds",
            "Seconds until the next zone of a rollout group may be scaled down; 0 where nothing "
            "waits for that. Only of groups whose zones are scaled together.",
            *group,
        )
        self._of_groups: tuple[Counter | Gauge | Histogram, ...] = (
            self.scalings,
            self.scaling_failures,
            self.next_downscale,
            self.group_reconciles,
            self.group_reconciles_failed,
            self.group_reconcile_duration,
            self.group_last_success,
            self.group_waiting,
            self.pods_deleted,
            self.pods_deleted_by_others,
            self.shadow_differences,
        )

    def _define_http(self) -> None:
        self.http_request_duration = self._histogram(
            "request_duration_seconds",
            "Time spent on answering HTTP requests.",
            REQUEST_BUCKETS,
            "method", "route", "status_code", "ws",
        )  # fmt: skip
        self.http_request_bytes = self._histogram(
            "request_message_bytes",
            "Size of the bodies of HTTP requests received.",
            SIZE_BUCKETS,
            "method", "route",
        )  # fmt: skip
        self.http_response_bytes = self._histogram(
            "response_message_bytes",
            "Size of the bodies of HTTP responses sent.",
            SIZE_BUCKETS,
            "method", "route",
        )  # fmt: skip
        self.http_inflight = self._gauge(
            "inflight_requests", "HTTP requests being answered now.", "method", "route"
        )
        self.server_invalid_cluster = self._counter(
            "server_invalid_cluster_validation_label_requests_total",
            "HTTP requests received with a missing or wrong cluster validation label; "
            "method holds the route.",
            "protocol", "method", "cluster_validation_label", "request_cluster_validation_label",
        )  # fmt: skip

    def _define_client(self) -> None:
        self.api_request_duration = self._histogram(
            "kubernetes_api_client_request_duration_seconds",
            "Time spent on requests to the Kubernetes API server, rate limiting not included; "
            "status_code is error where no answer came.",
            REQUEST_BUCKETS,
            "path", "method", "status_code",
        )  # fmt: skip
        self.api_rate_limited = self._counter(
            "kubernetes_api_client_rate_limited_requests_total",
            "Requests to the Kubernetes API server that our own rate limiter did not let pass.",
            "api_group",
        )
        for group in API_GROUPS:
            self.api_rate_limited.labels(group)
        self.pod_request_duration = self._histogram(
            "pod_http_client_request_duration_seconds",
            "Time spent on requests to pods; status_code is error where no answer came, "
            "path is other beyond the first paths.",
            REQUEST_BUCKETS,
            "path", "method", "status_code",
        )  # fmt: skip
        self.client_invalid_cluster = self._counter(
            "client_invalid_cluster_validation_label_requests_total",
            "Requests that the server rejected for their cluster validation label; "
            "method holds the route that the server named.",
            "method", "protocol", "request_cluster",
        )  # fmt: skip

    def _define_watch(self) -> None:
        self.watch_restarts = self._counter(
            "watch_restarts_total", "Watches opened again, by cause.", "kind", "cause"
        )
        self.watch_events = self._counter(
            "watch_events_total", "Watch events received, by type.", "kind", "type"
        )
        self._watch_age = self._gauge(
            "watch_age_seconds", "Time since a watch last proved to be alive.", "kind"
        )
        self.cached_objects = self._gauge("cached_objects", "Objects in a cache.", "kind")
        self.unreadable_objects = self._gauge(
            "unreadable_objects", "Objects in a cache that could not be decoded.", "kind"
        )

    def _define_webhooks(self) -> None:
        self.reviews = self._counter(
            "reviews_total",
            "Admission reviews answered, by verdict (allowed, refused) and reason.",
            "hook", "verdict", "reason",
        )  # fmt: skip
        self.forwarded_reviews = self._counter(
            "forwarded_reviews_total",
            "Admission reviews that were to be passed on to the replica that leads: answered, "
            "unreachable, late, unusable (no answer to the review), too_many (in flight).",
            "hook", "outcome",
        )  # fmt: skip
        self.downscales = self._gauge(
            "downscales", "Downscales underway, and pods that are still to be un-prepared.", "state"
        )
        self.certificate_expiry = self._gauge(
            "certificate_expiry_timestamp_seconds",
            "Unix time at which a certificate expires.",
            "certificate",
        )
        self.ca_bundle_writes = self._counter(
            "ca_bundle_writes_total",
            "Attempts to write the CA bundle of a webhook configuration: written, conflict "
            "(changed meanwhile), denied, unknown (no answer), failed.",
            "outcome",
        )

    def _define_process(self) -> None:
        self.queue_depth = self._gauge("queue_depth", "Rollout groups waiting for a worker.")
        self.queue_wait_seconds = self._histogram(
            "queue_wait_seconds", "How long a due rollout group waited for a worker.", WAIT_BUCKETS
        )
        self.workers_busy = self._gauge("workers_busy", "Workers that reconcile a group now.")
        self.loop_lag_seconds = self._gauge(
            "event_loop_lag_seconds", "Longest delay of the event loop in the last 30 seconds."
        )
        self.leader_status = self._gauge(
            "leader_election_master_status",
            "1 where this process acts: elected by the lease, or alone; else 0.",
            "name",
        )
        self.events = self._counter(
            "events_total",
            "Kubernetes Events, by outcome: written, repeated (as part of a series), limited (too "
            "many of an object), dropped (too many in all), denied (no right, or no such API), "
            "failed.",
            "outcome",
        )
        for outcome in EVENT_OUTCOMES:
            self.events.labels(outcome)
        build = self._gauge(
            "build_info", "Always 1; the labels show the build.", "version", "python"
        )
        build.labels(__version__, platform.python_version()).set(1)
        ProcessCollector(registry=self.registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"rollout_operator_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"rollout_operator_{name}", text, labels, registry=self.registry)

    def _histogram(
        self, name: str, text: str, buckets: tuple[float, ...], *labels: str
    ) -> Histogram:
        return Histogram(
            f"rollout_operator_{name}", text, labels, registry=self.registry, buckets=buckets
        )


def _list_failure_policies(
    hooks: Iterable[tuple[str, str, str]],
) -> Iterator[tuple[Sequence[str], float]]:
    series: dict[tuple[str, str], str] = {}
    for kind, hook, policy in hooks:
        if series.get((kind, hook)) != "Fail":
            series[kind, hook] = policy
    for (kind, hook), policy in series.items():
        for each in ("Fail", "Ignore"):
            yield (kind, hook, each), each == policy
