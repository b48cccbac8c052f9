"""Reviews of objects that never were, before the whole operator on a simulated cluster."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import timedelta
from enum import StrEnum
from functools import cache
from itertools import count, cycle
from typing import Final

import pytest
from rollout_lab.admission.webhooks import HookCall
from rollout_lab.zones import ZoneSpec

from rollout_operator.model.names import PREPARE_DOWNSCALE, PREPARE_PATH, PREPARE_PORT
from tests.operator.test_evictions import forged, play
from tests.simulation.scenarios_people import Route
from tests.simulation.traces import Director
from tests.simulation.traces_drains import zones

LIMIT: Final = timedelta(seconds=10)
PATIENCE: Final = 600.0
FORGERS: Final = 40
PAUSE: Final = 0.4
PODS: Final = 2
SET_OF_OURS: Final = "ingester"


class Made(StrEnum):
    """What is made up."""

    PODS = "pods"
    ALONE = "sets without a group"
    GROUP = "sets of groups that never were"
    MEMBER = "sets of a group that there is"
    SCALE = "Scales of sets"
    UNLABELLED = "Scales that no-downscale reviews"
    DEPLOYMENT = "Scales of Deployments"


def made_up(director: Director, made: Made, name: str) -> HookCall:
    """Return a review of something that was never created."""
    if made is Made.PODS:
        return forged(director, name, dry_run=True)
    is_scale = made in {Made.SCALE, Made.UNLABELLED, Made.DEPLOYMENT}
    hook = "prepare-downscale" if made not in {Made.UNLABELLED, Made.DEPLOYMENT} else "no-downscale"
    labels = {PREPARE_DOWNSCALE: "true"}
    if made is Made.GROUP:
        labels["rollout-group"] = name
    if made is Made.MEMBER:
        labels["rollout-group"] = SET_OF_OURS

    def state(replicas: int) -> dict[str, object]:
        meta: dict[str, object] = {
            "name": name,
            "namespace": director.sandbox.namespace,
            "uid": name,
            "resourceVersion": "1",
        }
        if is_scale:
            kind = {"apiVersion": "autoscaling/v1", "kind": "Scale"}
            return {**kind, "metadata": meta, "spec": {"replicas": replicas}}
        annotations = {PREPARE_PORT: "80", PREPARE_PATH: "p"}
        meta |= {"labels": labels, "annotations": annotations}
        kind = {"apiVersion": "apps/v1", "kind": "StatefulSet"}
        return {**kind, "metadata": meta, "spec": {"replicas": replicas, "serviceName": "s"}}

    plural = "deployments" if made is Made.DEPLOYMENT else "statefulsets"
    request = {
        "uid": "f",
        "operation": "UPDATE",
        "resource": {"group": "apps", "version": "v1", "resource": plural},
        "subResource": "scale" if is_scale else "",
        "namespace": director.sandbox.namespace,
        "name": name,
        "object": state(2),
        "oldObject": state(3),
    }
    tree = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    return HookCall(
        path=f"/admission/{hook}?timeout=10s",
        service="default/rollout-operator",
        body=json.dumps(tree).encode(),
        timeout=LIMIT,
    )


# One client in seven sends each kind.
FLOODS: Final = [
    pytest.param((*Made,), id="all kinds"),
    *(pytest.param((made,), id=made, marks=pytest.mark.prove) for made in Made),
]


@cache
def _measure(act: Callable[[Director], Awaitable[None]], kinds: tuple[Made, ...]) -> timedelta:
    """Return how long something takes while clients send reviews of what never was."""
    spans: list[timedelta] = []

    async def request(director: Director, made: Made, number: int) -> None:
        for at in count():
            await director.process.answer(made_up(director, made, f"none-{number}-{at}"))
            await asyncio.sleep(PAUSE)

    async def measured(director: Director) -> None:
        async with asyncio.TaskGroup() as tasks:
            forgers = zip(range(FORGERS), cycle(kinds), strict=False)
            flood = [tasks.create_task(request(director, made, one)) for one, made in forgers]
            await asyncio.sleep(10)  # what may come at once has come
            begin = asyncio.get_running_loop().time()
            async with asyncio.timeout(PATIENCE):
                await act(director)
            spans.append(timedelta(seconds=asyncio.get_running_loop().time() - begin))
            for task in flood:
                task.cancel()
        await director.until_whole()
        await asyncio.sleep(PATIENCE)

    shape = [_prepared(zone) for zone in zones("ab", PODS)]
    play(measured, shape)
    return spans[0]


def _prepared(zone: ZoneSpec) -> ZoneSpec:
    return ZoneSpec(
        name=zone.name,
        replicas=zone.replicas,
        labels={**zone.labels, PREPARE_DOWNSCALE: "true"},
        annotations={PREPARE_PORT: "80", PREPARE_PATH: "p"},
        pod_labels=zone.pod_labels,
        node_selector=zone.node_selector,
    )


async def _roll(director: Director) -> None:
    await director.roll("v2")
    await director.until_rolled()


async def _scale_down(director: Director) -> None:
    await director.people.scale("zone-a", PODS - 1, Route.SCALE_MERGE)


@pytest.mark.slow
@pytest.mark.parametrize("kinds", FLOODS)
def test_li09_reviews_of_what_never_was_do_not_slow_a_rollout(kinds: tuple[Made, ...]) -> None:
    """LI-09, SEC-09: forty clients call every path, with another name each time."""
    assert _measure(_roll, kinds) <= 1.2 * _measure(_roll, ())


@pytest.mark.slow
@pytest.mark.parametrize("kinds", FLOODS)
def test_li06_reviews_of_what_never_was_do_not_hold_up_a_downscale(kinds: tuple[Made, ...]) -> None:
    """LI-06, SEC-09: the first try succeeds, and hardly later than without them."""
    assert _measure(_scale_down, kinds) <= _measure(_scale_down, ()) + timedelta(seconds=1)
