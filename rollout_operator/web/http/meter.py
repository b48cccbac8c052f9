"""The request metrics of one method on one route, bound once.

Looking a metric up by its labels costs as much as counting does; a route that is hot keeps its
meter. Names and buckets are in `telemetry.metrics`.
"""

from datetime import timedelta

from rollout_operator.telemetry.families import Histogram
from rollout_operator.telemetry.metrics import Metrics


class Meter:
    """Counts requests of one method on one route."""

    __slots__ = ("_durations", "_inflight", "_received", "_sent", "method", "metrics", "route")

    def __init__(self, metrics: Metrics, method: str, route: str) -> None:
        self.metrics = metrics
        self.method = method
        self.route = route
        self._inflight = metrics.http_inflight.labels(method, route)
        self._received = metrics.http_request_bytes.labels(method, route)
        self._sent = metrics.http_response_bytes.labels(method, route)
        self._durations: dict[tuple[int, str], Histogram] = {}

    def begin(self) -> None:
        """Note that a request has come."""
        self._inflight.inc()

    def end(self, status: int, websocket: str, took: timedelta, received: int) -> None:
        """Note that a request is over, and how many bytes its body had."""
        self._inflight.dec()
        self._received.observe(received)
        duration = self._durations.get((status, websocket))
        if duration is None:
            duration = self._durations[status, websocket] = (
                self.metrics.http_request_duration.labels(
                    self.method, self.route, str(status), websocket
                )
            )
        duration.observe(took.total_seconds())

    def sent(self, size: int) -> None:
        """Note that an answer was sent, and how many bytes its body has."""
        self._sent.observe(size)
