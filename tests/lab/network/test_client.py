"""The client of the simulated API server without faults: calls, time, and the end of a process.

Its watches, and what may go wrong, are told in `faults.txt`.
"""

import asyncio
import json
from datetime import timedelta

import pytest
from rollout_lab.network.faults import Failure

from rollout_operator.kube.api import OCI_REPOSITORIES, PODS, SECRETS, JsonObject
from rollout_operator.model.names import (
    Conflict,
    InvalidInput,
    NotFound,
    UnknownOutcome,
    Unreachable,
)
from tests.lab.client_world import NAMESPACE, ClientWorld, fails, loop_time, never_returns, secret
from tests.virtual_time import in_virtual_time


@in_virtual_time
async def test_a_call_that_names_nothing_is_not_sent() -> None:
    world = ClientWorld()
    with pytest.raises(InvalidInput):
        await world.client.fetch(SECRETS, NAMESPACE, "..")
    assert world.calls() == []


@in_virtual_time
async def test_fields_are_applied_as_their_manager() -> None:
    """Of another manager a field is a conflict, but by force; what may be lost reads so."""
    world = ClientWorld(fails(Failure.RESET_AFTER, 4))
    kind = OCI_REPOSITORIES[0]
    head: JsonObject = {"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": kind.kind}
    body: JsonObject = {**head, "metadata": {"name": "a", "namespace": NAMESPACE}}
    await world.client.create(kind, NAMESPACE, {**body, "spec": {"ref": {"tag": "1"}}})

    async def apply(tag: str, *, is_forced: bool) -> JsonObject:
        wanted: JsonObject = {**body, "spec": {"ref": {"tag": tag}}}
        applied = await world.client.apply(
            kind, NAMESPACE, "a", wanted, manager="team", is_forced=is_forced
        )
        found: JsonObject = json.loads(applied)
        return found

    with pytest.raises(Conflict, match=r"conflict with .*operator-1.*: \.spec\.ref\.tag"):
        await apply("2", is_forced=False)
    assert (await apply("2", is_forced=True))["spec"] == {"ref": {"tag": "2"}}
    with pytest.raises(UnknownOutcome):
        await apply("3", is_forced=True)
    assert (world.api.get(kind, NAMESPACE, "a") or {})["spec"] == {"ref": {"tag": "3"}}


@in_virtual_time
async def test_a_server_may_give_smaller_pages_than_requested() -> None:
    world = ClientWorld()
    for name in "abc":
        world.put(name)
    world.api.largest_page = 2

    page = await world.client.fetch_page(SECRETS, NAMESPACE, limit=500)

    assert len(page.items) == 2
    assert page.next_token


@in_virtual_time
async def test_a_list_shows_each_object_as_it_is_now() -> None:
    """What has not changed since the last list is not encoded again, but all else is."""
    world = ClientWorld()
    world.put("a", key="MQ==")
    world.put("b", key="MQ==")
    first = await world.client.fetch_page(SECRETS, NAMESPACE)
    world.put("b", key="Mg==")
    second = await world.client.fetch_page(SECRETS, NAMESPACE)

    assert bytes(second.items[0]) == bytes(first.items[0])
    assert [json.loads(bytes(one))["data"]["key"] for one in second.items] == ["MQ==", "Mg=="]


@in_virtual_time
async def test_each_way_takes_its_time() -> None:
    world = ClientWorld()
    world.put("a")
    spans = []
    for _ in range(50):
        start = loop_time()
        await world.client.fetch(SECRETS, NAMESPACE, "a")
        spans.append(loop_time() - start)

    assert 0.002 <= min(spans) < 0.008
    assert 0.014 < max(spans) <= 0.02


@in_virtual_time
async def test_the_server_time_is_that_of_its_answers() -> None:
    """D-22: up to a second early; in whole seconds, as the header of any answer has it."""
    world = ClientWorld()
    assert world.client.server_time() is None
    for _ in range(20):
        await asyncio.sleep(0.37)
        with pytest.raises(NotFound):
            await world.client.fetch(PODS, NAMESPACE, "a")
        reported = world.following.server_time()
        assert reported is not None
        assert timedelta(0) <= world.api.now() - reported <= timedelta(seconds=1.02)
    # Many answers show the second more exactly, and time goes on without any.
    await asyncio.sleep(100)
    reported = world.client.server_time()
    assert reported is not None
    assert world.api.now() - reported < timedelta(seconds=0.2)


@in_virtual_time
async def test_a_cut_link_gives_no_answer_within_the_limits() -> None:
    world = ClientWorld()
    world.put("a")
    world.link.is_cut = True
    with pytest.raises(Unreachable, match="no answer: timed out after 30s"):
        await world.client.fetch(SECRETS, NAMESPACE, "a")
    assert loop_time() == 30
    with pytest.raises(Unreachable, match="timed out after 60s"):
        await world.list()
    assert loop_time() == 90
    assert world.calls() == []

    world.link.heal()
    assert await world.list()


@in_virtual_time
async def test_an_answer_is_lost_where_the_link_is_cut_meanwhile() -> None:
    world = ClientWorld()
    world.put("a")
    world.api.on_commit(lambda _: setattr(world.link, "is_cut", True))
    with pytest.raises(Exception, match="cannot tell whether patch secrets/a"):
        await world.client.patch(SECRETS, NAMESPACE, "a", {"data": {"key": "MQ=="}})
    assert [commit.name for commit in world.commits()] == ["a"]


@in_virtual_time
async def test_the_dead_do_not_call() -> None:
    world = ClientWorld()
    world.put("a")
    world.link.kill()

    assert await never_returns(world.client.fetch(SECRETS, NAMESPACE, "a"))
    version = world.precondition("a")
    assert await never_returns(world.client.delete(SECRETS, NAMESPACE, "a", precondition=version))
    assert world.calls() == []
    assert world.exists("a")


def test_a_request_on_its_way_at_death_may_arrive() -> None:
    """By chance of the link: bytes that were sent a moment ago."""
    arrived: set[bool] = set()

    @in_virtual_time
    async def die(seed: int) -> None:
        world = ClientWorld(seed=seed)
        asyncio.get_running_loop().call_later(0.0005, world.link.kill)
        assert await never_returns(world.client.create(SECRETS, NAMESPACE, secret("a")))
        arrived.add(world.exists("a"))

    for seed in range(1, 30):
        die(seed)
    assert arrived == {True, False}


@pytest.mark.parametrize("goes_on", [True, False])
@in_virtual_time
async def test_only_the_end_of_a_world_takes_a_request_along(goes_on: bool) -> None:
    """Not a caller who leaves."""
    world = ClientWorld()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.0005):
            await world.client.create(SECRETS, NAMESPACE, secret("a"))
    assert not world.exists("a")
    if not goes_on:
        await world.link.ground()
        assert asyncio.all_tasks() == {asyncio.current_task()}
    await asyncio.sleep(1)
    assert world.exists("a") is goes_on
