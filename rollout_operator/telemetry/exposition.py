"""Families of series that are read in short steps, and how they are written.

The format is Prometheus text 0.0.4, as Go writes it, or OpenMetrics for exemplars. Unlike the
library's writer: whole numbers carry no fraction (`le="1"`), there are no `_created` series, and it
works in steps of about 2 ms, because a scrape runs on the event loop between two reconciles.
"""

import math
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import ClassVar, Final, Self

from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry
from prometheus_client.samples import Exemplar, Sample
from prometheus_client.utils import floatToGoString

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_TYPE: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"

# At 4 µs a sample, from reading to text, a piece stays near 2 ms.
PIECE: Final = 500
# Prometheus knows no better for these types of the library.
_TYPES: Final = {"unknown": "untyped", "info": "gauge", "stateset": "gauge"}

_name_bound: Final = cache(floatToGoString)

Series = Iterable[tuple[Sequence[str], float]]
"""Values of the labels, each combination once, and the value."""


class MetricFamily:
    """A family, or one of its series where it has labels: thousands of these, so they are slim.

    Given as several `Metric` of the same name, one after the other.
    """

    __slots__ = ("_series", "_text", "label_names", "name")
    kind: ClassVar[str]

    def __init__(
        self,
        name: str,
        text: str,
        labels: Iterable[str] = (),
        *,
        registry: CollectorRegistry | None,
    ) -> None:
        self.name = name.removesuffix("_total") if self.kind == "counter" else name
        self.label_names = tuple(labels)
        self._text = text
        self._series: dict[tuple[str, ...], Self] = {}
        self._begin()
        if registry is not None:
            registry.register(self)

    def labels(self, *values: object, **named: object) -> Self:
        """Return the series of these values, which begins at zero."""
        key = tuple(map(str, values or map(named.__getitem__, self.label_names)))
        series = self._series.get(key)
        if series is None:
            if len(key) != len(self.label_names):
                raise ValueError(f"{self.name} has the labels {self.label_names}")
            series = self._series[key] = object.__new__(type(self))
            series._begin_in(self)
        return series

    def remove_by_labels(self, labels: Mapping[str, str]) -> None:
        """Remove all series with these labels, of which all must be known."""
        wanted = [(self.label_names.index(name), value) for name, value in labels.items()]
        for key in [*self._series]:
            if all(key[place] == value for place, value in wanted):
                del self._series[key]

    def describe(self) -> Iterator[Metric]:
        yield Metric(self.name, self._text, self.kind)

    def collect(self) -> Iterator[Metric]:
        """Yield at least one piece; the next is read only when the caller wants it.

        The series are those of the start, whatever is added or removed meanwhile.
        """
        (piece,) = self.describe()
        for values, series in [*self._series.items()] if self.label_names else [((), self)]:
            labels = dict(zip(self.label_names, values, strict=True))
            # At once: between two pieces there may be more of them.
            for suffix, more, value, exemplar in tuple(series._read()):
                if len(piece.samples) >= PIECE:
                    yield piece
                    (piece,) = self.describe()
                name = self.name + suffix
                piece.add_sample(name, {**labels, **more}, value, exemplar=exemplar)
        yield piece

    def _begin(self) -> None:
        """Begin at zero."""
        raise NotImplementedError

    def _begin_in(self, family: Self) -> None:
        """Begin at zero, as a series of a family."""
        self._begin()

    def _read(self) -> Iterable[tuple[str, Mapping[str, str], float, Exemplar | None]]:
        """Return suffix of the name, labels besides those of the series, value and exemplar."""
        raise NotImplementedError


class Counter(MetricFamily):
    __slots__ = ("_value",)
    kind = "counter"

    def inc(self, amount: float = 1) -> None:
        self._value += amount

    def _begin(self) -> None:
        self._value = 0.0

    def _read(self) -> Iterable[tuple[str, Mapping[str, str], float, Exemplar | None]]:
        return (("_total", {}, self._value, None),)


class Gauge(MetricFamily):
    __slots__ = ("_read_value", "_value")
    kind = "gauge"
    _read_value: Callable[[], float] | None
    _value: float

    def inc(self, amount: float = 1) -> None:
        self._value += amount

    def dec(self) -> None:
        self._value -= 1

    def set(self, value: float) -> None:
        self._value = float(value)

    @contextmanager
    def track_inprogress(self) -> Iterator[None]:
        """Count the block while it runs."""
        self.inc()
        try:
            yield
        finally:
            self.dec()

    def set_function(self, read: Callable[[], float]) -> None:
        """Show what `read()` returns at each scrape."""
        self._read_value = read

    def _begin(self) -> None:
        self._value, self._read_value = 0.0, None

    def _read(self) -> Iterable[tuple[str, Mapping[str, str], float, Exemplar | None]]:
        value = self._value if self._read_value is None else self._read_value()
        return (("", {}, value, None),)


class Histogram(MetricFamily):
    __slots__ = ("_bounds", "_counts", "_exemplars", "_sum")
    kind = "histogram"

    def __init__(
        self,
        name: str,
        text: str,
        labels: Iterable[str] = (),
        *,
        registry: CollectorRegistry | None,
        buckets: Sequence[float],
    ) -> None:
        self._bounds = (*map(float, buckets), math.inf)
        super().__init__(name, text, labels, registry=registry)

    @property
    def bounds(self) -> Sequence[float]:
        return self._bounds

    def observe(self, amount: float, exemplar: Mapping[str, str] | None = None) -> None:
        self._sum += amount
        place = bisect_left(self._bounds, amount)
        self._counts[place] += 1
        if exemplar:
            self._exemplars[place] = Exemplar(dict(exemplar), amount, time.time())

    @contextmanager
    def time(self) -> Iterator[None]:
        """Observe how many seconds the block takes, however it ends."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.observe(time.perf_counter() - begin)

    def _begin(self) -> None:
        self._sum = 0.0
        self._counts = [0] * len(self._bounds)
        self._exemplars: dict[int, Exemplar] = {}

    def _begin_in(self, family: Self) -> None:
        self._bounds = family._bounds
        self._begin()

    def _read(self) -> Iterable[tuple[str, Mapping[str, str], float, Exemplar | None]]:
        total = 0
        for place, count in enumerate(self._counts):
            total += count
            bound = {"le": _name_bound(self._bounds[place])}
            yield "_bucket", bound, total, self._exemplars.get(place)
        yield "_count", {}, total, None
        yield "_sum", {}, self._sum, None


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
            if isinstance(family, MetricFamily) and labels.keys() <= {*family.label_names}:
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
