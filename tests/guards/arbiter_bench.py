"""The arbiter of one or more processes on a fake API server, on virtual time.

Zones `ingester-zone-a`, `-b`, `-c` of three pods each stand under budget `ingester`; pods are named
`a-0` in tests. Caches show what `sync` put in last.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, cast

import msgspec
from msgspec.structs import replace

from rollout_operator.guards.arbiter import Arbiter, ArbiterContext, BudgetCatalog
from rollout_operator.guards.grants import Answer, DisruptionRequest, InFlight, OwnDeletes, Recorder
from rollout_operator.kube.api import ApiClient
from rollout_operator.kube.store import PodStore
from rollout_operator.model.budget import Budget, DisruptionSource
from rollout_operator.model.decode.objects import decode_pod
from rollout_operator.model.names import Uid
from rollout_operator.model.objects import Pod, Underway, Unreadable
from tests.controllers.fake_client import FakeClient, meta_of, pod_json, set_json
from tests.controllers.fed_context import FedContext
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


class Process(FedContext):
    """One operator: its caches, which are up to date at first, its memory, its arbiter."""

    clock: JumpingClock
    pods: CountingPods

    def __init__(self, world: "World", name: str = "x") -> None:
        super().__init__(world.client, JumpingClock())
        self.world, self.pods = world, CountingPods()
        self.deletes = OwnDeletes(self.pods, self.clock)
        self.in_flight = InFlight(self.pods, self.deletes, self.clock)
        self.recorder = Recorder(world.client, self.clock, name)
        self.catalog = BudgetCatalog(self.metrics)
        for rule in world.rules:
            self.catalog.on_change(None, rule)
        self.observer = self.make_observer(cast(ApiClient, world.client))
        self.common = ArbiterContext(
            budgets=self.catalog, find_lack=world.lacks.get, sets=self.sets, pods=self.pods,
            reader=self.observer, in_flight=self.in_flight, recorder=self.recorder,
            age=lambda: world.age, now=world.now, clock=self.clock, metrics=self.metrics,
            find_downscale=lambda sets: world.downscale,
        )  # fmt: skip
        self.gate = Arbiter(self.common)
        self.sync(world.client)

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

    client: FakeClient
    rules: Sequence[Budget]
    age: timedelta = timedelta(0)
    lacks: dict[DisruptionSource, str] = field(default_factory=dict)
    downscale: Underway | None = None

    def now(self) -> datetime:
        """Return the API server's time."""
        return EPOCH + elapsed()

    def live(self, pod: str) -> Pod:
        """Return a pod as the store has it."""
        return decode_pod(msgspec.json.encode(self.client.objects["pods", name_of(pod)]))

    def change(self, pod: str, **metadata: object) -> None:
        """Change metadata of a pod: a new version."""
        held = self.client.objects["pods", name_of(pod)]
        meta = meta_of(held)
        version = int(str(meta["resourceVersion"])) + 1
        self.client.put(
            "pods", {**held, "metadata": {**meta, **metadata, "resourceVersion": str(version)}}
        )


def world(
    *rules: Budget, zones: str = "abc", pods: int = 3, labels: Mapping[str, str] = LABELS
) -> World:
    """Return whole zones under budgets; under budget `ingester` of one pod where none is given."""
    names = [f"ingester-zone-{letter}" for letter in zones]
    sets = [set_json(name, replicas=pods, labels=dict(labels), update="old") for name in names]
    stand = [pod_json(name, ordinal) for name in names for ordinal in range(pods)]
    return World(client=FakeClient(sets, stand), rules=rules or (rule(),))


def rule(max_unavailable: int = 1, **changes: object) -> Budget:
    """Return budget `ingester` over the whole group."""
    return replace(budget(max_unavailable), **{"selector": LABELS, **changes})


def name_of(pod: str) -> str:
    """Return the whole name of `a-0`."""
    return f"ingester-zone-{pod}"
