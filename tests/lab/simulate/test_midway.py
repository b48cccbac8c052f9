"""Inputs that were read in mid-rollout: `simulate` shows the rest of it."""

import asyncio
from datetime import datetime, timedelta
from typing import Literal

import msgspec
import pytest
from rollout_lab.model.history import Called
from rollout_lab.model.request import MERGE_PATCH, ApiRequest
from rollout_lab.nodes.behaviour import Behaviour, always
from rollout_lab.simulate.command import simulate
from rollout_lab.simulate.flags import read_settings
from rollout_lab.simulate.report import render_text
from rollout_lab.virtual_loop.loop import VirtualTimeLoop
from rollout_lab.world import Sandbox
from rollout_lab.zones import ZoneSpec, statefulset

from rollout_operator.kube.api import PODS, STATEFULSETS, JsonObject
from tests.lab.simulate.dumps import NAMESPACE, Json, to_yaml

pytestmark = pytest.mark.thorough

ZONES = (ZoneSpec(name="zone-a", max_unavailable=2), ZoneSpec(name="zone-b"))
SLOW = Behaviour(
    starts_after=timedelta(seconds=10),
    ready_after=timedelta(seconds=30),
    terminates_after=timedelta(seconds=10),
)
BEFORE, MOMENTS, STEP = 60.0, 20, 11.0
OPERATOR = "operator-1"


class Moment(msgspec.Struct, frozen=True):
    """One read of the objects of a rollout, and what the operator has deleted before."""

    objects: list[Json]
    at: datetime
    deleted: int


async def _roll() -> tuple[list[Moment], list[str]]:
    """Return reads of a rollout, and all pods that were deleted, in order."""
    async with Sandbox(namespace=NAMESPACE, seed=4711, choose=always(SLOW)) as sandbox:

        async def send(verb: Literal["create", "patch"], name: str, body: JsonObject) -> None:
            await sandbox.call(
                ApiRequest(
                    verb=verb,
                    resource=STATEFULSETS,
                    namespace=NAMESPACE,
                    name=name,
                    body=body,
                    content_type=MERGE_PATCH if verb == "patch" else "application/json",
                )
            )

        def list_deletes() -> list[str]:
            return [
                one.request.name
                for one in sandbox.history.list_all(Called)
                if one.actor == OPERATOR
                and (one.request.verb, one.request.resource) == ("delete", PODS)
            ]

        for zone in ZONES:
            await send("create", "", statefulset(zone, NAMESPACE))
        process = sandbox.process(OPERATOR)
        process.start()
        await asyncio.sleep(BEFORE)
        for zone in ZONES:
            head = {"annotations": {"to": "v2"}}
            await send("patch", zone.name, {"spec": {"template": {"metadata": head}}})
        moments = []
        for _ in range(MOMENTS):
            await asyncio.sleep(STEP)
            objects = [
                *sandbox.api.list(STATEFULSETS, NAMESPACE),
                *sandbox.api.list(PODS, NAMESPACE),
            ]
            moments.append(Moment(list(objects), sandbox.api.now(), len(list_deletes())))
        await asyncio.sleep(600)
        return moments, list_deletes()


@pytest.fixture(scope="module")
def rollout() -> tuple[list[Moment], list[str]]:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(_roll())


@pytest.mark.parametrize("number", range(MOMENTS))
def test_the_rest_of_a_rollout_is_reported(
    number: int, rollout: tuple[list[Moment], list[str]]
) -> None:
    """Whatever pods are terminating, missing, being created or starting then."""
    moments, deleted = rollout
    moment = moments[number]

    simulated = simulate(read_settings(["-f", "-"]), to_yaml(moment.objects), moment.at)

    assert list(simulated.figures.deletes) == deleted[moment.deleted :]
    assert simulated.times.stuck == ()


def test_of_an_old_copy_the_age_of_a_starting_pod_is_reported(
    rollout: tuple[list[Moment], list[str]],
) -> None:
    moment = next(
        one for one in rollout[0] if any("running" in str(pod["status"]) for pod in _unready(one))
    )

    simulated = simulate(
        read_settings(["-f", "-"]), to_yaml(moment.objects), moment.at + timedelta(minutes=10)
    )

    story = " ".join(word for line in render_text(simulated) for word in line.split())
    assert simulated.figures.deletes == ()
    assert "stays as it is until it is replaced: container app not ready, 10m" in story


def _unready(moment: Moment) -> list[Json]:
    return [
        one
        for one in moment.objects
        if one["kind"] == "Pod" and "deletionTimestamp" not in one["metadata"]
        if not any(
            (each["type"], each["status"]) == ("Ready", "True")
            for each in one["status"].get("conditions", ())
        )
    ]


def test_the_moments_are_of_a_rollout(rollout: tuple[list[Moment], list[str]]) -> None:
    moments, deleted = rollout
    assert len(deleted) == 6
    assert {moment.deleted for moment in moments} == {2, 3, 4, 5, 6}
