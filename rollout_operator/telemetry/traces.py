"""Traces by OpenTelemetry: the only module that knows it, imported only when they are on.

The variables are those of the SDK, which reads most of them itself: sampling, limits, headers,
certificates.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from datetime import timedelta
from types import TracebackType
from typing import Final, Self

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from rollout_operator import __version__
from rollout_operator.model.outcome import Reason
from rollout_operator.telemetry.spans import NO_SPAN, Attribute, Span, SpanRole, Spans

_PROGRAM: Final = "rollout-operator"
# The pod has 30 s to end; what a collector has not taken by then is lost.
_FLUSH_LIMIT: Final = timedelta(seconds=5)
# A collector that is away makes a line with each attempt, for as long as it is away.
QUIET: Final = timedelta(minutes=1)
# Reasons may quote what tenants wrote, which may be 256 KiB.
LONGEST_TEXT: Final = 1024

_TRACE_CONTEXT: Final = "tracecontext"
# Not those of the library's choice: baggage has nothing to carry, and the name of a propagator that
# is not installed would be an error at the import.
_PROPAGATOR: Final = TraceContextTextMapPropagator()
_ROLES: Final = {
    SpanRole.INTERNAL: trace.SpanKind.INTERNAL,
    SpanRole.SERVER: trace.SpanKind.SERVER,
    SpanRole.CLIENT: trace.SpanKind.CLIENT,
}


class _RecordedSpan(Span):
    __slots__ = ("_manager", "_span")

    def __init__(self, manager: AbstractContextManager[trace.Span] | None, span: trace.Span):
        self._manager = manager
        self._span = span

    @property
    def is_recorded(self) -> bool:
        return self._span.is_recording()

    @property
    def log_keys(self) -> Mapping[str, str]:
        context = self._span.get_span_context()
        if not context.trace_flags.sampled:
            return {}
        return {"trace_id": trace.format_trace_id(context.trace_id)}

    def set_attributes(self, attributes: Mapping[str, Attribute]) -> None:
        self._span.set_attributes({key: _cut(value) for key, value in attributes.items()})

    def record_reasons(self, reasons: Iterable[Reason]) -> None:
        for place, reason in enumerate(reasons):
            attributes = {"reason": reason.code.value, "why": _cut(reason.text)}
            if reason.zone:
                attributes["zone"] = reason.zone
            if place == 0:
                self._span.set_attributes(attributes)
            self._span.add_event("reason", attributes)

    def __enter__(self) -> Self:
        assert self._manager is not None  # the current span is not entered again
        self._span = self._manager.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._manager is not None
        self._manager.__exit__(kind, error, trace)


class _RecordedSpans(Spans):
    def __init__(self, provider: TracerProvider, *, propagates: bool = True) -> None:
        """`propagates`: other processes get the header by which they continue a trace."""
        self._provider = provider
        self._propagates = propagates
        self._tracer = provider.get_tracer(_PROGRAM, __version__)

    def begin(self, name: str, role: SpanRole = SpanRole.INTERNAL) -> Span:
        manager = self._tracer.start_as_current_span(
            name, kind=_ROLES[role], record_exception=False
        )
        return _RecordedSpan(manager, trace.INVALID_SPAN)

    def begin_within(self, name: str, role: SpanRole = SpanRole.CLIENT) -> Span:
        """Return a span inside of the current one; no span where that is not recorded.

        Watches and the Lease would else be most of what is sent. A task that a reconcile started
        and left behind has a current span that has ended: it is not recorded either.
        """
        return self.begin(name, role) if trace.get_current_span().is_recording() else NO_SPAN

    def get_current(self) -> Span:
        return _RecordedSpan(None, trace.get_current_span())

    def make_headers(self) -> Mapping[str, str]:
        headers: dict[str, str] = {}
        if self._propagates and trace.get_current_span().is_recording():
            _PROPAGATOR.inject(headers)
        return headers

    def close(self) -> None:
        """Send what has not been sent, for a few seconds. Blocks."""
        # The SDK would wait for half a minute: the thread ends with the process.
        closing = threading.Thread(target=self._provider.shutdown, name="traces", daemon=True)
        closing.start()
        closing.join(_FLUSH_LIMIT.total_seconds())


class RarelyLogged(logging.Filter):
    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now = now
        self._quiet_until = 0.0

    def filter(self, record: logging.LogRecord) -> bool:
        now = self._now()
        if now < self._quiet_until:
            return False
        self._quiet_until = now + QUIET.total_seconds()
        return True


def open_spans(
    environ: Mapping[str, str], processor: SpanProcessor | None = None
) -> _RecordedSpans:
    """Return a source whose spans are sent by OTLP over HTTP, or by another processor."""
    provider = TracerProvider(resource=_describe_process(environ), shutdown_on_exit=False)
    provider.add_span_processor(processor or _send_by_http())
    propagators = (environ.get("OTEL_PROPAGATORS") or _TRACE_CONTEXT).split(",")
    propagates = _TRACE_CONTEXT in (name.strip() for name in propagators)
    return _RecordedSpans(provider, propagates=propagates)


def _send_by_http() -> SpanProcessor:
    exporter = OTLPSpanExporter()
    logging.getLogger(OTLPSpanExporter.__module__).addFilter(RarelyLogged())
    return BatchSpanProcessor(exporter)


def _describe_process(environ: Mapping[str, str]) -> Resource:
    """Return what all spans say of this process; the name as in grafana/rollout-operator."""
    given = Resource.create()
    name = given.attributes.get(SERVICE_NAME, "")
    if str(name).startswith("unknown_service"):
        name = environ.get("JAEGER_SERVICE_NAME") or _PROGRAM
    return given.merge(Resource({SERVICE_NAME: name, SERVICE_VERSION: __version__}))


def _cut(value: Attribute) -> Attribute:
    return value[:LONGEST_TEXT] if isinstance(value, str) else value
