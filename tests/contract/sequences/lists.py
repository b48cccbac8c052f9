"""Lists: pages, selectors, versions."""

from rollout_operator.kube.api import PODS
from tests.contract.bodies import config_map, pod, token_of, version_of
from tests.contract.plays import Needs, Play, add_each, sequence
from tests.contract.sides import CONFIG_MAPS
from tests.contract.world import World


async def _letters(world: World, letters: str) -> None:
    for place, letter in enumerate(letters):
        await world.make(CONFIG_MAPS, config_map(letter, labels={"at": f"{place % 2}"}))


@sequence()
async def an_empty_list(world: World) -> None:
    await world.list(CONFIG_MAPS)
    await world.list(CONFIG_MAPS, limit="2")


@sequence()
async def objects_come_by_name(world: World) -> None:
    await _letters(world, "cab")
    await world.list(CONFIG_MAPS)


@sequence()
async def pages(world: World) -> None:
    await _letters(world, "abcde")
    page = await world.list(CONFIG_MAPS, limit="2")
    page = await world.list(CONFIG_MAPS, limit="2", **{"continue": token_of(page)})
    await world.list(CONFIG_MAPS, limit="2", **{"continue": token_of(page)})


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
async def the_rest_after_a_page(world: World) -> None:
    await _letters(world, "abcd")
    page = await world.list(CONFIG_MAPS, limit="1")
    await world.list(CONFIG_MAPS, **{"continue": token_of(page)})


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


def _selected(**query: str) -> Play:
    async def play(world: World) -> None:
        await _letters(world, "abc")
        await world.make(CONFIG_MAPS, config_map("plain"))
        await world.list(CONFIG_MAPS, **query)

    return play


def _selected_pods(selector: str) -> Play:
    async def play(world: World) -> None:
        await world.make(PODS, pod("a", node="n"))
        await world.make(PODS, pod("b"))
        await world.list(PODS, fieldSelector=selector)

    return play


add_each(
    (
        ("label_equals", _selected(labelSelector="at=0")),
        ("label_equals_twice", _selected(labelSelector="at==1")),
        ("label_differs", _selected(labelSelector="at!=0")),
        ("label_in", _selected(labelSelector="at in (1,2)")),
        ("label_not_in", _selected(labelSelector="at notin (0)")),
        ("label_exists", _selected(labelSelector="at")),
        ("label_does_not_exist", _selected(labelSelector="!at")),
        ("two_labels", _selected(labelSelector="at=0,other=x")),
        ("name", _selected(fieldSelector="metadata.name=b")),
        ("name_differs", _selected(fieldSelector="metadata.name!=b")),
        ("name_and_label", _selected(fieldSelector="metadata.name=b", labelSelector="at=0")),
        ("pods_by_node", _selected_pods("spec.nodeName=n")),
        ("pods_by_phase", _selected_pods("status.phase!=Running")),
    ),
    "list_selectors",
)


@sequence()
async def the_newest_state(world: World) -> None:
    await _letters(world, "ab")
    await world.list(CONFIG_MAPS, resourceVersion="")


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
