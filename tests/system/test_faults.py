"""The operator between failing parts: crashes, an API server that goes away, watches that lie.

In every one the judge sees no violation of SI-01 to SI-08 and the rollout ends (LI-01 to LI-04).
"""

import asyncio
import random
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest
from rollout_lab.zones import three_zones

from tests.system.grants import list_unneeded
from tests.system.waits import read_metric, wait_reason
from tests.world.faults import (
    Answer,
    CommitLate,
    Cut,
    Drop,
    Effect,
    Expire,
    Freeze,
    NeverAnswer,
    verbs,
    watches,
)
from tests.world.kubelet import Behaviour, always
from tests.world.plane import ControlPlane
from tests.world.world import World

pytestmark = pytest.mark.controlplane

# A silent watch is found within 45 s (LI-03 allows 60), and the rollout goes on after it.
AFTER_SILENCE = timedelta(seconds=100)
SLOW_PODS = Behaviour(ready_after=timedelta(milliseconds=300))


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.prove) for seed in range(1, 6))]
)
async def test_fp35_killed_at_random_moments(world: World, seed: int) -> None:
    """FP-06, FP-35, LI-01: `kill -9` one to five times in a rollout, three times in a row."""
    rng = random.Random(seed)
    names = await world.create(*three_zones(max_unavailable=rng.choice([1, 2])))
    operator = await world.operator("-log.level=info")
    for image in ("v2", "v3", "v4"):
        await world.set_image(names, image)
        for _ in range(rng.randint(1, 5)):
            await asyncio.sleep(rng.uniform(0.01, 0.6))  # the moment is what is tested
            operator.kill()
            operator.start()
        await world.wait_adopted(names)
    await world.judge.assert_clean()


async def test_fp16_api_server_restarted_in_mid_rollout(world: World) -> None:
    """FP-16, LI-01, LI-14: the operator lives through it and goes on by itself."""
    # One that starts forbids everything for a moment, until it has read the roles.
    world.may_be_forbidden = True
    world.kubelet.choose = always(SLOW_PODS)
    names = await world.create(*three_zones())
    operator = await world.operator()
    await world.set_image(names, "v2")
    await world.wait_image(f"{names[0]}-1", "v2")
    await world.plane.restart_apiserver()
    await world.wait_adopted(names)
    assert operator.is_running
    await world.judge.assert_clean()


@pytest.mark.slow
async def test_li03_watches_that_say_nothing(plane: ControlPlane, tmp_path: Path) -> None:
    """LI-03, FP-02, FP-09, SI-09: the view is found to be old; nothing is deleted on it.

    A frozen watch flows on when the rollout is over, with old events only; a dropped one never
    does. Side by side in four namespaces, since each waits out the silence.
    """
    async with asyncio.TaskGroup() as stories:
        for resource in ("statefulsets", "pods"):
            for effect in (Freeze(), Drop()):
                folder = tmp_path / f"{resource}-{type(effect).__name__}"
                folder.mkdir()
                stories.create_task(
                    _live_through_silence(plane, folder, resource, effect), name=folder.name
                )


async def _live_through_silence(
    plane: ControlPlane, folder: Path, resource: str, effect: Freeze | Drop
) -> None:
    async with World(plane, folder) as world:
        names = await world.create(*three_zones())
        operator = await world.operator(is_through_proxy=True)
        rule = world.proxy.add(watches(resource), effect, times=1)
        await world.roll(names, "v2", AFTER_SILENCE)
        world.proxy.remove(rule)
        await wait_reason(operator, "ingester", "up_to_date")
        await world.judge.assert_clean()


async def test_li04_watches_that_end_badly(world: World) -> None:
    """LI-04, FP-10, FP-13: both watches break in mid-rollout; a fresh list or resume follows.

    By a 410 as event inside of the stream, and cut off.
    """
    world.kubelet.choose = always(SLOW_PODS)
    names = await world.create(*three_zones())
    operator = await world.operator(is_through_proxy=True)
    restarts = "rollout_operator_watch_restarts_total"
    effects: list[Effect] = [Expire(), Cut()]
    for number, effect in enumerate(effects, start=1):
        image = f"v{number + 1}"
        await world.set_image(names, image)
        await world.wait_image(f"{names[0]}-1", image)
        with world.proxy.during(watches(), effect):
            pass  # reaches the watches that are open
        await world.wait_adopted(names)
        causes = [
            await read_metric(operator, restarts, kind="Pod", cause=cause)
            for cause in ("gone", "unreachable")
        ]
        assert sum(count or 0 for count in causes) >= number, effect
    await world.judge.assert_clean()


async def test_si18_a_delete_without_an_answer(world: World) -> None:
    """SI-18, D-17, FP-13, FP-14: read back first; never a second pod for the first one's place.

    Committed after the time-out, committed and never answered, reset before the commit.
    """
    names = await world.create(*three_zones())
    operator = await world.operator("-kubernetes.client-timeout=3s", is_through_proxy=True)
    effects: list[Effect] = [CommitLate(timedelta(seconds=2)), NeverAnswer(), Cut()]
    for number, effect in enumerate(effects, start=1):
        rule = world.proxy.add(verbs("delete", "pods"), effect, times=2)
        await world.roll(names, f"v{number + 1}")
        assert rule.times == 0
        deleted = "rollout_operator_pods_deleted_total"
        assert await read_metric(operator, deleted, outcome="unknown") == 2 * number, effect
    await world.judge.assert_clean()


async def test_fp12_errors_of_the_api_server(world: World) -> None:
    """FP-11, FP-12, FP-13, LI-01: every kind of call fails twice; nothing is done twice."""
    names = await world.create(*three_zones(replicas=1))
    operator = await world.operator(is_through_proxy=True)
    unneeded = await list_unneeded(world)
    calls = [
        call
        for call in (
            *(("delete", "pods"), ("list", "pods"), ("list", "statefulsets")),
            *(("get", "statefulsets"), ("update", "statefulsets/status")),
        )
        if call not in unneeded
    ]
    answers = (Answer(429, timedelta(seconds=1)), Answer(500), Answer(503), Answer(409))
    for number, answer in enumerate(answers, start=2):
        rules = {
            (verb, resource): world.proxy.add(verbs(verb, resource), answer, times=2)
            for verb, resource in calls
        }
        await world.roll(names, f"v{number}")
        assert {call: rule.times for call, rule in rules.items()} == dict.fromkeys(rules, 0)
        await wait_reason(operator, "ingester", "up_to_date")
        world.proxy.clear()
    await world.judge.assert_clean()


async def test_fp37_the_process_is_stopped_for_a_while(world: World) -> None:
    """FP-35, FP-37: SIGSTOP in mid-rollout; what it knew is old when it wakes up."""
    names = await world.create(*three_zones())
    operator = await world.operator()
    await world.set_image(names, "v2")
    await world.wait_image(f"{names[0]}-0", "v2")
    operator.pause()
    await world.kubelet.make_unready(f"{names[2]}-0")
    await asyncio.sleep(6)  # longer than what the judge forgives (d = 5 s)
    operator.resume()
    await wait_reason(operator, "ingester", f"{names[2]}-0")
    await world.judge.assert_clean()
    # As soon as zone a is whole it is replaced: outdated, and the only one that is down.
    with suppress(LookupError):
        await world.kubelet.make_ready(f"{names[2]}-0")
    await world.wait_adopted(names)
    await world.judge.assert_clean()
