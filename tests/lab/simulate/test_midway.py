"""Inputs that were read in mid-rollout: what follows in `simulate` is what then happened."""

import asyncio
from copy import deepcopy
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
import pytest
from rollout_lab.model.history import Called, History
from rollout_lab.model.request import create, patch
from rollout_lab.nodes.behaviour import Behaviour, always
from rollout_lab.simulate.command import simulate
from rollout_lab.simulate.flags import read_settings
from rollout_lab.simulate.report import SimulationRun, render_text
from rollout_lab.virtual_loop.loop import VirtualTimeLoop
from rollout_lab.world import Sandbox
from rollout_lab.zones import ZoneSpec, statefulset

from rollout_operator.kube.api import MULTI_AZ_ROLLOUTS, PODS, STATEFULSETS, JsonObject
from tests.lab.simulate.stage import NAMESPACE, db_zones, policy, to_yaml

pytestmark = pytest.mark.thorough

KINDS: Final = (STATEFULSETS, PODS, MULTI_AZ_ROLLOUTS)
PLAIN: Final = (ZoneSpec(name="zone-a", max_unavailable=2), ZoneSpec(name="zone-b"))
MOMENTS: Final = 20
# Pods of a policy take 16 s and pauses 20 s: some of these are in a batch, others in a pause.
POLICY_MOMENTS: Final = 6


class Moment(msgspec.Struct, frozen=True):
    """What was read of a rollout, and how long after the begin of the world."""

    objects: list[JsonObject]
    read_at: datetime
    since: timedelta


Rollout = tuple[list[Moment], History]


def _list_deletes(history: History, since: timedelta = timedelta(0)) -> list[tuple[str, timedelta]]:
    return [
        (one.request.name, one.at - since)
        for one in history.list_all(Called)
        if (one.actor, one.request.verb, one.request.resource) == ("operator", "delete", PODS)
        if one.at > since
    ]


def _span(*seconds: float) -> Behaviour:
    starts, ready, ends = (timedelta(seconds=one) for one in seconds)
    return Behaviour(starts_after=starts, ready_after=ready, terminates_after=ends)


async def _roll(*, has_policy: bool) -> Rollout:
    zones = db_zones() if has_policy else PLAIN
    pods = _span(2, 4, 10) if has_policy else _span(10, 30, 10)
    async with Sandbox(namespace=NAMESPACE, seed=4711, choose=always(pods)) as sandbox:

        async def send(body: Any, resource: Any = STATEFULSETS, name: str = "") -> None:
            made = patch(resource, name, body, NAMESPACE) if name else None
            await sandbox.call(made or create(resource, body, NAMESPACE))

        for zone in zones:
            await send(statefulset(zone, NAMESPACE))
        if has_policy:
            spec = policy(rollingUpdate={"intervalSeconds": 20})
            await send({**spec, "metadata": {"name": "db"}}, MULTI_AZ_ROLLOUTS)
        sandbox.process("operator", args=["-multi-az-rollouts.enabled"] * has_policy).start()
        await asyncio.sleep(60)
        for zone in zones:
            template = {"metadata": {"annotations": {"to": "v2"}}}
            await send({"spec": {"template": template}}, name=zone.name)
        moments = []
        for _ in range(POLICY_MOMENTS if has_policy else MOMENTS):
            await asyncio.sleep(27 if has_policy else 11)
            objects = [one for kind in KINDS for one in sandbox.api.list(kind, NAMESPACE)]
            moments.append(Moment(deepcopy(objects), sandbox.api.now(), sandbox.elapsed()))
        await asyncio.sleep(600)
        return moments, sandbox.history


@pytest.fixture(scope="module")
def rollouts() -> dict[bool, Rollout]:
    found = {}
    for has_policy in (False, True):
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            found[has_policy] = runner.run(_roll(has_policy=has_policy))
    return found


def _simulate(moment: Moment, later: timedelta = timedelta(0)) -> SimulationRun:
    settings = read_settings(["-f", "-"])
    return simulate(settings, to_yaml(moment.objects), moment.read_at + later)


@pytest.mark.parametrize(
    ("has_policy", "place"),
    [*((False, place) for place in range(MOMENTS)), *((True, at) for at in range(POLICY_MOMENTS))],
)
def test_the_rest_of_a_rollout_is_foreseen(
    has_policy: bool, place: int, rollouts: dict[bool, Rollout]
) -> None:
    """Whatever pods are terminating, missing, being created or starting then.

    MAZ-43: an open batch is finished, and a pause goes on, from what the status has recorded.
    """
    moments, history = rollouts[has_policy]

    run = _simulate(moments[place])

    foreseen = _list_deletes(run.play.history)
    happened = _list_deletes(history, moments[place].since)
    assert [pod for pod, _ in foreseen] == [pod for pod, _ in happened]
    assert run.times.stuck == ()
    assert run.exit_code == 0
    for (_, at), (_, then) in zip(foreseen, happened, strict=True):
        assert abs(at - then) < timedelta(seconds=8), "times of pods have whole seconds"


def test_of_an_old_copy_the_age_of_a_starting_pod_is_reported(
    rollouts: dict[bool, Rollout],
) -> None:
    moment = next(one for one in rollouts[False][0] if any(map(_is_starting, one.objects)))

    run = _simulate(moment, timedelta(minutes=10))

    story = " ".join(word for line in render_text(run) for word in line.split())
    assert run.figures.deletes == ()
    assert "stays as it is until it is replaced: container app not ready, 10m" in story


def _is_starting(one: Any) -> bool:
    if one["kind"] != "Pod" or "deletionTimestamp" in one["metadata"]:
        return False
    ready = {"type": "Ready", "status": "True"}.items()
    conditions = one["status"].get("conditions", ())
    return "running" in str(one["status"]) and not any(ready <= each.items() for each in conditions)
