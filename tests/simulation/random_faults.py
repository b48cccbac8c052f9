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
        which, size, choice = self._random(), self._random(), self._random()
        kind = _choose(which, self._list_call_rates(sent))
        if kind is None:
            return OUTCOME
        outcome = _outcome_of(kind, size, choice)
        return (
            outcome if self._fire(kind, sent.actor, f"{sent.text}: {_word(outcome)}") else OUTCOME
        )

    def on_event(self, actor: str, plural: str, type: str, name: str, number: int) -> EventOutcome:
        which, size = self._random(), self._random()
        rates = self._rates
        is_bookmark = type == "BOOKMARK"
        kind = _choose(
            which,
            (
                ("drop_bookmark", rates.drop_bookmark if is_bookmark else 0.0),
                ("drop_event", 0.0 if is_bookmark else rates.drop_event),
                ("delay_event", rates.delay_event),
                ("duplicate_event", rates.duplicate_event),
                ("freeze", rates.freeze),
                ("cut_stream", rates.cut_stream),
                ("gone_event", rates.gone_event),
                ("spoil_event", 0.0 if is_bookmark else rates.spoil_event),
            ),
        )
        if kind is None:
            return EVENT_OUTCOME
        outcome = _event_outcome_of(kind, size)
        text = f"event {number} of {plural}: {type} {name}".rstrip()
        if span := outcome.delay or outcome.freeze:
            text = f"{text}: {span}"
        return outcome if self._fire(kind, actor, text) else EVENT_OUTCOME

    def on_list(self, sent: SentCall) -> timedelta:
        which, size = self._random(), self._random()
        if which >= self._rates.stale_list:
            return NO_TIME
        age = _span(size, LONGEST_LAG)
        text = f"{sent.text}: as of {age} ago"
        return age if self._fire("stale_list", sent.actor, text) else NO_TIME

    def on_pod_call(self, actor: str, method: str, pod: str) -> PodCallOutcome:
        which, size, choice = self._random(), self._random(), self._random()
        rates = self._rates
        kind = _choose(
            which,
            (
                ("pod_failure", rates.pod_failure),
                ("pod_slow", rates.pod_slow),
                ("crash", rates.crash),
                ("pod_late", rates.pod_late),
            ),
        )
        if kind is None:
            return POD_CALL_OUTCOME
        outcome = _pod_call_outcome_of(kind, size, choice)
        span = outcome.takes or outcome.after
        what = outcome.crash.name.lower() if outcome.crash else outcome.fails or f"{span}"
        return outcome if self._fire(kind, actor, f"{method} {pod}: {what}") else POD_CALL_OUTCOME

    def on_review(self, actor: str, way: Way) -> ReviewOutcome:
        which, size, choice = self._random(), self._random(), self._random()
        rates = self._rates
        kind = _choose(
            which,
            (
                ("review_lost", rates.review_lost),
                ("review_slow", rates.review_slow),
                ("crash", rates.crash),
            ),
        )
        if kind is None:
            return REVIEW_OUTCOME
        outcome = ReviewOutcome(
            delay=_span(size, SLOWEST_REVIEW) if kind == "review_slow" else NO_TIME,
            reset=kind == "review_lost" and choice < 0.5,
            lost=kind == "review_lost" and choice >= 0.5,
            crash=kind == "crash",
        )
        return outcome if self._fire(kind, actor, f"{way} of a review") else REVIEW_OUTCOME

    def _list_call_rates(self, sent: SentCall) -> Sequence[tuple[str, float]]:
        """Return what may happen to a call; a kind that makes no sense for it has no rate."""
        rates = self._rates
        return (
            ("crash", rates.crash),
            ("slow", rates.slow),
            ("throttled", rates.throttled),
            ("lost", rates.lost),
            ("late", rates.late if sent.is_write else 0.0),
            ("conflict", rates.conflict if sent.verb in _CHANGES else 0.0),
            ("gone", rates.gone if sent.verb in ("list", "watch") else 0.0),
            ("too_many", rates.too_many),
            ("server_error", rates.server_error),
        )

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


def _choose(which: float, rates: Sequence[tuple[str, float]]) -> str | None:
    """Return the kind in whose part of 0..1 `which` lies."""
    for kind, rate in rates:
        if which < rate:
            return kind
        which -= rate
    return None


def _outcome_of(kind: str, size: float, choice: float) -> FaultDecision:
    crashes = tuple(CrashPoint)
    outcomes: Mapping[str, Callable[[], FaultDecision]] = {
        "crash": lambda: FaultDecision(crash=_one_of(crashes, choice)),
        "slow": lambda: _slow(_span(size, LONGEST_SLOW), choice),
        "throttled": lambda: FaultDecision(fails=Failure.THROTTLED),
        "lost": lambda: FaultDecision(fails=_one_of(_LOST, choice)),
        "late": lambda: FaultDecision(fails=Failure.LATE, before=_span(size, LONGEST_LATE)),
        "conflict": lambda: FaultDecision(fails=Failure.CONFLICT),
        "gone": lambda: FaultDecision(fails=Failure.GONE),
        "too_many": lambda: FaultDecision(fails=_one_of(_TOO_MANY, choice)),
        "server_error": lambda: FaultDecision(fails=_one_of(_ERRORS, choice)),
    }
    return outcomes[kind]()


def _word(outcome: FaultDecision) -> str:
    """Return what becomes of a call; of a late one with the span, by which it is found again."""
    if outcome.crash:
        return outcome.crash.name.lower()
    if outcome.fails is Failure.LATE:
        return f"{outcome.fails}: {outcome.before}"
    return outcome.fails or f"{outcome.before or outcome.after}"


def _event_outcome_of(kind: str, size: float) -> EventOutcome:
    match kind:
        case "delay_event":
            return EventOutcome(delay=_span(size, LONGEST_LAG))
        case "drop_event" | "drop_bookmark":
            return EventOutcome(drop=True)
        case "duplicate_event":
            return EventOutcome(duplicate=True)
        case "freeze":
            return EventOutcome(freeze=_span(size, LONGEST_FREEZE))
        case "cut_stream":
            return EventOutcome(cut=True)
        case "spoil_event":
            return EventOutcome(spoil=True)
        case _:
            return EventOutcome(gone=True)


def _pod_call_outcome_of(kind: str, size: float, choice: float) -> PodCallOutcome:
    match kind:
        case "pod_failure":
            return PodCallOutcome(fails=_one_of(tuple(PodFailure), choice))
        case "pod_slow":
            return PodCallOutcome(after=_span(size, SLOWEST_POD))
        case "pod_late":
            least, most = LATE_POD
            return PodCallOutcome(takes=timedelta(seconds=round(least + (most - least) * size, 3)))
        case _:
            return PodCallOutcome(crash=_one_of(tuple(CrashPoint), choice))


def _slow(span: timedelta, choice: float) -> FaultDecision:
    return FaultDecision(before=span) if choice < 0.5 else FaultDecision(after=span)


def _span(size: float, longest: float) -> timedelta:
    """Return a span between 50 ms and `longest` seconds; its logarithm is evenly spread."""
    seconds = _SHORTEST * (longest / _SHORTEST) ** size
    return timedelta(seconds=round(seconds, 3))


def _one_of(choices: Sequence[_T], choice: float) -> _T:
    return choices[int(choice * len(choices))]
