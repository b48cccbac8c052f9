"""Faults by plan: exactly these, each once.

For systematic plans and for tests: "the 17th call of operator-1: crash after the commit".
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta

import msgspec
from rollout_lab.model.history import Fault
from rollout_lab.network.faults import AS_USUAL, FaultOutcome, Occasion, OccasionKind

# These have a number of their own, in each life of a process.
_NUMBERED = (OccasionKind.CALL, OccasionKind.EVENT)


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of the n-th occasion of a kind, where it is a call or an event in one life of a
    process, else over all of them."""

    kind: OccasionKind
    actor: str
    number: int
    outcome: FaultOutcome
    of: str = ""
    """The plural of an event or a list, the way of a review. Bookmarks do not count."""


class ScriptedFaults:
    """Each plan comes true once, where it first fits: a process that comes back is spared it."""

    def __init__(
        self, plan: Sequence[Planned], report: Callable[[Fault], object] = lambda fault: None
    ) -> None:
        self._waiting = list(plan)
        self._numbers = {one: number for number, one in enumerate(plan, 1)}
        self._report = report
        self._counts: Counter[tuple[str, ...]] = Counter()

    def list_waiting(self) -> tuple[Planned, ...]:
        """Return what has not come true yet, for runs that must show that it did."""
        return tuple(self._waiting)

    def heal(self) -> None:
        self._waiting.clear()

    def decide(self, occasion: Occasion) -> FaultOutcome:
        kind, number = occasion.kind, occasion.number
        if kind is OccasionKind.EVENT and occasion.verb == "BOOKMARK":
            return AS_USUAL
        of = {
            OccasionKind.EVENT: occasion.plural,
            OccasionKind.LIST: occasion.plural,
            OccasionKind.REVIEW: occasion.verb,
        }.get(kind, "")
        if kind not in _NUMBERED:
            self._counts[kind, occasion.actor, of] += 1
            number = self._counts[kind, occasion.actor, of]
        wanted = (kind, occasion.actor, number, of)
        for one in self._waiting:
            if (one.kind, one.actor, one.number, one.of) == wanted:
                self._waiting.remove(one)
                self._report_plan(one, occasion)
                return one.outcome
        return AS_USUAL

    def _report_plan(self, plan: Planned, occasion: Occasion) -> None:
        what = describe(plan.outcome)
        kind = what if plan.kind in _NUMBERED else f"{plan.kind.value}_{what}"
        self._report(
            Fault(
                at=timedelta(seconds=asyncio.get_running_loop().time()),
                number=self._numbers[plan],
                kind=kind,
                actor=plan.actor,
                text=f"{occasion.text}: {what}",
            )
        )


def describe(outcome: FaultOutcome) -> str:
    """Return in words what becomes of an occasion."""
    words = {
        "freeze": bool(outcome.freeze),
        f"as of {outcome.age} ago": bool(outcome.age),
        "slow": bool(outcome.waits or outcome.before or outcome.takes or outcome.after),
        f"{outcome.fails}": outcome.fails is not None,
    }
    if outcome.crash is not None:
        return outcome.crash.name.lower()
    found = [word for word, is_meant in words.items() if is_meant]
    return found[-1] if found else "as usual"
