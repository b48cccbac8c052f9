"""The simulated API server: what it does not model it says; all else the contract compares."""

import asyncio

import pytest
from rollout_lab.apiserver.api import SimulatedApi
from rollout_lab.model.request import MERGE_PATCH, ApiRequest, NotModelled

from rollout_operator.kube.api import CONFIG_MAPS, JsonObject
from tests.contract.bodies import config_map
from tests.contract.plays import Needs, Play, Sequence, list_sequences
from tests.contract.sides import Hook, Verdict
from tests.contract.simulated import SandboxSide, play_simulated
from tests.contract.world import World
from tests.stories import check_tables

list_sequences()  # or modules would be imported in a circle
from tests.contract.sequences.texts import tell  # noqa: E402

PATCH: JsonObject = {"data": {"key": "2"}}


def play(act: Play) -> list[str]:
    """Play calls on a server of their own; return what it answers."""
    found = play_simulated(Sequence(topic="lab", name="a", play=act, needs=Needs.API))
    if isinstance(found, Exception):
        raise found
    return found


def show_gap(calls: str) -> str:
    with pytest.raises(NotModelled) as said:
        play(tell(["make pod p", "make sts a", *calls.split("; ")]))
    return str(said.value).replace("contract-sandbox", "NAMESPACE")


test_what_is_not_modelled_is_said = check_tables(__file__, not_modelled=show_gap)


def test_a_busy_rival_starves_a_patch_until_the_server_gives_it_up() -> None:
    """W-14: an object that is written during each of its reviews is never admitted."""
    count = 0

    async def act(world: World) -> None:
        api = _server(world)

        async def rival(_: JsonObject) -> Verdict:
            nonlocal count
            count += 1
            await asyncio.sleep(1)
            found = api.get(CONFIG_MAPS, world.namespace, "c")
            api.put({**(found or {}), "data": {"count": str(count)}}, actor="rival")
            return {"allowed": True}

        await world.make(CONFIG_MAPS, config_map("c"))
        await world.register("Validating", Hook(name="one", decide=rival))
        begun = asyncio.get_running_loop().time()
        answer = await world.patch(CONFIG_MAPS, "c", PATCH)
        assert (answer.status, answer.reason) == (504, "Timeout")
        assert "request did not complete within requested timeout" in answer.message
        assert 33 < asyncio.get_running_loop().time() - begun < 35

    play(act)
    assert 33 <= count <= 34


def test_a_caller_that_cannot_wait_learns_that_a_webhook_reviews() -> None:
    async def act(world: World) -> None:
        await tell(["make cm c", "hook validating {}"])(world)
        request = ApiRequest(
            verb="patch",
            resource=CONFIG_MAPS,
            namespace=world.namespace,
            name="c",
            body=PATCH,
            content_type=MERGE_PATCH,
            user="person",
        )
        _server(world).call_now(request)

    with pytest.raises(NotModelled, match="UPDATE of configmaps/c by 'person'"):
        play(act)


def _server(world: World) -> SimulatedApi:
    assert isinstance(world.side, SandboxSide)
    return world.side.api
