"""Lists: pages, selectors, versions."""

from rollout_operator.kube.api import PODS
from tests.contract.bodies import config_map, pod, token_of, version_of
from tests.contract.plays import Needs, sequence
from tests.contract.sides import CONFIG_MAPS
from tests.contract.world import World


async def _letters(world: World, letters: str) -> None:
    for place, letter in enumerate(letters):
        await world.make(CONFIG_MAPS, config_map(letter, labels={"at": f"{place % 2}"}))


@sequence()
async def all_objects_by_name_and_in_pages(world: World) -> None:
    await world.list(CONFIG_MAPS)
    await world.list(CONFIG_MAPS, limit="2")
    await _letters(world, "cabed")
    await world.list(CONFIG_MAPS)
    await world.list(CONFIG_MAPS, resourceVersion="")
    page = await world.list(CONFIG_MAPS, limit="2")
    page = await world.list(CONFIG_MAPS, limit="2", **{"continue": token_of(page)})
    await world.list(CONFIG_MAPS, limit="2", **{"continue": token_of(page)})
    page = await world.list(CONFIG_MAPS, limit="1")
    await world.list(CONFIG_MAPS, **{"continue": token_of(page)})


@sequence()
async def pages_show_the_first_page_s_state(world: World) -> None:
    await _letters(world, "abcd")
    page = await world.list(CONFIG_MAPS, limit="2")
    await world.patch(CONFIG_MAPS, "c", {"data": {"key": "later"}})
    await world.delete(CONFIG_MAPS, "d")
    await world.make(CONFIG_MAPS, config_map("e"))
    await world.list(CONFIG_MAPS, limit="2", **{"continue": token_of(page)})
    await world.list(CONFIG_MAPS)


@sequence()
async def pages_with_a_selector_do_not_count_the_rest(world: World) -> None:
    await _letters(world, "abcdef")
    page = await world.list(CONFIG_MAPS, limit="2", labelSelector="at=0")
    await world.list(CONFIG_MAPS, labelSelector="at=0", **{"continue": token_of(page)})


@sequence()
async def a_token_that_is_none(world: World) -> None:
    await world.list(CONFIG_MAPS, limit="1", **{"continue": "nonsense"})


@sequence(needs=Needs.OBLIVION)
async def an_expired_token(world: World) -> None:
    await _letters(world, "abc")
    page = await world.list(CONFIG_MAPS, limit="1")
    await world.make(CONFIG_MAPS, config_map("d"))
    await world.side.forget_past()
    await world.list(CONFIG_MAPS, limit="1", **{"continue": token_of(page)})


@sequence()
async def selectors(world: World) -> None:
    await _letters(world, "abc")
    await world.make(CONFIG_MAPS, config_map("plain"))
    for labels in (
        *("at=0", "at==1", "at!=0", "at in (1,2)", "at notin (0)", "at", "!at", "at=0,other=x"),
    ):
        await world.list(CONFIG_MAPS, labelSelector=labels)
    for fields in ("metadata.name=b", "metadata.name!=b"):
        await world.list(CONFIG_MAPS, fieldSelector=fields)
    await world.list(CONFIG_MAPS, fieldSelector="metadata.name=b", labelSelector="at=0")
    await world.make(PODS, pod("a", node="n"))
    await world.make(PODS, pod("b"))
    for fields in ("spec.nodeName=n", "status.phase!=Running"):
        await world.list(PODS, fieldSelector=fields)


@sequence()
async def any_state(world: World) -> None:
    """Once the server's cache has seen what was written."""
    await _letters(world, "ab")
    newest = version_of(await world.make(CONFIG_MAPS, config_map("c")))
    await world.list(CONFIG_MAPS, resourceVersion=newest)
    await world.list(CONFIG_MAPS, resourceVersion="0")
    await world.get(CONFIG_MAPS, "a", resourceVersion="0")
    await world.get(CONFIG_MAPS, "a", resourceVersion=newest)


@sequence()
async def an_exact_version(world: World) -> None:
    await world.make(CONFIG_MAPS, config_map("a"))
    made = await world.make(CONFIG_MAPS, config_map("b"))
    await world.patch(CONFIG_MAPS, "a", {"data": {"key": "later"}})
    await world.delete(CONFIG_MAPS, "b")
    query = {"resourceVersion": version_of(made), "resourceVersionMatch": "Exact"}
    await world.list(CONFIG_MAPS, **query)


@sequence()
async def not_older_than_a_version(world: World) -> None:
    made = await world.make(CONFIG_MAPS, config_map("a"))
    query = {"resourceVersion": version_of(made), "resourceVersionMatch": "NotOlderThan"}
    await world.list(CONFIG_MAPS, **query)


@sequence(needs=Needs.OBLIVION)
async def an_exact_version_that_is_forgotten(world: World) -> None:
    made = await world.make(CONFIG_MAPS, config_map("a"))
    await world.make(CONFIG_MAPS, config_map("b"))
    await world.side.forget_past()
    query = {"resourceVersion": version_of(made), "resourceVersionMatch": "Exact"}
    await world.list(CONFIG_MAPS, **query)
