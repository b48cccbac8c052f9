"""What single values become in the log, on the metrics page and for the switch of traces.

A line of `values.txt` calls a `tell_...` function of this module, without the prefix.
"""

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from prometheus_client import Gauge
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from rollout_operator.model.names import ConfigError, InvalidInput
from rollout_operator.model.outcome import Severity
from rollout_operator.telemetry.logs import MAX_VALUE, describe_error, render_json, render_logfmt
from rollout_operator.telemetry.metrics import Metrics
from rollout_operator.telemetry.spans import NO_SPAN, tracing
from rollout_operator.telemetry.tracing import choose_traces, traced
from tests.examples import repeatable
from tests.stories import check_tables

TS: Final = "2026-01-02T03:04:05.000000006Z"
REPEATABLE: Final = repeatable(200)
NASTY: Final = 'a\nb\r\t\x00\x1b[31m\x7f\x85\u2028\u202e\ufeff\ud800"\\=é😀 %s {} <script>'
INVALID: Final = "rollout_operator_client_invalid_cluster_validation_label_requests_total"
ENDPOINT: Final = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}
BAD_ENDPOINT: Final = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x:99999"}


def logfmt(value: object, key: str = "k") -> str:
    line = render_logfmt("info", TS, "m", {key: value}).decode()
    return line.removeprefix(f"level=info ts={TS} msg=m {key}=").removesuffix("\n")


def as_json(keys: Mapping[str, object], message: str = "m") -> dict[str, object]:
    """Return a record read back from JSON."""
    read = json.loads(render_json("info", TS, message, keys))
    assert isinstance(read, dict)
    return read


def tell_value(value: object) -> str:
    """Show a value in logfmt, and in JSON where that is another."""
    shown, read = logfmt(value), as_json({"k": value})["k"]
    return ascii(shown) if read == shown else f"{shown!a}; {read!a}"


def tell_key(key: str) -> str:
    line = render_logfmt("info", TS, "m", {key: 1}).decode()
    shown = line.partition(" msg=m ")[2].removesuffix("=1\n")
    assert list(as_json({key: 1})) == ["level", "ts", "msg", shown]
    return shown


def tell_error(error: BaseException) -> str:
    return f"{describe_error(error)!a}; {logfmt(error, 'err')!a}"


def tell_secret(key: str) -> str:
    """Show what is left of a secret under a key, by itself and inside of values."""
    inner = {key: "s3cret", "a": [{key: "s3cret"}]}
    found = logfmt("s3cret", key), as_json({key: "s3cret"})[key], as_json({"k": inner})["k"]
    assert "s3cret" not in f"{found}{logfmt(inner)}"
    return "; ".join(map(str, found))


def tell_label(value: str) -> str:
    metrics = Metrics()
    metrics.client_invalid_cluster.labels("m", "http", value)
    [line] = [one for one in read(metrics).splitlines() if one.startswith(INVALID)]
    return line.partition("request_cluster=")[2]


def tell_number(value: float) -> str:
    metrics = Metrics()
    Gauge("probe", "A probe.", registry=metrics.registry).set(value)
    return read(metrics).partition("\nprobe ")[2].partition("\n")[0]


def tell_choice(**environ: str) -> str:
    """Show whether these variables turn traces on; names without `OTEL_` where it begins so."""
    choice = choose_traces(_name(environ))
    return choice.problem or ("on" if choice.is_on else "off")


def tell_refusal(**environ: str) -> str:
    with pytest.raises(ConfigError) as refused, traced(_name(environ)):
        pass
    return str(refused.value)


def _name(environ: Mapping[str, str]) -> dict[str, str]:
    return {
        name if name.startswith("JAEGER") else f"OTEL_{name}": value
        for name, value in environ.items()
    }


NAMES: Final = {
    **{name[5:]: found for name, found in globals().items() if name.startswith("tell_")},
    "Severity": Severity,
    "timedelta": timedelta,
    "datetime": datetime,
    "UTC": UTC,
    "InvalidInput": InvalidInput,
}


def show_call(call: str) -> str:
    return f"{eval(call, NAMES)}"  # noqa: S307 (the calls are beside this file)


test_case = check_tables(__file__, values=show_call)


def test_level_time_and_message_come_first_and_keys_as_given() -> None:
    """LOG-01, DEP-06."""
    keys = {"zone": "zone-b", "pod": "b-0", "n": 3}
    plain, line = (show("warn", TS, "Deleting pod", keys) for show in (render_logfmt, render_json))

    assert plain == f'level=warn ts={TS} msg="Deleting pod" zone=zone-b pod=b-0 n=3\n'.encode()
    begin = f'{{"level":"warn","ts":"{TS}","msg":"Deleting pod",'
    assert line == f'{begin}"zone":"zone-b","pod":"b-0","n":3}}\n'.encode()


def test_long_values_are_cut_with_a_mark_and_what_lies_deep_is_left_out() -> None:
    """SEC-13: annotations have up to 256 KiB, and escapes make them longer."""
    for value in ("x" * 262_144, ["x" * 262_144], {"a": "x" * 262_144}, ["abc"] * 262_144):
        assert len(logfmt(value)) < MAX_VALUE + 100
        assert len(str(as_json({"k": value})["k"])) < MAX_VALUE + 100
    assert logfmt("x" * 262_144).endswith("x...(262144-characters)")
    assert logfmt("x" * MAX_VALUE) == "x" * MAX_VALUE
    assert len(logfmt("\x00" * 262_144)) < 6 * MAX_VALUE + 100
    loop: list[object] = []
    loop.append(loop)
    assert logfmt(loop) == '"[[[[[[\\"...\\"]]]]]]"'


@REPEATABLE
@given(st.text(alphabet=st.characters() | st.sampled_from(NASTY), max_size=40), st.text(max_size=9))
@example(NASTY, NASTY)
@example("null", "")
def test_any_text_is_one_line_that_reads_back(text: str, key: str) -> None:
    """SEC-13, SI-23: valid UTF-8, no control characters, the value can be had again."""
    for render in (render_logfmt, render_json):
        line = render("info", TS, text, {key: text}).decode()
        assert len(line.splitlines()) == 1
        assert re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]", line) is None

    clean = re.sub("[\ud800-\udfff]", "\ufffd", text)
    assert as_json({"k": text}, text) == {"level": "info", "ts": TS, "msg": clean, "k": clean}
    shown = logfmt(text)
    assert (json.loads(shown) if shown.startswith('"') else shown) == clean


@REPEATABLE
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
        max_leaves=10,
    )
)
def test_any_structure_is_valid_json(value: object) -> None:
    as_json({"k": value})


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


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"JAEGER_ENDPOINT": "http://jaeger:14268/api/traces"}, "JAEGER_ENDPOINT is not supported"),
        (ENDPOINT, "pip install '.[otel]' in a checkout"),
        ({**BAD_ENDPOINT, "OTEL_SDK_DISABLED": "true"}, ""),
        ({**BAD_ENDPOINT, "OTEL_TRACES_EXPORTER": "none"}, ""),
    ],
    ids=["not supported", "without the extra", "disabled", "no exporter"],
)
def test_without_traces_it_runs_with_one_warning(
    environ: dict[str, str], said: str, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A URL that is not used is not checked."""
    monkeypatch.delitem(sys.modules, "rollout_operator.telemetry.traces", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)

    with traced(environ):
        assert tracing.spans.begin("x") is NO_SPAN
    assert len(lines) == bool(said)
    assert all(line.startswith("level=warn ") and said in line for line in lines)


def test_off_nothing_of_it_is_imported() -> None:
    """DEP-12: no exporter, no thread and no import of the SDK."""
    script = (
        "import sys, threading\n"
        "import rollout_operator.operator.main, rollout_operator.web.webhooks\n"
        "from rollout_operator.telemetry.tracing import traced\n"
        "with traced({}): pass\n"
        "names = [name for name in sys.modules if name.startswith('opentelemetry')]\n"
        "print(names, threading.active_count())"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert ended.stdout == "[] 1\n"
