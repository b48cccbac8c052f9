"""The Prometheus text format 0.0.4, written as Go writes it, and OpenMetrics for exemplars.

Differs from the library's own writer in two ways that users' rules see: whole numbers carry no
fraction (`le="1"`, not `le="1.0"`), and there are no `_created` series. It is also several times
faster, and does its work in steps: a scrape runs on the event loop, between two reconciles. How
large a step may be is decided in `families`.
"""

from collections.abc import Iterable, Iterator
from typing import Final, Protocol

from prometheus_client import Metric
from prometheus_client.samples import Exemplar, Sample

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_TYPE: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"

# Prometheus knows no better for these types of the library.
_TYPES: Final = {"unknown": "untyped", "info": "gauge", "stateset": "gauge"}


class Collects(Protocol):
    """A registry, as far as it is read here."""

    def collect(self) -> Iterable[Metric]:
        """Yield all families, those of one name one after the other."""
        ...


def render(registry: Collects) -> Iterator[bytes]:
    """Yield all that `registry` holds as text, whole lines at a time.

    A piece is read and written when the caller wants it. Families may change between two pieces.
    """
    return _render(registry, is_open=False)


def render_openmetrics(registry: Collects) -> Iterator[bytes]:
    """Yield the same in OpenMetrics 1.0, which knows exemplars; pieces as of `render`.

    Bounds of buckets have their fraction here, `le="1.0"`: the format requires it.
    """
    yield from _render(registry, is_open=True)
    yield b"# EOF\n"


def _render(registry: Collects, *, is_open: bool) -> Iterator[bytes]:
    before = ""
    for metric in registry.collect():
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
