"""Prepare-downscale: a pod that was slow to hear that it stays, and is prepared meanwhile.

SI-10: the caller has given up, and the pod goes on with the call.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from rollout_operator.model.objects import Endpoint
from rollout_operator.model.outcome import Code, Verdict
from rollout_operator.pods import PodError
from tests.virtual_time import in_virtual_time
from tests.web.downscale_world import RETELL, World, come_to_rest, three_zones
from tests.web.fake_pods import confirm, hang, refuse

TIMEOUT = 5.0
WAITS = "zone-a-4 and zone-a-3 were told that they stay, and have not answered; try again in"


class LatePods:
    """Pods that take a DELETE at once and act on it `takes` seconds later, for all callers."""

    def __init__(self, takes: float) -> None:
        self.takes = takes
        self.is_prepared: dict[str, bool] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def answer(self, method: str, endpoint: Endpoint) -> None:
        if method == "POST":
            await confirm(method, endpoint)
            self.is_prepared[endpoint.pod] = True
            return
        task = asyncio.create_task(self._forget(endpoint.pod))
        self._tasks.add(task)
        await asyncio.sleep(min(self.takes, TIMEOUT))
        if self.takes > TIMEOUT:
            raise PodError(f"DELETE {endpoint.pod}: no answer within 5s", may_arrive=True)

    async def _forget(self, pod: str) -> None:
        await asyncio.sleep(self.takes)
        self.is_prepared[pod] = False


def is_refused(verdict: Verdict) -> bool:
    """Return whether pods were not called because they have not answered yet."""
    if verdict.is_allowed or "have not answered" not in verdict.reason.text:
        return False
    assert (verdict.reason.code, verdict.code) == (Code.POD_NOT_PREPARED, 429)
    return True


async def until(is_so: Callable[[], bool]) -> None:
    """Wait, to a tenth of a second."""
    for _ in range(1000):
        if is_so():
            break
        await asyncio.sleep(0.1)


@asynccontextmanager
async def late() -> AsyncIterator[tuple[World, LatePods]]:
    """Let a downscale be granted that does not happen, up to the calls that undo it."""
    world, pods = three_zones(), LatePods(9)
    world.calls.answer = pods.answer
    async with world.controlling():
        assert (await world.send_request("zone-a", 3)).is_allowed
        await world.watch()
        await until(lambda: len(world.calls.names("DELETE")) == 2)
        yield world, pods


async def time_out(pods: LatePods) -> None:
    """Let the callers of pods give up."""
    await asyncio.sleep(TIMEOUT + 0.1)
    pods.takes = 0.1


@in_virtual_time
async def test_si10_no_pod_goes_that_may_still_get_a_call_that_it_stays() -> None:
    """Granted, and lost to another write; the same is sent again 5 s after the undo was sent."""
    async with late() as (world, pods):
        await time_out(pods)
        posts = world.calls.names("POST")
        verdict = await world.send_request("zone-a", 3)
        assert is_refused(verdict)
        assert f"failed to prepare for shutdown. {WAITS} 10s" in verdict.reason.text
        assert world.calls.names("POST") == posts, "no pod is called in vain"
        for _ in range(9):
            await asyncio.sleep(1)
            assert is_refused(await world.send_request("zone-a", 3))
        await asyncio.sleep(1)
        assert (await world.send_request("zone-a", 3)).is_allowed
        await asyncio.sleep(30)
        assert pods.is_prepared == {"zone-a-4": True, "zone-a-3": True}


@in_virtual_time
async def test_si10_the_time_is_over_soon_and_others_never_wait() -> None:
    """Other pods of the set, other zones; and all of them once nothing can arrive any more."""
    async with late() as (world, pods):
        await time_out(pods)
        world.commit("zone-a", 3)
        await world.watch()
        assert (await world.send_request("zone-a", 2)).is_allowed, "another pod"
        world.commit("zone-a", 5)
        await world.watch()
        await asyncio.sleep(RETELL.total_seconds())
        verdict = await world.send_request("zone-a", 3)
        assert not is_refused(verdict)


@in_virtual_time
async def test_si10_a_client_that_tries_again_at_once() -> None:
    """One pod answers 500, so that both are told that they stay; the review ends before that."""
    world = three_zones()

    async def answer(method: str, endpoint: Endpoint) -> None:
        if (method, endpoint.pod) == ("DELETE", "zone-a-4"):
            await hang(method, endpoint)
        await refuse("zone-a-3")(method, endpoint)

    world.calls.answer = answer
    assert "HTTP status 500" in (await world.send_request("zone-a", 3)).reason.text
    world.calls.answer = confirm
    assert is_refused(await world.send_request("zone-a", 3))
    await asyncio.sleep(RETELL.total_seconds())
    assert (await world.send_request("zone-a", 3)).is_allowed


@in_virtual_time
async def test_what_has_answered_is_called_again_at_once() -> None:
    """PREP-22: also where the answer to the DELETE was 500: that call is over."""
    world = three_zones()
    world.calls.answer = refuse("zone-a-3")
    assert not (await world.send_request("zone-a", 3)).is_allowed
    world.calls.answer = refuse("zone-a-3", method="DELETE")
    assert (await world.send_request("zone-a", 3)).is_allowed


@in_virtual_time
async def test_si10_a_review_that_waited_for_the_calls_before_it() -> None:
    """It comes while pods are being told that they stay, and they do not answer."""
    async with late() as (world, pods):
        posts = world.calls.names("POST")
        verdict = await world.send_request("zone-a", 3)
        assert is_refused(verdict)
        assert world.calls.names("POST") == posts
        pods.takes = 0.1
        await world.pass_time(60)
        assert pods.is_prepared == {"zone-a-4": False, "zone-a-3": False}
        await come_to_rest(world)


@in_virtual_time
async def test_si10_a_process_that_follows_does_not_know_what_was_sent() -> None:
    """LI-05: it died while pods were told that they stay; their records say that much."""
    async with late() as (world, pods):
        pass
    world.restart()
    async with world.controlling():
        assert is_refused(await world.send_request("zone-a", 3))
        await asyncio.sleep(RETELL.total_seconds())
        assert (await world.send_request("zone-a", 3)).is_allowed
        await asyncio.sleep(20)
        assert pods.is_prepared == {"zone-a-4": True, "zone-a-3": True}


@in_virtual_time
async def test_si10_records_stay_until_no_call_can_arrive() -> None:
    """The second call was answered; a process that follows must know of the first, too."""
    async with late() as (world, pods):
        await time_out(pods)
        await world.pass_time(3)
        assert pods.is_prepared == {"zone-a-4": False, "zone-a-3": False}
        assert world.memory.downscales.backlog.count() == 0
        assert world.recorded() == ["zone-a-0", "zone-a-3", "zone-a-4"]
        world.restart()
        world.memory.controller.adopt_all()
        assert is_refused(await world.send_request("zone-a", 3))
        await asyncio.sleep(RETELL.total_seconds())
