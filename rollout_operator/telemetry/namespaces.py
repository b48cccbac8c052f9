"""One exposition of several namespaces: series of each carry its name as a label.

Decides which families are of the process as a whole: they are there once, without the label. What a
family holds is decided in `metrics`, how it reads on the wire in `exposition`.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.registry import Collector

LABEL: Final = "namespace"
# Of which a process has one set, whatever namespaces it watches; by attribute of `Metrics`.
OF_PROCESS: Final = (
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
ALWAYS_OF_PROCESS: Final = (
    "rollout_operator_build_info",
    "kube_validating_webhook_failure_policy",
    "ProcessCollector",
)
"""The others of a process, by name."""


def name_family(collector: Collector) -> str:
    """Return the name of a family; its class where the collector has no name."""
    describe = getattr(collector, "describe", list)
    return next((family.name for family in describe()), type(collector).__name__)


def share(metrics: object, others: object) -> None:
    """Give `others` what a process has once, of its `metrics`."""
    for name in OF_PROCESS:
        setattr(others, name, getattr(metrics, name))


def list_shared(metrics: object) -> list[str]:
    """Return the names of the families that a process has once."""
    return [*(name_family(getattr(metrics, name)) for name in OF_PROCESS), *ALWAYS_OF_PROCESS]


class FamilyRegistry(CollectorRegistry):
    """A registry that knows its families by name, in the order in which they were added."""

    def __init__(self) -> None:
        super().__init__()
        self.families: dict[str, Collector] = {}

    def register(self, collector: Collector) -> None:
        """Add a family."""
        super().register(collector)
        self.families[name_family(collector)] = collector

    def unregister(self, collector: Collector) -> None:
        """Remove what was added."""
        super().unregister(collector)
        self.families.pop(name_family(collector), None)


class MergedRegistry:
    """The families of a process, and of the namespaces that it watches."""

    def __init__(self, process: CollectorRegistry, of_process: Iterable[str]) -> None:
        """`of_process` names the families that are there once; all others are of namespaces."""
        self._process = _map_families(process)
        self._of_process = frozenset(of_process)
        self._namespaces: dict[str, Mapping[str, Collector]] = {}

    def add(self, namespace: str, registry: CollectorRegistry) -> None:
        """Show what a namespace has as well."""
        self._namespaces[namespace] = _map_families(registry)

    def collect(self) -> Iterator[Metric]:
        """Yield all families, those of one name one after the other, in pieces."""
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
    own = {LABEL: namespace}
    piece.samples = [sample._replace(labels={**own, **sample.labels}) for sample in piece.samples]
    return piece
