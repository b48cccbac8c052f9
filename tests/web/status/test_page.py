"""What stands on the page, and that no text of a tenant is more than text."""

import asyncio
from itertools import product
from typing import Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rollout_operator.model.description import (
    Description,
    GroupDescription,
    Phase,
    PodState,
    ReleasePhase,
)
from rollout_operator.planning.text import render_description
from rollout_operator.planning.wording import one_line
from rollout_operator.web.admin import list_document, read_asset
from rollout_operator.web.cards import (
    MOST_POLICIES,
    MOST_RELEASES,
    MOST_SMALL,
    POD_ICONS,
    SectionRenderer,
    escape,
    make_anchor,
    render_prose,
)
from tests.examples import repeatable
from tests.virtual_time import in_virtual_time
from tests.web.status.descriptions import (
    NOW,
    budget,
    describe,
    group,
    operator,
    policy,
    release,
    release_schedule,
    waiting,
    zone,
)
from tests.web.status.elements import Elements, read_page
from tests.web.status.streams import Event

OF_RELEASES: Final = ("releases", "schedules", "health_checks")


@in_virtual_time
async def test_a_cell_shows_state_and_revision_by_more_than_colour() -> None:
    states = tuple(PodState)
    zones = tuple(zone(f"zone-{updated}", states=states, updated=updated) for updated in (0, 6))
    page = await read_page(describe(group(zones=zones)))
    places = [at for at, (tag, one) in enumerate(page.tags) if tag == "li" and "title" in one]
    cells = [page.tags[at][1] for at in places]
    assert [one["class"].split()[1] for one in cells] == ["old"] * 6 + ["new"] * 6
    assert len({page.tags[at + 2][1]["href"] for at in places}) == len(states)
    assert cells[2]["title"] == (
        "zone-0-2: not ready, older revision, container app: CrashLoopBackOff"
    )
    assert all(str(state) in page.text for state in states), "the legend has all of them"
    defined = {one["id"] for tag, one in page.tags if tag == "symbol"}
    assert {one["href"].removeprefix("#") for tag, one in page.tags if tag == "use"} <= defined
    style = read_asset("page.css")
    for state, age in product(POD_ICONS.values(), ("new", "old")):
        assert f".{state}" in style, (state, age)


@in_virtual_time
async def test_every_phase_has_a_word_and_a_picture_and_the_worst_comes_first() -> None:
    page = await read_page(describe(*(group(f"g{at}", phase=one) for at, one in enumerate(Phase))))
    cards = [one["id"] for tag, one in page.tags if tag == "article"]
    assert cards == ["g-g4", "g-g3", "g-g2", "g-g1", "g-g0"]
    summary = next(one for _, one in page.tags if one.get("id") == "summary")
    for phase in Phase:
        assert f"1 {phase}" in page.text
        assert f"1 {phase}" in summary["data-title"]


@in_virtual_time
async def test_a_text_that_never_ends_is_cut() -> None:
    text = "<" * 262_144
    page = await read_page(describe(group(text, headline=text, waits=(waiting(text),))))
    assert len(page.text) < 20_000


@repeatable(50)
@given(st.text())
def test_any_text_reads_back_as_one_line(text: str) -> None:
    """SEC-13: in an element, in an attribute, and in a sentence with code in it."""
    elements = Elements(f'<p title="{escape(text)}">{escape(text)}</p>')
    prose = Elements(f"<p>{render_prose(text)}</p>")
    plain = one_line(text)
    assert elements.tags == [("p", {"title": plain})]
    assert "".join(elements.texts) == f"\n{plain}\n"
    assert {tag for tag, _ in prose.tags} <= {"p", "code"}
    assert "".join(prose.texts).strip() in {plain.strip(), plain.replace("`", "").strip()}


@pytest.mark.parametrize("name", ["a b", "", "-", "x" * 64, "é", "../x", '"'])
def test_only_a_plain_name_is_an_anchor(name: str) -> None:
    anchor = make_anchor(name)
    assert anchor.isascii()
    assert len(anchor) == 19
    assert make_anchor("ingester-1.x_y") == "g-ingester-1.x_y"


def many(groups: int, zones: int, pods: int) -> list[GroupDescription]:
    some = tuple(zone(f"zone-{number}", states=(PodState.READY,) * pods) for number in range(zones))
    return [group(f"group-{number:04}", zones=some) for number in range(groups)]


@in_virtual_time
async def test_of_very_many_the_worst_are_shown_and_the_rest_is_counted() -> None:
    page = await read_page(describe(*many(1100, 3, 3)))
    assert "and 70 more groups" in page.text
    assert len(page.text) < 200_000
    assert page.text.count("group-0999") == 1
    large = await read_page(describe(*many(40, 20, 200)))
    assert "and 8 more zones" in large.text
    cells = [one for tag, one in large.tags if tag == "li" and "title" in one]
    assert len(cells) <= 1500 + 12 * 60

    policies = [policy(f"db-{number}") for number in range(MOST_POLICIES + 2)]
    policies.append(replace(policy("zz-held"), phase="Blocked"))
    releases = [release(f"app-{number}") for number in range(MOST_RELEASES + 2)]
    releases.append(release("zzz", ReleasePhase.FAILED))
    schedules = (release_schedule(),) * (MOST_SMALL + 3)
    described = describe(policies=tuple(policies), releases=tuple(releases), schedules=schedules)
    text = (await read_page(described)).text
    for shown in ("3 more MultiAZRollouts", "3 more Rollouts", "Rollout prod/zzz", "and 3 more"):
        assert shown in text
    assert "No rollout group" not in text
    assert text.index("zz-held") < text.index("db-0")


@in_virtual_time
async def test_links_lead_to_reasons_and_to_the_policy_that_drives() -> None:
    driven = replace(group(waits=(waiting(),)), policy="prod/db")
    done = group("done", phase=Phase.ROLLED_OUT)
    page = await read_page(describe(done, driven, policies=(policy(),)))
    summary = next(one for _, one in page.tags if one.get("id") == "summary")
    assert summary["data-title"] == "1 waiting, 1 rolled out"
    ids = {one["id"] for _, one in page.tags if "id" in one}
    links = [one["href"] for tag, one in page.tags if tag == "a" and one["href"].startswith("#p-")]
    assert [link.removeprefix("#") in ids for link in links] == [True]
    codes = {one["href"] for one in page.find("code") if "href" in one}
    assert codes == {"reasons#zone_not_ready", "reasons#batch_open"}


@in_virtual_time
async def test_where_policies_and_releases_are_off_nothing_is_said_of_them() -> None:
    """Not a byte more than without; and where there is none, that is said."""
    plain = describe(group(), operator=operator(), budgets=(budget(),))
    document = b"".join(list_document(plain))
    page = await read_page(plain)
    assert list(msgspec.json.decode(document)) == [
        *("schema_version", "namespace", "now", "operator", "groups", "budgets", "namespaces")
    ]
    for text in (document.decode(), page.text, *render_description(plain)):
        assert not any(word in text for word in ("polic", "MultiAZ", "kuberik", " Rollout "))
    assert not any(one.get("id", "").startswith("r-") for _, one in page.tags)
    none = describe(policies=(), releases=(), schedules=(), health_checks=())
    found = msgspec.json.decode(b"".join(list_document(none)), type=Description)
    assert (found.policies, *(getattr(found, name) for name in OF_RELEASES)) == ((), (), (), ())


@in_virtual_time
async def test_others_have_their_turn_while_a_thousand_groups_are_rendered() -> None:
    """D-51: counted in turns, because time depends on the machine."""
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as tasks:
        other = tasks.create_task(count_turns())
        fragment = await SectionRenderer().render(describe(*many(1000, 3, 3)))
        other.cancel()
    assert turns >= len(fragment.sections)
    assert max(map(len, fragment.sections.values())) < 30_000


def read_news(news: bytes) -> Event:
    head, _, data = news.decode().removesuffix("\n\n").partition("\ndata: ")
    assert head == "event: sections"
    assert "\n" not in data
    return msgspec.json.decode(data, type=Event)


@in_virtual_time
async def test_news_are_what_has_changed_and_made_once_for_all() -> None:
    renderer = SectionRenderer()
    first = await renderer.render(describe(group("a"), group("b")))
    later = replace(describe(group("a"), group("b")), now=NOW.replace(hour=9))
    assert await renderer.render(later) is first
    second = await renderer.render(describe(group("c"), group("b", headline="new")))
    news, everything = read_news(second.render_news(first)), read_news(second.render_news(None))
    assert news.order == ["summary", "g-b", "g-c"]
    assert {*news.changed} == {"g-b", "g-c", "summary"} - (
        {"summary"} if first.sections["summary"] == second.sections["summary"] else set()
    )
    assert everything == Event(order=news.order, changed=second.sections)
    assert second.render_news(first) is second.render_news(first)
    # Rows are shared by few: one group that changes among a thousand is not worth a page.
    before = many(300, 1, 1)
    first = await renderer.render(describe(*before))
    second = await renderer.render(describe(*before[:-1], replace(before[-1], headline="new")))
    assert [*read_news(second.render_news(first)).changed] == ["more-10"]
