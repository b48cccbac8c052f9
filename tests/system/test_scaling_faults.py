"""Counts that cannot be written, answers that are lost, references that hang: others go on."""

from datetime import datetime, timedelta
from itertools import pairwise
from typing import Final

import pytest
from rollout_lab.zones import ZoneSpec

from tests.system.guarded import Guarded, guard
from tests.system.later import reviewed_later
from tests.system.mirrored import Template, grant_mirroring, mirror
from tests.system.scaled import assert_judged, follow, scale, stored_at, wait_counts
from tests.system.waits import wait_reason, wait_true
from tests.world.faults import NeverAnswer, verbs
from tests.world.reviews import Allow, Deny
from tests.world.world import World

pytestmark = pytest.mark.controlplane

A, B = "live-a", "live-b"
TRIES: Final = 7
REACTION: Final = timedelta(seconds=1)


async def test_li11_a_count_that_a_client_refuses_is_tried_ever_more_rarely(world: World) -> None:
    """LI-11, W-42, W-43, D-18: no storm, named with the words of the refusal; then it ends right.

    Meanwhile the zones of the same group that are not refused get theirs.
    """
    world.may_be_forbidden = True  # a review's refusal looks like one of the Role
    zones = [ZoneSpec(name=A, group="live"), follow(ZoneSpec(name=B, group="live"), A)]
    third = follow(ZoneSpec(name="live-c", group="live"), A)
    guarded = await guard(world, *zones, third)
    async with reviewed_later(world, {"deny": (Deny(), [B])}) as reviewer:
        await scale(guarded, A, 2)
        await wait_reason(guarded.operator, "live", "refused by a later webhook")
        await wait_counts(world, {A: 2, "live-c": 2})
        await wait_true(f"{TRIES} tries", lambda: len(reviewer.seen) >= TRIES)
        assert await guarded.workload(B).replicas() == 3
        reviewer.by_path = dict.fromkeys(reviewer.by_path, Allow())
        await wait_counts(world, {B: 2})
    times = await _list_refusals(guarded, B)
    waits = [later - earlier for earlier, later in pairwise(times)]
    # The shortest, since a busy machine makes any of them longer, the first too.
    assert waits[TRIES - 2] > 4 * min(waits), waits
    await assert_judged(guarded)


async def test_si18_an_answer_that_is_lost(world: World) -> None:
    """SI-18, LI-09: of a downscale and an upscale that were stored; neither is done twice."""
    await world.grant_webhooks()
    await world.create(ZoneSpec(name=A, group="live"), follow(ZoneSpec(name=B, group="live"), A))
    operator = await world.operator("-kubernetes.client-timeout=2s", is_through_proxy=True)
    await wait_reason(operator, "live", "up_to_date")

    for replicas in (2, 4):
        rule = world.proxy.add(verbs("patch", "statefulsets"), NeverAnswer(), times=1)
        await world.set_replicas(A, replicas)
        await wait_counts(world, {A: replicas, B: replicas})
        assert rule.times == 0
    await world.set_replicas(A, 3)
    await wait_counts(world, {A: 3, B: 3})

    calls = await world.judge.calls()
    patches = [each for each in calls if (each.verb, each.resource) == ("patch", "statefulsets")]
    # The first mark got no answer: it is removed, and another one written. Upwards there is none.
    assert len(patches) == 7, patches
    await world.judge.assert_clean()


async def test_w06_a_reference_that_hangs(world: World) -> None:
    """W-06, W-42, MIRR-04: its read hangs; a chain beside it is through in a second."""
    await world.grant_webhooks()
    template = Template(world=world)
    await template.create(1)
    await grant_mirroring(world)
    chain = [ZoneSpec(name=A, group="live", replicas=1)]
    chain += [follow(ZoneSpec(name=B, group="live", replicas=1), A)]
    mirrors = [
        mirror(ZoneSpec(name=f"hung-{number}", group=f"hung-{number}", replicas=2))
        for number in range(3)
    ]
    await world.create(*chain, *mirrors)
    with world.proxy.during(verbs("get", "replicatemplates/scale"), NeverAnswer()) as rule:
        operator = await world.operator("-kubernetes.client-timeout=30s", is_through_proxy=True)
        await wait_reason(operator, "live", "up_to_date")
        await wait_true("read: the scale", lambda: rule.hits > 0)

        await world.set_replicas(A, 3)
        await wait_counts(world, {A: 3, B: 3})

        await world.judge.settle()
        assert timedelta(seconds=stored_at(world, B, 3) - stored_at(world, A, 3)) < REACTION
    await world.judge.assert_clean()


async def _list_refusals(guarded: Guarded, name: str) -> list[datetime]:
    calls = await guarded.world.judge.calls()
    refused = [each for each in calls if (each.verb, each.name, each.code) == ("patch", name, 403)]
    return [datetime.fromisoformat(each.stamp) for each in refused]
