"""Inputs that were read while a MultiAZRollout rolls out: what follows is what then happened."""

import asyncio
from copy import deepcopy
from datetime import datetime, timedelta
from typing import Final, Literal

import msgspec
import pytest
from rollout_lab.model.history import Called, History
from rollout_lab.model.request import MERGE_PATCH, ApiRequest
from rollout_lab.nodes.behaviour import Behaviour, always
from rollout_lab.simulate.command import simulate
from rollout_lab.simulate.flags import read_settings
from rollout_lab.virtual_loop.loop import VirtualTimeLoop
from rollout_lab.world import Sandbox
from rollout_lab.zones import statefulset

from rollout_operator.kube.api import MULTI_AZ_ROLLOUTS, PODS, STATEFULSETS, JsonObject, Resource
from tests.lab.simulate.dumps import NAMESPACE, Json, to_yaml
from tests.lab.simulate.policy_dumps import db_zones, policy

pytestmark = pytest.mark.thorough

SLOW: Final = Behaviour(
    starts_after=timedelta(seconds=2),
    ready_after=timedelta(seconds=4),
    terminates_after=timedelta(seconds=10),
)
OPERATOR: Final = "operator"
# Pods take 16 s and pauses 20 s: some of these are in a batch, others in a pause.
MOMENTS: Final = 6
STEP: Final = 27.0


class Moment(msgspec.Struct, frozen=True):
    """What was read of a rollout, and how long after the begin of the world."""

    objects: list[Json]
    read_at: datetime
    since: timedelta


def _list_deletes(history: History, since: timedelta = timedelta(0)) -> list[tuple[str, timedelta]]:
    return [
        (one.request.name, one.at - since)
        for one in history.list_all(Called)
        if (one.actor, one.request.verb, one.request.resource) == (OPERATOR, "delete", PODS)
        if one.at > since
    ]


async def _roll() -> tuple[list[Moment], History]:
    async with Sandbox(namespace=NAMESPACE, seed=4711, choose=always(SLOW)) as sandbox:

        async def send(
            verb: Literal["create", "patch"], resource: Resource, body: JsonObject, name: str = ""
        ) -> None:
            request = ApiRequest(
                verb=verb,
                resource=resource,
                namespace=NAMESPACE,
                name=name,
                body=body,
                content_type=MERGE_PATCH if verb == "patch" else "application/json",
            )
            await sandbox.call(request)

        for zone in db_zones():
            await send("create", STATEFULSETS, statefulset(zone, NAMESPACE))
        spec = policy(rollingUpdate={"intervalSeconds": 20})
        await send("create", MULTI_AZ_ROLLOUTS, {**spec, "metadata": {"name": "db"}})
        process = sandbox.process(OPERATOR, args=["-multi-az-rollouts.enabled"])
        process.start()
        await asyncio.sleep(60)
        for zone in db_zones():
            head: JsonObject = {"annotations": {"to": "v2"}}
            body: JsonObject = {"spec": {"template": {"metadata": head}}}
            await send("patch", STATEFULSETS, body, zone.name)
        moments = []
        for _ in range(MOMENTS):
            await asyncio.sleep(STEP)
            kinds = (STATEFULSETS, PODS, MULTI_AZ_ROLLOUTS)
            objects = [one for kind in kinds for one in sandbox.api.list(kind, NAMESPACE)]
            moments.append(Moment(deepcopy(objects), sandbox.api.now(), sandbox.elapsed()))
        await asyncio.sleep(600)
        return moments, sandbox.history


@pytest.fixture(scope="module")
def rollout() -> tuple[list[Moment], History]:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(_roll())


@pytest.mark.parametrize("place", range(MOMENTS))
def test_the_rest_of_a_rollout_is_foreseen(
    place: int, rollout: tuple[list[Moment], History]
) -> None:
    """MAZ-43: an open batch is finished, and a pause goes on, from what the status has recorded."""
    moments, history = rollout
    moment = moments[place]

    run = simulate(read_settings(["-f", "-"]), to_yaml(moment.objects), moment.read_at)

    foreseen, happened = (
        _list_deletes(run.play.history),
        _list_deletes(history, moment.since),
    )
    assert [pod for pod, _ in foreseen] == [pod for pod, _ in happened]
    assert run.exit_code == 0
    for (_, at), (_, then) in zip(foreseen, happened, strict=True):
        assert abs(at - then) < timedelta(seconds=8), "times of pods have whole seconds"
