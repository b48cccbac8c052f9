"""The judge finds evictions beyond a budget on the real control plane, where nobody refuses."""

from datetime import timedelta
from typing import Final

import pytest

from tests.world.api import ApiError
from tests.world.budgets import DryRun, by_partition, evict, grouped_zones, zone_budget
from tests.world.crds import ZONE_BUDGETS, install_kinds
from tests.world.drains import Drain, list_victims
from tests.world.kubelet import always, slow_to_end
from tests.world.scene import World
from tests.world.verdicts import Allowances

pytestmark = pytest.mark.controlplane

LABELS: Final = {"rollout-group": "ingester"}
AT_ONCE: Final = Allowances(known=timedelta(0), flight=timedelta(0))


async def begin(world: World, budget: dict[str, object]) -> list[str]:
    await install_kinds(world.api)
    await world.api.create(ZONE_BUDGETS, world.namespace, budget)
    world.judge.allowances = AT_ONCE
    world.kubelet.choose = always(slow_to_end(timedelta(seconds=2)))
    return await world.create(*grouped_zones(replicas=2))


async def evict_all(world: World, *pods: str) -> None:
    for pod in pods:
        assert (await evict(world.api, world.namespace, pod)).status == 201


async def broken(world: World) -> set[str]:
    return {each.invariant for each in await world.judge.violations()}


async def test_si01_two_zones(world: World) -> None:
    names = await begin(world, zone_budget("ingester", LABELS))
    await evict_all(world, f"{names[0]}-0", f"{names[1]}-0")

    assert await broken(world) == {"SI-01", "SI-02", "SI-17"}
    assert "<- evicted" in world.judge.describe(await world.judge.deletes())


async def test_si03_too_many_of_one_zone(world: World) -> None:
    names = await begin(world, zone_budget("ingester", LABELS))
    await evict_all(world, f"{names[0]}-0", f"{names[0]}-1")

    assert await broken(world) == {"SI-03", "SI-04", "SI-17"}


async def test_si05_one_partition(world: World) -> None:
    names = await begin(world, by_partition("ingester", LABELS))
    await evict_all(world, f"{names[0]}-0", f"{names[1]}-1")
    assert await broken(world) == {"SI-17"}
    await evict_all(world, f"{names[2]}-0")

    assert await broken(world) == {"SI-05", "SI-17"}


async def test_what_does_not_happen_is_not_judged(world: World) -> None:
    """Dry runs, refused ones, and deletes by somebody else."""
    names = await begin(world, zone_budget("ingester", LABELS))
    for how in (DryRun.QUERY, DryRun.OPTIONS):
        await evict(world.api, world.namespace, f"{names[0]}-0", dry_run=how)
    wrong = await evict(world.api, world.namespace, f"{names[1]}-0", uid="another")
    assert wrong.status == 409
    with pytest.raises(ApiError):
        await world.api.get(ZONE_BUDGETS, world.namespace, "other")

    assert await broken(world) == set()
    assert len(await world.judge.evictions()) == 3


async def test_a_drain_ends_where_nobody_refuses(world: World) -> None:
    names = await begin(world, zone_budget("other", {"a": "b"}))
    world.kubelet.choose = always(slow_to_end(timedelta(0)))
    drain = Drain(world.api, world.namespace)
    before = await list_victims(world.api, world.namespace, names)
    await drain.run(before, timedelta(seconds=30))

    assert len(before) == 6
    after = await list_victims(world.api, world.namespace, names)
    assert not {pod.uid for pod in before} & {pod.uid for pod in after}
    assert (drain.refusals(), drain.unexpected()) == ([], [])
    assert await broken(world) == set(), "pods under no budget are not judged"
