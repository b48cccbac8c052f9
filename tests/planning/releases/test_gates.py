"""What gates let through: all together, by versions, and past them by name."""

import pytest

from rollout_operator.model.releases import GateSummary, ReleaseGate
from rollout_operator.planning.candidates import (
    HOLDING,
    GatesCode,
    GatesVerdict,
    assess_gates,
    list_gates,
)
from tests.planning.releases.builders import gate, head, releases


def assess(
    candidates: str, *gates: ReleaseGate, bypass: str | None = None, holds: tuple[str, ...] = ()
) -> GatesVerdict:
    """Return the verdict on candidates, the newest first."""
    return assess_gates(releases(candidates), gates, bypass, holds)


def tags(verdict: GatesVerdict) -> str:
    return " ".join(one.tag for one in verdict.passed)


NIGHTS = ("nights is closed",)
CLOSED = gate("shut", passing=False, allowed="2")


@pytest.mark.parametrize(
    ("verdict", "code", "passed"),
    [
        pytest.param(assess("2 1"), GatesCode.PASSING, "2 1", id="RT-15 no gates"),
        pytest.param(
            assess("3 2 1", gate(allowed="1 2")), GatesCode.PASSING, "2 1", id="RT-16 by version"
        ),
        pytest.param(assess("2", CLOSED), GatesCode.BLOCKING, "", id="RT-17 it does not pass"),
        pytest.param(
            assess("3 2 1", gate("a", allowed="2 3"), gate("b", allowed="2")),
            GatesCode.PASSING, "2", id="RT-18 what both allow",
        ),
        pytest.param(
            assess("2", gate(allowed="9")), GatesCode.NONE_ALLOWED, "", id="RT-19 no candidate"
        ),
        pytest.param(
            assess("2", gate(allowed="")), GatesCode.NONE_ALLOWED, "", id="REL-50 none at all"
        ),
        pytest.param(assess("2 1", gate()), GatesCode.PASSING, "2 1", id="RT-21 it passes"),
        pytest.param(assess("2", gate(), CLOSED), GatesCode.BLOCKING, "", id="RT-22 one of two"),
        pytest.param(assess(""), GatesCode.NO_CANDIDATES, "", id="RELB-07 up to date"),
        pytest.param(
            assess("", gate(allowed="9")), GatesCode.NO_CANDIDATES, "", id="RELB-07 with a gate"
        ),
        pytest.param(assess("", CLOSED), GatesCode.BLOCKING, "", id="RT-28 closed at rest"),
        pytest.param(
            assess("2 1", CLOSED, bypass="1"), GatesCode.BYPASSED, "1", id="RT-26 by name"
        ),
        pytest.param(
            assess("3", CLOSED, bypass="2"), GatesCode.BLOCKING, "", id="RT-27 no candidate"
        ),
        pytest.param(
            assess("2", gate(), holds=NIGHTS), GatesCode.SCHEDULES, "", id="RELB-42 no gate says it"
        ),
        pytest.param(
            assess("2", CLOSED, holds=NIGHTS), GatesCode.BLOCKING, "", id="RELB-42 a gate says more"
        ),
        pytest.param(
            assess("", holds=NIGHTS), GatesCode.NO_CANDIDATES, "", id="RELB-42 nothing to hold"
        ),
        pytest.param(
            assess("2 1", bypass="1", holds=NIGHTS), GatesCode.BYPASSED, "1", id="RELB-42 by name"
        ),
    ],
)  # fmt: skip
def test_what_gates_let_through(verdict: GatesVerdict, code: GatesCode, passed: str) -> None:
    assert (verdict.code, tags(verdict)) == (code, passed)
    assert verdict.is_passing is (code not in HOLDING)
    assert verdict.text


@pytest.mark.parametrize(
    ("gates", "is_needed"),
    [((CLOSED,), True), ((gate(allowed="2"),), True), ((), True), ((gate(allowed="1"),), False)],
)
def test_a_bypass_counts_where_something_else_would_come_next(
    gates: tuple[ReleaseGate, ...], is_needed: bool
) -> None:
    """RELB-11."""
    assert assess("2 1", *gates, bypass="1").is_bypass_needed is is_needed


def test_a_closed_gate_says_nothing_of_versions() -> None:
    """REL-50: what it allows is neither applied nor shown."""
    verdict = assess("3 2", CLOSED, gate("a", allowed="3"))

    assert [one.tag for one in verdict.allowed] == ["3"]
    assert [one.allowed_versions for one in verdict.summaries] == [None, ("3",)]


def test_each_gate_has_a_summary() -> None:
    """REL-50, REL-51, RT-16."""
    gates = (gate("open", allowed="1 2"), gate("none", allowed="9"), CLOSED)

    assert assess("3 2", *gates).summaries == (
        GateSummary(
            name="open",
            passing=True,
            allowed_versions=("1", "2"),
            message="the gate is passing",
        ),
        GateSummary(
            name="none",
            passing=True,
            allowed_versions=("9",),
            message="the gate allows none of the candidates",
        ),
        GateSummary(name="shut", passing=False, message="the gate is not passing"),
    )
    bypassed = assess("3 2", *gates, bypass="3").summaries
    assert [one.bypass_gates for one in bypassed] == [True] * 3
    assert {one.message for one in bypassed} == {"the gate is bypassed"}


def test_a_gate_that_cannot_be_read_says_why_it_is_closed() -> None:
    """REL-17."""
    broken = ReleaseGate(head=head("bad"), rollout="app", is_passing=False, problem="no number")

    assert assess("2", broken).summaries[0].message == "no number"


def test_only_gates_of_the_namespace_that_name_the_rollout_hold_it() -> None:
    """REL-49, REL-03."""
    gates = (
        gate("z"), gate("other", rollout="web"), gate("foreign", namespace="dev"), gate("a")
    )  # fmt: skip

    assert [one.head.name for one in list_gates(head(), gates)] == ["a", "z"]
