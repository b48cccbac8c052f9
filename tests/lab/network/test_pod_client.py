"""Requests to pods and from the API server: what gets there, what comes back, what the dead learn.

Section 3.2, pods: prepare behaviours of FP-25; partitions to pods. How pods answer by themselves
is in `tests/lab/nodes/pods.txt`.
"""

import asyncio
from datetime import timedelta

import pytest
from rollout_lab.network.client import SimulatedPodClient
from rollout_lab.network.faults import CrashPoint, PodCallOutcome, PodFailure, ReviewOutcome

from rollout_operator.model.names import Uid
from rollout_operator.model.objects import Endpoint
from tests.lab.client_world import ACTOR, ClientWorld, loop_time, never_returns
from tests.simulation.planned_faults import PodPlan, ReviewPlan
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
        await asyncio.sleep(takes.total_seconds())
        return 200, b"said"


def opened(outcome: PodCallOutcome | None = None) -> tuple[ClientWorld, Pods, SimulatedPodClient]:
    """Return a process that meets with this at its first request to a pod."""
    plans = [] if outcome is None else [PodPlan(actor=ACTOR, number=1, outcome=outcome)]
    world, pods = ClientWorld(*plans), Pods()
    return world, pods, SimulatedPodClient(world.link, pods)


@in_virtual_time
async def test_a_pod_acts_and_answers() -> None:
    _, pods, client = opened()
    assert await client.send("POST", ENDPOINT) == 200
    assert await client.post(ENDPOINT) == (200, b"said")
    assert pods.acted == ["operator-1 POST a-0"] * 2
    assert 0.004 <= loop_time() <= 0.04


@pytest.mark.parametrize(
    ("outcome", "comes_to", "acts"),
    [
        (PodCallOutcome(fails=PodFailure.REFUSED), ConnectionRefusedError, False),
        (PodCallOutcome(fails=PodFailure.RESET_BEFORE), ConnectionResetError, False),
        (PodCallOutcome(fails=PodFailure.RESET_AFTER), ConnectionResetError, True),
        (PodCallOutcome(fails=PodFailure.REDIRECT), 307, False),
        (PodCallOutcome(fails=PodFailure.ERROR), 500, False),
        (PodCallOutcome(fails=PodFailure.ERROR_AFTER), 500, True),
        (PodCallOutcome(fails=PodFailure.SILENT), TimeoutError, True),
        (PodCallOutcome(fails=PodFailure.LOST), TimeoutError, False),
        (PodCallOutcome(after=timedelta(seconds=6)), TimeoutError, True),
        (PodCallOutcome(takes=timedelta(seconds=6)), TimeoutError, True),
        (PodCallOutcome(before=timedelta(seconds=2), after=timedelta(seconds=2)), 200, True),
    ],
    ids=lambda value: str(getattr(value, "fails", None) or value),
)
@in_virtual_time
async def test_what_may_become_of_a_request(
    outcome: PodCallOutcome, comes_to: type[OSError] | int, acts: bool
) -> None:
    """DELAY-07: and the pod may count all the same; the next request meets with nothing."""
    world, pods, client = opened(outcome)
    if isinstance(comes_to, int):
        assert await client.send("DELETE", ENDPOINT) == comes_to
    else:
        with pytest.raises(comes_to):
            async with asyncio.timeout(5):
                await client.send("DELETE", ENDPOINT)
    assert len(pods.acted) == acts
    assert (loop_time() == 5) is (comes_to is TimeoutError)
    assert world.reported[0].kind.startswith("pod_")
    assert await client.send("POST", ENDPOINT) == 200


@pytest.mark.parametrize("cut", ["is_cut", "cut_pods"])
@in_virtual_time
async def test_pods_out_of_reach(cut: str) -> None:
    """A partition to the pods leaves the API server in reach."""
    world, pods, client = opened()
    setattr(world.link, cut, True)
    assert await never_returns(client.send("POST", ENDPOINT))
    assert pods.acted == []
    assert world.link.is_cut is (cut == "is_cut")

    world.link.heal()
    assert await client.send("POST", ENDPOINT) == 200


@pytest.mark.parametrize("point", CrashPoint)
@in_virtual_time
async def test_a_crash_within_a_request(point: CrashPoint) -> None:
    """SEED-078: only the pod knows then."""
    world, pods, client = opened(PodCallOutcome(crash=point))
    answers: list[int] = []

    async def work() -> None:
        answers.append(await client.send("POST", ENDPOINT))
        answers.append(await client.send("POST", ENDPOINT))

    assert await never_returns(work())
    assert world.link.is_dead
    assert len(pods.acted) == (point is not CrashPoint.BEFORE_SEND)
    assert len(answers) == (point is CrashPoint.AFTER_REPLY)


@in_virtual_time
async def test_a_closed_client_sends_nothing() -> None:
    _, pods, client = opened()
    await client.close()
    with pytest.raises(OSError, match="closed"):
        await client.send("POST", ENDPOINT)
    with pytest.raises(OSError, match="closed"):
        await client.post(ENDPOINT)
    assert pods.acted == []


def review(way: str, outcome: ReviewOutcome) -> ClientWorld:
    """Return a world in which the first review fares so on its way in or out."""
    is_in = way == "question"
    return ClientWorld(
        ReviewPlan(actor=ACTOR, way="question" if is_in else "answer", number=1, outcome=outcome)
    )


async def send_request(world: ClientWorld) -> None:
    """Call the process as the API server calls a webhook."""
    await world.link.let_in()
    await world.link.let_out()


@in_virtual_time
async def test_a_review_goes_there_and_back_unless_the_link_is_cut() -> None:
    world = ClientWorld()
    await send_request(world)
    assert 0.002 <= loop_time() <= 0.02
    world.link.is_cut = True
    assert await never_returns(send_request(world))


@pytest.mark.parametrize("way", ["question", "answer"])
@in_virtual_time
async def test_a_review_breaks_or_is_lost_or_its_process_dies(way: str) -> None:
    """FP-23: the API server sees a failed webhook, whatever the process has done by then."""
    with pytest.raises(ConnectionResetError):
        await send_request(review(way, ReviewOutcome(reset=True)))
    assert await never_returns(send_request(review(way, ReviewOutcome(lost=True))))
    start = loop_time()
    await send_request(review(way, ReviewOutcome(delay=timedelta(seconds=12))))
    assert 12 <= loop_time() - start <= 12.02
    world = review(way, ReviewOutcome(crash=True))
    with pytest.raises(ConnectionRefusedError):
        await send_request(world)
    assert world.link.is_dead
    await asyncio.wait_for(world.link.wait_dead(), 1)
