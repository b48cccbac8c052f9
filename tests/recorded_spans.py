"""Spans of the code under test, kept in memory."""

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from rollout_operator.telemetry.spans import tracing
from rollout_operator.telemetry.traces import open_spans


class RecordedTraces(msgspec.Struct, frozen=True):
    """What has been recorded so far, in the order in which it ended."""

    exporter: InMemorySpanExporter

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self.exporter.get_finished_spans()

    def names(self) -> list[str]:
        return [span.name for span in self.spans]

    def find(self, name: str) -> ReadableSpan:
        (found,) = [span for span in self.spans if span.name == name]
        return found

    def attributes(self, name: str) -> dict[str, object]:
        return dict(self.find(name).attributes or {})

    def is_within(self, inner: str, outer: str) -> bool:
        parent, context = self.find(inner).parent, self.find(outer).context
        return parent is not None and context is not None and parent.span_id == context.span_id


@contextmanager
def recorded(environ: dict[str, str] | None = None) -> Iterator[RecordedTraces]:
    """Trace what happens inside the block."""
    exporter = InMemorySpanExporter()
    spans = open_spans(environ or {}, SimpleSpanProcessor(exporter))
    tracing.bind(spans)
    try:
        yield RecordedTraces(exporter)
    finally:
        tracing.bind(None)
        spans.close()
