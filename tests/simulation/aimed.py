"""Kills aimed at the steps of a batch: at which call a process dies, and which one goes on.

A run without faults lists the calls that the first batches of a policy consist of. Each of them is
hit, in each way; the process that goes on may see what was there before the batch was recorded.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from functools import partial
from itertools import pairwise
from typing import Final

import msgspec
from msgspec.structs import replace
from rollout_lab.model.fields import uid_of
from rollout_lab.model.history import Called, Commit, Fault, History
from rollout_lab.network.faults import (
    AS_USUAL,
    NO_TIME,
    CrashPoint,
    Failure,
    FaultOutcome,
    Occasion,
    OccasionKind,
)
from rollout_lab.world import Sandbox

from rollout_operator.kube.api import MULTI_AZ_ROLLOUTS, PODS
from tests.judge.objects import read_pod
from tests.judge.policies import read_batch
from tests.simulation.plans import FROZEN, MOMENT, STRIKE_LIMIT
from tests.simulation.runs import OPERATORS, Outcome, play
from tests.simulation.runtime import BACK_AFTER, Patient
from tests.simulation.scenarios import SMALL, Scenario, Size
from tests.simulation.scenarios_book import elect
from tests.simulation.scenarios_policies import INTERVAL, sampled
from tests.virtual_time import elapsed as now

# On a cluster before Kubernetes 1.37, where the operator records revisions: there are more steps.
SEED: Final = 4
QUIET: Final = timedelta(minutes=1)
# Of the rollout: two pods of one zone, and the first one of the next.
BATCHES: Final = 3
# A batch is chosen from a live read.
BEFORE: Final = timedelta(milliseconds=100)
# A standby is shown nothing new from so long before the kill until after it has the Lease.
BLIND: Final = timedelta(seconds=8)
# From the kill until all is healed: by then another replica has taken the Lease.
SETTLE: Final = timedelta(seconds=5)
TAKEOVER: Final = timedelta(seconds=30)
AWAY: Final = timedelta(minutes=5)


class Hit(StrEnum):
    """What becomes of a call, and of the process that makes it."""

    BEFORE = "killed before it is sent"
    APPLIED = "applied, killed before the answer"
    ANSWERED = "killed with the answer"
    LOST = "not applied and not answered, killed at the next call"
    UNANSWERED = "applied and not answered, killed at the next call"
    LATE = "applied when its time is over, killed at the next call"
    IDLE = "killed in the middle of the pause"


class Heir(StrEnum):
    """Which process goes on, and what it sees."""

    SAME = "the same replica goes on"
    SAME_STALE = "the same replica goes on, with lists from before the batch"
    OTHER = "another replica goes on"
    OTHER_STALE = "another replica goes on, with a view from before the kill"

    @property
    def is_other(self) -> bool:
        return self in (Heir.OTHER, Heir.OTHER_STALE)


_OUTCOMES: Final = {
    Hit.BEFORE: FaultOutcome(crash=CrashPoint.BEFORE_SEND),
    Hit.APPLIED: FaultOutcome(crash=CrashPoint.AFTER_COMMIT),
    Hit.ANSWERED: FaultOutcome(crash=CrashPoint.AFTER_REPLY),
    Hit.LOST: FaultOutcome(fails=Failure.RESET_BEFORE),
    Hit.UNANSWERED: FaultOutcome(fails=Failure.RESET_AFTER),
    Hit.LATE: FaultOutcome(fails=Failure.LATE),
}

_READ_HITS: Final = (Hit.BEFORE, Hit.ANSWERED, Hit.LOST)


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """One call of the run without faults: what it requests, and how often."""

    at: timedelta
    since: timedelta
    """When the batch was recorded that it belongs to."""
    verb: str = ""
    plural: str = ""
    name: str = ""
    round: int = 0

    @property
    def is_write(self) -> bool:
        return self.verb in ("patch", "update", "delete")

    def fits(self, sent: Occasion) -> bool:
        requested = (sent.verb, sent.plural, sent.name, sent.round)
        return requested == (self.verb, self.plural, self.name, self.round)


class Aim(msgspec.Struct, frozen=True, kw_only=True):
    """A call, what becomes of it, and what comes after."""

    target: Target
    hit: Hit
    heir: Heir
    limit: int
    """How many pods a batch has."""

    @property
    def text(self) -> str:
        one = self.target
        where = f"{one.verb} {one.round} of {one.plural} {one.name}" if one.verb else f"{one.at}"
        return f"{self.limit} at a time, {where}: {self.hit}; {self.heir}"


class AimedFaults:
    """One hit, or none, and what the next process is shown. Lists the calls that it sees."""

    def __init__(self, aim: Aim | None, report: Callable[[Fault], None]) -> None:
        self._aim = aim
        self._report = report
        self._acting = ""
        self._frozen: set[tuple[str, str]] = set()
        self._aged: set[str] = set()
        self.calls: list[tuple[timedelta, Occasion]] = []
        self.has_struck = False
        self.killed = asyncio.Event()

    def decide(self, occasion: Occasion) -> FaultOutcome:
        match occasion.kind:
            case OccasionKind.CALL:
                return self._decide_call(occasion)
            case OccasionKind.EVENT:
                return self._decide_event(occasion)
            case OccasionKind.LIST:
                return FaultOutcome(age=self._choose_age(occasion.plural))
        return AS_USUAL

    def _decide_call(self, sent: Occasion) -> FaultOutcome:
        if sent.verb == "watch" or sent.plural == "leases" or self.killed.is_set():
            return AS_USUAL
        self.calls.append((now(), sent))
        self._acting = sent.actor if sent.is_write else self._acting
        if self._aim is None or not (self.has_struck or self._aim.target.fits(sent)):
            return AS_USUAL
        outcome = _OUTCOMES[Hit.BEFORE if self.has_struck else self._aim.hit]
        self.has_struck = True
        if outcome.crash is not None:
            self.record_kill()
        return outcome

    def _decide_event(self, event: Occasion) -> FaultOutcome:
        aim = self._aim
        if aim is None or aim.heir is not Heir.OTHER_STALE or event.actor == self._acting:
            return AS_USUAL
        if now() < aim.target.at - BLIND or (event.actor, event.plural) in self._frozen:
            return AS_USUAL
        self._frozen.add((event.actor, event.plural))
        return FaultOutcome(freeze=FROZEN)

    def _choose_age(self, plural: str) -> timedelta:
        aim = self._aim
        if aim is None or aim.heir is not Heir.SAME_STALE or not self.killed.is_set():
            return NO_TIME
        if plural in self._aged:
            return NO_TIME
        self._aged.add(plural)
        return now() - aim.target.since + MOMENT

    def record_kill(self) -> None:
        assert self._aim is not None, "nothing is killed without an aim"
        fault = Fault(at=now(), number=1, kind="aimed", actor=self._acting, text=self._aim.text)
        self._report(fault)
        self.killed.set()


@dataclass(slots=True)
class AimedCourse:
    """A `Course` with one kill, or with none, to be recorded."""

    aim: Aim | None
    patches_take: timedelta = NO_TIME
    faults: AimedFaults = field(init=False)

    def make_faults(self, record: Callable[[Fault], None]) -> AimedFaults:
        self.faults = AimedFaults(self.aim, record)
        return self.faults

    async def begin(self, sandbox: Sandbox) -> None:
        pass

    async def strike(self, sandbox: Sandbox, patient: Patient) -> bool:
        aim = self.aim
        if aim is None:
            return True
        if aim.hit is Hit.IDLE:
            await asyncio.sleep((aim.target.at - now()).total_seconds())
            patient().crash(AWAY if aim.heir.is_other else BACK_AFTER)
            self.faults.record_kill()
        with suppress(TimeoutError):
            async with asyncio.timeout(STRIKE_LIMIT.total_seconds()):
                await self.faults.killed.wait()
        await asyncio.sleep((TAKEOVER if aim.heir.is_other else SETTLE).total_seconds())
        return True


def get_sample(limit: int, *, is_elected: bool) -> Scenario:
    """Return the sample in four batches, played by one process or by one of two."""
    make, size = partial(sampled, limit=limit), Size(SMALL.zones, SMALL.pods * limit)
    return replace(elect(make)(size), back_after=AWAY) if is_elected else make(size)


def run_aimed(aim: Aim) -> Outcome:
    """Play the sample with one kill."""
    scenario = get_sample(aim.limit, is_elected=aim.heir.is_other)
    return play(scenario, SEED, AimedCourse(aim), quiet=QUIET)


def list_broken(aim: Aim) -> list[str]:
    """Return what the judge says of a kill, and what batches and pauses say that were counted."""
    outcome = run_aimed(aim)
    gaps, verdict = [*list_gaps(outcome.history)], outcome.verdict
    found = [f"{one}" for one in (*verdict.violations, *verdict.undetermined, *verdict.unpromised)]
    found += list_repeated(outcome.history)
    found += [f"a pause of {gap}" for gap in gaps if gap < INTERVAL]
    found += [] if len(gaps) >= BATCHES else [f"pauses: {gaps}"]
    found += _list_missed(outcome.history, is_other=aim.heir.is_other)
    return [f"{aim.text}: {text}" for text in found]


def list_targets(limit: int, *, is_elected: bool) -> list[Target]:
    """Return the calls from the choice of the first batch to the pause after the last of `BATCHES`.

    One that is killed with the answer to a record of the batch after that may delete its pod still,
    and nothing would be left to go on with.
    """
    course = AimedCourse(None)
    outcome = play(get_sample(limit, is_elected=is_elected), SEED, course, quiet=QUIET)
    begins = [at for at, *_ in list_batches(outcome.history)]
    return [
        Target(
            at=at,
            since=max((one for one in begins if one <= at), default=begins[0]),
            verb=sent.verb,
            plural=sent.plural,
            name=sent.name,
            round=sent.round,
        )
        for at, sent in course.faults.calls
        if begins[0] - BEFORE <= at < begins[BATCHES] - BEFORE
    ]


def list_aims(limit: int = 1, *, is_elected: bool) -> list[Aim]:
    """Return every call in each way, and every pause; a read cannot be applied."""
    targets = list_targets(limit, is_elected=is_elected)
    heirs = [heir for heir in Heir if heir.is_other == is_elected]
    hits = [(one, hit) for one in targets for hit in (_OUTCOMES if one.is_write else _READ_HITS)]
    hits += [(one, Hit.IDLE) for one in list_pauses(targets)]
    return [Aim(target=one, hit=hit, heir=heir, limit=limit) for one, hit in hits for heir in heirs]


def list_pauses(targets: Sequence[Target]) -> list[Target]:
    """Return the middle of each time of half a pause and more without a call."""
    return [
        Target(at=one.at + (later.at - one.at) / 2, since=one.since)
        for one, later in pairwise(targets)
        if later.at - one.at >= INTERVAL / 2
    ]


def list_batches(history: History) -> list[tuple[timedelta, int, frozenset[str]]]:
    """Return when each batch was recorded first, its number, and the UIDs of its pods."""
    found: dict[tuple[int, frozenset[str]], timedelta] = {}
    for commit in history.list_all(Commit):
        if commit.resource == MULTI_AZ_ROLLOUTS and commit.after is not None:
            for one in read_batch(commit.after, commit.at):
                found.setdefault((one.number, one.pods), commit.at)
    return [(at, *batch) for batch, at in found.items()]


def list_repeated(history: History) -> list[str]:
    """Return numbers and pods that more than one batch has, and numbers out of order."""
    batches = list_batches(history)
    numbers = [number for _, number, _ in batches]
    pods = [uid for *_, uids in batches for uid in sorted(uids)]
    twice = [uid for uid in pods if pods.count(uid) > 1]
    is_counted = numbers == [*range(1, len(numbers) + 1)]
    return [*twice, *([] if is_counted else [f"numbers: {numbers}"])]


def list_deletes(history: History) -> list[Called]:
    return [
        one
        for one in history.list_all(Called)
        if one.actor.startswith(OPERATORS)
        and (one.request.verb, one.request.resource) == ("delete", PODS)
    ]


def list_gaps(history: History) -> Iterator[timedelta]:
    """Yield how long all pods were ready before each batch, but for the first."""
    numbers = {uid: number for _, number, uids in list_batches(history) for uid in uids}
    short: set[str] = set()
    last, whole_since = 0, timedelta(0)
    for commit in history.list_all(Commit):
        if commit.resource != PODS:
            continue
        if _is_up(commit):
            if short and short <= {commit.name}:
                whole_since = commit.at
            short.discard(commit.name)
        elif commit.actor.startswith(OPERATORS):
            number = 0 if commit.before is None else numbers.get(uid_of(commit.before), 0)
            if last and number != last:
                yield commit.at - whole_since if not short else timedelta(0)
            last = number
            short.add(commit.name)
        elif last:  # what happened before the first delete was no pause
            short.add(commit.name)


def _list_missed(history: History, *, is_other: bool) -> Iterator[str]:
    """Yield that the kill has not struck, or that not the process that is meant has gone on."""
    faults = history.list_all(Fault)
    if not faults:
        yield "nothing was killed"
    for one, fault in zip(list_deletes(history)[-1:], faults, strict=False):
        if (one.actor != fault.actor) != is_other:
            yield f"{fault.actor} was killed, {one.actor} has gone on"


def _is_up(commit: Commit) -> bool:
    if commit.after is None:
        return False
    pod = read_pod(commit.after)
    return pod.is_ready and not pod.is_terminating
