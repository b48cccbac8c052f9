"""Releases on the page, in its text and in its JSON; and no trace of them without."""

from typing import Final

import msgspec
from msgspec.structs import replace

from rollout_operator.model.description import Description, ReleasePhase
from rollout_operator.planning.text import render_description
from rollout_operator.web.admin import list_document
from rollout_operator.web.cards import MOST_RELEASES, MOST_SCHEDULES
from tests.virtual_time import in_virtual_time
from tests.web.status.descriptions import (
    HOSTILE,
    budget,
    describe,
    group,
    health_check,
    operator,
    policy,
    release,
    release_schedule,
)
from tests.web.status.test_sections import SHOWN_HOSTILE, read

OF_RELEASES: Final = ("releases", "schedules", "health_checks")


@in_virtual_time
async def test_no_text_of_a_registry_or_a_tenant_is_more_than_text() -> None:
    hostile = release(text=HOSTILE)
    page = await read(
        describe(
            releases=(replace(hostile, tag=HOSTILE, next=HOSTILE, announced=HOSTILE),),
            schedules=(release_schedule(HOSTILE),),
        )
    )

    assert page.text.count(SHOWN_HOSTILE) >= 8


def test_no_text_of_a_registry_or_a_tenant_commands_a_terminal() -> None:
    hostile = release(text=HOSTILE)
    described = describe(
        releases=(replace(hostile, tag=HOSTILE, next=HOSTILE, requests=(HOSTILE,)),),
        schedules=(release_schedule(HOSTILE),),
        health_checks=(health_check(HOSTILE),),
    )

    lines = [*render_description(described)]
    assert all(line.isprintable() for line in lines)
    assert sum("\\x1b[31m" in line for line in lines) >= 7


@in_virtual_time
async def test_of_very_many_the_worst_are_shown_and_the_rest_is_counted() -> None:
    many = tuple(release(f"app-{number}") for number in range(MOST_RELEASES + 2))
    failed = release("zzz", ReleasePhase.FAILED)
    schedules = (release_schedule(),) * (MOST_SCHEDULES + 3)
    page = await read(describe(releases=(*many, failed), schedules=schedules))

    assert "3 more Rollouts" in page.text
    assert "Rollout prod/zzz" in page.text
    assert "and 3 more" in page.text
    assert "No rollout group" not in page.text


@in_virtual_time
async def test_where_releases_are_not_made_nothing_is_said_of_them() -> None:
    """Not a byte more than without."""
    plain = describe(group(), operator=operator(), budgets=(budget(),), policies=(policy(),))
    document = b"".join(list_document(plain))
    page = await read(plain)

    assert not {*OF_RELEASES} & {*msgspec.json.decode(document)}
    assert b"kuberik" not in document
    assert not any(" Rollout " in one for one in (page.text, *render_description(plain)))
    assert not any(one.get("id", "").startswith("r-") for _, one in page.tags)


def test_where_releases_are_made_and_there_is_none_that_is_said() -> None:
    document = b"".join(list_document(describe(releases=(), schedules=(), health_checks=())))
    found = msgspec.json.decode(document, type=Description)

    assert (found.releases, found.schedules, found.health_checks) == ((), (), ())
