"""Requests to pods: what gets there, what comes back, and what a dead process does not learn.

Section 3.2, pods: prepare behaviours of FP-25; partitions to pods.
"""

import asyncio
from datetime import timedelta

import pytest

from rollout_operator.lab.network.faults import CrashPoint, PodFailure, PodFate, ReviewFate
from rollout_operator.lab.network.planned_faults import PodPlan, ReviewPlan
from rollout_operator.lab.network.pod_client import SimulatedPodClient
from rollout_operator.model.downscale import Endpoint
from rollout_operator.model.names import Uid
from tests.lab.client_world import ACTOR, ClientWorld, loop_time, never_returns
from tests.virtual_time import in_virtual_time

ENDPOINT = Endpoint(
    pod="a-0", uid=Uid("1"), ip="10.0.0.1", host="a-0.a", port=80, path="prepare-downscale"
)


class Pods:
    """Pods that all act, and answer 200."""

    def __init__(self) -> None:
        self.acted: list[str] = []

    async def serve(
        self, method: str, endpoint: Endpoint, actor: str, takes: timedelta
    ) -> tuple[int, bytes]:
        self.acted.append(f"{actor} {method} {endpoint.pod}")
        return 200, b"said"


def plan(fate: PodFate) -> PodPlan:
    return PodPlan(actor=ACTOR, number=1, fate=fate)


@in_virtual_time
async def test_a_pod_acts_and_answers() -> None:
    world, pods = ClientWorld(), Pods()
    assert await SimulatedPodClient(world.link, pods).send("POST", ENDPOINT) == 200
    assert pods.acted == ["operator-1 POST a-0"]
    assert 0.002 <= loop_time() <= 0.02


@pytest.mark.parametrize(
    ("how", "error", "acts"),
    [
        (PodFailure.REFUSED, ConnectionRefusedError, False),
        (PodFailure.RESET_BEFORE, ConnectionResetError, False),
        (PodFailure.RESET_AFTER, ConnectionResetError, True),
    ],
)
@in_virtual_time
async def test_a_broken_connection(how: PodFailure, error: type[OSError], acts: bool) -> None:
    world, pods = ClientWorld(plan(PodFate(fails=how))), Pods()
    client = SimulatedPodClient(world.link, pods)
    with pytest.raises(error):
        await client.send("POST", ENDPOINT)
    assert len(pods.acted) == acts
    assert world.told[0].kind == f"pod_{how}"
    assert await client.send("POST", ENDPOINT) == 200


@pytest.mark.parametrize(
    ("how", "status", "acts"),
    [
        (PodFailure.REDIRECT, 307, False),
        (PodFailure.ERROR, 500, False),
        (PodFailure.ERROR_AFTER, 500, True),
    ],
)
@in_virtual_time
async def test_something_else_answers(how: PodFailure, status: int, acts: bool) -> None:
    world, pods = ClientWorld(plan(PodFate(fails=how))), Pods()
    assert await SimulatedPodClient(world.link, pods).send("DELETE", ENDPOINT) == status
    assert len(pods.acted) == acts


@pytest.mark.parametrize(("how", "acts"), [(PodFailure.SILENT, True), (PodFailure.LOST, False)])
@in_virtual_time
async def test_nobody_answers(how: PodFailure, acts: bool) -> None:
    world, pods = ClientWorld(plan(PodFate(fails=how))), Pods()
    assert await never_returns(SimulatedPodClient(world.link, pods).send("POST", ENDPOINT))
    assert len(pods.acted) == acts


@in_virtual_time
async def test_a_slow_answer_is_one() -> None:
    fate = PodFate(before=timedelta(seconds=2), after=timedelta(seconds=3))
    world, pods = ClientWorld(plan(fate)), Pods()
    assert await SimulatedPodClient(world.link, pods).send("POST", ENDPOINT) == 200
    assert 5 <= loop_time() <= 5.02


@pytest.mark.parametrize("cut", ["is_cut", "cut_pods"])
@in_virtual_time
async def test_pods_out_of_reach(cut: str) -> None:
    """A partition to the pods leaves the API server in reach."""
    world, pods = ClientWorld(), Pods()
    setattr(world.link, cut, True)
    assert await never_returns(SimulatedPodClient(world.link, pods).send("POST", ENDPOINT))
    assert pods.acted == []
    assert world.link.is_cut is (cut == "is_cut")

    world.link.heal()
    assert await SimulatedPodClient(world.link, pods).send("POST", ENDPOINT) == 200


@pytest.mark.parametrize("point", CrashPoint)
@in_virtual_time
async def test_a_crash_within_a_request(point: CrashPoint) -> None:
    world, pods = ClientWorld(plan(PodFate(crash=point))), Pods()
    client = SimulatedPodClient(world.link, pods)
    answers: list[int] = []

    async def work() -> None:
        answers.append(await client.send("POST", ENDPOINT))
        answers.append(await client.send("POST", ENDPOINT))

    assert await never_returns(work())
    assert world.link.is_dead
    assert len(pods.acted) == (point is not CrashPoint.BEFORE_SEND)
    assert len(answers) == (point is CrashPoint.AFTER_REPLY)


@in_virtual_time
async def test_a_closed_door_sends_nothing() -> None:
    world, pods = ClientWorld(), Pods()
    client = SimulatedPodClient(world.link, pods)
    await client.close()
    with pytest.raises(OSError, match="closed"):
        await client.send("POST", ENDPOINT)
    assert pods.acted == []


def review(way: str, fate: ReviewFate) -> ReviewPlan:
    assert way in ("question", "answer")
    return ReviewPlan(
        actor=ACTOR, way="question" if way == "question" else "answer", number=1, fate=fate
    )


async def ask(world: ClientWorld) -> None:
    """Ask the process as the API server asks a webhook."""
    await world.link.let_in()
    await world.link.let_out()


@in_virtual_time
async def test_a_review_goes_there_and_back() -> None:
    world = ClientWorld()
    await ask(world)
    assert 0.002 <= loop_time() <= 0.02


@pytest.mark.parametrize("way", ["question", "answer"])
@in_virtual_time
async def test_a_review_breaks_or_is_lost(way: str) -> None:
    """FP-23: the API server sees a failed webhook, whatever the process has done by then."""
    broken = ClientWorld(review(way, ReviewFate(reset=True)))
    with pytest.raises(ConnectionResetError):
        await ask(broken)
    lost = ClientWorld(review(way, ReviewFate(lost=True)))
    assert await never_returns(ask(lost))
    slow = ClientWorld(review(way, ReviewFate(delay=timedelta(seconds=12))))
    start = loop_time()
    await ask(slow)
    assert 12 <= loop_time() - start <= 12.02


@pytest.mark.parametrize("way", ["question", "answer"])
@in_virtual_time
async def test_a_process_dies_over_a_review(way: str) -> None:
    world = ClientWorld(review(way, ReviewFate(crash=True)))
    with pytest.raises(ConnectionRefusedError):
        await ask(world)
    assert world.link.is_dead
    await asyncio.wait_for(world.link.wait_dead(), 1)


@in_virtual_time
async def test_a_review_does_not_get_over_a_cut_link() -> None:
    world = ClientWorld()
    world.link.is_cut = True
    assert await never_returns(ask(world))
