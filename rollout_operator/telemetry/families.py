"""Counters, gauges and histograms of the library that are collected in pieces.

Decides how much of a family is read at a time: the library's own classes collect a family at once,
tens of milliseconds with a thousand groups. How a piece reads on the wire is left to `exposition`,
what happens between two pieces to the renderer.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import prometheus_client
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

# At 4 µs a sample, from reading to text, a piece stays near 2 ms.
PIECE: Final = 500
# A piece never ends within a group: what a group waits for changes by two series at a time. Zones
# are as many as there are StatefulSets with the label, and change one by one.
GROUP: Final = "rollout_group"
ZONE: Final = "zone"


class _InPieces(MetricWrapperBase):
    """A family that gives itself as several `Metric` of the same name, one after the other."""

    def collect(self) -> Iterator[Metric]:
        """Yield at least one piece; the next is read only when the caller wants it.

        The series are those of the start, whatever is added or removed meanwhile.
        """
        piece = self._begin()
        group: str | None = None
        may_end_anywhere = GROUP not in self._labelnames or ZONE in self._labelnames
        for suffix, labels, value, time, exemplar, *_ in self._samples():
            before, group = group, labels.get(GROUP)
            may_end = may_end_anywhere or group != before
            if len(piece.samples) >= PIECE and may_end:
                yield piece
                piece = self._begin()
            piece.add_sample(self._name + suffix, labels, value, time, exemplar)
        yield piece

    def _begin(self) -> Metric:
        (head,) = self.describe()
        return head


class Counter(_InPieces, prometheus_client.Counter):
    """The library's counter."""


class Gauge(_InPieces, prometheus_client.Gauge):
    """The library's gauge."""


class Histogram(_InPieces, prometheus_client.Histogram):
    """The library's histogram."""


class Rebuilt(Collector):
    """A gauge whose series are made anew at each scrape: what is gone leaves none behind."""

    def __init__(
        self,
        name: str,
        text: str,
        labels: Sequence[str],
        read: Callable[[], Iterable[tuple[Sequence[str], float]]],
    ) -> None:
        """Make a gauge of what `read()` returns: values of the labels, each once, and the value."""
        self._name = name
        self._text = text
        self._labels = tuple(labels)
        self._read = read

    def describe(self) -> Iterator[Metric]:
        """Yield the gauge without series."""
        yield GaugeMetricFamily(self._name, self._text, labels=self._labels)

    def collect(self) -> Iterator[Metric]:
        """Yield the gauge as it is now, in pieces; at least one."""
        gauge = GaugeMetricFamily(self._name, self._text, labels=self._labels)
        for values, number in self._read():
            if len(gauge.samples) >= PIECE:
                yield gauge
                gauge = GaugeMetricFamily(self._name, self._text, labels=self._labels)
            gauge.add_metric(values, number)
        yield gauge
