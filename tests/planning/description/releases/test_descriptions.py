"""Rollouts, HealthChecks and schedules as every outlet shows them: texts beside this file."""

from typing import Final

import msgspec
import pytest

from rollout_operator.model.description import HealthCheckDescription, ReleasePhase
from rollout_operator.model.names import Uid
from rollout_operator.model.objects import LabelSelector, Unreadable
from rollout_operator.planning.cards import build_health_check, build_release, render_card
from rollout_operator.planning.wording import MAX_LINE
from rollout_operator.releases.model.plan import ReleaseObjects
from rollout_operator.releases.model.releases import CheckSelector, ReleaseStatus
from rollout_operator.releases.planning.describe import (
    MOST_TAGS,
    describe_check,
    describe_release,
    describe_unreadable_release,
)
from tests.planning.description.card_stage import read_card
from tests.planning.description.releases.stage import DescriptionStage, GateStage
from tests.planning.releases.builders import ALL_CHECKS, MINUTE, at, check, entry, releases, rollout
from tests.stories import check_stories

WIDE: Final = CheckSelector(selector=LabelSelector(), namespaces=LabelSelector())


test_story = check_stories(__file__, rollouts=DescriptionStage, gates=GateStage)


def test_one_that_cannot_be_read_is_named() -> None:
    lost = Unreadable(
        kind="Rollout",
        namespace="prod",
        name="app",
        uid=Uid("1"),
        resource_version="1",
        error="Rollout prod/app: status.history: no list",
    )
    found = describe_unreadable_release(lost)
    expected = ("prod/app", ReleasePhase.HELD, lost.error)
    assert (found.title, found.phase, found.headline) == expected


@pytest.mark.parametrize("year", [1, 9999])
def test_times_that_no_calendar_has_are_left_out(year: int) -> None:
    time = at(0).replace(year=year)
    odd = entry("1.0.0", "InProgress", bake_start_time=time, bake_end_time=time)
    odd = msgspec.structs.replace(odd, timestamp=time)
    found = describe_release(rollout(bake_time=MINUTE, status=ReleaseStatus(history=(odd,))))
    assert (found.history[0].began is None) == (year == 9999)
    assert (found.bake_ends is None) == (year == 9999)


def test_of_texts_and_lists_that_never_end_a_readable_part_is_kept() -> None:
    """A tenant may fill a status, and a registry names what it likes."""
    long = "x" * 10_000
    status = ReleaseStatus(
        history=(entry(long, message=long, bake_status_message=long),),
        available_releases=releases(long),
        release_candidates=releases(" ".join(f"1.{number}.0" for number in range(100))),
    )
    many = tuple(check(f"check-{number}", message=long) for number in range(200))
    found = describe_release(rollout(status=status, checks=ALL_CHECKS), ReleaseObjects(checks=many))
    assert len(found.candidates) == MOST_TAGS
    assert len(msgspec.json.encode(found)) < 100 * MAX_LINE
    assert all(len(line) < 5 * MAX_LINE for line in read_card(build_release(found)))


def test_a_check_says_what_it_found_and_what_requires_it() -> None:
    one = check(status="Unhealthy", message="503", change=1, error=2)
    one = msgspec.structs.replace(one, check_class="rollout-group", named={"rollout-group": "db"})
    found = describe_check(one, [rollout(checks=ALL_CHECKS), rollout()], {})
    assert found == HealthCheckDescription(
        name="check",
        namespace="prod",
        status="Unhealthy",
        text="503",
        check_class="rollout-group",
        object="db",
        changed=at(1),
        failed=at(2),
        rollouts=("prod/app",),
    )
    assert render_card(build_health_check(found)) == "HealthCheck prod/check: Unhealthy: 503"


@pytest.mark.parametrize("known", [{}, {"other": {}}])
def test_a_check_of_another_namespace_is_selected_where_that_is_known(
    known: dict[str, dict[str, str]],
) -> None:
    found = describe_check(check(namespace="other"), [rollout(checks=WIDE)], known)
    assert found.rollouts == (("prod/app",) if known else ())
    assert render_card(build_health_check(found)) == "HealthCheck other/check: not evaluated yet"
