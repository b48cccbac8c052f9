"""Faults by plan: exactly these, each once.

For systematic plans and for tests: "the 17th call of operator-1: crash after the commit".
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TypeVar

import msgspec
from rollout_lab.model.history import Fault
from rollout_lab.network.faults import (
    EVENT_OUTCOME,
    NO_TIME,
    OUTCOME,
    POD_CALL_OUTCOME,
    REVIEW_OUTCOME,
    EventOutcome,
    FaultDecision,
    PodCallOutcome,
    ReviewOutcome,
    SentCall,
    Way,
)


class CallPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of the n-th call that a process makes in one of its lives."""

    actor: str
    number: int
    outcome: FaultDecision


class EventPlan(msgspec.Struct, frozen=True, kw_only=True):
    """How the n-th event of a plural comes to a process in one of its lives; no bookmark counts."""

    actor: str
    plural: str
    number: int
    outcome: EventOutcome


class ListPlan(msgspec.Struct, frozen=True, kw_only=True):
    """How old the n-th list of a plural is that an informer gets, over all lives of a process."""

    actor: str
    plural: str
    number: int
    age: timedelta


class PodPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of the n-th request of a process to pods, over all its lives."""

    actor: str
    number: int
    outcome: PodCallOutcome


class ReviewPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of the n-th review of a process on one way, over all its lives."""

    actor: str
    way: Way
    number: int
    outcome: ReviewOutcome


Planned = CallPlan | EventPlan | ListPlan | PodPlan | ReviewPlan
_P = TypeVar("_P", CallPlan, EventPlan, ListPlan, PodPlan, ReviewPlan)


class ScriptedFaults:
    """Each plan comes true once, where it first fits: a process that comes back is spared it."""

    def __init__(
        self, plan: Sequence[Planned], report: Callable[[Fault], object] = lambda fault: None
    ) -> None:
        self._waiting = list(plan)
        self._numbers = {one: number for number, one in enumerate(plan, 1)}
        self._report = report
        self._lists: Counter[tuple[str, str]] = Counter()
        self._pod_calls: Counter[str] = Counter()
        self._reviews: Counter[tuple[str, Way]] = Counter()

    def list_waiting(self) -> tuple[Planned, ...]:
        """Return what has not come true yet, for runs that must show that it did."""
        return tuple(self._waiting)

    def heal(self) -> None:
        self._waiting.clear()

    def on_call(self, sent: SentCall) -> FaultDecision:
        plan = self._find(
            CallPlan, lambda one: (one.actor, one.number) == (sent.actor, sent.number)
        )
        if plan is None:
            return OUTCOME
        crash, fails = plan.outcome.crash, plan.outcome.fails
        kind = "crash" if crash is not None else fails or "slow"
        self._report_plan(plan, kind, f"{sent.text}: {crash.name.lower() if crash else kind}")
        return plan.outcome

    def on_event(self, actor: str, plural: str, type: str, name: str, number: int) -> EventOutcome:
        if type == "BOOKMARK":
            return EVENT_OUTCOME
        wanted = (actor, plural, number)
        plan = self._find(EventPlan, lambda one: (one.actor, one.plural, one.number) == wanted)
        if plan is None:
            return EVENT_OUTCOME
        kind = describe_event_outcome(plan.outcome)
        self._report_plan(plan, kind, f"event {number} of {plural}: {type} {name}: {kind}")
        return plan.outcome

    def on_list(self, sent: SentCall) -> timedelta:
        self._lists[sent.actor, sent.plural] += 1
        wanted = (sent.actor, sent.plural, self._lists[sent.actor, sent.plural])
        plan = self._find(ListPlan, lambda one: (one.actor, one.plural, one.number) == wanted)
        if plan is None:
            return NO_TIME
        self._report_plan(plan, "stale_list", f"{sent.text}: as of {plan.age} ago")
        return plan.age

    def on_pod_call(self, actor: str, method: str, pod: str) -> PodCallOutcome:
        self._pod_calls[actor] += 1
        wanted = (actor, self._pod_calls[actor])
        plan = self._find(PodPlan, lambda one: (one.actor, one.number) == wanted)
        if plan is None:
            return POD_CALL_OUTCOME
        kind = "crash" if plan.outcome.crash is not None else plan.outcome.fails or "slow"
        self._report_plan(plan, f"pod_{kind}", f"{method} {pod}: {kind}")
        return plan.outcome

    def on_review(self, actor: str, way: Way) -> ReviewOutcome:
        self._reviews[actor, way] += 1
        wanted = (actor, way, self._reviews[actor, way])
        plan = self._find(ReviewPlan, lambda one: (one.actor, one.way, one.number) == wanted)
        if plan is None:
            return REVIEW_OUTCOME
        outcome = plan.outcome
        kind = (
            "crash"
            if outcome.crash
            else "reset"
            if outcome.reset
            else "lost"
            if outcome.lost
            else "slow"
        )
        self._report_plan(plan, f"review_{kind}", f"{way} of a review: {kind}")
        return outcome

    def _find(self, kind: type[_P], fits: Callable[[_P], bool]) -> _P | None:
        """Return the first plan that fits, and forget it."""
        for plan in self._waiting:
            if isinstance(plan, kind) and fits(plan):
                self._waiting.remove(plan)
                return plan
        return None

    def _report_plan(self, plan: Planned, kind: str, text: str) -> None:
        self._report(
            Fault(
                at=timedelta(seconds=asyncio.get_running_loop().time()),
                number=self._numbers[plan],
                kind=f"{kind}",
                actor=plan.actor,
                text=text,
            )
        )


def describe_event_outcome(outcome: EventOutcome) -> str:
    """Return the words for what becomes of an event, those of the rates where there is one."""
    wording = {
        "drop_event": outcome.drop,
        "duplicate_event": outcome.duplicate,
        "delay_event": outcome.delay,
        "spoil_event": outcome.spoil,
        "freeze": outcome.freeze,
        "cut_stream": outcome.cut,
        "gone_event": outcome.gone,
        "crash": outcome.crash,
    }
    return " and ".join(word for word, happens in wording.items() if happens) or "as usual"
