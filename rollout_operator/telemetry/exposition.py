"""Write metrics as Prometheus text 0.0.4, as Go does, or as OpenMetrics for exemplars.

Unlike the library's writer: whole numbers carry no fraction (`le="1"`), there are no `_created`
series, and it works in short steps, because a scrape runs on the event loop between two
reconciles. `MergedRegistry` labels the series of several namespaces.
"""

import os
import select
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, Protocol

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar, Sample

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_TYPE: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"

# Prometheus knows no better for these types of the library.
_TYPES: Final = {"unknown": "untyped", "info": "gauge", "stateset": "gauge"}


_LABEL: Final = "namespace"
# Of which a process has one set, whatever namespaces it watches; by attribute of `Metrics`.
_OF_PROCESS: Final = (
    "http_request_duration",
    "http_request_bytes",
    "http_response_bytes",
    "http_inflight",
    "server_invalid_cluster",
    "api_request_duration",
    "api_rate_limited",
    "pod_request_duration",
    "client_invalid_cluster",
    "forwarded_reviews",
    "certificate_expiry",
    "ca_bundle_writes",
    "loop_lag_seconds",
    "leader_status",
)
_ALWAYS_OF_PROCESS: Final = (
    "rollout_operator_build_info",
    "kube_validating_webhook_failure_policy",
    "ProcessCollector",
)
"""The others of a process, by name."""

# A pipe that polls as writable takes this much without blocking (PIPE_BUF on Linux).
_PIECE: Final = 4096

# A burst may fill a pipe faster than the reader empties it; a reader that needs longer than this
# has stopped, and is not waited for again until it has read something.
_GRACE_MILLISECONDS: Final = 20


class Collects(Protocol):
    """A registry, as far as it is read here."""

    def collect(self) -> Iterable[Metric]: ...


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


def _name_family(collector: Collector) -> str:
    """Return the name of a family; its class where the collector has no name."""
    describe = getattr(collector, "describe", list)
    return next((family.name for family in describe()), type(collector).__name__)


def share(metrics: object, others: object) -> None:
    """Give `others` what a process has once, of its `metrics`."""
    for name in _OF_PROCESS:
        setattr(others, name, getattr(metrics, name))


def list_shared(metrics: object) -> list[str]:
    return [*(_name_family(getattr(metrics, name)) for name in _OF_PROCESS), *_ALWAYS_OF_PROCESS]


class FamilyRegistry(CollectorRegistry):
    def __init__(self) -> None:
        super().__init__()
        self.families: dict[str, Collector] = {}

    def register(self, collector: Collector) -> None:
        super().register(collector)
        self.families[_name_family(collector)] = collector

    def unregister(self, collector: Collector) -> None:
        super().unregister(collector)
        self.families.pop(_name_family(collector), None)


class MergedRegistry:
    """The families of a process, and of the namespaces that it watches."""

    def __init__(self, process: CollectorRegistry, of_process: Iterable[str]) -> None:
        """`of_process` names the families that are there once; all others are of namespaces."""
        self._process = _map_families(process)
        self._of_process = frozenset(of_process)
        self._namespaces: dict[str, Mapping[str, Collector]] = {}

    def add(self, namespace: str, registry: CollectorRegistry) -> None:
        self._namespaces[namespace] = _map_families(registry)

    def collect(self) -> Iterator[Metric]:
        names = dict.fromkeys(self._process)
        for families in tuple(self._namespaces.values()):
            names |= dict.fromkeys(families)
        for name in names:
            yield from self._collect_family(name)

    def _collect_family(self, name: str) -> Iterator[Metric]:
        own = self._process.get(name)
        if own is not None:
            # A plain number of the process says nothing of namespaces.
            yield from own.collect() if name in self._of_process else _list_labelled(own)
        if name in self._of_process:
            return
        for namespace, families in tuple(self._namespaces.items()):
            family = families.get(name)
            for piece in () if family is None else family.collect():
                yield _add_label(piece, namespace)


def _map_families(registry: CollectorRegistry) -> Mapping[str, Collector]:
    """Return the families of a registry as they are at any later time."""
    assert isinstance(registry, FamilyRegistry), "no other registry knows its families by name"
    return registry.families


def _list_labelled(family: Collector) -> Iterator[Metric]:
    for piece in family.collect():
        piece.samples = [sample for sample in piece.samples if sample.labels]
        yield piece


def _add_label(piece: Metric, namespace: str) -> Metric:
    own = {_LABEL: namespace}
    piece.samples = [sample._replace(labels={**own, **sample.labels}) for sample in piece.samples]
    return piece


class Sink:
    """Write whole lines to a descriptor, as far as its reader takes them.

    A line of which only a part was taken is finished before the next one starts, so that no two
    records are ever mixed. Lines that found no room are counted; `describe_loss` turns that count
    into the line which is written in their place once there is room again.
    """

    def __init__(self, descriptor: int, describe_loss: Callable[[int], bytes]) -> None:
        self._descriptor = descriptor
        self._describe_loss = describe_loss
        self._poller = select.poll()
        self._poller.register(descriptor, select.POLLOUT)
        self._unfinished = b""
        self._lost = 0
        self._is_stuck = False
        # Threads write too, such as those that resolve names. A finalizer may log in the middle of
        # a write of its own thread, hence the re-entrant kind.
        self._lock = threading.RLock()

    @property
    def lost(self) -> int:
        """Return how many lines were lost since the last line that got through."""
        return self._lost

    def write(self, line: bytes) -> None:
        """Write one line, or count it as lost. May be called from any thread."""
        with self._lock:
            if not (self._finish() and self._write_loss() and self._push(line)):
                self._lost += 1

    def _finish(self) -> bool:
        if not self._unfinished:
            return True
        rest, self._unfinished = self._unfinished, b""
        if not self._push(rest):
            self._unfinished = rest
        return not self._unfinished

    def _write_loss(self) -> bool:
        """Write how many lines were lost, if any; return False where there was no room for it."""
        if not self._lost:
            return True
        if not self._push(self._describe_loss(self._lost)):
            return False
        self._lost = 0
        return not self._unfinished

    def _push(self, line: bytes) -> bool:
        """Write what there is room for; return False where not even the start was taken."""
        taken = 0
        while taken < len(line):
            if not self._has_room():
                break
            try:
                taken += os.write(self._descriptor, line[taken : taken + _PIECE])
            except OSError:  # EPIPE, EBADF, EAGAIN, ENOSPC: nothing that a log line could change
                self._is_stuck = True
                break
        if 0 < taken < len(line):
            self._unfinished = line[taken:]
        return taken > 0

    def _has_room(self) -> bool:
        ready = self._poller.poll(0 if self._is_stuck else _GRACE_MILLISECONDS)
        self._is_stuck = not any(event & select.POLLOUT for _, event in ready)
        return not self._is_stuck
