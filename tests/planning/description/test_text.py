"""A description as plain text, and several namespaces as one: `namespace.txt`, `namespaces.txt`."""

from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from rollout_operator.model.description import (
    Description,
    OperatorDescription,
    Phase,
    PolicyDescription,
    Step,
)
from rollout_operator.model.outcome import Code
from rollout_operator.planning.describe_groups import merge_descriptions, select_namespace
from rollout_operator.planning.text import render_description, render_group
from tests.cli.described import EXAMPLE
from tests.goldens import Golden
from tests.stories import Story, read_stories
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

HERE: Final = Path(__file__).parent
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
PAUSED: Final = waiting("zone-a is paused", Code.PAUSED, remedy="remove the annotation")


def test_a_namespace_in_full(golden: Golden) -> None:
    """All that there is, with policies and releases.

    Of a budget it says first what holds it, and the reason to read first is not said twice. Of many
    groups those that stand still come first: a person on call has ten seconds.
    """
    process = replace(
        operator(missing=("pods watch: not followed yet",), is_acting=False),
        parts=("election: acts: operator-2",),
    )
    invalid = waiting("store is not valid", Code.BUDGET_INVALID, remedy="mend it")
    used = waiting("1 pod not ready", Code.DISRUPTION_BUDGET_USED, remedy="")
    others = {"a": Phase.ROLLED_OUT, "c": Phase.WAITING, "d": Phase.HELD}
    description = describe(
        replace(GROUP, underway_since=NOW - timedelta(seconds=3)),
        *(
            group(
                name, phase=phase, headline=PAUSED.text, code=PAUSED.code, zones=(), waits=(PAUSED,)
            )
            for name, phase in others.items()
        ),
        operator=process,
        budgets=(budget(), replace(budget("store", text=invalid.text), waits=(invalid, used))),
        policies=(policy(),),
        releases=(release(),),
        schedules=(release_schedule(),),
        health_checks=(health_check(),),
    )

    golden.check(HERE / "namespace.txt", "\n".join([*render_description(description), ""]))
    assert list(render_description(describe())) == ["0 rollout groups"]


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


PROCESS: Final = OperatorDescription(version="9", is_ready=True, is_acting=True)
OWN: Final = Description(namespace="ops", now=NOW, operator=PROCESS)
SICK: Final = replace(PROCESS, is_ready=False, is_acting=False, missing=("pods watch: forbidden",))
SPACES: Final = {
    "loki": Description(namespace="loki", now=NOW, operator=SICK),
    "mimir": replace(EXAMPLE, namespace="mimir", operator=PROCESS),
    "other": replace(EXAMPLE, namespace="other", operator=PROCESS),
}
# What is of the cluster stands once, whoever shows it.
EVERYWHERE: Final = replace(release_schedule(), namespace="")


def _read_space(word: str) -> Description:
    """Return a namespace such as `mimir+obeying+making`, of policies or releases."""
    name, *more = word.split("+")
    found = SPACES[name]
    if "obeying" in more:
        one = PolicyDescription(name="db", namespace=name, phase="Idle", headline="")
        found = replace(found, policies=(one,))
    if "making" in more:
        one_release = replace(release(), namespace=name)
        found = replace(found, releases=(one_release,), schedules=(EVERYWHERE,), health_checks=())
    return found


def show(text: str) -> str:
    """Return what a process shows of namespaces, or of the first one out of all."""
    chosen, _, words = text.rpartition(" of ")
    spaces = [*map(_read_space, words.split())]
    found = merge_descriptions(OWN, spaces)
    if chosen == "lines":
        return "\n".join(line for line in render_description(found) if line[:1] != " ")
    if chosen == "alone":  # the description of one namespace stays as it is
        assert select_namespace(spaces[0], "elsewhere") is spaces[0]
        found = spaces[0]
    elif chosen:
        one = select_namespace(found, chosen)
        if one is None:
            return "none"
        found = one
    assert found.operator is not None
    lists = {
        "groups": found.groups,
        "budgets": found.budgets,
        "policies": found.policies,
        "releases": found.releases,
        "schedules": found.schedules,
        "checks": found.health_checks,
    }
    shown = [
        f"{name} {' '.join(one.title for one in items) or 'none'}"
        for name, items in lists.items()
        if items is not UNSET
    ]
    ready = [f"{one.name} {'ready' if one.is_ready else 'not ready'}" for one in found.namespaces]
    process = "ready" if found.operator.is_ready else "not ready"
    return "; ".join([f"{found.namespace} {process}", *ready, *shown])


@pytest.mark.parametrize("story", read_stories(HERE / "namespaces.txt"))
def test_case(story: Story, golden: Golden) -> None:
    story.check(show(story.commands[0]), golden)
