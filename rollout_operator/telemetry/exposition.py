"""Families of series that are read in short steps, and how they are written.

The format is Prometheus text 0.0.4, as Go writes it, or OpenMetrics for exemplars. Unlike the
library's writer: whole numbers carry no fraction (`le="1"`), there are no `_created` series, and it
works in steps of about 2 ms, because a scrape runs on the event loop between two reconciles.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import prometheus_client
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.metrics_core import GaugeMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar, Sample

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_TYPE: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"

# At 4 µs a sample, from reading to text, a piece stays near 2 ms.
PIECE: Final = 500
# Prometheus knows no better for these types of the library.
_TYPES: Final = {"unknown": "untyped", "info": "gauge", "stateset": "gauge"}

Series = Iterable[tuple[Sequence[str], float]]
"""Values of the labels, each combination once, and the value."""


class _InPieces(MetricWrapperBase):
    """A family that gives itself as several `Metric` of the same name, one after the other."""

    def collect(self) -> Iterator[Metric]:
        """Yield at least one piece; the next is read only when the caller wants it.

        The series are those of the start, whatever is added or removed meanwhile.
        """
        piece = self._begin()
        for suffix, labels, value, time, exemplar, *_ in self._samples():
            if len(piece.samples) >= PIECE:
                yield piece
                piece = self._begin()
            piece.add_sample(self._name + suffix, labels, value, time, exemplar)
        yield piece

    def _begin(self) -> Metric:
        (head,) = self.describe()
        return head


class Counter(_InPieces, prometheus_client.Counter):
    pass


class Gauge(_InPieces, prometheus_client.Gauge):
    pass


class Histogram(_InPieces, prometheus_client.Histogram):
    pass


class Rebuilt(Collector):
    """A gauge whose series are made anew at each scrape, so none outlives its object."""

    def __init__(
        self, name: str, text: str, labels: Sequence[str], read: Callable[[], Series]
    ) -> None:
        self._name = name
        self._text = text
        self._labels = tuple(labels)
        self._read = read

    def describe(self) -> Iterator[Metric]:
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


class Registry(CollectorRegistry):
    """The families of a process, or of one of its namespaces, by name."""

    def __init__(self) -> None:
        super().__init__()
        self._families: dict[str, Collector] = {}
        self._namespaces: dict[str, Registry] = {}

    def register(self, collector: Collector) -> None:
        super().register(collector)
        describe = getattr(collector, "describe", list)
        names = (family.name for family in describe())
        self._families[next(names, type(collector).__name__)] = collector

    def show(self, name: str, text: str, labels: Sequence[str], read: Callable[[], Series]) -> None:
        """Show what `read()` returns at each scrape."""
        self.register(Rebuilt(name, text, labels, read))

    def forget(self, **labels: str) -> None:
        """Remove the series with these labels from all families that have such labels."""
        for family in self._families.values():
            if isinstance(family, _InPieces) and labels.keys() <= {*family._labelnames}:
                family.remove_by_labels(labels)

    def for_namespace(self, namespace: str) -> "Registry":
        """Return a registry whose series `collect_all` names the namespace of."""
        return self._namespaces.setdefault(namespace, Registry())

    def collect_all(self) -> Iterator[Metric]:
        """Yield the families in pieces, each together with those of the namespaces."""
        names = dict.fromkeys(self._families)
        for of_namespace in tuple(self._namespaces.values()):
            names |= dict.fromkeys(of_namespace._families)
        for name in names:
            yield from self._collect_family(name)

    def _collect_family(self, name: str) -> Iterator[Metric]:
        shared = [
            (namespace, family)
            for namespace, registry in self._namespaces.items()
            if (family := registry._families.get(name)) is not None
        ]
        own = self._families.get(name)
        for piece in () if own is None else own.collect():
            if shared:  # a plain number of the process says nothing of namespaces
                piece.samples = [sample for sample in piece.samples if sample.labels]
            yield piece
        for namespace, family in shared:
            for piece in family.collect():
                piece.samples = [
                    sample._replace(labels={"namespace": namespace, **sample.labels})
                    for sample in piece.samples
                ]
                yield piece


def render(families: Iterable[Metric]) -> Iterator[bytes]:
    """Yield families as text, whole lines at a time.

    A piece is read and written when the caller wants it. Families may change between two pieces.
    """
    return _render(families, is_open=False)


def render_openmetrics(families: Iterable[Metric]) -> Iterator[bytes]:
    """Yield the same in OpenMetrics 1.0, which knows exemplars; pieces as of `render`.

    Bounds of buckets have their fraction here, `le="1.0"`: the format requires it.
    """
    yield from _render(families, is_open=True)
    yield b"# EOF\n"


def _render(families: Iterable[Metric], *, is_open: bool) -> Iterator[bytes]:
    before = ""
    for metric in families:
        lines = [] if metric.name == before else _render_head(metric, is_open=is_open)
        lines += [*_render_samples(metric, is_open=is_open), ""]
        before = metric.name
        # A header with bytes that are not UTF-8 may have become a label: that must not end scrapes.
        yield "\n".join(lines).encode(errors="replace")


def _render_head(metric: Metric, *, is_open: bool) -> list[str]:
    if is_open:
        # Only here quotation marks are escaped in it.
        text = _escape_help(metric.documentation).replace('"', r"\"")
        return [f"# HELP {metric.name} {text}", f"# TYPE {metric.name} {metric.type}"]
    name = f"{metric.name}_total" if metric.type == "counter" else metric.name
    return [
        f"# HELP {name} {_escape_help(metric.documentation)}",
        f"# TYPE {name} {_TYPES.get(metric.type, metric.type)}",
    ]


def _render_samples(metric: Metric, *, is_open: bool) -> Iterator[str]:
    created = f"{metric.name}_created"  # would add a third to the number of series
    for sample in metric.samples:
        if sample.name == created:
            continue
        line = _render_sample(sample, is_open=is_open)
        exemplar = sample.exemplar if is_open else None
        yield line if exemplar is None else f"{line} {_render_exemplar(exemplar)}"


def _render_sample(sample: Sample, *, is_open: bool) -> str:
    if not sample.labels:
        return f"{sample.name} {_render_number(sample.value)}"
    labels = ",".join(
        [
            f'{key}="{_render_label("" if is_open else key, value)}"'
            for key, value in sample.labels.items()
        ]
    )
    return f"{sample.name}{{{labels}}} {_render_number(sample.value)}"


def _render_exemplar(exemplar: Exemplar) -> str:
    labels = ",".join(
        [f'{key}="{_render_label("", value)}"' for key, value in exemplar.labels.items()]
    )
    return f"# {{{labels}}} {_render_number(exemplar.value)} {exemplar.timestamp:.3f}"


def _render_number(value: float) -> str:
    value = float(value)  # some collectors give an int
    # Up to here a whole number is exact, and Go's parser and ours read the digits alike.
    if value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    text = repr(value)
    return {"inf": "+Inf", "-inf": "-Inf", "nan": "NaN"}.get(text, text)


def _render_label(key: str, value: str) -> str:
    if key == "le":
        return value.removesuffix(".0")
    if "\\" in value or '"' in value or "\n" in value:
        return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
    return value


def _escape_help(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")
