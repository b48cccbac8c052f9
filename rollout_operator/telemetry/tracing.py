"""Decide at the start, from the environment, whether this process traces.

OpenTelemetry is not imported unless a variable asks for traces. A setting that is not supported is
a warning, and does not keep the process from starting.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import msgspec

from rollout_operator.model.names import ConfigError
from rollout_operator.model.units import find_url_problem
from rollout_operator.telemetry.logs import log
from rollout_operator.telemetry.spans import tracing

_EXPORTER: Final = "OTEL_TRACES_EXPORTER"
# The first that is set counts.
_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_OVER_HTTP: Final = "http/protobuf"
# Of grafana/rollout-operator, which reads these first.
_JAEGER: Final = ("JAEGER_AGENT_HOST", "JAEGER_ENDPOINT", "JAEGER_SAMPLER_MANAGER_HOST_PORT")
_INSTEAD: Final = "set OTEL_EXPORTER_OTLP_ENDPOINT to the port for OTLP over HTTP, mostly 4318"
_INSTALL: Final = "OpenTelemetry is not installed: pip install '.[otel]' in a checkout"


class TraceChoice(msgspec.Struct, frozen=True):
    """Whether spans are sent, and what of the environment cannot be obeyed."""

    is_on: bool = False
    problem: str = ""


def choose_traces(environ: Mapping[str, str]) -> TraceChoice:
    """Return the choice of the environment: no traces, unless a variable says where spans go."""
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return TraceChoice()
    if not any(environ.get(name) for name in (_EXPORTER, *_ENDPOINTS)):
        old = next((name for name in _JAEGER if environ.get(name)), "")
        return TraceChoice(problem=f"{old} is not supported: {_INSTEAD}" if old else "")
    exporter = environ.get(_EXPORTER) or "otlp"
    if exporter == "none":
        return TraceChoice()
    if exporter != "otlp":
        return TraceChoice(problem=f"{_EXPORTER} must be otlp or none: {exporter}")
    name = next((name for name in _PROTOCOLS if environ.get(name)), "")
    if name and environ[name] != _OVER_HTTP:
        problem = f"{name} must be {_OVER_HTTP}, not {environ[name]}: {_INSTEAD}"
        return TraceChoice(problem=problem)
    return TraceChoice(is_on=True)


@contextmanager
def traced(environ: Mapping[str, str]) -> Iterator[None]:
    """Trace what happens inside the block, if the environment says so.

    Leaving it takes some seconds where spans cannot be sent. Raises ConfigError for what the
    exporter cannot use, such as a URL that cannot be called.
    """
    choice = choose_traces(environ)
    if choice.problem:
        log.warn("Not tracing", why=choice.problem)
    if not choice.is_on:
        yield
        return
    name = next((name for name in _ENDPOINTS if environ.get(name)), "")
    if name and (problem := find_url_problem(environ[name], ("http", "https"))):
        raise ConfigError(f"environment variable {name} {problem}")
    try:
        from rollout_operator.telemetry.traces import open_spans
    except ModuleNotFoundError:
        log.warn("Not tracing", why=_INSTALL)
        yield
        return
    try:
        spans = open_spans(environ)
    except (OSError, ValueError) as error:
        raise ConfigError(f"tracing: {error}") from error
    tracing.bind(spans)
    log.info("Tracing")
    try:
        yield
    finally:
        tracing.bind(None)
        spans.close()
