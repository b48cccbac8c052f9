"""Zones that leave while they are short, on the real control plane, and come back (SI-26, D-82)."""

import asyncio
from functools import partial
from http import HTTPStatus
from itertools import product
from typing import Final

import msgspec
import pytest
from msgspec.structs import replace
from rollout_lab.zones import ZoneSpec, statefulset, three_zones

from rollout_operator.kube.api import MULTI_AZ_ROLLOUTS
from rollout_operator.model.names import GROUP_LABEL, TOPOLOGY_KEYS
from tests.system.budgeted import hold
from tests.system.guarded import guard, prepared_zone
from tests.system.waits import wait_line, wait_reason, wait_true
from tests.world.api import STATEFULSETS, ApiError, Json, Resource
from tests.world.budgets import grouped_zones, install_kinds, zone_budget
from tests.world.clients import Route
from tests.world.kubelet import NORMAL, Behaviour, Kind, image_of
from tests.world.world import World

pytestmark = pytest.mark.controlplane

POLICIES: Final = Resource("rollout.grafana.com/v1alpha1", MULTI_AZ_ROLLOUTS.plural)
HELD: Final = Behaviour(kind=Kind.NEVER_READY)
PODS: Final = 2
MOMENTS: Final = range(3 * PODS)
LEFT: Final = "was deleted or left while it was short, and counts until its StatefulSet is back"


class Leaver(msgspec.Struct, frozen=True, kw_only=True):
    """A person by whom a zone leaves and comes back."""

    world: World
    zone: ZoneSpec
    way: str
    """A propagation policy by which its StatefulSet is deleted; else its label is taken away."""

    async def leave(self) -> None:
        if self.way == "label":
            await self.world.label(self.zone.name, **{GROUP_LABEL: None})
        else:
            await self.world.delete(STATEFULSETS, self.zone.name, propagation=self.way)

    async def come_back(self) -> None:
        if self.way == "label":
            await self.world.label(self.zone.name, **{GROUP_LABEL: self.zone.group})
        else:
            await wait_true(f"{self.zone.name} created", self._create)

    async def _create(self) -> bool:
        """Create the StatefulSet anew, unless it waits for its pods still."""
        try:
            await self.world.post(STATEFULSETS, statefulset(self.zone, self.world.namespace))
        except ApiError as error:
            if error.status != HTTPStatus.CONFLICT:
                raise
            return False
        return True


WAYS: Final = ("Orphan", "Background", "Foreground", "label")


@pytest.mark.parametrize("way", WAYS)
async def test_a_zone_leaves_after_each_delete_of_a_rollout(world: World, way: str) -> None:
    """SI-26, D-82: no other zone is touched until it is back and whole. Groups side by side.

    In each group it happens after another delete, and the new pod is not ready until then.
    """
    groups = {moment: three_zones(f"m{moment}", replicas=PODS) for moment in MOMENTS}
    held = {_name_pod(zones, moment) for moment, zones in groups.items()}
    world.kubelet.choose = lambda pod: HELD if _is_new(pod) and _name(pod) in held else NORMAL
    names = await world.create(*(zone for zones in groups.values() for zone in zones))
    operator = await world.operator()

    async def play(moment: int) -> None:
        pod, zones = _name_pod(groups[moment], moment), groups[moment]
        zone = replace(zones[moment // PODS], image="v2")
        leaver = Leaver(world=world, zone=zone, way=way)
        await world.set_image([one.name for one in zones], "v2")
        await wait_true(f"{pod} deleted", partial(_has_ended, world, pod))
        await leaver.leave()
        await wait_reason(operator, str(zone.group), "zone_left_short")
        held.discard(pod)
        await leaver.come_back()
        await make_ready(world, pod)

    async with asyncio.TaskGroup() as tasks:
        for moment in MOMENTS:
            tasks.create_task(play(moment))
    await world.wait_rolled(names)
    await world.judge.assert_clean()


async def test_a_zone_leaves_in_a_drain(world: World) -> None:
    """SI-26, D-82: an eviction in the other zone is refused until the zone is back and whole."""
    zones = grouped_zones("mock", letters="ab", replicas=PODS)
    held = await hold(world, *zones, budgets=[zone_budget("mock", {GROUP_LABEL: "mock"})])
    pod, other = (f"{zone.name}-0" for zone in zones)
    for way in WAYS:
        leaver = Leaver(world=world, zone=zones[0], way=way)
        with world.kubelet.choosing(lambda _: HELD):
            await held.assert_evicts(pod)
            await wait_true(f"{pod} evicted", partial(_has_ended, world, pod))
            await leaver.leave()
            await wait_true(f"{zones[0].name} left", partial(_has_left, world, zones[0], way))
            await held.assert_refuses(other, HTTPStatus.TOO_MANY_REQUESTS, LEFT)
        await leaver.come_back()
        await make_ready(world, pod)
        await held.wait_ready()
        await held.wait_allowed(other)
        await held.wait_ready()
    await world.judge.assert_clean()


async def test_a_zone_leaves_before_a_downscale(world: World) -> None:
    """SI-26, D-82: a downscale of the other zone is refused until the zone is back and whole."""
    pods = await world.serve_pods()
    zones = [prepared_zone(pods, ZoneSpec(name=name, replicas=3)) for name in "ab"]
    guarded = await guard(world, *zones, pods=pods)
    for way in WAYS:
        leaver = Leaver(world=world, zone=zones[0], way=way)
        await world.kubelet.make_unready("a-1")
        await leaver.leave()
        await wait_true("a left", partial(_has_left, world, zones[0], way))

        answer = await guarded.workload("b").scale(2, Route.MERGE)

        assert LEFT in answer.message, (way, answer)
        await leaver.come_back()
        await make_ready(world, "a-1")
        await world.wait_ready(["a"])
        answer = await guarded.workload("b").scale(2, Route.MERGE)
        assert answer.status == HTTPStatus.OK, (way, answer)
        await guarded.wait_recorded("b")
        await world.set_replicas("b", 3)
        await world.wait_ready(["a", "b"])
    await guarded.assert_judged()


async def test_a_zone_leaves_a_policy_in_the_middle_of_a_batch(world: World) -> None:
    """SI-26, MAZ-46: by its label or by the selector, the next zone is held until it is whole."""
    await install_kinds(world.api)
    await world.grant("multi-az-rollouts")
    ways = ("label", "selector")
    held = {f"{way}-a-1" for way in ways}
    world.kubelet.choose = lambda pod: HELD if _is_new(pod) and _name(pod) in held else NORMAL
    zones = [
        ZoneSpec(
            name=f"{way}-{zone}",
            group=None,
            replicas=PODS,
            labels={"app": way, "stays": zone, TOPOLOGY_KEYS[0]: zone},
        )
        for way, zone in product(ways, "ab")
    ]
    names = await world.create(*zones)
    for way in ways:
        spec: Json = {"statefulSetSelector": {"matchLabels": {"app": way}}, "azOrder": ["a", "b"]}
        spec["rollingUpdate"] = {"intervalSeconds": 0}
        body: Json = {"apiVersion": POLICIES.api_version, "kind": MULTI_AZ_ROLLOUTS.kind}
        await world.post(POLICIES, {**body, "metadata": {"name": way}, "spec": spec})
    operator = await world.operator("-multi-az-rollouts.enabled")
    await world.set_image(names, "v2")

    async def play(way: str) -> None:
        (pod,) = (name for name in held if name.startswith(way))
        await wait_true(f"{pod} deleted", partial(_has_ended, world, pod))
        if way == "label":
            await world.label(f"{way}-a", app=None)
        else:
            selector = {"matchLabels": {"app": way, "stays": "b"}}
            await world.patch(POLICIES, way, {"spec": {"statefulSetSelector": selector}})
        await wait_line(operator, f"policy={world.namespace}/{way} ", "reason=zone_left_short")
        assert not any(_has_ended(world, f"{way}-b-{number}") for number in range(PODS))
        held.discard(pod)
        await make_ready(world, pod)
        await world.wait_rolled([f"{way}-b"])

    async with asyncio.TaskGroup() as tasks:
        for way in ways:
            tasks.create_task(play(way))
    assert await operator.terminate() == 0
    await world.judge.assert_clean()


async def make_ready(world: World, pod: str) -> None:
    """Have a pod be ready, once it stands."""

    async def is_made() -> bool:
        try:
            await world.kubelet.make_ready(pod)
        except LookupError:  # its kubelet has not seen it yet
            return False
        return True

    await wait_true(f"{pod} ready", is_made)


async def _has_left(world: World, zone: ZoneSpec, way: str) -> bool:
    """Return whether a set is gone, going, or without its label."""
    found = {one["metadata"]["name"]: one["metadata"] for one in await _list_sets(world)}
    if zone.name not in found:
        return True
    return way == "label" and GROUP_LABEL not in found[zone.name]["labels"]


async def _list_sets(world: World) -> list[Json]:
    return await world.api.items(STATEFULSETS, world.namespace)


def _has_ended(world: World, pod: str) -> bool:
    """Return whether a pod of this name was told to go."""
    ended = (write.ended_pod for write in world.judge.changes)
    return any(one is not None and one.name == pod for one in ended)


def _name_pod(zones: tuple[ZoneSpec, ...], moment: int) -> str:
    """Return the pod that is deleted so many deletes after the first of a rollout."""
    return f"{zones[moment // PODS].name}-{moment % PODS}"


def _is_new(pod: Json) -> bool:
    return image_of(pod) == "v2"


def _name(pod: Json) -> str:
    return str(pod["metadata"]["name"])
