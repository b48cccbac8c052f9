"""A description as plain text."""

from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest
from msgspec.structs import replace

from rollout_operator.model.description import Phase, Step
from rollout_operator.model.outcome import Code
from rollout_operator.planning.text import render_description, render_group
from tests.goldens import Golden
from tests.web.status.descriptions import (
    NOW,
    budget,
    describe,
    group,
    health_check,
    operator,
    policy,
    release,
    release_schedule,
    waiting,
    zone,
)

KEPT: Final = Path(__file__).parent / "namespace.txt"
STEP: Final = Step(
    code=Code.POD_OUTDATED,
    text="zone-a-1 is at revision prev, zone-a wants last",
    zone="zone-a",
    pod="zone-a-1",
)
GROUP: Final = group(
    phase=Phase.ROLLING_OUT,
    headline=STEP.text,
    code=STEP.code,
    zones=(replace(zone("zone-a"), is_busy=True), replace(zone("b", updated=0), is_paused=True)),
    steps=(STEP,),
    waits=(
        waiting("zone-b waits for zone-a", Code.ANOTHER_ZONE_FIRST, remedy=""),
        waiting("b is paused", Code.PAUSED, remedy="remove the annotation"),
    ),
    problems=(waiting("zone-a is odd", Code.BAD_PAUSED, remedy="set it"),),
)


def test_a_namespace_in_full(golden: Golden) -> None:
    """All that there is, with policies and releases."""
    process = replace(
        operator(missing=("pods watch: not followed yet",), is_acting=False),
        parts=("election: acts: operator-2",),
    )
    description = describe(
        replace(GROUP, underway_since=NOW - timedelta(seconds=3)),
        operator=process,
        budgets=(budget(),),
        policies=(policy(),),
        releases=(release(),),
        schedules=(release_schedule(),),
        health_checks=(health_check(),),
    )

    golden.check(KEPT, "\n".join([*render_description(description), ""]))


def test_without_an_operator_there_are_the_groups_alone() -> None:
    assert list(render_description(describe())) == ["0 rollout groups"]


def test_a_budget_says_first_what_holds_it_with_code_and_remedy() -> None:
    invalid = waiting("store is not valid", Code.BUDGET_INVALID, remedy="mend it")
    used = waiting("1 pod not ready", Code.DISRUPTION_BUDGET_USED, remedy="")
    held = replace(budget("store", text=invalid.text), waits=(invalid, used))

    assert list(render_description(describe(budgets=(held,))))[2:] == [
        'budget "store": store is not valid [budget_invalid]',
        "  mend it",
        "  waits:",
        "    disruption_budget_used: 1 pod not ready",
    ]


def test_the_reason_to_read_first_is_not_said_twice() -> None:
    wait = waiting("zone-a is paused", Code.PAUSED, remedy="remove the annotation")
    held = group(phase=Phase.HELD, headline=wait.text, code=wait.code, zones=(), waits=(wait,))

    first, *lines = render_group(held)
    assert first == 'group "ingester": held'
    assert lines[:2] == ["  zone-a is paused [paused]", "    remove the annotation"]
    assert [line for line in lines[2:] if "paused" in line or "waits" in line] == []


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
    lines = list(render_group(group(text, phase=Phase.HELD, headline=text, code=None)))
    assert lines[:2] == [f'group "{shown}": held', f"  {shown}"]
    assert all(line.isprintable() for line in lines)


def test_of_many_groups_those_that_stand_still_come_first() -> None:
    """A person on call has ten seconds; as in `status` and on the page."""
    phases = {"a": Phase.ROLLED_OUT, "b": Phase.ROLLING_OUT, "c": Phase.WAITING, "d": Phase.HELD}
    groups = tuple(replace(GROUP, name=name, phase=phase) for name, phase in phases.items())
    text = render_description(describe(*groups))

    shown = [line for line in text if line.startswith("group")]
    assert shown == [
        'group "d": held',
        'group "c": waiting',
        'group "b": rolling out',
        'group "a": rolled out',
    ]
