"""The Prometheus text format 0.0.4, written as Go writes it.

Differs from the library's own writer in two ways that users' rules see: whole numbers carry no
fraction (`le="1"`, not `le="1.0"`), and there are no `_created` series. It is also several times
faster: a scrape runs on the event loop, between two reconciles.
"""

from collections.abc import Iterator
from typing import Final

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.samples import Sample

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

# Prometheus knows no better for these types of the library.
_TYPES: Final = {"unknown": "untyped", "info": "gauge", "stateset": "gauge"}


def render(registry: CollectorRegistry) -> bytes:
    """Return all that `registry` holds as text."""
    lines: list[str] = []
    for metric in registry.collect():
        lines.extend(_render_metric(metric))
    lines.append("")
    # A header with bytes that are not UTF-8 may have become a label: it must not end all scrapes.
    return "\n".join(lines).encode(errors="replace")


def _render_metric(metric: Metric) -> Iterator[str]:
    name = f"{metric.name}_total" if metric.type == "counter" else metric.name
    yield f"# HELP {name} {_escape_help(metric.documentation)}"
    yield f"# TYPE {name} {_TYPES.get(metric.type, metric.type)}"
    created = f"{metric.name}_created"  # would add a third to the number of series
    for sample in metric.samples:
        if sample.name != created:
            yield _render_sample(sample)


def _render_sample(sample: Sample) -> str:
    if not sample.labels:
        return f"{sample.name} {_render_number(sample.value)}"
    labels = ",".join(
        [f'{key}="{_render_label(key, value)}"' for key, value in sample.labels.items()]
    )
    return f"{sample.name}{{{labels}}} {_render_number(sample.value)}"


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
