"""How metrics read on the wire, of a process and of several namespaces."""

import re

import pytest
from prometheus_client import Gauge
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from rollout_operator.telemetry.metrics import Metrics

_INVALID = "rollout_operator_client_invalid_cluster_validation_label_requests_total"


def read(metrics: Metrics) -> str:
    return b"".join(metrics.render()).decode()


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

    assert [one for one in read(metrics).splitlines() if one.startswith(_INVALID)] == [
        f'{_INVALID}{{method="m",protocol="http",request_cluster="{written}"}} 0'
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


def test_seed063_the_whole_text_parses() -> None:
    """SEED-063, DEP-68, DEP-72, W-31: each family once, also where namespaces share a process."""
    process = Metrics()
    for metrics in (process, process.for_namespace("a"), process.for_namespace("b")):
        metrics.begin_group("g")
        text = read(process)
        families = [family.name for family in text_string_to_metric_families(text)]
        assert len(families) == len({*families})
        assert {"rollout_operator_group_reconciles", "process_resident_memory_bytes"} <= {*families}
        assert text.endswith("\n")
        assert "_created" not in text
        opened = b"".join(process.render_openmetrics()).decode()
        assert [*read_openmetrics(opened)]  # type: ignore[no-untyped-call]  # the library's
    assert '\nrollout_operator_build_info{version="' in text
