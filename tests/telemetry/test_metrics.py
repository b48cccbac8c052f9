"""Names, labels and lifetimes of metrics, and how they read on the wire."""

import re

import pytest
from prometheus_client import Gauge
from prometheus_client.parser import text_string_to_metric_families

from rollout_operator.model.outcome import Code
from rollout_operator.telemetry.metrics import DELETE_OUTCOMES, WAIT_CODES, Metrics

GROUP = "le .005 .01 .025 .05 .1 .25 .5 1 2.5 5 10"
REQUEST = f"{GROUP} 25 50 100"
SIZES = "le 4 16 64 256 1024 4096 16384 65536 262144 1048576 4194304 16777216 67108864 268435456"


def read(metrics: Metrics) -> str:
    return b"".join(metrics.render()).decode()


def lines_with(metrics: Metrics, part: str) -> list[str]:
    return [line for line in read(metrics).splitlines() if part in line and line[0] != "#"]


def buckets_of(metrics: Metrics, name: str) -> list[float]:
    for family in text_string_to_metric_families(read(metrics)):
        if family.name == f"rollout_operator_{name}":
            return [
                float(sample.labels["le"])
                for sample in family.samples
                if sample.name.endswith("_bucket")
            ]
    return []


@pytest.mark.parametrize(
    ("name", "kind", "labels"),
    [
        pytest.param("group_reconciles_total", "counter", "rollout_group", id="METR-01 DEP-56"),
        pytest.param("group_reconciles_failed_total", "counter", "rollout_group", id="METR-02"),
        pytest.param(
            "group_reconcile_duration_seconds", "histogram", "rollout_group", id="METR-03"
        ),
        pytest.param(
            "last_successful_group_reconcile_timestamp_seconds",
            "gauge", "rollout_group", id="METR-04 DEP-59",
        ),
        pytest.param(
            "request_duration_seconds", "histogram", "method route status_code ws", id="METR-10"
        ),
        pytest.param("request_message_bytes", "histogram", "method route", id="METR-11"),
        pytest.param("response_message_bytes", "histogram", "method route", id="METR-12"),
        pytest.param("inflight_requests", "gauge", "method route", id="METR-13"),
        pytest.param(
            "client_invalid_cluster_validation_label_requests_total",
            "counter", "method protocol request_cluster", id="METR-14 DEP-54",
        ),
        pytest.param(
            "server_invalid_cluster_validation_label_requests_total",
            "counter",
            "protocol method cluster_validation_label request_cluster_validation_label",
            id="METR-15 DEP-55",
        ),
        pytest.param(
            "kubernetes_api_client_request_duration_seconds",
            "histogram", "path method status_code", id="METR-20 DEP-60",
        ),
        pytest.param(
            "kubernetes_api_client_rate_limited_requests_total",
            "counter", "api_group", id="METR-22 DEP-61",
        ),
        pytest.param("group_waiting", "gauge", "rollout_group reason", id="W-31 why blocked"),
        pytest.param("webhook_denials_total", "counter", "hook user", id="ours denials"),
        pytest.param("pods_deleted_total", "counter", "rollout_group outcome", id="ours deletes"),
        pytest.param(
            "pods_deleted_by_others_total", "counter", "rollout_group", id="D-73 deletes of others"
        ),
        pytest.param("reviews_total", "counter", "hook verdict reason", id="ours reviews"),
        pytest.param("downscales", "gauge", "state", id="ours downscales"),
        pytest.param(
            "certificate_expiry_timestamp_seconds", "gauge", "certificate", id="ours expiry"
        ),
        pytest.param("ca_bundle_writes_total", "counter", "outcome", id="ours bundles"),
        pytest.param("watch_age_seconds", "gauge", "kind", id="ours cache age"),
        pytest.param("watch_restarts_total", "counter", "kind cause", id="ours restarts"),
        pytest.param("watch_events_total", "counter", "kind type", id="ours events"),
        pytest.param("cached_objects", "gauge", "kind", id="ours cached"),
        pytest.param("unreadable_objects", "gauge", "kind", id="ours unreadable"),
        pytest.param("queue_depth", "gauge", "", id="W-31 queue depth"),
        pytest.param("queue_wait_seconds", "histogram", "", id="ours queue wait"),
        pytest.param("workers_busy", "gauge", "", id="ours workers"),
        pytest.param("event_loop_lag_seconds", "gauge", "", id="ours loop lag"),
        pytest.param("build_info", "gauge", "version python", id="DEP-72 build info"),
    ],
)  # fmt: skip
def test_name_type_and_labels(name: str, kind: str, labels: str) -> None:
    """DEP-67: exact names and labels; a series with all labels is what a rule selects on."""
    metrics = Metrics()
    full = f"rollout_operator_{name}"
    values = dict.fromkeys(labels.split(), "x")
    shown = ",".join(f'{label}="x"' for label in values)

    metric = metrics.registry._names_to_collectors[full.removesuffix("_total")]
    if values:
        metric.labels(**values)  # type: ignore[attr-defined]  # the library types it as Collector

    text = read(metrics)
    assert f"# TYPE {full} {kind}\n" in text
    suffix = "_count" if kind == "histogram" else ""
    assert f"{full}{suffix}{{{shown}}} 0\n" in text or f"{full}{suffix} 0\n" in text


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param("group_reconcile_duration_seconds", GROUP, id="METR-03"),
        pytest.param("request_duration_seconds", REQUEST, id="METR-10 METR-50"),
        pytest.param("request_message_bytes", f"{SIZES} 1073741824", id="METR-11 4^1 to 4^15"),
        pytest.param("response_message_bytes", f"{SIZES} 1073741824", id="METR-12 4^1 to 4^15"),
        pytest.param("kubernetes_api_client_request_duration_seconds", REQUEST, id="METR-20"),
    ],
)
def test_buckets(name: str, expected: str) -> None:
    metrics = Metrics()
    metrics.begin_group("g")
    metrics.http_request_duration.labels("GET", "ready", "200", "false")
    metrics.http_request_bytes.labels("GET", "ready")
    metrics.http_response_bytes.labels("GET", "ready")
    metrics.api_request_duration.labels("core/v1/pods collection", "GET", "200")

    assert buckets_of(metrics, name) == [*map(float, expected.split()[1:]), float("inf")]


def test_bucket_labels_are_written_as_go_writes_them() -> None:
    """DEP-69: `le="1"`, and the exponent form from a million on."""
    metrics = Metrics()
    metrics.begin_group("g")
    metrics.http_request_bytes.labels("GET", "ready").observe(7)

    text = read(metrics)
    assert 'seconds_bucket{rollout_group="g",le="1"} 0' in text
    assert 'seconds_bucket{rollout_group="g",le="2.5"} 0' in text
    assert 'seconds_bucket{rollout_group="g",le="0.005"} 0' in text
    assert 'bytes_bucket{method="GET",route="ready",le="262144"} 1' in text
    assert 'bytes_bucket{method="GET",route="ready",le="1.048576e+06"} 1' in text
    assert 'bytes_bucket{method="GET",route="ready",le="+Inf"} 1' in text
    assert re.search(r'le="[0-9]+\.0"', text) is None


def test_no_created_series() -> None:
    """DEP-68."""
    metrics = Metrics()
    metrics.begin_group("g")

    assert "_created" not in read(metrics)


AT_ZERO = [
    "group_reconciles_total",
    "group_reconciles_failed_total",
    "last_successful_group_reconcile_timestamp_seconds",
    *(f"pods_deleted_total outcome={outcome}" for outcome in DELETE_OUTCOMES),
    "pods_deleted_by_others_total",
    *(f"group_waiting reason={code}" for code in WAIT_CODES),
]
AT_ZERO_WHERE_SCALED = [
    "next_downscale_seconds",
    *(
        f"scalings_total direction={direction} outcome={outcome}"
        for direction in ("up", "down")
        for outcome in ("accepted", "conflict", "refused", "unknown", "failed")
    ),
    *(
        f"scaling_failures_total reason={code}"
        for code in (
            "no_leading_zone", "leading_zones_circle", "wait_time_missing", "bad_reference",
            "bad_delay", "bad_downscale_time", "scale_refused", "count_contested",
        )
    ),
]  # fmt: skip


def value(metrics: Metrics, series: str, group: str = "g") -> float | None:
    """Return the value of a series of a group, such as `name label=value`."""
    name, *labels = series.split()
    pairs = dict(label.split("=") for label in labels)
    return metrics.registry.get_sample_value(
        f"rollout_operator_{name}", {"rollout_group": group, **pairs}
    )


def test_a_group_exists_at_zero_from_its_first_reconcile() -> None:
    """ROLL-10, METR-02, METR-04, W-43: an alert sees a zero, not an absence."""
    metrics = Metrics()
    assert lines_with(metrics, "rollout_group=") == []
    metrics.begin_group("g")
    assert {value(metrics, series) for series in AT_ZERO} == {0}
    assert {value(metrics, series) for series in AT_ZERO_WHERE_SCALED} == {None}
    metrics.begin_scaling("g")
    assert {value(metrics, series) for series in AT_ZERO_WHERE_SCALED} == {0}


def test_beginning_again_resets_nothing() -> None:
    metrics = Metrics()
    for _ in range(2):
        metrics.begin_group("g")
        metrics.begin_scaling("g")
        metrics.group_reconciles.labels("g").inc()
        metrics.scalings.labels("g", "up", "accepted").inc()

    assert value(metrics, "group_reconciles_total") == 2
    assert value(metrics, "scalings_total direction=up outcome=accepted") == 2


def test_forgetting_a_group_removes_all_its_series() -> None:
    """DEP-67, ROLL-06; the series of others stay, and one that comes back starts at zero."""
    metrics = Metrics()
    for name in ("leaves", "stays"):
        metrics.begin_group(name)
        metrics.begin_scaling(name)
        metrics.show_blockers(name, [Code.PAUSED])
        metrics.group_reconciles.labels(name).inc()
    before = lines_with(metrics, '"stays"')

    metrics.forget_group("leaves")
    metrics.forget_group("never seen")

    assert lines_with(metrics, '"leaves"') == []
    assert lines_with(metrics, '"stays"') == before
    metrics.begin_group("leaves")
    assert value(metrics, "group_reconciles_total", "leaves") == 0


def test_the_gauge_goes_and_counters_stay_where_scaling_ends() -> None:
    metrics = Metrics()
    metrics.begin_scaling("g")
    metrics.forget_scaling("g")
    metrics.forget_scaling("unknown")
    assert value(metrics, "next_downscale_seconds") is None
    assert value(metrics, "scalings_total direction=up outcome=accepted") == 0


def test_hold_shows_exactly_what_holds_now() -> None:
    """W-31, W-35: the gauge carries the reason."""
    metrics = Metrics()
    metrics.show_blockers("g", [Code.PAUSED, Code.BUDGET_USED])
    metrics.show_blockers("g", [Code.WRONG_STRATEGY])

    assert [line for line in lines_with(metrics, "group_waiting{") if not line.endswith(" 0")] == [
        'rollout_operator_group_waiting{rollout_group="g",reason="wrong_strategy"} 1'
    ]


def test_watch_age_is_read_at_each_scrape() -> None:
    metrics = Metrics()
    ages = iter([1.5, 20.0])
    metrics.watch_age("pods", lambda: next(ages))

    assert lines_with(metrics, "watch_age") == [
        'rollout_operator_watch_age_seconds{kind="pods"} 1.5'
    ]
    assert lines_with(metrics, "watch_age") == [
        'rollout_operator_watch_age_seconds{kind="pods"} 20'
    ]


def test_registries_of_two_processes_do_not_meet() -> None:
    one, other = Metrics(), Metrics()
    one.begin_group("g")

    assert lines_with(other, '"g"') == []


def test_process_and_build_are_reported() -> None:
    """DEP-72, W-31."""
    text = read(Metrics())

    assert "\nprocess_resident_memory_bytes " in text
    assert "\nprocess_cpu_seconds_total " in text
    assert '\nrollout_operator_build_info{version="' in text


@pytest.mark.parametrize(
    ("value", "written"),
    [
        pytest.param('a"b', r"a\"b", id="quote"),
        pytest.param("a\\b", r"a\\b", id="backslash"),
        pytest.param("a\nb", r"a\nb", id="line feed"),
        pytest.param("}\n# TYPE x", r"}\n# TYPE x", id="SEC-13 injected line"),
        pytest.param("\udcff", "?", id="lone surrogate"),
        pytest.param("zürich", "zürich", id="UTF-8"),
        pytest.param("1.0", "1.0", id="only le loses its fraction"),
    ],
)
def test_label_values_are_escaped(value: str, written: str) -> None:
    metrics = Metrics()
    metrics.client_invalid_cluster.labels("m", "http", value)

    assert lines_with(metrics, "client_invalid") == [
        "rollout_operator_client_invalid_cluster_validation_label_requests_total"
        f'{{method="m",protocol="http",request_cluster="{written}"}} 0'
    ]


@pytest.mark.parametrize(
    ("value", "written"),
    [
        pytest.param(0.25, "0.25", id="fraction"),
        pytest.param(1767323045.5, "1767323045.5", id="time stamp"),
        pytest.param(3, "3", id="whole"),
        pytest.param(-2.0, "-2", id="negative"),
        pytest.param(float("inf"), "+Inf", id="infinite"),
        pytest.param(float("nan"), "NaN", id="not a number"),
        pytest.param(1e300, "1e+300", id="beyond exact whole numbers"),
    ],
)
def test_numbers(value: float, written: str) -> None:
    metrics = Metrics()
    Gauge("probe", "A probe.", registry=metrics.registry).set(value)

    assert f"\nprobe {written}\n" in read(metrics)


def test_the_whole_text_parses_and_is_plain_text_format() -> None:
    """SEED-063: valid exposition; the other reader is the library's own."""
    metrics = Metrics()
    metrics.begin_group("g")
    text = read(metrics)

    families = {family.name for family in text_string_to_metric_families(text)}
    assert "rollout_operator_group_reconciles" in families
    assert text.endswith("\n")
    for line in text.splitlines():
        assert line.startswith("# ") or line.rsplit(" ", 1)[1]
