"""Which variables switch tracing on, and what is said where they cannot be obeyed (DEP-12)."""

import subprocess
import sys
from typing import Final

import pytest

from rollout_operator.model.names import ConfigError
from rollout_operator.telemetry.spans import NO_SPAN, tracing
from rollout_operator.telemetry.tracing import TraceChoice, choose_traces, traced

ENDPOINT: Final = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}
OFF: Final = TraceChoice()
ON: Final = TraceChoice(is_on=True)
INSTEAD: Final = "set OTEL_EXPORTER_OTLP_ENDPOINT to the port for OTLP over HTTP, mostly 4318"


@pytest.mark.parametrize(
    ("environ", "choice"),
    [
        pytest.param({}, OFF, id="TRACE-01 no variable switches it on"),
        pytest.param({"OTEL_SERVICE_NAME": "a", "OTEL_TRACES_SAMPLER": "always_on"}, OFF),
        pytest.param(ENDPOINT, ON, id="TRACE-01 an endpoint"),
        pytest.param({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c/v1/traces"}, ON),
        pytest.param({"OTEL_TRACES_EXPORTER": "otlp"}, ON, id="TRACE-01 an exporter"),
        pytest.param({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, OFF, id="TRACE-01 an empty one"),
        pytest.param({**ENDPOINT, "OTEL_TRACES_EXPORTER": "none"}, OFF, id="no exporter"),
        pytest.param({**ENDPOINT, "OTEL_SDK_DISABLED": "TRUE"}, OFF, id="disabled"),
        pytest.param({**ENDPOINT, "OTEL_SDK_DISABLED": "false"}, ON, id="not disabled"),
        pytest.param({**ENDPOINT, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, ON),
        pytest.param(
            {**ENDPOINT, "OTEL_TRACES_EXPORTER": "zipkin"},
            TraceChoice(problem="OTEL_TRACES_EXPORTER must be otlp or none: zipkin"),
            id="another exporter",
        ),
        pytest.param(
            {**ENDPOINT, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            TraceChoice(
                problem="OTEL_EXPORTER_OTLP_PROTOCOL must be http/protobuf, not grpc: " + INSTEAD
            ),
            id="another protocol",
        ),
        pytest.param(
            {"JAEGER_AGENT_HOST": "jaeger"},
            TraceChoice(problem=f"JAEGER_AGENT_HOST is not supported: {INSTEAD}"),
            id="Jaeger alone",
        ),
        pytest.param({**ENDPOINT, "JAEGER_AGENT_HOST": "jaeger"}, ON, id="Jaeger beside it"),
    ],
)
def test_what_the_environment_requires(environ: dict[str, str], choice: TraceChoice) -> None:
    assert choose_traces(environ) == choice


def test_what_is_not_supported_is_one_warning(lines: list[str]) -> None:
    with traced({"JAEGER_ENDPOINT": "http://jaeger:14268/api/traces"}):
        assert tracing.spans.begin("x") is NO_SPAN
    (line,) = lines
    assert line.startswith("level=warn ")
    assert "JAEGER_ENDPOINT is not supported" in line


def test_without_the_extra_it_runs_with_one_warning(
    lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "rollout_operator.telemetry.traces", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)

    with traced(ENDPOINT):
        assert tracing.spans.begin("x") is NO_SPAN
    (line,) = lines
    assert "pip install '.[otel]' in a checkout" in line


@pytest.mark.parametrize(
    ("environ", "problem"),
    [
        ({"": "http://x:99999"}, "ENDPOINT needs a port from 1 to 65535"),
        ({"": "http://x:0"}, "ENDPOINT needs a port from 1 to 65535"),
        ({"": "http://x:otlp/v1"}, "ENDPOINT needs a port from 1 to 65535"),
        ({"": "collector:4318"}, "ENDPOINT must begin with http:// or https://"),
        ({"": "http://:4318"}, "ENDPOINT names no host"),
        ({"": "http://u:secret@a b:4318"}, "ENDPOINT contains a space or a control character"),
        ({"TRACES_": "https://x:65536/v1/traces"}, "TRACES_ENDPOINT needs a port from"),
        ({"TRACES_": "x", "": "http://x:4318"}, "TRACES_ENDPOINT must begin with"),
    ],
)
def test_a_url_that_cannot_be_called_is_refused_by_the_name_of_its_variable(
    environ: dict[str, str], problem: str
) -> None:
    """DEP-12. The value may hold a password, and is not shown."""
    given = {f"OTEL_EXPORTER_OTLP_{name}ENDPOINT": url for name, url in environ.items()}
    told = f"^environment variable OTEL_EXPORTER_OTLP_{problem}"
    with pytest.raises(ConfigError, match=told) as refused, traced(given):
        pass
    assert "secret" not in str(refused.value)


def test_a_url_that_is_not_used_is_not_checked(lines: list[str]) -> None:
    bad = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x:99999"}
    for off in ("OTEL_SDK_DISABLED", "true"), ("OTEL_TRACES_EXPORTER", "none"):
        with traced({**bad, off[0]: off[1]}):
            pass
    assert lines == []


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
