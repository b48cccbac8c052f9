"""Budgets as every outlet shows them: they count and refuse as decisions do, and in their words.

A case of `budgets.txt` is a question as in `tests.planning.disruptions`, about no pod in
particular; the outcome is how many pods count as down, how many more may go, and the sentence.
"""

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from msgspec import structs
from msgspec.structs import replace

from rollout_operator.model.budget import (
    Budget,
    BudgetStatus,
    BudgetVersions,
    DisruptionSource,
    StatusCondition,
)
from rollout_operator.model.description import BudgetDescription, Waiting
from rollout_operator.model.names import Uid
from rollout_operator.model.objects import Pod
from rollout_operator.model.outcome import Code, Severity
from rollout_operator.planning.budgets import BudgetSnapshot, assess_disruption
from rollout_operator.planning.describe_budgets import (
    describe_budget,
    list_rivals,
    render_budget_status,
)
from rollout_operator.planning.wording import MAX_LINE
from tests.builders import NOW
from tests.planning.disruptions import budget, read_question
from tests.stories import Stage, check_stories, check_tables

LABELS: Final = {"name": "ingester"}
NO_POD: Final = Pod(namespace="", name="", uid=Uid(""), resource_version="")
CODES: Final = {f"{code}": code for code in Code}


def versions(rule: Budget | None = None, **changes: object) -> BudgetVersions:
    """Return what is known of budget `ingester`."""
    plain = BudgetVersions(
        namespace="test", name="ingester", uid=Uid("uid-budget"), generation=1, budget=rule
    )
    return replace(plain, **changes)


def about_nothing(case: BudgetSnapshot, labels: Mapping[str, str] = LABELS) -> BudgetSnapshot:
    """Return the zones of a question whose pods have labels."""
    zones = tuple(
        structs.replace(
            zone, pods=tuple(replace(pod, labels={**pod.labels, **labels}) for pod in zone.pods)
        )
        for zone in case.zones
    )
    return structs.replace(
        case, pod=NO_POD, owner=Uid(""), zones=zones, engine=DisruptionSource.EVICTION
    )


def show(text: str) -> str:
    """Return what is said; after ` / ` stands what else is known of the budget.

    `bare` are pods without labels, `rival` is a budget over their label zone, which `both` have;
    `bad` a version that is not valid, alone or `after` one, or `blind`, of which nothing is known.
    """
    asked, _, more = text.partition(" / ")
    words = more.split()
    labels = {} if "bare" in words else {**LABELS, "zone": "b"} if "both" in words else LABELS
    case = about_nothing(read_question(asked), labels)
    rival = budget(name="zz", selector={"zone": "b"})
    rivals = [versions(rival, name="zz")] if "rival" in words else []
    known = versions(case.budget)
    if "bad" in words:
        selector = None if {"after", "blind"} & {*words} else LABELS
        rule = case.budget if "after" in words else None
        known = versions(rule, problem="bad", flawed_selector=selector)
    found = describe_budget(known, None if "blind" in words else case, rivals)
    assert found.is_valid is ("bad" not in words)
    assert found.text == (found.waits[0].text if found.waits else found.text)
    signs = {Severity.ERROR: "!"}
    waits = [f"{one.code}{signs.get(one.severity, '')}" for one in found.waits]
    said = re.sub(r"; budget ingester.*", "", found.text)
    counts = f"{found.unavailable} down of {found.pods}, {found.allowed} of {found.maximum} may go"
    return "; ".join([counts, *waits, said])


test_what_is_said = check_tables(__file__, budgets=show)


def test_the_sentence_and_its_code_are_those_of_a_refusal() -> None:
    """D-75: a person reads the answer to an eviction."""
    case = read_question("a-0; c llL")
    refusal = assess_disruption(case)
    (wait,) = describe_budget(versions(case.budget), about_nothing(case)).waits

    assert refusal is not None
    assert (wait.code, wait.text) == (refusal.reason.code, refusal.reason.text)


def test_only_budgets_that_may_select_the_same_pod_are_compared() -> None:
    """Most select by another value of the same label: a hundred of them cost nothing."""
    rules = {
        "same": {"name": "ingester"}, "other": {"name": "querier"}, "wider": {"app": "mimir"},
        "all": {}, "narrower": {"name": "ingester", "app": "mimir"},
    }  # fmt: skip
    others = [versions(budget(name=name, selector=own), name=name) for name, own in rules.items()]
    own = versions(budget())

    found = list_rivals(own, [own, *others])
    assert [one.name for one in found] == ["same", "wider", "all", "narrower"]


ROOM: Final = BudgetDescription(
    name="ingester", is_valid=True, maximum="1", zones=3, pods=9, unavailable=0, allowed=1,
    text="1 more pod may go",
)  # fmt: skip
AUDITED: Final = StatusCondition(type="Audited", status="True")


class StatusStage(Stage):
    """The status of a budget, written anew each minute: `room`, or what it waits for."""

    def __init__(self) -> None:
        self.status, self.minute = BudgetStatus(), 0

    async def act(self, line: str) -> str:
        word, *more = line.split()
        if word == "audited":  # another writer's condition
            self.status = replace(self.status, conditions=(*self.status.conditions, AUDITED))
            return ""
        found = ROOM
        if word != "room":
            severity = Severity.ERROR if "error" in more else Severity.INFO
            wait = Waiting(code=CODES[word], text=f"because of {word}", severity=severity)
            found = replace(ROOM, allowed=0, waits=(wait,), text=wait.text)
        if "empty" in more:
            found = replace(ROOM, pods=0, allowed=0)
        found = replace(found, is_valid="invalid" not in more)
        before, now = self.status, NOW + timedelta(minutes=self.minute, microseconds=7)
        self.minute += 1
        self.status = render_budget_status(found, 4, before=before, now=now)
        return "the same" if self.status == before else self._show()

    def _show(self) -> str:
        one = self.status
        counts = f"{one.zones} zones, {one.pods} pods, {one.current_unavailable} down"
        shown = [f"{counts}, {one.allowed_disruptions} may go"]
        for each in one.conditions:
            assert each == AUDITED or each.observed_generation == one.observed_generation == 4
            time = f"since {each.last_transition_time[11:16]}" if each != AUDITED else ""
            shown.append(f"{each.type} {each.status} {each.reason} {time}: {each.message}")
        return "; ".join(shown)


test_status = check_stories(__file__, budget_status=StatusStage)


def test_a_sentence_has_an_end_and_steers_no_terminal() -> None:
    def render(text: str) -> str:
        described = replace(ROOM, text=text)
        found = render_budget_status(described, 4, before=BudgetStatus(), now=NOW)
        return found.conditions[1].message

    assert len(render("x" * 5000)) == MAX_LINE + 1
    assert render("x" * 5000).endswith("xxx\u2026")
    assert render("a\x1b[2Jb") == r"a\x1b[2Jb"
