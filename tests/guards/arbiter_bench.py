"""The arbiter of one or more processes on a fake API server, on virtual time.

Zones `ingester-zone-a`, `-b`, `-c` of three pods each stand under budget `ingester`; pods are named
`a-0` in tests. Caches show what `sync` put in last.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec.structs import replace

from rollout_operator.controllers.observe import Observer
from rollout_operator.guards.arbiter import Arbiter, ArbiterContext, BudgetCatalog
from rollout_operator.guards.grants import Answer, DisruptionRequest, InFlight, OwnDeletes, Recorder
from rollout_operator.kube.api import JsonObject, Resource
from rollout_operator.kube.store import PodStore, StatefulSetStore
from rollout_operator.model.budget import Budget, DisruptionSource
from rollout_operator.model.decode.objects import decode_pod, decode_statefulset
from rollout_operator.model.decode.wire import salvage
from rollout_operator.model.names import DISRUPTION_RECORD, DecodeError, Uid, UnknownOutcome
from rollout_operator.model.objects import Pod, StatefulSet, Underway, Unreadable
from rollout_operator.telemetry.metrics import Metrics
from tests.controllers.fake_client import FakeClient, Json, meta_of, pod_json, set_json
from tests.planning.disruptions import budget
from tests.virtual_time import EPOCH, VirtualClock, elapsed

LABELS: Final = {"rollout-group": "ingester"}
LONG: Final = timedelta(seconds=9)


class JumpingClock(VirtualClock):
    """Stands ahead of the loop: a process was frozen, and no timer of it has run yet."""

    def __init__(self) -> None:
        self.ahead = timedelta(0)

    def elapsed(self) -> timedelta:
        return elapsed() + self.ahead


class CountingPods(PodStore):
    """Counts how often the pods of a zone are read for a decision."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0

    def list_by_owner(self, uid: Uid) -> Sequence[Pod | Unreadable]:
        """Return the pods of an owner, and count that."""
        self.reads += 1
        return super().list_by_owner(uid)


class RecordingClient(FakeClient):
    """A FakeClient that may lose answers."""

    def __init__(self, sets: Sequence[Json], pods: Sequence[Json]) -> None:
        super().__init__(sets, pods)
        self.lost: set[str] = set()
        """Calls that are carried out and get no answer."""

    async def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        patch: JsonObject | Sequence[JsonObject],
        *rest: object,
        **how: object,
    ) -> bytes:
        body = await super().patch(resource, namespace, name, patch)
        if f"patch pods/{name}" in self.lost:
            raise UnknownOutcome(f"patch pods {name}: no answer")
        return body


@dataclass(kw_only=True)
class Process:
    """One operator: its caches, its memory, its arbiter."""

    name: str
    world: "World"
    clock: JumpingClock
    sets: StatefulSetStore
    pods: CountingPods
    deletes: OwnDeletes
    in_flight: InFlight
    recorder: Recorder
    observer: Observer
    context: ArbiterContext
    gate: Arbiter
    metrics: Metrics
    catalog: BudgetCatalog

    def sync(self) -> Sequence[tuple[Pod | Unreadable | None, Pod | Unreadable | None]]:
        """Bring the caches up to date; return how pods have changed."""
        objects = self.world.client.objects.items()
        sets = [one for (plural, _), one in objects if plural == "statefulsets"]
        pods = [one for (plural, _), one in objects if plural == "pods"]
        found: list[StatefulSet | Unreadable] = []
        for one in sets:
            try:
                found.append(decode_statefulset(raw(one)))
            except DecodeError as error:
                found.append(salvage("StatefulSet", raw(one), error))
        self.sets.replace_all(found)
        return self.pods.replace_all([decode_pod(raw(one)) for one in pods])

    def cached(self, pod: str) -> Pod:
        """Return what the cache shows of a pod."""
        found = self.pods.get("test", name_of(pod))
        assert isinstance(found, Pod), found
        return found

    async def roll(self, pod: str, *, limit: int = 1, within: timedelta = LONG) -> Answer:
        """Request a delete by a rollout."""
        request = DisruptionRequest(
            pod=self.cached(pod), engine=DisruptionSource.ROLLOUT, limit=limit
        )
        return await self.gate.request(request, self.clock.elapsed() + within)


@dataclass(kw_only=True)
class World:
    """The API server, what all processes know alike, and the processes."""

    client: RecordingClient
    rules: Sequence[Budget]
    age: timedelta = timedelta(0)
    lacks: dict[DisruptionSource, str] = field(default_factory=dict)
    downscale: Underway | None = None

    def start(self, name: str = "x") -> Process:
        """Start a process with caches that are up to date."""
        clock, metrics = JumpingClock(), Metrics()
        sets, pods = StatefulSetStore(), CountingPods()
        deletes = OwnDeletes(pods, clock)
        in_flight = InFlight(pods, deletes, clock)
        recorder, catalog = Recorder(self.client, clock, name), BudgetCatalog(metrics)
        for rule in self.rules:
            catalog.on_change(None, rule)
        observer = Observer(
            namespace="test", reader=self.client, clock=clock, sets=sets, pods=pods, watches=(),
            in_flight=in_flight, now=self.now,
        )  # fmt: skip
        context = ArbiterContext(
            budgets=catalog, find_lack=self.lacks.get, sets=sets, pods=pods, reader=observer,
            in_flight=in_flight, recorder=recorder, age=lambda: self.age, now=self.now,
            clock=clock, metrics=metrics, find_downscale=lambda sets: self.downscale,
        )  # fmt: skip
        made = Process(
            name=name, world=self, clock=clock, sets=sets, pods=pods, deletes=deletes,
            in_flight=in_flight, recorder=recorder, observer=observer, context=context,
            gate=Arbiter(context), metrics=metrics, catalog=catalog,
        )  # fmt: skip
        made.sync()
        return made

    def now(self) -> datetime:
        """Return the API server's time."""
        return EPOCH + elapsed()

    def record(self, pod: str) -> str:
        """Return the record that stands on a pod, empty where there is none."""
        return self.live(pod).disruption

    def live(self, pod: str) -> Pod:
        """Return a pod as the store has it."""
        return decode_pod(raw(self.client.objects["pods", name_of(pod)]))

    def annotate(self, pod: str, text: str | None) -> None:
        """Write a record without an event, or remove it."""
        key = {} if text is None else {DISRUPTION_RECORD: text}
        self.change(pod, annotations=key)

    def change(self, pod: str, **metadata: object) -> None:
        """Change metadata of a pod: a new version."""
        held = self.client.objects["pods", name_of(pod)]
        meta = meta_of(held)
        version = int(str(meta["resourceVersion"])) + 1
        self.client.put(
            "pods", {**held, "metadata": {**meta, **metadata, "resourceVersion": str(version)}}
        )

    def add_zone(self, letter: str, labels: Mapping[str, str]) -> None:
        """Add a zone of one pod with other labels."""
        name = name_of(letter)
        one = set_json(name, replicas=1, labels=dict(labels), update="old", selector=dict(labels))
        pod = pod_json(name, 0)
        meta_of(pod)["labels"] = dict(labels)
        self.client.put("statefulsets", one)
        self.client.put("pods", pod)

    def terminate(self, pod: str) -> None:
        """Delete a pod gracefully: it is on its way out."""
        self.change(pod, deletionTimestamp="2026-01-02T03:04:35Z")

    def replace(self, pod: str) -> None:
        """Put a new pod in a pod's place."""
        self.change(pod, uid=f"new-{pod}", annotations={})

    def remove(self, pod: str) -> None:
        """Take a pod away."""
        del self.client.objects["pods", name_of(pod)]

    def break_pod(self, pod: str) -> None:
        """Make a pod crash loop."""
        zone, _, ordinal = name_of(pod).rpartition("-")
        self.client.put("pods", pod_json(zone, int(ordinal), ready=False))


def world(
    *rules: Budget, zones: str = "abc", pods: int = 3, labels: Mapping[str, str] = LABELS
) -> World:
    """Return whole zones under budgets; under budget `ingester` of one pod where none is given."""
    names = [f"ingester-zone-{letter}" for letter in zones]
    sets = [set_json(name, replicas=pods, labels=dict(labels), update="old") for name in names]
    stand = [pod_json(name, ordinal) for name in names for ordinal in range(pods)]
    return World(client=RecordingClient(sets, stand), rules=rules or (rule(),))


def rule(max_unavailable: int = 1, **changes: object) -> Budget:
    """Return budget `ingester` over the whole group."""
    return replace(budget(max_unavailable), **{"selector": LABELS, **changes})


def name_of(pod: str) -> str:
    """Return the whole name of `a-0`."""
    return f"ingester-zone-{pod}"


def part(one: Json, key: str) -> Json:
    """Return an object inside of an object."""
    found = one[key]
    assert isinstance(found, dict)
    return found


def raw(one: Json) -> msgspec.Raw:
    """Return an object as the decoders take it."""
    return msgspec.Raw(msgspec.json.encode(one))
