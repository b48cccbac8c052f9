"""The status of a budget: numbers, conditions, and since when they hold."""

from datetime import timedelta

from msgspec.structs import replace

from rollout_operator.model.budget import BudgetStatus, StatusCondition
from rollout_operator.model.description import BudgetDescription, Waiting
from rollout_operator.model.outcome import Code, Severity
from rollout_operator.planning.describe_budgets import render_budget_status
from rollout_operator.planning.wording import MAX_LINE, camel_case
from tests.builders import NOW

ROOM = BudgetDescription(
    name="ingester", is_valid=True, maximum="1", zones=3, pods=9, unavailable=0, allowed=1,
    text="1 more pod may go",
)  # fmt: skip
LATER = NOW + timedelta(minutes=1, microseconds=7)


def waiting(code: Code, severity: Severity = Severity.INFO) -> BudgetDescription:
    """Return a budget of which nothing may go for one reason."""
    wait = Waiting(code=code, text=f"because of {code}", severity=severity)
    return replace(ROOM, allowed=0, waits=(wait,), text=wait.text)


def render(
    described: BudgetDescription, before: BudgetStatus | None = None, generation: int = 4
) -> BudgetStatus:
    return render_budget_status(
        described, generation, before=before or BudgetStatus(), now=NOW if before is None else LATER
    )


def outline(status: BudgetStatus) -> list[str]:
    return [f"{one.type} {one.status} {one.reason}: {one.message}" for one in status.conditions]


def test_a_budget_with_room() -> None:
    found = render(ROOM)

    assert outline(found) == [
        "Valid True BudgetValid: the budget is in force as it is written",
        "Ready True BudgetHasRoom: 1 more pod may go",
    ]
    assert (found.zones, found.pods, found.current_unavailable, found.allowed_disruptions) == (
        3, 9, 0, 1,
    )  # fmt: skip
    assert {found.observed_generation, *(one.observed_generation for one in found.conditions)} == {
        4
    }
    assert {one.last_transition_time for one in found.conditions} == {"2026-01-01T12:00:00Z"}


def test_a_budget_that_is_used_is_ready_and_says_why_nothing_goes() -> None:
    """It does what it is for: a client that waits for healthy objects waits for no drain."""
    for code in (Code.DISRUPTION_BUDGET_USED, Code.BUDGET_ZERO, Code.DOWNSCALE_UNDERWAY):
        assert outline(render(waiting(code)))[1] == (
            f"Ready True {camel_case(code)}: because of {code}"
        )


def test_what_a_person_must_change_is_not_ready() -> None:
    assert outline(render(waiting(Code.TOO_FEW_ZONES, Severity.ERROR))) == [
        "Valid True BudgetValid: the budget is in force as it is written",
        "Ready False TooFewZones: because of too_few_zones",
    ]
    invalid = replace(waiting(Code.BUDGET_INVALID, Severity.ERROR), is_valid=False)
    assert outline(render(invalid)) == [
        "Valid False BudgetInvalid: because of budget_invalid",
        "Ready False BudgetInvalid: because of budget_invalid",
    ]


def test_a_budget_without_pods_is_ready() -> None:
    assert outline(render(replace(ROOM, pods=0, allowed=0)))[1].startswith("Ready True BudgetValid")


def test_times_are_those_of_the_last_change_and_others_conditions_stay() -> None:
    """Kubernetes: a reason or a message that changes is no transition."""
    other = StatusCondition(type="Audited", status="True")
    first = render(ROOM)
    first = replace(first, conditions=(*first.conditions, other))
    used = render(waiting(Code.DISRUPTION_BUDGET_USED), first, 5)
    broken = render(waiting(Code.TOO_FEW_ZONES, Severity.ERROR), used)

    assert [one.last_transition_time for one in used.conditions[:2]] == ["2026-01-01T12:00:00Z"] * 2
    assert [one.last_transition_time for one in broken.conditions[:2]] == [
        "2026-01-01T12:00:00Z",
        "2026-01-01T12:01:00Z",
    ]
    assert {used.conditions[-1], broken.conditions[-1]} == {other}
    assert render(ROOM, first) == first, "nothing new is nothing to write"


def test_a_sentence_has_an_end_and_steers_no_terminal() -> None:
    long = render(replace(ROOM, text="x" * 5000)).conditions[1].message

    assert len(long) == MAX_LINE + 1
    assert long.endswith("xxx\u2026")
    assert render(replace(ROOM, text="a\x1b[2Jb")).conditions[1].message == r"a\x1b[2Jb"
