"""Faults by plan and by chance, and how often each kind of these comes in which profile.

By plan come exactly these, each once: "the 17th call of operator-1: crash after the commit". Chance
is one seeded stream. On each occasion the same amount is drawn from it, whatever comes of it: a run
in which some faults are left out throws the same dice.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Final, TypeVar

import msgspec
from msgspec.structs import fields, replace
from rollout_lab.model.history import Fault
from rollout_lab.network.faults import (
    AS_USUAL,
    NO_TIME,
    CrashPoint,
    Failure,
    FaultOutcome,
    Occasion,
    OccasionKind,
)

from tests.simulation.runtime import split

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
        outcome, word = plan.outcome, _name(plan)
        what = f"as of {outcome.age} ago" if plan.kind is OccasionKind.LIST else word
        if outcome.crash is not None:
            what = outcome.crash.name.lower()
        self._report(
            Fault(
                at=timedelta(seconds=asyncio.get_running_loop().time()),
                number=self._numbers[plan],
                kind=f"{_PREFIXES.get(plan.kind, '')}{word}",
                actor=plan.actor,
                text=f"{occasion.text}: {what}",
            )
        )


# By these words the judge knows what faults excuse: they are those of the rates below.
_OF_EVENTS: Final[Mapping[Failure | None, str]] = {
    Failure.DROP: "drop_event",
    Failure.DUPLICATE: "duplicate_event",
    Failure.SPOIL: "spoil_event",
    Failure.CUT: "cut_stream",
    Failure.GONE: "gone_event",
}
_PREFIXES: Final = {OccasionKind.POD_CALL: "pod_", OccasionKind.REVIEW: "review_"}


def _name(plan: Planned) -> str:
    outcome = plan.outcome
    if outcome.crash is not None:
        return "crash"
    match plan.kind:
        case OccasionKind.LIST:
            return "stale_list"
        case OccasionKind.EVENT:
            usual = "delay_event" if outcome.before else "as usual"
            return _OF_EVENTS.get(outcome.fails, "freeze" if outcome.freeze else usual)
    return outcome.fails or "slow"


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


# How calls fail, and requests to pods.
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
    Failure.UNAUTHORIZED,
)
OF_PODS: Final = (
    Failure.REFUSED,
    Failure.RESET_BEFORE,
    Failure.RESET_AFTER,
    Failure.SILENT,
    Failure.LOST,
    Failure.REDIRECT,
    Failure.ERROR,
    Failure.ERROR_AFTER,
)
_CHANGES: Final = frozenset({"update", "patch", "delete"})


def _span(size: float, longest: float) -> timedelta:
    """Return a span between 50 ms and `longest` seconds; its logarithm is evenly spread."""
    seconds = _SHORTEST * (longest / _SHORTEST) ** size
    return timedelta(seconds=round(seconds, 3))


def _one_of(choices: Sequence[_T], choice: float) -> _T:
    return choices[int(choice * len(choices))]


def _crash(_: float, choice: float) -> FaultOutcome:
    return FaultOutcome(crash=_one_of(tuple(CrashPoint), choice))


def _slow(size: float, choice: float) -> FaultOutcome:
    span = _span(size, LONGEST_SLOW)
    return FaultOutcome(before=span) if choice < 0.5 else FaultOutcome(after=span)


def _late_pod(size: float, _: float) -> FaultOutcome:
    least, most = LATE_POD
    return FaultOutcome(takes=timedelta(seconds=round(least + (most - least) * size, 3)))


def _fail(*failures: Failure) -> "_Meaning":
    return lambda size, choice: FaultOutcome(fails=_one_of(failures, choice))


_Meaning = Callable[[float, float], FaultOutcome]
# What each kind of fault means, by its size and a choice, both from 0 to 1. The dice go through the
# kinds in this order.
_MEANINGS: Final[Mapping[OccasionKind, Mapping[str, _Meaning]]] = {
    OccasionKind.CALL: {
        "crash": _crash,
        "slow": _slow,
        "throttled": _fail(Failure.THROTTLED),
        "lost": _fail(*_LOST),
        "late": lambda size, _: FaultOutcome(fails=Failure.LATE, before=_span(size, LONGEST_LATE)),
        "conflict": _fail(Failure.CONFLICT),
        "gone": _fail(Failure.GONE),
        "too_many": _fail(*_TOO_MANY),
        "server_error": _fail(*_ERRORS),
    },
    OccasionKind.EVENT: {
        "drop_bookmark": _fail(Failure.DROP),
        "drop_event": _fail(Failure.DROP),
        "delay_event": lambda size, _: FaultOutcome(before=_span(size, LONGEST_LAG)),
        "duplicate_event": _fail(Failure.DUPLICATE),
        "freeze": lambda size, _: FaultOutcome(freeze=_span(size, LONGEST_FREEZE)),
        "cut_stream": _fail(Failure.CUT),
        "gone_event": _fail(Failure.GONE),
        "spoil_event": _fail(Failure.SPOIL),
    },
    OccasionKind.LIST: {"stale_list": lambda size, _: FaultOutcome(age=_span(size, LONGEST_LAG))},
    OccasionKind.POD_CALL: {
        "pod_failure": _fail(*OF_PODS),
        "pod_slow": lambda size, _: FaultOutcome(after=_span(size, SLOWEST_POD)),
        "crash": _crash,
        "pod_late": _late_pod,
    },
    OccasionKind.REVIEW: {
        "review_lost": _fail(Failure.RESET_BEFORE, Failure.LOST),
        "review_slow": lambda size, _: FaultOutcome(before=_span(size, SLOWEST_REVIEW)),
        "crash": _crash,
    },
}
# Kinds that make sense on some occasions only.
_FITS: Final[Mapping[str, Callable[[Occasion], bool]]] = {
    "late": lambda call: call.is_write,
    "conflict": lambda call: call.verb in _CHANGES,
    "gone": lambda call: call.verb in ("list", "watch"),
    "drop_bookmark": lambda event: event.verb == "BOOKMARK",
    "drop_event": lambda event: event.verb != "BOOKMARK",
    "spoil_event": lambda event: event.verb != "BOOKMARK",
}
_WITHOUT_CHOICE: Final = (OccasionKind.EVENT, OccasionKind.LIST)


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

    def decide(self, occasion: Occasion) -> FaultOutcome:
        kind, outcome = self._throw(occasion)
        if kind and self._fire(kind, occasion, outcome):
            return outcome
        is_call = occasion.kind is OccasionKind.CALL
        if is_call and (occasion.verb, occasion.plural) == ("patch", "statefulsets"):
            return FaultOutcome(before=self.patches_take) if self.patches_take else AS_USUAL
        return AS_USUAL

    def _throw(self, occasion: Occasion) -> tuple[str, FaultOutcome]:
        """Throw the dice; return the kind in whose part of 0..1 they fall, and what it means.

        A kind that makes no sense has no part. The name is empty where all is as usual.
        """
        which, size = self._random(), self._random()
        choice = 0.0 if occasion.kind in _WITHOUT_CHOICE else self._random()
        for kind, mean in _MEANINGS[occasion.kind].items():
            fits = _FITS.get(kind)
            rate = getattr(self._rates, kind) if fits is None or fits(occasion) else 0.0
            if which < rate:
                return kind, mean(size, choice)
            which -= rate
        return "", AS_USUAL

    def _fire(self, kind: str, occasion: Occasion, outcome: FaultOutcome) -> bool:
        """Count a fault; return whether it is to happen."""
        if self._is_healed or self.is_held:
            return False
        self.number += 1
        if self._only is not None and self.number not in self._only:
            return False
        self.fired[kind] += 1
        at = timedelta(seconds=asyncio.get_running_loop().time())
        text = f"{occasion.text}{_describe(occasion, outcome)}"
        self._report(Fault(at=at, number=self.number, kind=kind, actor=occasion.actor, text=text))
        return True


def _describe(occasion: Occasion, outcome: FaultOutcome) -> str:
    """Return what becomes of an occasion, as far as its kind leaves that open.

    Of a late call that is its span, by which it is found again.
    """
    match occasion.kind:
        case OccasionKind.REVIEW:
            return ""
        case OccasionKind.LIST:
            return f": as of {outcome.age} ago"
        case OccasionKind.EVENT:
            span = outcome.before or outcome.freeze
            return f": {span}" if span else ""
    if outcome.crash:
        return f": {outcome.crash.name.lower()}"
    if outcome.fails is Failure.LATE:
        return f": {outcome.fails}: {outcome.before}"
    return f": {outcome.fails or outcome.before or outcome.takes or outcome.after}"


class Blows(msgspec.Struct, frozen=True, kw_only=True):
    """How many of each are expected in one schedule, before all heals."""

    crash: float = 0
    """The process is gone at an instant; it comes back after 0 to 120 s."""
    crash_at_step: float = 0
    """The same between any two steps of the event loop."""
    stop: float = 0
    """SIGTERM."""
    partition: float = 0
    """Process and API server do not hear one another for 1 s to 10 min."""
    pods_cut: float = 0
    """The process does not reach any pod."""
    clock_jump: float = 0
    """Of the process, by 1 s to 6 h, in either direction."""
    clock_rate: float = 0
    """Between half and double."""
    pod_fails: float = 0
    compact: float = 0
    """The API server forgets old versions."""
    controller_lags: float = 0
    """The StatefulSet controller sees all 1 to 60 s late, for 1 s to 10 min."""


class HookFaults(msgspec.Struct, frozen=True, kw_only=True):
    """The chance of each, per call of a webhook."""

    repeated: float = 0
    """Sent once more with another review UID, before or after."""
    timed_out: float = 0
    """The answer does not arrive in time; the hook has worked all the same."""
    unreachable: float = 0
    refused_later: float = 0
    """Another webhook, that comes last, says no."""
    forged: float = 0
    """Before it, a client that is not the API server sends one like it, with lies in it."""


class FaultProfile(msgspec.Struct, frozen=True, kw_only=True):
    calls: FaultRates
    blows: Blows
    hooks: HookFaults


NORMAL: Final = FaultProfile(
    calls=FaultRates(),
    blows=Blows(
        crash=0.5,
        crash_at_step=0.7,
        stop=0.2,
        partition=0.4,
        pods_cut=0.2,
        clock_jump=0.4,
        clock_rate=0.2,
        pod_fails=0.5,
        compact=0.4,
        controller_lags=0.3,
    ),
    hooks=HookFaults(
        repeated=0.1, timed_out=0.03, unreachable=0.03, refused_later=0.08, forged=0.05
    ),
)
_OLD_CACHES: Final = replace(NORMAL.calls, freeze=0.03, delay_event=0.1)
# Most reads are made only where the view is too old to answer.
_LOST_CALLS: Final = replace(NORMAL.calls, lost=0.1, server_error=0.1, delay_event=0.1)
PROFILE_SHARE: Final = 0.2
# Of what strikes everywhere, and of what strikes only where webhooks are called.
PROFILES: Final[Mapping[str, FaultProfile]] = {
    "late writes": replace(NORMAL, calls=replace(NORMAL.calls, late=0.2)),
    "old views": replace(NORMAL, calls=_OLD_CACHES),
    "lost events": replace(NORMAL, calls=replace(NORMAL.calls, drop_event=0.05)),
    "lost calls": replace(NORMAL, calls=_LOST_CALLS),
    "late controller": FaultProfile(
        calls=_OLD_CACHES, blows=replace(NORMAL.blows, controller_lags=3), hooks=NORMAL.hooks
    ),
}
REVIEW_PROFILES: Final[Mapping[str, FaultProfile]] = {
    **PROFILES,
    "lost pods": replace(NORMAL, calls=replace(NORMAL.calls, pod_failure=0.3, pod_slow=0.3)),
    "late pods": replace(NORMAL, calls=replace(NORMAL.calls, pod_late=0.3)),
    "slow reviews": replace(NORMAL, calls=replace(NORMAL.calls, review_slow=0.3)),
    "forged reviews": replace(NORMAL, hooks=replace(NORMAL.hooks, forged=0.6)),
}


def name_profile(seed: int, *, has_webhooks: bool = False) -> str:
    """Return the name of a schedule's fault profile, by its seed; empty for the usual one."""
    rng = split(seed, "storm")
    profiles = [*(REVIEW_PROFILES if has_webhooks else PROFILES)]
    return rng.choice(profiles) if rng.random() < PROFILE_SHARE else ""


def choose_profile(name: str) -> FaultProfile:
    """Return a fault profile by name, the usual one for none."""
    return REVIEW_PROFILES[name] if name else NORMAL
