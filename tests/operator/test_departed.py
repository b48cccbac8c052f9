"""A zone that leaves while it is short still counts, on a simulated cluster (SI-26, D-82).

Each test plays the ways in which a zone may leave: a person who makes volumes larger, a tool that
takes a label off, a selector that changes.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import Final

import pytest
from msgspec.structs import replace
from rollout_lab.admission.registrations import pod_eviction
from rollout_lab.drains import evict
from rollout_lab.model.fields import child
from rollout_lab.model.history import Called
from rollout_lab.model.request import MERGE_PATCH, ApiRequest
from rollout_lab.network.faults import EVENT_OUTCOME, EventOutcome, NoFaults
from rollout_lab.process import SimulatedProcess
from rollout_lab.world import Sandbox
from rollout_lab.zones import ZoneSpec, three_zones

from rollout_operator.kube.api import (
    MULTI_AZ_ROLLOUTS,
    PODS,
    VALIDATING_WEBHOOKS,
    ZONE_BUDGETS,
    JsonObject,
    Resource,
)
from rollout_operator.model.names import (
    GROUP_LABEL,
    LEADING_ZONE,
    PREPARE_DOWNSCALE,
    PREPARE_PATH,
    PREPARE_PORT,
    TOPOLOGY_KEYS,
)
from rollout_operator.model.outcome import Code, Reason
from tests.simulation.drainers import create_budget, zone_budget
from tests.simulation.scenarios_people import People, Route
from tests.virtual_time import in_virtual_time

HOLD: Final = timedelta(minutes=10)
GUARDED: Final = {"app": "store"}
STAYS: Final = {**GUARDED, "stays": "true"}
ALONE: Final = {**GUARDED, "stays": "alone"}
A, B, C = (
    replace(zone, labels=labels, pod_labels={**labels, GROUP_LABEL: "ingester"})
    for zone, labels in zip(three_zones(), (ALONE, STAYS, STAYS), strict=True)
)
POLICY_ZONES: Final = [
    replace(zone, group=None, labels={**zone.labels, TOPOLOGY_KEYS[0]: zone.name[-1]})
    for zone in (A, B, C)
]
SICK: Final = f"{A.name}-1"
BY_ZONE: Final[JsonObject] = {"maxUnavailable": 1}
BY_PARTITION: Final[JsonObject] = {**BY_ZONE, "podNamePartitionRegex": "[a-z-]+-([0-9]+)"}
SELECTORS: Final = {ZONE_BUDGETS: "selector", MULTI_AZ_ROLLOUTS: "statefulSetSelector"}
NAMES: Final = ("store", "store-new", "store-newer")
POLICIES: Final = "-multi-az-rollouts.enabled"
Leave = Callable[[People], Awaitable[None]]


class World:
    """Three zones, one process, and what can be seen of both."""

    def __init__(self, sandbox: Sandbox, process: SimulatedProcess) -> None:
        self.sandbox = sandbox
        self.process = process
        self.people = People(sandbox=sandbox, rng=random.Random(0))

    async def make_short(self) -> None:
        """Have a pod of zone a fail."""
        self.sandbox.cluster.fail_pod(SICK)
        await asyncio.sleep(5)

    async def roll(self, *zones: ZoneSpec, image: str = "v2") -> None:
        """Give zones a new template."""
        for zone in zones:
            await self.people.set_image(zone.name, image)
        await asyncio.sleep(20)

    def list_deletes(self) -> Sequence[timedelta]:
        """Return when the operator deleted pods."""
        return [
            called.at
            for called in self.sandbox.history.list_all(Called)
            if called.actor.startswith("operator-")
            and (called.request.verb, called.request.resource) == ("delete", PODS)
            and called.status < 400
        ]

    def find_leading(self) -> Reason:
        """Return the first reason for which the group waits."""
        (entry,) = [entry for entry in self.process.entries() if entry.plan.group == "ingester"]
        return entry.plan.waits[0]


async def nothing(people: People) -> None:
    """Prepare nothing."""


@asynccontextmanager
async def running(
    zones: Sequence[ZoneSpec] = (A, B, C),
    *,
    prepare: Callable[[People], Awaitable[None]] = nothing,
    args: Sequence[str] = (),
    webhooks: bool = False,
    faults: NoFaults | None = None,
) -> AsyncIterator[World]:
    """Run zones that are whole."""
    async with Sandbox(faults=faults) as sandbox:
        process = sandbox.process(args=args, webhooks=webhooks)
        world = World(sandbox, process)
        for zone in zones:
            await world.people.create(zone)
        await prepare(world.people)
        process.start()
        await asyncio.sleep(30)
        yield world


async def delete_without_pods(people: People) -> None:
    await people.delete(A.name, propagation="Orphan")


async def delete_with_pods(people: People) -> None:
    await people.delete(A.name)


async def take_labels_off(people: People) -> None:
    for key in (GROUP_LABEL, *GUARDED):
        await people.label(A.name, key, None)


async def move_elsewhere(people: People) -> None:
    for key in (GROUP_LABEL, *GUARDED):
        await people.label(A.name, key, "other")


async def take_labels_off_and_delete(people: People) -> None:
    await take_labels_off(people)
    await delete_with_pods(people)


async def delete_and_create_outside(people: People) -> None:
    await delete_without_pods(people)
    await asyncio.sleep(5)
    await people.create(replace(A, group=None, labels={}))


async def change_selector(people: People) -> None:
    await change(people, ZONE_BUDGETS, {"spec": {"selector": {"matchLabels": dict(STAYS)}}})


async def change_policy_selector(people: People) -> None:
    selector: JsonObject = {"matchLabels": dict(STAYS)}
    await change(people, MULTI_AZ_ROLLOUTS, {"spec": {"statefulSetSelector": selector}})


async def renew_with_another_selector(people: People) -> None:
    """Delete the budget or the policy, and create it anew, as `kubectl replace --force` does."""
    for resource in SELECTORS:
        create = ask_for_another(people, resource, "store", "store", STAYS)
        if create is not None:
            await send(people, ApiRequest(verb="delete", resource=resource, name="store"))
            await send(people, create)


async def rename(
    people: People,
    *,
    creates_first: bool = False,
    between: Leave = nothing,
    old: str = "store",
    new: str = "store-new",
    to: Mapping[str, str] = GUARDED,
) -> None:
    """Give the budget or the policy another name, as GitOps tools do."""
    for resource in SELECTORS:
        create = ask_for_another(people, resource, old, new, to)
        if create is None:
            continue
        delete = ApiRequest(verb="delete", resource=resource, name=old)
        first, second = (create, delete) if creates_first else (delete, create)
        await send(people, first)
        await asyncio.sleep(5)
        await between(people)
        await asyncio.sleep(5)
        await send(people, second)


def ask_for_another(
    people: People, resource: Resource, old: str, new: str, to: Mapping[str, str]
) -> ApiRequest | None:
    """Return the request for a budget or policy like another one, with a selector of its own."""
    held = people.sandbox.api.get(resource, people.sandbox.namespace, old)
    if held is None:
        return None
    spec = {**child(held, "spec"), SELECTORS[resource]: {"matchLabels": dict(to)}}
    body = {**held, "metadata": {"name": new}, "spec": spec}
    return ApiRequest(verb="create", resource=resource, body=body)


async def delete_and_rename(people: People) -> None:
    await delete_without_pods(people)
    await asyncio.sleep(5)
    await rename(people)


async def delete_with_pods_and_rename(people: People) -> None:
    await delete_with_pods(people)
    await asyncio.sleep(5)
    await rename(people, creates_first=True)


async def take_labels_off_and_rename(people: People) -> None:
    await take_labels_off(people)
    await rename(people, creates_first=True)


async def delete_while_it_is_renamed(people: People) -> None:
    await rename(people, between=delete_without_pods)


async def delete_with_both_there(people: People) -> None:
    await rename(people, creates_first=True, between=delete_with_pods)


async def rename_and_delete(people: People) -> None:
    await rename(people)
    await delete_without_pods(people)


async def rename_and_narrow(people: People) -> None:
    await rename(people, to=STAYS)


async def narrow_and_rename(people: People) -> None:
    await rename(people, to=STAYS, creates_first=True)


async def delete_rename_and_narrow(people: People) -> None:
    await delete_with_pods(people)
    await asyncio.sleep(5)
    await rename(people, to=STAYS)


async def narrow_rename_and_delete(people: People) -> None:
    await rename(people, to=STAYS, creates_first=True, between=delete_without_pods)


async def rename_twice_and_narrow(people: People) -> None:
    await rename(people)
    await rename(people, old="store-new", new="store-newer", to=STAYS)


async def split_off(people: People) -> None:
    """Leave the short zone alone in the budget or policy, and give the others one of their own."""
    await add_narrow(people)
    await asyncio.sleep(5)
    await leave_alone(people)


async def leave_alone_and_split_off(people: People) -> None:
    await leave_alone(people)
    await asyncio.sleep(5)
    await add_narrow(people)


async def add_narrow(people: People) -> None:
    for resource in SELECTORS:
        create = ask_for_another(people, resource, "store", "store-new", STAYS)
        if create is not None:
            await send(people, create)


async def leave_alone(people: People) -> None:
    for resource, field in SELECTORS.items():
        if people.sandbox.api.get(resource, people.sandbox.namespace, "store") is not None:
            await change(people, resource, {"spec": {field: {"matchLabels": dict(ALONE)}}})


RENAMES: Final[Sequence[Leave]] = (
    delete_and_rename,
    delete_with_pods_and_rename,
    take_labels_off_and_rename,
    delete_while_it_is_renamed,
    delete_with_both_there,
    rename_and_delete,
)
NARROWED: Final[Sequence[Leave]] = (
    rename_and_narrow,
    narrow_and_rename,
    delete_rename_and_narrow,
    narrow_rename_and_delete,
    rename_twice_and_narrow,
    split_off,
    leave_alone_and_split_off,
)
LEAVES: Final[Sequence[Leave]] = (
    delete_without_pods,
    delete_with_pods,
    take_labels_off,
    move_elsewhere,
    take_labels_off_and_delete,
    delete_and_create_outside,
)
each_way = partial(pytest.mark.parametrize, "leave", ids=lambda leave: leave.__name__)


@in_virtual_time
@each_way(LEAVES)
async def test_si26_a_zone_that_left_short_holds_a_group_that_is_renamed_then(leave: Leave) -> None:
    """SI-26: the other zones take it along to the new name."""
    async with running() as world:
        await world.make_short()
        await leave(world.people)
        await asyncio.sleep(5)
        for zone in (B, C):
            await world.people.label(zone.name, GROUP_LABEL, "renamed")
        await world.roll(B, C)
        await asyncio.sleep(60)
        assert not world.list_deletes()


@in_virtual_time
@each_way(LEAVES)
async def test_si26_a_zone_that_leaves_short_holds_a_rollout_for_ten_minutes(leave: Leave) -> None:
    """SI-26: until then no pod of another zone goes, and the reason names zone, pods and time."""
    async with running() as world:
        await world.make_short()
        await world.roll(B, C)
        left_at = world.sandbox.elapsed()
        await leave(world.people)
        await asyncio.sleep(70)
        wait = world.find_leading()
        assert (wait.code, wait.zone) == (Code.ZONE_LEFT_SHORT, A.name)
        assert f"{SICK}: " in wait.text
        assert wait.text.endswith("for another 9 minutes at most")
        await asyncio.sleep((HOLD - timedelta(seconds=80)).total_seconds())
        assert not world.list_deletes()
        await asyncio.sleep(120)
        assert HOLD <= world.list_deletes()[0] - left_at < HOLD + timedelta(seconds=8)


@in_virtual_time
@each_way(LEAVES)
async def test_si26_a_zone_that_was_whole_counts_no_more(leave: Leave) -> None:
    """SI-26: whatever becomes of its pods afterwards."""
    async with running() as world:
        await leave(world.people)
        await world.roll(B, C)
        assert world.list_deletes()


@in_virtual_time
@pytest.mark.parametrize("is_mended_first", [True, False])
@each_way((delete_without_pods, delete_with_pods, take_labels_off, delete_and_create_outside))
async def test_si26_it_ends_when_the_zone_is_back_and_whole(
    leave: Leave, is_mended_first: bool
) -> None:
    """SI-26: at once, and not before; its pods may be mended before its StatefulSet is back."""
    async with running() as world:
        await world.make_short()
        await world.roll(B, C)
        await leave(world.people)
        await asyncio.sleep(10)
        mend = partial(mend_pod, world)
        if is_mended_first and leave in (delete_without_pods, take_labels_off):
            world.sandbox.cluster.fail_pod(f"{A.name}-2")
            await mend()
            await asyncio.sleep(10)
            assert not world.list_deletes(), "another pod of it has failed"
        await bring_back(world.people)
        await asyncio.sleep(2)
        assert not world.list_deletes()
        for name in (SICK, f"{A.name}-2"):
            await mend_pod(world, name)
        await asyncio.sleep(20)
        assert world.list_deletes()


@in_virtual_time
@pytest.mark.parametrize("spec", [BY_ZONE, BY_PARTITION], ids=["by zone", "by partition"])
@each_way((*LEAVES, *RENAMES, *NARROWED, change_selector, renew_with_another_selector))
async def test_si26_a_zone_that_leaves_short_holds_evictions(
    leave: Leave, spec: JsonObject
) -> None:
    """SI-26, SI-02, SI-05: by zone any pod of another zone, by partition its peers."""
    budget = partial(guard, spec=spec)
    async with running(prepare=budget, webhooks=True) as world:
        await world.make_short()
        await leave(world.people)
        await asyncio.sleep(15)
        peer, other = f"{B.name}-1", f"{B.name}-2"
        for pod in (peer, peer if spec is BY_PARTITION else other):
            answer = await evict(world.sandbox, pod, "drain")
            assert answer.status == 429
            assert f"{A.name} was deleted or left while it was short" in answer.message
            await asyncio.sleep(5)
        await asyncio.sleep(HOLD.total_seconds() - 60)
        assert (await evict(world.sandbox, peer, "drain")).status == 429
        await asyncio.sleep(60)
        assert (await evict(world.sandbox, peer, "drain")).is_ok


class LatePods(NoFaults):
    """The watch of pods lags."""

    lag = timedelta(0)

    def on_event(self, actor: str, plural: str, type: str, name: str, number: int) -> EventOutcome:
        return EventOutcome(delay=self.lag) if plural == PODS.plural else EVENT_OUTCOME


@in_virtual_time
@pytest.mark.parametrize("lag", [10, 300])
@each_way((*LEAVES, *RENAMES, *NARROWED, change_selector, renew_with_another_selector))
async def test_si26_a_zone_that_left_before_the_watch_told_that_it_was_short_holds_evictions(
    leave: Leave, lag: int
) -> None:
    """SI-26, SI-09: nor does the status of its StatefulSet tell; the live read does."""
    faults = LatePods()
    budget = partial(guard, spec=BY_ZONE)
    async with running(prepare=budget, webhooks=True, faults=faults) as world:
        faults.lag = timedelta(seconds=lag)
        world.sandbox.cluster.lag_controller(HOLD)
        world.sandbox.cluster.fail_pod(SICK)
        await asyncio.sleep(1)
        await leave(world.people)
        for wait in (1, 20, 200):
            await asyncio.sleep(wait)
            assert (await evict(world.sandbox, f"{B.name}-1", "drain")).status == 429


@in_virtual_time
@each_way((*LEAVES, change_selector, *NARROWED))
async def test_si26_a_zone_that_was_whole_holds_no_eviction(leave: Leave) -> None:
    """SI-26: nor do its pods that go after it."""
    async with running(prepare=partial(guard, spec=BY_ZONE), webhooks=True) as world:
        await leave(world.people)
        await asyncio.sleep(20)
        assert (await evict(world.sandbox, f"{B.name}-1", "drain")).is_ok


@in_virtual_time
@each_way(LEAVES[1:5])
async def test_si26_a_zone_that_leaves_short_holds_prepared_downscales(leave: Leave) -> None:
    """SI-26, PREP-16: refused to be tried again, with zone, pods and time."""
    labels = {**GUARDED, PREPARE_DOWNSCALE: "true"}
    called = {PREPARE_PATH: "prepare", PREPARE_PORT: "80"}
    zones = [replace(zone, labels=labels, annotations=called) for zone in (A, B, C)]
    async with running(zones, prepare=People.register_webhooks, webhooks=True) as world:
        people = world.people
        await world.make_short()
        await leave(people)
        await asyncio.sleep(20)
        assert not await people.attempt(lambda: people.scale(B.name, 2, Route.SCALE_MERGE))
        assert f"{A.name} was deleted or left while it was short" in people.tries[-1]
        await asyncio.sleep(HOLD.total_seconds())
        assert await people.attempt(lambda: people.scale(B.name, 2, Route.SCALE_MERGE))


@in_virtual_time
@each_way(LEAVES)
async def test_si26_a_zone_that_leaves_short_holds_followers(leave: Leave) -> None:
    """SI-26: a zone that follows goes down ten minutes later."""
    follower = replace(C, annotations={LEADING_ZONE: B.name})
    async with running((A, B, follower)) as world:
        people = world.people
        await world.make_short()
        await leave(people)
        left_at = world.sandbox.elapsed()
        await asyncio.sleep(20)
        await people.scale(B.name, 2, Route.SCALE_MERGE)
        await asyncio.sleep(HOLD.total_seconds() - 40)
        assert count_replicas(people, C.name) == 3
        codes = [wait.code for entry in world.process.entries() for wait in entry.plan.waits]
        assert Code.ZONE_LEFT_SHORT in codes
        await asyncio.sleep(60)
        assert count_replicas(people, C.name) == 2
        assert world.sandbox.elapsed() - left_at > HOLD


@in_virtual_time
@each_way((*LEAVES[:5], *RENAMES, *NARROWED, change_policy_selector, renew_with_another_selector))
async def test_si26_a_set_that_leaves_a_policy_in_mid_batch_holds_the_next_zone(
    leave: Leave,
) -> None:
    """SI-26, MAZ-46: until it is whole where its StatefulSet stays, else for ten minutes."""
    async with running(POLICY_ZONES, prepare=create_policy, args=(POLICIES,)) as world:
        await world.roll(A, image="bad")
        await world.roll(B, C)
        deleted = world.list_deletes()
        assert len(deleted) == 1, "a batch is open"
        await leave(world.people)
        await asyncio.sleep(HOLD.total_seconds() - 40)
        assert world.list_deletes() == deleted
        held = [world.sandbox.api.get(MULTI_AZ_ROLLOUTS, "default", name) for name in NAMES]
        status = [child(policy, "status") for policy in held if policy is not None]
        assert "zone_left_short" in f"{status}" or "while it was short" in f"{status}"
        await asyncio.sleep(70)
        assert len(world.list_deletes()) > 1


@in_virtual_time
@each_way(LEAVES[:2])
async def test_si26_pods_without_a_statefulset_are_found_by_the_next_process(leave: Leave) -> None:
    """SI-26: those that are left and not ready hold a rollout, and nobody's where none is left."""
    async with running() as world:
        await world.make_short()
        await world.roll(B, C)
        await leave(world.people)
        await asyncio.sleep(5)
        await world.process.stop()
        assert not world.list_deletes()
        world.process.start()
        await asyncio.sleep(60)
        if leave is delete_with_pods:
            assert world.list_deletes()
            return
        assert not world.list_deletes()
        assert world.find_leading().code is Code.ZONE_LEFT_SHORT
        await asyncio.sleep(HOLD.total_seconds())
        assert world.list_deletes()


@in_virtual_time
@pytest.mark.parametrize("then", [nothing, rename])
async def test_si26_pods_without_a_statefulset_hold_evictions_after_a_restart(then: Leave) -> None:
    """SI-26: those that match the budget, whatever its name is by now."""
    async with running(prepare=partial(guard, spec=BY_ZONE), webhooks=True) as world:
        await world.make_short()
        await delete_without_pods(world.people)
        await asyncio.sleep(5)
        await world.process.stop()
        world.process.start()
        await world.process.wait_ready()
        await then(world.people)
        await asyncio.sleep(1)
        assert (await evict(world.sandbox, f"{B.name}-1", "drain")).status == 429
        await asyncio.sleep(HOLD.total_seconds() + 5)
        assert (await evict(world.sandbox, f"{B.name}-1", "drain")).is_ok


@in_virtual_time
@each_way((delete_without_pods, take_labels_off, change_policy_selector))
async def test_si26_an_open_batch_tells_the_next_process_what_left(leave: Leave) -> None:
    """SI-26, MAZ-46: the status of the policy names the StatefulSet, and it is there still."""
    async with running(POLICY_ZONES, prepare=create_policy, args=(POLICIES,)) as world:
        await world.roll(A, image="bad")
        await world.roll(B, C)
        deleted = world.list_deletes()
        await world.process.stop()
        await leave(world.people)
        world.process.start()
        await asyncio.sleep(HOLD.total_seconds() - 60)
        assert world.list_deletes() == deleted
        await asyncio.sleep(120)
        assert len(world.list_deletes()) > len(deleted)


@in_virtual_time
@each_way((delete_without_pods, change_policy_selector))
async def test_si26_a_policy_renamed_in_a_restart_knows_what_pods_tell(leave: Leave) -> None:
    """SI-26: pods without a StatefulSet, by their labels; it has no batch that would tell more."""
    async with running(POLICY_ZONES, prepare=create_policy, args=(POLICIES,)) as world:
        await world.roll(A, image="bad")
        await world.roll(B, C)
        deleted = world.list_deletes()
        await world.process.stop()
        await leave(world.people)
        await rename(world.people, to=STAYS if leave is change_policy_selector else GUARDED)
        world.process.start()
        await asyncio.sleep(HOLD.total_seconds() - 60)
        assert (world.list_deletes() == deleted) is (leave is delete_without_pods)
        await asyncio.sleep(120)
        assert len(world.list_deletes()) > len(deleted)


@in_virtual_time
@each_way(LEAVES)
async def test_si26_the_replica_that_takes_over_knows_it_as_well(leave: Leave) -> None:
    """SI-26, D-72: each has seen the zone leave."""
    async with Sandbox() as sandbox:
        processes = [sandbox.process(name, elects=True) for name in ("operator-1", "operator-2")]
        world = World(sandbox, processes[0])
        for zone in (A, B, C):
            await world.people.create(zone)
        for process in processes:
            process.start()
        await asyncio.sleep(30)
        await world.make_short()
        await world.roll(B, C)
        await leave(world.people)
        await asyncio.sleep(30)
        next(process for process in processes if process.acts).crash()
        await asyncio.sleep(HOLD.total_seconds() - 60)
        assert not world.list_deletes()
        await asyncio.sleep(60)
        assert world.list_deletes()


@in_virtual_time
@pytest.mark.parametrize("is_taken_off_first", [False, True])
@pytest.mark.parametrize("order", ["abc", "bca", "cab"])
async def test_si26_a_group_that_is_renamed_zone_by_zone_is_held(
    order: str, is_taken_off_first: bool
) -> None:
    """SI-26: whichever zone moves first, the one that is short holds the others."""
    async with running() as world:
        await world.make_short()
        await world.roll(B, C)
        zones = {zone.name[-1]: zone for zone in (A, B, C)}
        for letter in order if is_taken_off_first else "":
            await world.people.label(zones[letter].name, GROUP_LABEL, None)
        for letter in order:
            await world.people.label(zones[letter].name, GROUP_LABEL, "renamed")
            await asyncio.sleep(30)
        assert not world.list_deletes()
        await mend_pod(world)
        await asyncio.sleep(30)
        assert world.list_deletes()


async def move_to_a_policy(people: People) -> None:
    await create_policy(people, STAYS)
    await take_from_the_group(people)


async def move_to_a_later_policy(people: People) -> None:
    await take_from_the_group(people)
    await create_policy(people, STAYS)


async def take_from_the_group(people: People) -> None:
    for zone in (B, C):
        await people.label(zone.name, GROUP_LABEL, None)


async def add_a_policy(people: People) -> None:
    """Have the group driven by a policy, which may select all of its zones or refuse."""
    await create_policy(people, STAYS)


async def move_to_a_group(people: People) -> None:
    await give_to_a_group(people)
    await end_policy(people)


async def move_to_a_later_group(people: People) -> None:
    await end_policy(people)
    await asyncio.sleep(5)
    await give_to_a_group(people)


async def give_to_a_group(people: People) -> None:
    for zone in (B, C):
        await people.label(zone.name, GROUP_LABEL, "ingester")


async def end_policy(people: People) -> None:
    await send(people, ApiRequest(verb="delete", resource=MULTI_AZ_ROLLOUTS, name="store"))


@in_virtual_time
@pytest.mark.parametrize(
    "move",
    [
        move_to_a_policy,
        move_to_a_later_policy,
        add_a_policy,
        move_to_a_group,
        move_to_a_later_group,
    ],
)
@each_way((nothing, delete_without_pods, delete_with_pods, take_labels_off))
async def test_si26_zones_that_move_between_group_and_policy_take_a_short_one_along(
    leave: Leave, move: Leave
) -> None:
    """SI-26: a policy that replaces a group counts what was short there, and the other way round.

    The short zone has left before, or moves last.
    """
    is_group = move not in (move_to_a_group, move_to_a_later_group)
    zones, prepare = ((A, B, C), nothing) if is_group else (POLICY_ZONES, create_policy)
    async with running(zones, prepare=prepare, args=(POLICIES,)) as world:
        await world.make_short()
        await leave(world.people)
        await asyncio.sleep(5)
        await move(world.people)
        await world.roll(B, C)
        await asyncio.sleep(60)
        assert not world.list_deletes()
        await asyncio.sleep(HOLD.total_seconds())
        # A policy that leaves a zone of the group out is refused.
        assert bool(world.list_deletes()) is not (move is add_a_policy and leave is nothing)


async def bring_back(people: People) -> None:
    """Put the StatefulSet back into its group, as it was."""
    found = people.find(A.name)
    if found is None:
        await people.create(A)
        return
    for key, value in ((GROUP_LABEL, A.group), *GUARDED.items()):
        await people.label(A.name, key, value)


async def mend_pod(world: World, name: str = SICK) -> None:
    """Make a pod ready, unless another is there by now, which is so by itself."""
    if world.sandbox.api.get(PODS, world.sandbox.namespace, name) is not None:
        world.sandbox.cluster.mend_pod(name)


async def guard(people: People, spec: JsonObject) -> None:
    """Create a budget, and have evictions reviewed."""
    await create_budget(people, zone_budget("store", GUARDED, **spec))
    hook = pod_eviction(people.sandbox.namespace)
    request = ApiRequest(verb="create", resource=VALIDATING_WEBHOOKS, body=hook)
    await people.sandbox.call(request)


async def create_policy(people: People, selected: Mapping[str, str] = GUARDED) -> None:
    """Create a policy that replaces one pod after the other; the new pods never become ready."""
    body: JsonObject = {
        "apiVersion": "rollout.grafana.com/v1alpha1",
        "kind": "MultiAZRollout",
        "metadata": {"name": "store", "namespace": people.sandbox.namespace},
        "spec": {
            "statefulSetSelector": {"matchLabels": dict(selected)},
            "rollingUpdate": {"intervalSeconds": 0},
        },
    }
    await send(people, ApiRequest(verb="create", resource=MULTI_AZ_ROLLOUTS, body=body))


async def change(people: People, resource: Resource, patch: JsonObject) -> None:
    """Merge into the budget or policy of the zones."""
    request = ApiRequest(verb="patch", resource=resource, name="store", body=patch)
    await send(people, replace(request, content_type=MERGE_PATCH))


async def send(people: People, request: ApiRequest) -> None:
    await people.sandbox.call(replace(request, namespace=people.sandbox.namespace))


def count_replicas(people: People, name: str) -> object:
    found = people.find(name) or {}
    spec = found["spec"]
    assert isinstance(spec, dict)
    return spec["replicas"]
