"""Faults by chance: how often each kind comes, and which ones came, by number.

Decides by one seeded stream. For each question the same amount is drawn from it, whatever comes of
it: a run in which some faults are left out throws the same dice.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Final, TypeVar

import msgspec
from msgspec.structs import fields
from rollout_lab.model.history import Fault
from rollout_lab.network.faults import (
    EVENT_OUTCOME,
    NO_TIME,
    OUTCOME,
    POD_CALL_OUTCOME,
    REVIEW_OUTCOME,
    CrashPoint,
    EventOutcome,
    Failure,
    FaultDecision,
    PodCallOutcome,
    PodFailure,
    ReviewOutcome,
    SentCall,
    Way,
)

_T = TypeVar("_T")

# Spans are heavy-tailed: most are short, and some are as long as these.
LONGEST_SLOW: Final = 40.0
LONGEST_LATE: Final = 60.0
LONGEST_LAG: Final = 300.0
LONGEST_FREEZE: Final = 120.0
SLOWEST_POD: Final = 10.0
# Evenly spread between these: most callers have given up by then, and none for longer than the
# operator reckons with (`LATE_TIMEOUTS` of its 5 s).
LATE_POD: Final = (3.0, 9.8)
SLOWEST_REVIEW: Final = 15.0
_SHORTEST: Final = 0.05


class FaultRates(msgspec.Struct, frozen=True, kw_only=True):
    """How probable each kind of fault is, per call, event, list or request to a pod; 0 to 1."""

    crash: float = 0.002
    """Per call, at one of the three points."""
    slow: float = 0.02
    throttled: float = 0.002
    lost: float = 0.01
    """Per call: no connection, broken before or after, no answer, or only half of one."""
    late: float = 0.003
    """Per write: carried out after the caller has given up."""
    conflict: float = 0.005
    """Per change of an object."""
    gone: float = 0.003
    """Per list or watch."""
    too_many: float = 0.01
    server_error: float = 0.01
    delay_event: float = 0.02
    drop_event: float = 0.005
    drop_bookmark: float = 0.05
    duplicate_event: float = 0.01
    spoil_event: float = 0.003
    freeze: float = 0.002
    cut_stream: float = 0.005
    gone_event: float = 0.002
    stale_list: float = 0.05
    pod_failure: float = 0.03
    pod_slow: float = 0.03
    pod_late: float = 0.02
    """Per request that the pod acts on though its caller may have given up."""
    review_lost: float = 0.02
    """Per question and per answer: without a word, or as a broken connection."""
    review_slow: float = 0.02

    def times(self, factor: float) -> "FaultRates":
        """Return all of them that much higher or lower, each at most 1."""
        rates = {each.name: min(getattr(self, each.name) * factor, 1.0) for each in fields(self)}
        return FaultRates(**rates)


_LOST: Final = (
    Failure.CONNECT,
    Failure.RESET_BEFORE,
    Failure.RESET_AFTER,
    Failure.TIMEOUT,
    Failure.CUT_BODY,
)
_TOO_MANY: Final = (Failure.TOO_MANY, Failure.TOO_MANY_RETRY)
_ERRORS: Final = (
    Failure.INTERNAL,
    Failure.UNAVAILABLE,
    Failure.GATEWAY_TIMEOUT,
    Failure.GATEWAY_TIMEOUT_COMMITTED,
)
_CHANGES: Final = frozenset({"update", "patch", "delete"})


def _span(size: float, longest: float) -> timedelta:
    """Return a span between 50 ms and `longest` seconds; its logarithm is evenly spread."""
    seconds = _SHORTEST * (longest / _SHORTEST) ** size
    return timedelta(seconds=round(seconds, 3))


def _one_of(choices: Sequence[_T], choice: float) -> _T:
    return choices[int(choice * len(choices))]


def _slow(size: float, choice: float) -> FaultDecision:
    span = _span(size, LONGEST_SLOW)
    return FaultDecision(before=span) if choice < 0.5 else FaultDecision(after=span)


def _late_pod(size: float, _: float) -> PodCallOutcome:
    least, most = LATE_POD
    return PodCallOutcome(takes=timedelta(seconds=round(least + (most - least) * size, 3)))


# What each kind means, by its size and a choice, both from 0 to 1. The dice go through the kinds in
# this order.
_Kinds = Mapping[str, Callable[[float, float], _T]]
_CALLS: Final[_Kinds[FaultDecision]] = {
    "crash": lambda size, choice: FaultDecision(crash=_one_of(tuple(CrashPoint), choice)),
    "slow": _slow,
    "throttled": lambda size, choice: FaultDecision(fails=Failure.THROTTLED),
    "lost": lambda size, choice: FaultDecision(fails=_one_of(_LOST, choice)),
    "late": lambda size, choice: FaultDecision(
        fails=Failure.LATE, before=_span(size, LONGEST_LATE)
    ),
    "conflict": lambda size, choice: FaultDecision(fails=Failure.CONFLICT),
    "gone": lambda size, choice: FaultDecision(fails=Failure.GONE),
    "too_many": lambda size, choice: FaultDecision(fails=_one_of(_TOO_MANY, choice)),
    "server_error": lambda size, choice: FaultDecision(fails=_one_of(_ERRORS, choice)),
}
_EVENTS: Final[_Kinds[EventOutcome]] = {
    "drop_bookmark": lambda size, choice: EventOutcome(drop=True),
    "drop_event": lambda size, choice: EventOutcome(drop=True),
    "delay_event": lambda size, choice: EventOutcome(delay=_span(size, LONGEST_LAG)),
    "duplicate_event": lambda size, choice: EventOutcome(duplicate=True),
    "freeze": lambda size, choice: EventOutcome(freeze=_span(size, LONGEST_FREEZE)),
    "cut_stream": lambda size, choice: EventOutcome(cut=True),
    "gone_event": lambda size, choice: EventOutcome(gone=True),
    "spoil_event": lambda size, choice: EventOutcome(spoil=True),
}
_POD_CALLS: Final[_Kinds[PodCallOutcome]] = {
    "pod_failure": lambda size, choice: PodCallOutcome(fails=_one_of(tuple(PodFailure), choice)),
    "pod_slow": lambda size, choice: PodCallOutcome(after=_span(size, SLOWEST_POD)),
    "crash": lambda size, choice: PodCallOutcome(crash=_one_of(tuple(CrashPoint), choice)),
    "pod_late": _late_pod,
}
_REVIEWS: Final[_Kinds[ReviewOutcome]] = {
    "review_lost": lambda size, choice: ReviewOutcome(reset=choice < 0.5, lost=choice >= 0.5),
    "review_slow": lambda size, choice: ReviewOutcome(delay=_span(size, SLOWEST_REVIEW)),
    "crash": lambda size, choice: ReviewOutcome(crash=True),
}


class RandomFaults:
    """Faults by the dice of `rng`, numbered from 1 on as they come.

    With `only`, just those of these numbers happen, while all are counted: that is how a run is
    shrunk. `report` gets each that happens.
    """

    def __init__(
        self,
        rng: random.Random,
        rates: FaultRates,
        report: Callable[[Fault], object] = lambda fault: None,
        only: frozenset[int] | None = None,
    ) -> None:
        self._random = rng.random
        self._rates = rates
        self._report = report
        self._only = only
        self._is_healed = False
        self.patches_take = NO_TIME
        """What each PATCH of a StatefulSet takes, where no fault strikes it."""
        self.is_held = False
        """Whether nothing goes wrong yet; the dice are thrown all the same."""
        self.fired: Counter[str] = Counter()
        """How many of each kind have happened."""
        self.number = 0
        """Of the newest fault that the dice wanted, whether or not it happened."""

    def heal(self) -> None:
        """Let nothing more go wrong; the dice are thrown on."""
        self._is_healed = True

    def on_call(self, sent: SentCall) -> FaultDecision:
        fits = {
            "late": sent.is_write,
            "conflict": sent.verb in _CHANGES,
            "gone": sent.verb in ("list", "watch"),
        }
        kind, outcome = self._throw(_CALLS, OUTCOME, fits)
        if kind and self._fire(kind, sent.actor, f"{sent.text}: {_word(outcome)}"):
            return outcome
        if self.patches_take and (sent.verb, sent.plural) == ("patch", "statefulsets"):
            return FaultDecision(before=self.patches_take)
        return OUTCOME

    def on_event(self, actor: str, plural: str, type: str, name: str, number: int) -> EventOutcome:
        is_bookmark = type == "BOOKMARK"
        fits = {
            "drop_bookmark": is_bookmark,
            "drop_event": not is_bookmark,
            "spoil_event": not is_bookmark,
        }
        kind, outcome = self._throw(_EVENTS, EVENT_OUTCOME, fits, has_choice=False)
        text = f"event {number} of {plural}: {type} {name}".rstrip()
        if span := outcome.delay or outcome.freeze:
            text = f"{text}: {span}"
        return outcome if kind and self._fire(kind, actor, text) else EVENT_OUTCOME

    def on_list(self, sent: SentCall) -> timedelta:
        which, size = self._random(), self._random()
        if which >= self._rates.stale_list:
            return NO_TIME
        age = _span(size, LONGEST_LAG)
        text = f"{sent.text}: as of {age} ago"
        return age if self._fire("stale_list", sent.actor, text) else NO_TIME

    def on_pod_call(self, actor: str, method: str, pod: str) -> PodCallOutcome:
        kind, outcome = self._throw(_POD_CALLS, POD_CALL_OUTCOME)
        span = outcome.takes or outcome.after
        what = outcome.crash.name.lower() if outcome.crash else outcome.fails or f"{span}"
        text = f"{method} {pod}: {what}"
        return outcome if kind and self._fire(kind, actor, text) else POD_CALL_OUTCOME

    def on_review(self, actor: str, way: Way) -> ReviewOutcome:
        kind, outcome = self._throw(_REVIEWS, REVIEW_OUTCOME)
        fires = kind and self._fire(kind, actor, f"{way} of a review")
        return outcome if fires else REVIEW_OUTCOME

    def _throw(
        self,
        kinds: _Kinds[_T],
        usual: _T,
        fits: Mapping[str, bool] = {},
        *,
        has_choice: bool = True,
    ) -> tuple[str, _T]:
        """Throw the dice; return the kind in whose part of 0..1 they fall, and what it means.

        A kind that makes no sense has no part. The name is empty where all is as usual.
        """
        which, size = self._random(), self._random()
        choice = self._random() if has_choice else 0.0
        for kind, mean in kinds.items():
            rate = getattr(self._rates, kind) if fits.get(kind, True) else 0.0
            if which < rate:
                return kind, mean(size, choice)
            which -= rate
        return "", usual

    def _fire(self, kind: str, actor: str, text: str) -> bool:
        """Count a fault; return whether it is to happen."""
        if self._is_healed or self.is_held:
            return False
        self.number += 1
        if self._only is not None and self.number not in self._only:
            return False
        self.fired[kind] += 1
        at = timedelta(seconds=asyncio.get_running_loop().time())
        self._report(Fault(at=at, number=self.number, kind=kind, actor=actor, text=text))
        return True


def _word(outcome: FaultDecision) -> str:
    """Return what becomes of a call; of a late one with the span, by which it is found again."""
    if outcome.crash:
        return outcome.crash.name.lower()
    if outcome.fails is Failure.LATE:
        return f"{outcome.fails}: {outcome.before}"
    return outcome.fails or f"{outcome.before or outcome.after}"
