"""Play a plan on the control plane, take dumps in its course, and see what came after each.

The changes of a plan are carried out as people would, in the words that `simulate` takes.

What goes after a dump is known by the store's own versions, not by clocks: a pod went later where
its end was written after the list of pods was read.
"""

import asyncio
import json
import random
import shutil
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace
from rollout_lab.simulate.changes import parse_change
from rollout_lab.zones import ZoneSpec

from tests.judge.book import Write
from tests.prediction.comparison import Cause, Going
from tests.prediction.plans import Plan
from tests.system.hooked import hook_up
from tests.system.zones import OTHER, create_budgets, prepared_zone
from tests.world.api import (
    BUDGETS,
    CONFIG_MAPS,
    MUTATING_HOOKS,
    PODS,
    STATEFULSETS,
    VALIDATING_HOOKS,
    ApiError,
    Json,
    Resource,
)
from tests.world.budgets import REPLICA_TEMPLATES, TRY_AGAIN, ZONE_BUDGETS, evict
from tests.world.hooks import BUDGET_HOOKS, NO_DOWNSCALE, PREPARE_DOWNSCALE
from tests.world.judge import match_deletes, match_evictions
from tests.world.kubelet import Behaviour, Choose, Kind, image_of
from tests.world.sets import PAUSED, is_ready
from tests.world.world import World

# As kubectl waits after an eviction that was refused, and between two reads of a pod that goes.
RETRY: Final = 5.0
GONE_POLL: Final = 1.0
GONE: Final = (200, 201, 404)


@dataclass(slots=True)
class NodesDrain:
    world: World
    nodes: Sequence[str]
    is_done: bool = False
    _place: int = 0
    """Of the node which is being emptied."""
    _requested: dict[str, float] = field(default_factory=dict)
    """Pods of this node that have not gone, and when each is requested or read next."""
    _refused: set[str] = field(default_factory=set)
    """Those of them whose eviction was refused last."""

    async def run(self) -> None:
        """Evict the pods of each node, until all are gone."""
        for self._place, node in enumerate(self.nodes):  # noqa: B020 (others see how far it is)
            pods = await self.world.api.items(PODS, self.world.namespace)
            async with asyncio.TaskGroup() as tasks:
                for pod in pods:
                    if node_of(pod) == node:
                        name = str(pod["metadata"]["name"])
                        tasks.create_task(self._leave(name), name=f"drain-{name}")
        self.is_done = True

    def list_rest(self, pods: Sequence[Json]) -> Iterator[str]:
        """Yield what it has still to do as changes from now on, with pods as they stand."""
        now = time.monotonic()
        requested = {name: max(at - now, 0) for name, at in self._requested.items()}
        here = {node_of(pod) for pod in pods}
        yield from (f"cordon {node} at 0s" for node in self.nodes if node in here)
        yield from render_rest(self.nodes[self._place :], requested, self._refused, pods)

    async def _leave(self, name: str) -> None:
        """Have one pod go, or give up on it as kubectl does."""
        self._requested[name] = time.monotonic()
        while True:
            answer = await evict(self.world.api, self.world.namespace, name)
            if answer.status != TRY_AGAIN:
                break
            self._refused.add(name)
            await self._wait(name, RETRY)
        self._refused.discard(name)
        while answer.status in GONE and await self._is_going(name):
            await self._wait(name, GONE_POLL)
        del self._requested[name]

    async def _is_going(self, name: str) -> bool:
        try:
            pod = await self.world.api.get(PODS, self.world.namespace, name)
        except ApiError as error:
            if error.status != 404:
                raise
            return False
        return "deletionTimestamp" in pod["metadata"]

    async def _wait(self, name: str, seconds: float) -> None:
        self._requested[name] = time.monotonic() + seconds
        await asyncio.sleep(seconds)


def render_rest(
    nodes: Sequence[str],
    requested: Mapping[str, float],
    refused: Collection[str],
    pods: Sequence[Json],
) -> Iterator[str]:
    """Yield the drain that does what another has still to do, unless that is nothing.

    `requested` are its pods under way, with the seconds until it requests or reads each again;
    those that were not `refused` last are done with, whatever came in their place.
    """
    here = {node_of(pod) for pod in pods}
    waiting = [pod for pod in pods if pod["metadata"]["name"] in refused]
    current = [node_of(pod) for pod in waiting if node_of(pod)]
    left = [node for node in nodes if node in here]
    if names := tuple(dict.fromkeys((*current, *left))):
        # The operator knows that an eviction waits: a drain that begins lets it know.
        wait = 0 if any(map(is_ready, waiting)) else min(requested.values(), default=0)
        yield f"drain {' '.join(names)} at {wait:.2f}s"


def node_of(pod: Json) -> str:
    return str(pod["spec"].get("nodeName") or "")


BAD: Final = "bad"


@dataclass(slots=True)
class Nodes:
    """One node for each pod; a pod of one that was cordoned comes back on another."""

    cordoned: set[str] = field(default_factory=set)

    async def place(self, pod: Json) -> str:
        node = f"node-{pod['metadata']['name']}"
        return f"spare-{node}" if node in self.cordoned else node


@dataclass(slots=True)
class Hands:
    """Those who change things in one world."""

    world: World
    zones: Sequence[str]
    tasks: asyncio.TaskGroup
    nodes: Nodes = field(default_factory=Nodes)
    is_bad: bool = False
    """Whether pods of the newest image crash."""
    _drains: list[NodesDrain] = field(default_factory=list)

    async def apply(self, change: str) -> None:
        """Let one change happen; what is refused is part of it."""
        match change.split():
            case ["image", image]:
                self.is_bad = False
                await self.world.set_image(self.zones, image)
            case ["bad", "template"]:
                self.is_bad = True
                await self.world.set_image(self.zones, BAD)
            case ["scale", zone, "to", replicas]:
                path = STATEFULSETS.path(self.world.namespace, zone, "scale")
                body = {"spec": {"replicas": int(replicas)}}
                merge = "application/merge-patch+json"
                await self.world.api.exchange("PATCH", path, body=body, content_type=merge)
            case ["pause", zone]:
                await self.world.annotate(zone, **{PAUSED: "true"})
            case ["resume", zone]:
                await self.world.annotate(zone, **{PAUSED: None})
            case ["pod", pod, "fails"]:
                await self.world.kubelet.crash(pod)
            case ["drain", "zone", zone]:
                await self._drain(zone)
            case _:
                raise ValueError(f"no such change: {change}")

    def list_left(self, pods: Sequence[Json]) -> list[str]:
        """Return what drains under way have still to do, as changes from now on."""
        return [
            change for each in self._drains if not each.is_done for change in each.list_rest(pods)
        ]

    @property
    def is_draining(self) -> bool:
        return any(not each.is_done for each in self._drains)

    async def _drain(self, zone: str) -> None:
        sts = await self.world.api.get(STATEFULSETS, self.world.namespace, zone)
        nodes = [f"node-{zone}-{ordinal}" for ordinal in range(sts["spec"]["replicas"])]
        self.nodes.cordoned |= set(nodes)
        drain = NodesDrain(self.world, nodes)
        self._drains.append(drain)
        self.tasks.create_task(drain.run(), name=f"drain-{zone}")


RECORDS: Final = "moments.json"


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """A dump, what was still to be requested then, and what came."""

    kind: str
    """Of the plan."""
    seed: int
    at: float
    """Seconds since the run began."""
    dump: Path
    changes: tuple[str, ...]
    terminates_after: float
    """Seconds."""
    happened: tuple[Going, ...]

    @property
    def name(self) -> str:
        return f"{self.kind}/{self.seed} after {self.at:.1f} s"


def keep(moments: Iterable[Moment], folder: Path) -> None:
    """Copy dumps into a folder, with all that is known of them."""
    folder.mkdir(parents=True, exist_ok=True)
    kept = []
    for number, moment in enumerate(moments):
        path = folder / f"{number:03}-{moment.kind}-{moment.seed}.json"
        # With its time, by which the command knows how old the pods are.
        shutil.copy2(moment.dump, path)
        kept.append(replace(moment, dump=path))
    (folder / RECORDS).write_bytes(msgspec.json.encode(kept, enc_hook=str))


def read(folder: Path) -> list[Moment]:
    content = (folder / RECORDS).read_bytes()
    return msgspec.json.decode(content, type=list[Moment], dec_hook=lambda kind, text: kind(text))


KINDS: Final = (STATEFULSETS, PODS, ZONE_BUDGETS, BUDGETS, CONFIG_MAPS, REPLICA_TEMPLATES)
CONFIGURATIONS: Final = (VALIDATING_HOOKS, MUTATING_HOOKS)


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """A dump, and where in the history of the store it stands."""

    path: Path
    version: int
    """Of the store when the pods were listed."""
    pods: Sequence[Json]


async def take(world: World, path: Path) -> Taken:
    items: list[Json] = []
    version, pods = 0, ()
    for kind in KINDS:
        listed = await world.api.list(kind, world.namespace)
        items += _name_kinds(kind, listed)
        if kind is PODS:
            version, pods = int(listed["metadata"]["resourceVersion"]), listed["items"]
    for kind in CONFIGURATIONS:
        listed = await world.api.list(kind)
        found = _name_kinds(kind, listed)
        items += [one for one in found if one["metadata"]["name"].endswith(world.namespace)]
    _write(path, items)
    return Taken(path=path, version=version, pods=pods)


def _write(path: Path, items: list[Json]) -> None:
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))


def _name_kinds(resource: Resource, listed: Json) -> list[Json]:
    """Return the objects of a list with what each is, which only the list itself says."""
    kind = str(listed["kind"]).removesuffix("List")
    return [{"apiVersion": resource.api_version, "kind": kind, **one} for one in listed["items"]]


# After which a pod that was created has been seen, and is not ready: none is so soon.
SEEN_AFTER = timedelta(seconds=0.5)


def list_crashes(
    names: Iterable[str], pods: Sequence[Json], image: str, ends_after: timedelta
) -> Iterator[str]:
    """Yield that pods of a bad image will crash: those that start, and those that come next."""
    there = {str(pod["metadata"]["name"]): pod for pod in pods}
    for name in names:
        pod = there.get(name)
        if pod is None:
            yield f"pod {name} fails at {SEEN_AFTER.total_seconds():.2f}s"
        elif "deletionTimestamp" in pod["metadata"]:
            yield f"pod {name} fails at {(ends_after + SEEN_AFTER).total_seconds():.2f}s"
        elif image_of(pod) == image and not _has_crashed(pod):
            yield f"pod {name} fails at 0s"


def _has_crashed(pod: Json) -> bool:
    statuses = pod.get("status", {}).get("containerStatuses", ())
    return any("waiting" in one["state"] for one in statuses)


def in_time(changes: Iterable[str]) -> tuple[str, ...]:
    """Return changes in the order of their times; those at once keep theirs."""
    return tuple(sorted(changes, key=lambda text: parse_change(text).at or timedelta(0)))


HOOKS: Final = (NO_DOWNSCALE, PREPARE_DOWNSCALE, *BUDGET_HOOKS)
SERVICE: Final = "rollout-operator"
# A pod of a bad template crashes so soon, and then no more.
CRASHES_AFTER: Final = timedelta(milliseconds=400)
NO_MORE: Final = timedelta(hours=1)
# Nothing is expected any more after so long: drains try again after 5 s, downscales wait for 5 s.
OVER: Final = timedelta(seconds=9)
# Where neither is played, one thing follows the other at once.
SOON_OVER: Final = timedelta(seconds=4)
# No dump is taken of a world in which nothing has moved for so long.
STILL: Final = timedelta(seconds=3)
POLL: Final = timedelta(milliseconds=100)
LIMIT: Final = timedelta(minutes=3)


@dataclass(slots=True)
class Run:
    world: World
    plan: Plan
    hands: Hands
    most: int
    """Dumps."""
    taken: list[tuple[float, Taken, tuple[str, ...]]] = field(default_factory=list)
    begun: float = 0
    _requested: int = 0
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """A dump is of before a change or of after it, never of the midst."""

    async def play(self) -> None:
        """Let everything happen. Raises TimeoutError where it does not come to an end."""
        self.begun = time.monotonic()
        async with asyncio.timeout(LIMIT.total_seconds()), asyncio.TaskGroup() as tasks:
            tasks.create_task(self._request_all(), name="requests")
            tasks.create_task(self._take_all(), name="dumps")
        async with asyncio.timeout(LIMIT.total_seconds()):
            over = OVER if self.plan.wait or self.plan.budgets else SOON_OVER
            while not self._is_still(over):  # noqa: ASYNC110 (that nothing moves is no event)
                await asyncio.sleep(POLL.total_seconds())

    async def list_moments(self) -> list[Moment]:
        """Return each dump with what came after it."""
        judge = self.world.judge
        deletes, evictions = await judge.deletes(), await judge.evictions()
        ours = match_deletes(judge.changes, deletes)
        evicted = match_evictions(judge.changes, evictions, judge.wall_offset)
        goings = [
            (change, _name_cause(change, set(ours), set(evicted)))
            for change in _ends(judge.changes)
        ]
        return [
            Moment(
                kind=self.plan.kind,
                seed=self.plan.seed,
                at=at - self.begun,
                dump=taken.path,
                changes=changes,
                terminates_after=self.plan.terminates_after.total_seconds(),
                happened=tuple(
                    Going(change.commit.name, cause, change.at.total_seconds() - at)
                    for change, cause in goings
                    if change.commit.revision > taken.version
                ),
            )
            for at, taken, changes in self.taken
        ]

    async def _request_all(self) -> None:
        for request in self.plan.requests:
            await asyncio.sleep(self.begun + request.at.total_seconds() - time.monotonic())
            async with self._turn:
                await self.hands.apply(request.change)
                self._requested += 1

    async def _take_all(self) -> None:
        rng = random.Random(self.plan.seed)
        while len(self.taken) < self.most and not self._is_still(STILL):
            async with self._turn:
                path = self.world.folder / f"dump-{len(self.taken)}.json"
                taken = await take(self.world, path)
                # By the time of the file the command knows when it begins.
                at = time.monotonic()
                self.taken.append((at, taken, self._list_changes(taken, at)))
            await asyncio.sleep(rng.uniform(0.2, 2 * self._gap()))

    def _gap(self) -> float:
        """Return the time between two dumps by which they are spread over the run."""
        pods = sum(zone.replicas or 0 for zone in self.plan.zones)
        limit = int(self.plan.zones[0].max_unavailable or 1)
        pod = (self.plan.ready_after + self.plan.terminates_after).total_seconds()
        return max(pods * pod / limit / self.most, 0.5)

    def _list_changes(self, taken: Taken, at: float) -> tuple[str, ...]:
        """Return all that is known to come after a dump."""
        crashes: Iterable[str] = ()
        if self.hands.is_bad:
            names = [
                f"{zone.name}-{n}" for zone in self.plan.zones for n in range(zone.replicas or 0)
            ]
            crashes = list_crashes(names, taken.pods, BAD, self.plan.terminates_after)
        return in_time((*crashes, *self.hands.list_left(taken.pods), *self._list_unrequested(at)))

    def _list_unrequested(self, at: float) -> Iterator[str]:
        for request in self.plan.requests[self._requested :]:
            left = max(self.begun + request.at.total_seconds() - at, 0)
            yield f"{request.change} at {left:.2f}s"

    def _is_still(self, span: timedelta) -> bool:
        """Return whether all was sent, and nothing has moved for a while."""
        if self._requested < len(self.plan.requests) or self.hands.is_draining:
            return False
        last = max(
            self.world.judge.changes[-1].at.total_seconds(), self.begun + self._last_request()
        )
        return time.monotonic() - last > span.total_seconds()

    def _last_request(self) -> float:
        return max(request.at.total_seconds() for request in self.plan.requests)


async def play(world: World, plan: Plan, most: int) -> list[Moment]:
    """Play a plan in a world of its own and return its moments, at most so many."""
    async with asyncio.TaskGroup() as tasks:
        hands = Hands(world, [zone.name for zone in plan.zones], tasks)
        await _set_up(world, plan, hands.nodes)
        run = Run(world, plan, hands, most)
        await run.play()
    return await run.list_moments()


async def _set_up(world: World, plan: Plan, nodes: Nodes) -> None:
    world.kubelet.choose = _choose(plan)
    world.kubelet.place = nodes.place
    zones: Sequence[ZoneSpec] = plan.zones
    if plan.is_prepared:
        pods = await world.serve_pods()
        zones = [prepared_zone(pods, zone, wait=plan.wait) for zone in zones]
    await create_budgets(world, plan.budgets)
    other = ZoneSpec(name=OTHER, group=None, replicas=1)
    # Through a Service, as shipped: by it, a dump shows whose webhooks they are.
    name = f"-server-tls.self-signed-cert.dns-name={SERVICE}.{world.namespace}.svc"
    registration = {"hooks": HOOKS, "service": SERVICE}
    await hook_up(world, other, *zones, flags=(name,), registration=registration)
    await world.wait_ready([zone.name for zone in zones])


def _choose(plan: Plan) -> Choose:
    """Return how pods behave: those of a bad image crash, all others come up in nearly a time."""
    rng = random.Random(plan.seed)

    def choose(pod: Json) -> Behaviour:
        is_bad = image_of(pod) == BAD
        return Behaviour(
            kind=Kind.CRASH_LOOP if is_bad else Kind.NORMAL,
            ready_after=CRASHES_AFTER if is_bad else plan.ready_after * rng.uniform(0.9, 1.1),
            terminates_after=plan.terminates_after,
            period=NO_MORE,
        )

    return choose


def _ends(changes: Sequence[Write]) -> Iterator[Write]:
    """Yield the writes by which pods of the zones began to end."""
    for change in changes:
        pod = change.ended_pod
        if pod is not None and not pod.name.startswith(f"{OTHER}-"):
            yield change


def _name_cause(change: Write, ours: set[int], evicted: set[int]) -> Cause:
    if change.commit.revision in ours:
        return Cause.DELETED
    return Cause.EVICTED if change.commit.revision in evicted else Cause.SCALED
