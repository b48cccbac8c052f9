"""A description as plain text."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from rollout_operator.model.description import (
    BudgetDescription,
    Description,
    GroupDescription,
    OperatorDescription,
    Phase,
    Step,
    Waiting,
    ZoneDescription,
)
from rollout_operator.model.outcome import Code
from rollout_operator.planning.description.text import render_description, render_group
from tests.builders import NOW

BUDGET = BudgetDescription(
    name="store",
    is_valid=True,
    maximum="1",
    zones=3,
    pods=9,
    unavailable=0,
    allowed=1,
    text="1 of 9 pods may go",
)
GROUP = GroupDescription(
    name="ingester",
    phase=Phase.ROLLING_OUT,
    headline="zone-a-1 is at revision prev, zone-a wants last",
    code=Code.POD_OUTDATED,
    since=NOW - timedelta(minutes=1),
    looked=NOW,
    desired=6,
    ready=6,
    updated=1,
    began=NOW - timedelta(minutes=2),
    expected_end=NOW + timedelta(minutes=10),
    zones=(
        ZoneDescription(
            name="zone-a",
            desired=3,
            ready=3,
            updated=1,
            outdated=2,
            max_unavailable=1,
            is_busy=True,
        ),
        ZoneDescription(
            name="b", desired=3, ready=3, updated=0, outdated=3, max_unavailable=1, is_paused=True
        ),
    ),
    underway_since=NOW - timedelta(seconds=3),
    steps=(
        Step(
            code=Code.POD_OUTDATED,
            text="zone-a-1 is at revision prev, zone-a wants last",
            zone="zone-a",
            pod="zone-a-1",
        ),
    ),
    waits=(
        Waiting(code=Code.ANOTHER_ZONE_FIRST, text="zone-b waits for zone-a"),
        Waiting(code=Code.PAUSED, text="b is paused", remedy="remove the annotation"),
    ),
    problems=(Waiting(code=Code.BAD_PAUSED, text="zone-a is odd", remedy="set it"),),
)


def test_a_namespace_in_full() -> None:
    description = Description(
        namespace="prod",
        now=NOW,
        operator=OperatorDescription(
            version="1.2.3",
            is_ready=False,
            is_acting=False,
            missing=("pods watch: not followed yet",),
            parts=("election: acts: operator-2",),
        ),
        groups=(GROUP,),
        budgets=(BUDGET,),
    )

    assert list(render_description(description)) == [
        "rollout-operator 1.2.3",
        "not ready, does not act",
        "  pods watch: not followed yet",
        "  election: acts: operator-2",
        "1 rollout group",
        "",
        'group "ingester": rolling out',
        "  zone-a-1 is at revision prev, zone-a wants last [pod_outdated]",
        "  looked at 2026-01-01T12:00:00Z, in this state since 2026-01-01T11:59:00Z",
        "  began at 2026-01-01T11:58:00Z, 1 of 6 pods updated, "
        "expected to end at 2026-01-01T12:10:00Z",
        "  zone-a  3 of 3 ready, 1 of 3 updated, its turn",
        "  b       3 of 3 ready, 0 of 3 updated, paused",
        "  underway since 2026-01-01T11:59:57Z, not done yet:",
        "    pod_outdated: zone-a-1 is at revision prev, zone-a wants last",
        "  waits:",
        "    another_zone_first: zone-b waits for zone-a",
        "    paused: b is paused",
        "      remove the annotation",
        "  odd:",
        "    bad_paused: zone-a is odd",
        "      set it",
        "",
        'budget "store": 1 of 9 pods may go',
    ]


def test_without_an_operator_there_are_the_groups_alone() -> None:
    description = Description(namespace="prod", now=NOW)

    assert list(render_description(description)) == ["0 rollout groups"]


def test_a_budget_says_first_what_holds_it_with_code_and_remedy() -> None:
    invalid = Waiting(code=Code.BUDGET_INVALID, text="store is not valid", remedy="mend it")
    used = Waiting(code=Code.DISRUPTION_BUDGET_USED, text="1 pod not ready")
    held = replace(BUDGET, text=invalid.text, waits=(invalid, used))

    shown = list(render_description(Description(namespace="prod", now=NOW, budgets=(held,))))

    assert shown[2:] == [
        'budget "store": store is not valid [budget_invalid]',
        "  mend it",
        "  waits:",
        "    disruption_budget_used: 1 pod not ready",
    ]


def test_the_reason_to_read_first_is_not_said_twice() -> None:
    wait = Waiting(code=Code.PAUSED, text="zone-a is paused", remedy="remove the annotation")
    group = GroupDescription(
        name="store",
        phase=Phase.HELD,
        headline=wait.text,
        code=wait.code,
        looked=NOW,
        desired=3,
        ready=3,
        updated=0,
        waits=(wait,),
    )

    assert list(render_group(group)) == [
        'group "store": held',
        "  zone-a is paused [paused]",
        "    remove the annotation",
        "  looked at 2026-01-01T12:00:00Z",
    ]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("a\nb", "a\\nb", id="SEC-13 line feed"),
        pytest.param("\x1b[31mred", "\\x1b[31mred", id="SEC-13 terminal colours"),
        pytest.param("\u202edlrow", "\\u202edlrow", id="SEC-13 turned text"),
        pytest.param("\udcff", "\\udcff", id="SEC-13 lone surrogate"),
        pytest.param("<script>", "<script>", id="SEC-13 mark-up is text"),
        pytest.param("zürich", "zürich", id="letters stay"),
    ],
)
def test_what_a_tenant_wrote_is_harmless(text: str, shown: str) -> None:
    group = GroupDescription(
        name=text, phase=Phase.HELD, headline=text, looked=NOW, desired=0, ready=0, updated=0
    )

    lines = list(render_group(group))
    assert lines[:2] == [f'group "{shown}": held', f"  {shown}"]
    assert all(line.isprintable() for line in lines)


def test_of_many_groups_those_that_stand_still_come_first() -> None:
    """A person on call has ten seconds; as in `status` and on the page."""
    phases = {"a": Phase.ROLLED_OUT, "b": Phase.ROLLING_OUT, "c": Phase.WAITING, "d": Phase.HELD}
    groups = tuple(replace(GROUP, name=name, phase=phase) for name, phase in phases.items())
    text = render_description(Description(namespace="default", now=NOW, groups=groups))

    shown = [line for line in text if line.startswith("group")]
    assert shown == [
        'group "d": held',
        'group "c": waiting',
        'group "b": rolling out',
        'group "a": rolled out',
    ]
