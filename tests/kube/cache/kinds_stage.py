"""The commands of stories of kinds that come and go, or are of the cluster.

Whether a kind is there is read as one object first: `probe absent there`.
"""

from datetime import timedelta
from typing import Final

from rollout_operator.kube.api import PODS, Resource
from rollout_operator.kube.informer import Collection, Informer, ObjectSource
from rollout_operator.kube.kinds import FollowedKind, WatchedKind
from rollout_operator.kube.nodes import FollowedNodes
from rollout_operator.kube.store import PodStore, WatchedStore
from rollout_operator.model.decode.objects import decode_pod, place_decoder
from rollout_operator.model.names import TOPOLOGY_KEYS, Unreachable
from rollout_operator.model.objects import AnyWatched
from rollout_operator.telemetry.metrics import Metrics
from tests.kube.cache.stage import NAMESPACE, AnyPod, ScriptStage, label

ZONE, OLDER = TOPOLOGY_KEYS
KEYS: Final = {"zone": ZONE, "rack": "example.com/rack"}
VERSIONS: Final = tuple(Resource("", version, "pods", "Pod") for version in ("v2", "v1"))


class OptionalStage(ScriptStage):
    """An informer of pods, which may be no kind of this API server."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__(lines)
        self.store = PodStore()
        of: Collection[AnyPod] = Collection(
            resource=PODS, namespace=NAMESPACE, decode=decode_pod, store=self.store
        )
        self.kind = FollowedKind(self.api, of, self._make)

    def _make(self, api: ObjectSource, of: Collection[AnyPod]) -> Informer[AnyPod]:
        return Informer(api, of, self.metrics, self.clock, lambda: 0.5)

    async def do_run(self) -> None:
        self.start(self.kind.run(self.clock), "optional informer")
        self.start(self._wait_answered(), "answered")

    async def _wait_answered(self) -> None:
        await self.kind.wait_answered()
        self.tell("answered")

    def read_age(self) -> timedelta:
        return self.kind.age

    async def do_shown(self) -> str:
        return read_shown(self.metrics)

    def describe(self) -> dict[str, str]:
        return {
            "holds": " ".join(label(item) for item in self.store.list_all()) or "nothing",
            "is": describe_kind(self.kind),
        }


def read_shown(metrics: Metrics) -> str:
    """Return the age that metrics show, of the one kind that is followed."""
    [family] = metrics.watch_age.collect()
    return " ".join(f"{sample.value:.4g}" for sample in family.samples) or "none"


def describe_kind(kind: FollowedKind[AnyPod] | WatchedKind) -> str:
    words = ["absent"] * kind.is_absent + ["forbidden"] * kind.is_forbidden
    return " ".join([*words, f"lacking: {kind.lack}" if kind.lack else "known"])


class FollowedStage(ScriptStage):
    """A kind that is followed in its first version that is served, v2 or v1."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__(lines)
        self.store = WatchedStore()
        of: Collection[AnyWatched] = Collection(
            resource=PODS, namespace=NAMESPACE, decode=place_decoder("Pod"), store=self.store
        )
        self.kind = FollowedKind(self.api, of, self._make, versions=VERSIONS)
        self.kind.on_change(lambda old, new: self.tell(f"{label(old)}>{label(new)}"))
        self.kind.on_news(lambda: self.tell("news"))

    def _make(self, api: ObjectSource, of: Collection[AnyWatched]) -> Informer[AnyWatched]:
        return Informer(api, of, self.metrics, self.clock, lambda: 0.5)

    async def do_run(self) -> None:
        self.start(self.kind.run(self.clock), "followed kind")

    def read_age(self) -> timedelta:
        return self.kind.age

    async def do_shown(self) -> str:
        return read_shown(self.metrics)

    def describe(self) -> dict[str, str]:
        version = self.kind.resource.version if self.kind.resource else ""
        held = [version, *(label(item) for item in self.store.list_all())]
        return {"holds": " ".join(held) or "nothing", "is": describe_kind(self.kind)}


class NodesStage(ScriptStage):
    """Each node has two zones and a rack; `n1@4-` has zone b alone, `n1@4!` no label."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__(lines)
        self.nodes = FollowedNodes(
            self.api,
            lambda api, of: Informer(api, of, self.metrics, self.clock, lambda: 0.5),
            self.clock,
        )
        self.nodes.on_change(lambda: self.tell("changed"))

    def make_tree(self, name: str, version: str, uid: str, owner: str, flag: str) -> object:
        every = {ZONE: "a", OLDER: "b", KEYS["rack"]: "r1", "kubernetes.io/hostname": name}
        labels = {"": every, "-": {ZONE: "b"}, "!": None}[flag]
        head: dict[str, object] = {"name": name, "uid": f"uid-{name}", "resourceVersion": version}
        head["labels"] = 7 if uid == "broken" else labels
        return {"kind": "Node", "metadata": head, "spec": {}, "status": {"images": []}}

    async def do_run(self) -> None:
        self.start(self.nodes.run(), "nodes")

    def read_age(self) -> timedelta:
        return timedelta.max

    async def do_find(self, key: str, namespace: str = "prod") -> str:
        try:
            found = self.nodes.find_labels(KEYS.get(key, key), namespace)
        except Unreachable as error:
            return str(error)
        if found is None:
            return "may not be read"
        return "; ".join(
            f"{name} {','.join(f'{key[-4:]}={value}' for key, value in labels.items()) or '-'}"
            for name, labels in found.items()
        )

    async def do_name(self, prefix: str, count: str, namespace: str = "prod") -> str:
        """Request so many keys; show the last answer to each kind of them."""
        answers = [await self.do_find(f"{prefix}/{one}", namespace) for one in range(int(count))]
        return answers[-1]
