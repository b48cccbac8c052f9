"""What stands on the page, and that no text of a tenant is more than text."""

import asyncio
from itertools import product
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rollout_operator.model.description import (
    Description,
    GroupDescription,
    NamespaceDescription,
    PartReport,
    Phase,
    PodState,
    ReleasePhase,
    Step,
)
from rollout_operator.model.outcome import Code
from rollout_operator.planning.wording import one_line
from rollout_operator.web.admin import list_page, read_asset
from rollout_operator.web.cards import (
    POD_ICONS,
    Fragment,
    SectionRenderer,
    escape,
    make_anchor,
    render_prose,
)
from tests.examples import repeatable
from tests.goldens import Golden
from tests.virtual_time import in_virtual_time
from tests.web.status.descriptions import (
    HOSTILE,
    MINUTE,
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
from tests.web.status.elements import Elements
from tests.web.status.served import Event

KEPT = Path(__file__).parent / "page.txt"
SHOWN_HOSTILE = "<script>alert('x')</script>\"'&\\u202etxt\\x00\\nnext\\x1b[31m"


async def read(description: Description) -> Elements:
    """Return the page of a description, checked for what no page may have."""
    sections = (await SectionRenderer().render(description)).sections
    pieces = list_page(description.namespace, description.now, sections.values())
    elements = Elements(b"".join(pieces).decode())
    assert [*elements.list_active()] == []
    assert (elements.unclosed, elements.open) == ([], [])
    ids = [one["id"] for _, one in elements.tags if "id" in one]
    assert len(ids) == len({*ids})
    assert [one for one, _ in elements.tags].count("script") == 1
    return elements


@in_virtual_time
async def test_maz60_groups_of_one_name_in_two_namespaces_are_distinguished() -> None:
    groups = [replace(group(), namespace=namespace) for namespace in ("loki", "mimir")]
    lacking = NamespaceDescription(
        name="tempo", is_ready=False, is_acting=False, missing=("pods watch: <forbidden>",)
    )

    page = await read(replace(describe(*groups), namespaces=(lacking,)))

    assert "loki/ingester" in page.text
    assert "mimir/ingester" in page.text
    assert "namespace tempo: not ready: pods watch: <forbidden>" in page.text


@in_virtual_time
async def test_the_page_in_full(golden: Golden) -> None:
    """Why, what next and what to do; of groups, policies, releases and budgets."""
    step = Step(
        code=Code.POD_OUTDATED,
        text="zone-a-1 is at revision abc, zone-a wants def",
        zone="zone-a",
        pod="zone-a-1",
        is_waiting=True,
    )
    other = waiting("zone-a waits", Code.ANOTHER_ZONE_FIRST, name="zone-a", remedy="")
    why = waiting()
    invalid = replace(budget("b", text=why.text), is_valid=False, allowed=0, waits=(why,))
    pinned = replace(
        release(),
        wanted="1.1.0",
        is_suspended=True,
        bake_ends=NOW + MINUTE,
        deadline=NOW + MINUTE,
        requests=("rollout.kuberik.com/retry: x",),
    )
    failed = replace(release().history[0], failed_checks=("prod/web: 503",), retries=2)
    page = await read(
        describe(
            group(waits=(why, other), steps=(step,)),
            budgets=(budget(), invalid),
            policies=(replace(policy(), next_batch=NOW + MINUTE, unknown_zones=("us-west-2d",)),),
            releases=(
                pinned,
                replace(release("failed", ReleasePhase.FAILED), history=(failed,)),
            ),
            schedules=(release_schedule(),),
        )
    )

    *lines, _version, _links = page.lines
    golden.check(KEPT, "\n".join([*lines, ""]))
    links = [one["href"] for one in page.find("code") if "href" in one]
    assert links[:3] == [
        "reasons#zone_not_ready",
        "reasons#pod_outdated",
        "reasons#another_zone_first",
    ]


@in_virtual_time
async def test_a_cell_shows_state_and_revision_by_more_than_colour() -> None:
    states = tuple(PodState)
    zones = tuple(zone(f"zone-{updated}", states=states, updated=updated) for updated in (0, 6))
    page = await read(describe(group(zones=zones)))
    cells = [one for tag, one in page.tags if tag == "li" and "title" in one]
    icons = [
        page.tags[place + 2][1]["href"]
        for place, (tag, one) in enumerate(page.tags)
        if tag == "li" and "title" in one
    ]

    assert [one["class"].split()[1] for one in cells] == ["old"] * 6 + ["new"] * 6
    assert len({*icons}) == len(states)
    assert cells[2]["title"] == (
        "zone-0-2: not ready, older revision, container app: CrashLoopBackOff"
    )
    assert all(str(state) in page.text for state in states), "the legend has all of them"
    defined = {one["id"] for tag, one in page.tags if tag == "symbol"}
    assert {one["href"].removeprefix("#") for tag, one in page.tags if tag == "use"} <= defined


@pytest.mark.parametrize("phase", Phase)
@in_virtual_time
async def test_every_phase_has_a_word_and_a_picture(phase: Phase) -> None:
    page = await read(describe(group(phase=phase)))

    assert f"1 {phase}" in page.text
    summary = next(one for _, one in page.tags if one.get("id") == "summary")
    assert summary["data-title"] == f"1 {phase}"


@in_virtual_time
async def test_what_is_worst_comes_first() -> None:
    page = await read(
        describe(*(group(f"g{number}", phase=phase) for number, phase in enumerate(Phase)))
    )
    cards = [one["id"] for tag, one in page.tags if tag == "article"]

    assert cards == ["g-g4", "g-g3", "g-g2", "g-g1", "g-g0"]


@in_virtual_time
async def test_an_empty_namespace_and_one_that_nothing_is_known_of() -> None:
    empty = await read(
        describe(
            operator=operator(reports=(PartReport(name="pods watch", text="proved live 0 s ago"),))
        )
    )
    starting = await read(describe(operator=operator(missing=("operator: starting",))))
    other = await read(describe(group(), operator=operator(is_acting=False)))

    assert "No rollout group in this namespace." in empty.text
    assert "pods watch proved live 0 s ago" in empty.text
    assert "Not ready operator: starting" in starting.text
    assert "No rollout group" not in starting.text
    assert "This replica does not act." in other.text


@in_virtual_time
async def test_what_tenants_wrote_is_text() -> None:
    """SEC-13: names, sentences, values; in elements and in attributes."""
    hostile = group(
        HOSTILE,
        headline=HOSTILE,
        zones=(zone(HOSTILE, states=(PodState.NOT_READY,), why=HOSTILE),),
        waits=(waiting(HOSTILE, name=HOSTILE, remedy=HOSTILE),),
        problems=(waiting(HOSTILE, Code.BAD_PAUSED, name=HOSTILE),),
        steps=(Step(code=Code.POD_OUTDATED, text=HOSTILE, zone=HOSTILE, pod=HOSTILE),),
    )
    bad = msgspec.structs.replace(budget(HOSTILE, text=HOSTILE), maximum=HOSTILE)
    process = operator(missing=(HOSTILE,), reports=(PartReport(name=HOSTILE, text=HOSTILE),))
    description = msgspec.structs.replace(
        describe(hostile, operator=process, budgets=(bad,)), namespace=HOSTILE
    )
    page = await read(description)

    assert page.text.count(SHOWN_HOSTILE) > 12
    assert all(char.isprintable() for char in "".join(page.texts).replace("\n", ""))


@in_virtual_time
async def test_a_whole_annotation_is_cut() -> None:
    text = "<" * 262_144
    page = await read(describe(group(text, headline=text, waits=(waiting(text),))))

    assert len(page.text) < 20_000


@repeatable(50)
@given(st.text())
def test_any_text_reads_back_as_one_line(text: str) -> None:
    """SEC-13: in an element, in an attribute, and in a sentence with code in it."""
    elements = Elements(f'<p title="{escape(text)}">{escape(text)}</p>')
    prose = Elements(f"<p>{render_prose(text)}</p>")

    assert elements.tags == [("p", {"title": one_line(text)})]
    assert "".join(elements.texts) == f"\n{one_line(text)}\n"
    assert {tag for tag, _ in prose.tags} <= {"p", "code"}
    assert "".join(prose.texts).strip() in {one_line(text).strip(), drop_marks(text)}


def drop_marks(text: str) -> str:
    return one_line(text).replace("`", "").strip()


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
async def test_a_page_of_many_is_small_and_counts_what_it_leaves_out() -> None:
    page = await read(describe(*many(1100, 3, 3)))
    large = await read(describe(*many(40, 20, 200)))

    assert "and 70 more groups" in page.text
    assert len(page.text) < 200_000
    assert page.text.count("group-0999") == 1
    assert "and 8 more zones" in large.text
    cells = [one for tag, one in large.tags if tag == "li" and "title" in one]
    assert len(cells) <= 1500 + 12 * 60


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


async def render_twice(before: Description, after: Description) -> tuple[Fragment, Fragment]:
    renderer = SectionRenderer()
    return await renderer.render(before), await renderer.render(after)


@in_virtual_time
async def test_the_same_is_not_rendered_again() -> None:
    later = msgspec.structs.replace(describe(group()), now=NOW.replace(hour=9))
    first, second = await render_twice(describe(group()), later)

    assert second is first


@in_virtual_time
async def test_news_are_what_has_changed_and_made_once_for_all() -> None:
    first, second = await render_twice(
        describe(group("a"), group("b")), describe(group("c"), group("b", headline="new"))
    )
    news = read_news(second.render_news(first))
    everything = read_news(second.render_news(None))

    assert news.order == ["summary", "g-b", "g-c"]
    assert {*news.changed} == {"g-b", "g-c", "summary"} - (
        {"summary"} if first.sections["summary"] == second.sections["summary"] else set()
    )
    assert everything == Event(order=news.order, changed=second.sections)
    assert second.render_news(first) is second.render_news(first)


@in_virtual_time
async def test_rows_are_shared_by_few() -> None:
    """One group that changes among a thousand is not worth a page."""
    before = many(300, 1, 1)
    after = [*before[:-1], msgspec.structs.replace(before[-1], headline="new")]
    first, second = await render_twice(describe(*before), describe(*after))
    assert [*read_news(second.render_news(first)).changed] == ["more-10"]


def test_every_pair_of_state_and_revision_has_a_style() -> None:
    style = read_asset("page.css")
    for state, age in product(POD_ICONS.values(), ("new", "old")):
        assert f".{state}" in style, (state, age)
