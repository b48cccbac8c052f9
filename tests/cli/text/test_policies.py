"""MultiAZRollouts in 80 columns."""

from datetime import timedelta
from typing import Final

from msgspec.structs import replace

from rollout_operator.cli.render import (
    Line,
    StatusLayout,
    draw_conditions,
    draw_policy,
    draw_status,
    render_line,
)
from rollout_operator.cli.status import map_facts
from rollout_operator.model.budget import ConditionDescription
from rollout_operator.model.description import PolicyDescription
from tests.web.status.descriptions import HOSTILE, MINUTE, NOW, describe, policy

NARROW: Final = StatusLayout(width=80)
WIDE: Final = StatusLayout(width=100, is_wide=True)


def plain(lines: list[Line]) -> list[str]:
    return [render_line(line, 10_000, is_coloured=False) for line in lines]


def draw(one: PolicyDescription, layout: StatusLayout = NARROW) -> list[str]:
    return plain([*draw_policy(one, NOW, layout)])


def test_zones_stand_in_the_order_of_their_updates() -> None:
    assert draw(replace(policy(), next_batch=NOW + timedelta(seconds=20))) == [
        "MultiAZRollout prod/db  Progressing  5/6 ready  2/6 updated",
        "  batch 2 of db-a is open [batch_open]",
        "    look at the pods",
        "  ZONE        STATE     STATEFULSET    READY  UPDATED",
        "> us-west-2a  Updating  db-a             2/3      2/3",
        "  us-west-2b  Pending   db-b             3/3      0/3",
        "  last  batch 2 in us-west-2a: db-a-1, open since 2026-01-02T03:03:05Z",
        "  next  batch in 20s",
        "  group db",
    ]


def test_a_batch_that_stalls_and_zones_without_a_statefulset_are_reported() -> None:
    stalled = ConditionDescription(
        type="Stalled", is_true=True, reason="ProgressDeadlineExceeded", message="db-a-1 crashes"
    )
    lines = draw(replace(policy(), conditions=(stalled,), unknown_zones=("us-west-2d",)))

    assert lines[0] == "MultiAZRollout prod/db  Progressing, stalled  5/6 ready  2/6 updated"
    assert "  order no StatefulSet is in us-west-2d, of azOrder" in lines


def test_of_several_those_come_first_that_do_not_go_on() -> None:
    held = replace(policy("zz"), phase="Invalid")
    lines = plain(draw_status(describe(policies=(policy(), held)), (), NARROW))

    heads = [line.split()[1:3] for line in lines if line.startswith("MultiAZRollout")]
    assert heads == [["prod/zz", "Invalid"], ["prod/db", "Progressing"]]


def test_wide_has_sources_and_conditions_as_well() -> None:
    lines = draw(policy(), WIDE)

    assert any(line.endswith("  Label") for line in lines)
    assert "  Ready is False, RollingOut" in lines, "the headline has its sentence"


def test_a_sentence_that_several_conditions_have_stands_once() -> None:
    text = "the selector is empty"
    conditions = tuple(
        ConditionDescription(type=kind, is_true=False, reason="EmptySelector", message=text)
        for kind in ("Accepted", "Progressing", "Ready")
    )
    found = [*draw_conditions(conditions, WIDE)]

    assert plain(found) == [
        "  Accepted is False, EmptySelector: the selector is empty",
        "  Progressing is False, EmptySelector",
        "  Ready is False, EmptySelector",
    ]


def test_a_long_name_takes_no_numbers() -> None:
    name = "db-of-a-team-with-a-long-name-and-more"
    lines = draw(replace(policy(name), namespace="a-namespace"))

    assert lines[:2] == [
        f"MultiAZRollout a-namespace/{name}  Progressing",
        "  5/6 ready  2/6 updated",
    ]


def test_what_was_never_counted_has_no_numbers() -> None:
    never = replace(policy(), phase="Invalid", desired=0, ready=0, updated=0, zones=())

    assert draw(never)[0] == "MultiAZRollout prod/db  Invalid"


def test_the_first_line_counts_what_there_is() -> None:
    shown = replace(describe(policies=(policy(),)), groups=())

    assert plain(draw_status(shown, (), NARROW))[0] == "namespace prod  1 MultiAZRollout"


def test_a_low_terminal_has_one_line_of_what_is_done() -> None:
    terse = StatusLayout(width=80, is_terse=True)
    assert len(draw(replace(policy(), phase="Idle"), terse)) == 1


def test_a_policy_stands_below_the_groups_and_its_changes_are_lines() -> None:
    shown = describe(policies=(policy(),))

    assert any(
        line.startswith("MultiAZRollout prod/db") for line in plain(draw_status(shown, (), NARROW))
    )
    facts = map_facts(shown)
    later = describe(policies=(replace(policy(), next_batch=NOW + MINUTE),))
    assert map_facts(later) == facts, "nothing in it passes with time alone"
    assert [*facts] == ["prod policy db"]


def test_nothing_that_a_tenant_wrote_steers_the_terminal() -> None:
    """Phase and state too: where no operator runs, a status written by hand stays as it is."""
    hostile = replace(policy(headline=HOSTILE, zones=(HOSTILE, "b")), phase=HOSTILE)
    zones = (replace(hostile.zones[0], state=HOSTILE), *hostile.zones[1:])

    for line in draw(replace(hostile, zones=zones), WIDE):
        assert line.isprintable()
