"""What a budget allows, which one rules, what a review says of one, and whose turn it is."""

import re
import shlex
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

from msgspec.structs import replace

from rollout_operator.model.budget import BudgetState, DisruptionSource
from rollout_operator.model.objects import Pod, bound_labels
from rollout_operator.model.outcome import Severity
from rollout_operator.planning.budgets import (
    MOST_PATIENCE,
    PATIENCE,
    RESPONSE,
    BudgetUnderReview,
    Overlap,
    Refusal,
    Turns,
    assess_budget,
    assess_disruption,
    choose_budget,
    compute_maximum,
    find_partition,
)
from tests.builders import pod
from tests.planning.disruptions import answer, budget, ingesters, member, read_question
from tests.planning.tables import read_arguments
from tests.stories import Stage, by_verb, check_stories, check_tables

MANY: Final = bound_labels({f"l{number}": "" for number in range(200)})
EVICTION, ROLLOUT = DisruptionSource.EVICTION, DisruptionSource.ROLLOUT


def show_answer(text: str) -> str:
    case = read_question(text)
    assert answer(replace(case, zones=case.zones[::-1])) == answer(case)
    return answer(case)


def show_say(text: str) -> str:
    """Return code, zone and text of a refusal, and when time alone may change it.

    What is refused without counting pods binds a rollout, too, also of a pod that is down; where
    it does not, the line ends in `; of evictions only`.
    """
    case = read_question(text)
    refusal = assess_disruption(case)
    if refusal is None:
        return "allow"
    reason, binds = refusal.reason, ""
    if " unavailable " not in reason.text:
        down = ingesters("a", "Lll").pods[0]
        same = assess_disruption(replace(case, engine=ROLLOUT, pod=down)) == refusal
        binds = "" if same else "; of evictions only"
    wait = refusal.requeue_after
    again = "" if wait is None else f"; again in {wait.total_seconds():g}s"
    said = reason.text.replace("; budget ingester", "; BUDGET")
    return f"{refusal.status} {reason.code} {reason.zone or 'all'}: {said}{again}{binds}"


def show_max(text: str) -> str:
    """Return how many pods may be down of zone a, the others being of other sizes."""
    case = read_question(f"a-0; {text}; b replicas=40 status_replicas=40")
    found = compute_maximum(case)
    assert compute_maximum(replace(case, override=9)) == (found or 9)
    return f"{found}"


def show_partition(text: str) -> str:
    pattern, group, *name = shlex.split(text)
    by = budget(pattern=pattern, pattern_group=int(group))
    return find_partition(by, "".join(name).replace("\\n", "\n")) or "none"


def show_which(text: str) -> str:
    """Return the budget of pod a-0: `ingester=2` is valid, `store!why` is not and never was."""
    words = shlex.split(text.removesuffix(" of many labels"))
    entries = []
    for word in words if words != ["none"] else []:
        [(name, sign, rest)] = re.findall(r"(\w+)([=!])(.*)", word)
        number, _, problem = rest.partition("+") if sign == "=" else ("", "", rest)
        selector = {"rollout-group": "g"} if name == "group" else budget().selector
        rule = budget(int(number), name=name, selector=selector) if number else None
        entries.append(BudgetState(name=name, budget=rule, problem=problem))
    labels = MANY if text.endswith(" of many labels") else {}
    chosen = choose_budget(entries, member("a", 0, labels=labels))
    if not isinstance(chosen, Refusal):
        return "none" if chosen is None else f"{chosen.name} {chosen.max_unavailable}"
    assert (chosen.reason.severity, chosen.requeue_after) == (Severity.ERROR, None)
    return f"{chosen.status} {chosen.reason.code}: {chosen.reason.text}"


def show_review(text: str) -> str:
    """Return what is said of a budget under review: over pods of zones of these sizes."""
    words, _, more = text.partition("; ")
    plain, named = read_arguments(words)
    fields: dict[str, Any] = {"absent_peers": named.pop("peers", None)}
    if "overlap" in plain:
        fields["overlap"] = Overlap(pod="zone-a-0", other="store")
    if more == "ownerless":
        fields["pods"] = (replace(pod("z", 0), owner_uid=None),)
    elif more:
        fields["pods"] = _list_pods(more)
    verdict = assess_budget(BudgetUnderReview(budget=budget(0, **named), **fields))
    if not verdict.is_allowed:
        return f"{verdict.code} {verdict.reason.code}: {verdict.reason.text}"
    assert verdict.reason.code == "budget_valid"
    assert (verdict.reason.severity == Severity.WARN) == bool(verdict.warnings)
    assert all(len(one) <= 256 for one in verdict.warnings), "kubectl cuts longer ones"
    return "; ".join(verdict.warnings) or "valid"


def _list_pods(sizes: str) -> tuple[Pod, ...]:
    counts = zip("abcd", sizes.split(), strict=False)
    return tuple(pod(letter, number) for letter, size in counts for number in range(int(size)))


show = by_verb(globals(), show_answer)

test_case = check_tables(__file__, partitions=show, rules=show, zones=show)


SPANS: Final = {"patience": PATIENCE, "response": RESPONSE, "long": MOST_PATIENCE}
SIDES: Final = {"eviction": EVICTION, "rollout": ROLLOUT}


class TurnStage(Stage):
    """Turns of evictions and a rollout, of which `most` pods may go in each."""

    def __init__(self) -> None:
        self.turns, self.now, self.most = Turns(), timedelta(hours=1), 1

    async def act(self, command: str) -> str:
        """Return who is held, and how long the turn may stay unused where that is longer."""
        for one in command.split("; "):
            await super().act(one)
        held = [name for name, side in SIDES.items() if self.turns.holds(side)]
        longer = self.turns.patience / PATIENCE
        return " ".join([*held, "waits"] if held else ["both go"]) + f" x{longer:g}" * (longer > 1)

    async def do_most(self, pods: str) -> None:
        self.most = int(pods)

    async def do_grant(self, *sides: str) -> None:
        for side in sides:
            self.turns = self.turns.grant(SIDES[side], self.most)

    async def do_hold(self, how: str = "") -> None:
        self.turns = self.turns.hold(self.now, is_whole=how == "whole")

    async def do_later(self, times: str, span: str, how: str = "") -> None:
        """Let so many of a span pass, one millisecond `short` of it."""
        part = timedelta(milliseconds=1) if how == "short" else timedelta(0)
        self.now += int(times) * SPANS[span] - part
        self.turns = self.turns.at(self.now)


test_turns = check_stories(__file__, turns=TurnStage)


def test_whatever_happens_no_side_is_held_for_ever() -> None:
    """SI-01, LI-01, LI-09: every state that can be reached: an exhaustive walk."""
    begin = timedelta(hours=1)
    steps: list[Callable[[Turns], Turns]] = [
        lambda state: state.grant(EVICTION, 2),
        lambda state: state.grant(ROLLOUT, 2),
        lambda state: state.hold(begin, is_whole=True),
        lambda state: state.hold(begin, is_whole=False),
        lambda state: state.at(begin + state.patience),
    ]
    seen, left = {Turns()}, [Turns()]
    while left:
        state = left.pop()
        for engine in filter(state.holds, DisruptionSource):
            held = state.hold(begin, is_whole=False)
            assert not held.at(begin + held.patience).holds(engine)
        assert not (state.holds(EVICTION) and state.holds(ROLLOUT))
        new = {step(state) for step in steps} - seen
        seen |= new
        left += new
    assert len(seen) > 20


def test_a_delayed_pod_gives_the_time_to_reconcile_again_to_the_microsecond() -> None:
    case = read_question("a-0; b; pod b-0 ready_for=50; partitions delay=60")
    refusal = assess_disruption(case)

    assert refusal is not None
    assert refusal.requeue_after == timedelta(seconds=10, microseconds=1)
    almost = replace(case, now=case.now + refusal.requeue_after - timedelta(microseconds=1))
    assert answer(almost) == "429 1 pod not ready in partition 0"
    assert answer(replace(case, now=case.now + refusal.requeue_after)) == "allow"


def test_d68_a_zone_that_may_be_selected_is_none_of_the_two_that_are_needed() -> None:
    """A foreign set of many labels once let pods go of a budget that had a single zone."""
    two = read_question("a-0; only a b")
    foreign = replace(two.zones[1], sts=replace(two.zones[1].sts, labels=MANY))

    assert answer(two) == "allow"
    assert answer(replace(two, zones=(two.zones[0], foreign))) == "400 too_few_zones"


def test_sec_16_names_beyond_any_limit() -> None:
    assert find_partition(budget(pattern="(a+)+"), "a" * 2**20) is None
