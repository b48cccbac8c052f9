"""Two parts of one group on the board: rollouts and counts are decided apart and told together."""

from datetime import timedelta

from rollout_operator.model.names import GroupName
from rollout_operator.model.outcome import Code, Plan, Reason, Severity
from rollout_operator.telemetry.registry import QUIET, Subject
from tests.telemetry.test_board import World, plan, wait, world

__all__ = ["world"]

HOUR = timedelta(hours=1)
IDLE = wait(Code.UP_TO_DATE, "all zones are rolled out")
BUSY = wait(Code.BUDGET_USED, "2 of 2 pods are down", zone="zone-a")


def lately(left: str, *, zone: str = "zone-b") -> Reason:
    """Return a wait whose text changes with each look, and whose gist does not."""
    gist = f"{zone} follows zone-a: 5 → 2, last downscale zone-a, wait 12h0m0s"
    text = f"{zone} follows zone-a: 5 → 2 in {left}, last downscale zone-a, wait 12h0m0s"
    return Reason(code=Code.ZONE_DOWNSCALED_LATELY, text=text, gist=gist, zone=zone)


def codes(world: World) -> list[Code]:
    """Return the codes of what holds the only group."""
    (entry,) = world.group_states.entries()
    return [reason.code for reason in entry.plan.waits]


def test_a_group_that_waits_with_its_counts_is_not_up_to_date(world: World) -> None:
    world.group_states.post(plan(IDLE))
    world.group_states.post(plan(lately("12h0m0s")), Subject.SCALING)
    assert codes(world) == [Code.ZONE_DOWNSCALED_LATELY]
    assert world.held_by("ingester") == [Code.ZONE_DOWNSCALED_LATELY]
    world.group_states.post(plan(), Subject.SCALING)
    assert codes(world) == [Code.UP_TO_DATE]
    assert world.held_by("ingester") == [Code.UP_TO_DATE]


def test_rollouts_come_first_whoever_posts_last(world: World) -> None:
    world.group_states.post(plan(lately("12h0m0s")), Subject.SCALING)
    world.group_states.post(plan(BUSY))
    assert codes(world) == [Code.BUDGET_USED, Code.ZONE_DOWNSCALED_LATELY]
    world.group_states.post(plan(lately("11h0m0s")), Subject.SCALING)
    assert codes(world) == [Code.BUDGET_USED, Code.ZONE_DOWNSCALED_LATELY]


def test_a_part_takes_only_its_own_reasons_back(world: World) -> None:
    world.group_states.post(plan(BUSY))
    world.group_states.post(plan(lately("12h0m0s")), Subject.SCALING)
    world.group_states.post(plan(IDLE))
    assert codes(world) == [Code.ZONE_DOWNSCALED_LATELY]


def test_problems_of_both_parts_are_shown(world: World) -> None:
    bad = wait(Code.BAD_FORCE_REPLICAS, '"x" is no number', zone="b", severity=Severity.WARN)
    odd = wait(Code.BAD_MAX_UNAVAILABLE, '"y" is no number', zone="a", severity=Severity.WARN)
    world.group_states.post(plan(IDLE, problems=(odd,)))
    world.group_states.post(plan(problems=(bad,)), Subject.SCALING)
    (entry,) = world.group_states.entries()
    assert entry.plan.problems == (odd, bad)
    assert entry.plan.waits == (IDLE,)


def test_counts_alone_are_a_group_too(world: World) -> None:
    """They may be looked at before the rollout is."""
    world.group_states.post(plan(lately("12h0m0s")), Subject.SCALING)
    assert codes(world) == [Code.ZONE_DOWNSCALED_LATELY]


def test_a_reason_whose_time_runs_is_told_once(world: World) -> None:
    """The page shows the time that is left, the log has the line of its beginning."""
    for minutes in range(60):
        world.group_states.post(plan(lately(f"11h{59 - minutes}m0s")), Subject.SCALING)
        world.group_states.post(plan(IDLE))
        world.clock.jump(timedelta(minutes=1))
    (line,) = [one for one in world.take_lines() if "zone-b" in one]
    assert "in 11h59m0s" in line
    (entry,) = world.group_states.entries()
    assert "in 11h0m0s" in entry.plan.waits[0].text


def test_a_new_downscale_of_another_zone_is_told_again(world: World) -> None:
    """Its gist is another one."""
    world.group_states.post(plan(lately("12h0m0s")), Subject.SCALING)
    world.clock.jump(2 * QUIET)
    changed = Reason(
        code=Code.ZONE_DOWNSCALED_LATELY, text="in 1h", gist="another zone", zone="zone-b"
    )
    world.group_states.post(plan(changed), Subject.SCALING)
    assert len([one for one in world.take_lines() if "zone-b" in one]) == 2


def test_gists_of_one_code_and_zone_are_told_together(world: World) -> None:
    """Both parts may wait for the same zone with the same code."""
    mine = Reason(code=Code.VIEW_STALE, text="view 31s old", gist="view is old", zone="b")
    world.group_states.post(plan(mine))
    world.group_states.post(plan(mine), Subject.SCALING)
    world.clock.jump(2 * QUIET)
    older = Reason(code=Code.VIEW_STALE, text="view 33s old", gist="view is old", zone="b")
    world.group_states.post(plan(older))
    world.group_states.post(plan(older), Subject.SCALING)
    assert len(world.take_lines()) == 1


def test_what_is_owed_by_one_part_is_asked_of_who_posts_next(world: World) -> None:
    world.group_states.post(plan(lately("1h")), Subject.SCALING)
    other = Reason(code=Code.ZONE_DOWNSCALED_LATELY, text="x", gist="x", zone="zone-b")
    owed = world.group_states.post(plan(other), Subject.SCALING)
    assert owed == QUIET
    assert world.group_states.post(plan(IDLE)) == QUIET


def test_both_parts_of_a_group_are_forgotten_at_once(world: World) -> None:
    world.group_states.post(plan(IDLE))
    world.group_states.post(plan(lately("1h")), Subject.SCALING)
    world.group_states.forget(GroupName("ingester"))
    assert world.group_states.entries() == ()
    world.group_states.post(plan(IDLE))
    assert codes(world) == [Code.UP_TO_DATE]


def test_since_holds_while_the_counts_change_behind_a_rollout(world: World) -> None:
    world.group_states.post(plan(BUSY))
    (first,) = world.group_states.entries()
    world.clock.jump(HOUR)
    world.group_states.post(plan(lately("1h")), Subject.SCALING)
    (entry,) = world.group_states.entries()
    assert (entry.since, entry.looked - first.looked) == (first.since, HOUR)


def test_an_empty_plan_of_both_parts_is_a_state(world: World) -> None:
    world.group_states.post(Plan(group=GroupName("ingester")))
    world.group_states.post(Plan(group=GroupName("ingester")), Subject.SCALING)
    assert codes(world) == []
    assert world.held_by("ingester") == []
