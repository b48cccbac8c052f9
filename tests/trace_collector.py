"""A collector of traces: takes spans by OTLP over HTTP and keeps them."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import msgspec
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, Span


class TraceCollector(msgspec.Struct):
    url: str = ""
    received: list[ResourceSpans] = []

    def spans(self) -> list[Span]:
        return [span for one in self.received for scope in one.scope_spans for span in scope.spans]

    def services(self) -> set[str]:
        """Return the names under which spans came."""
        return {
            attribute.value.string_value
            for one in self.received
            for attribute in one.resource.attributes
            if attribute.key == "service.name"
        }


@contextmanager
def open_collector() -> Iterator[TraceCollector]:
    """Run a collector on a free port."""
    collector = TraceCollector()

    class Taker(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.path == "/v1/traces":
                collector.received.extend(ExportTraceServiceRequest.FromString(body).resource_spans)
            self.send_response(200 if self.path == "/v1/traces" else 404)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Taker)
    collector.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
