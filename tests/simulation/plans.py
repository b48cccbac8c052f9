"""One planned fault: what it is, how it strikes, and what the next life of the process sees.

Which plans there are is decided in `plans`.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Final

import msgspec
from rollout_lab.model.history import Commit, Fault
from rollout_lab.network.faults import (
    NO_TIME,
    CrashPoint,
    Failure,
    FaultOutcome,
    Occasion,
    OccasionKind,
)
from rollout_lab.world import Sandbox

from tests.simulation.faults import Planned, ScriptedFaults
from tests.simulation.runs import Outcome, play
from tests.simulation.runtime import BACK_AFTER, NAME, Patient
from tests.simulation.scenarios import Scenario
from tests.virtual_time import elapsed as now

LATE: Final = timedelta(seconds=10)
FROZEN: Final = timedelta(seconds=30)
# From the freeze to the restart: as much is missing from the view of the next life.
BLIND: Final = timedelta(seconds=5)
# No step of a small scenario comes later than this.
STRIKE_LIMIT: Final = timedelta(minutes=30)
# From the fault until it counts as healed: a crashed process has begun its next life by then.
SETTLE: Final = timedelta(seconds=5)
QUIET: Final = timedelta(minutes=10)
# A list is read some moments after its age is requested.
MOMENT: Final = timedelta(milliseconds=20)


class Kind(StrEnum):
    """What a set of plans takes apart."""

    CRASH = "crash"
    EVENT = "event"


class Step(StrEnum):
    """What goes wrong at a step of the recorded run."""

    CALL = "call"
    POD_CALL = "pod call"
    EVENT = "event"

    @property
    def kind(self) -> OccasionKind:
        return OccasionKind[self.name]


class CacheAge(StrEnum):
    """How old the first lists are that the life after the fault gets."""

    FRESH = "fresh"
    ONE_OLDER = "one event older"
    ALL_OLDER = "as at the very beginning"


class Trouble(StrEnum):
    """What becomes of an event."""

    SKIP = "skipped until relist"
    DELAY = "delayed"
    FREEZE = "frozen, then restarted"
    SPOIL = "spoiled"


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One step that goes wrong, and how."""

    step: Step
    number: int
    plural: str = ""
    crash: CrashPoint | None = None
    cache_age: CacheAge = CacheAge.FRESH
    trouble: Trouble | None = None

    @property
    def text(self) -> str:
        what = f"{self.step} {self.number}{f' of {self.plural}' if self.plural else ''}"
        if self.crash is not None:
            return f"{what}: crash {self.crash.name.lower()}, restart {self.cache_age}"
        return f"{what}: {self.trouble}"


class PlannedFaults(ScriptedFaults):
    """One plan's faults; counts the steps of a run, and ages the lists of the next life."""

    def __init__(self, plan: Plan | None, report: Callable[[Fault], None]) -> None:
        super().__init__([] if plan is None else [_planned(plan)], self._take)
        self._plan = plan
        self._record = report
        self._sandbox: Sandbox | None = None
        self._first_lists: dict[str, timedelta] = {}
        self._aged: set[str] = set()
        self._struck_at = NO_TIME
        self.struck = asyncio.Event()
        self.calls = self.pod_calls = 0
        self.events: dict[str, int] = {}

    def observe_world(self, sandbox: Sandbox) -> None:
        """Know the world, whose history shows how old a list must be to lack an event."""
        self._sandbox = sandbox

    def decide(self, occasion: Occasion) -> FaultOutcome:
        match occasion.kind:
            case OccasionKind.CALL:
                self.calls += 1
            case OccasionKind.POD_CALL:
                self.pod_calls += 1
            case OccasionKind.EVENT if occasion.verb != "BOOKMARK":
                self.events[occasion.plural] = self.events.get(occasion.plural, 0) + 1
            case OccasionKind.LIST:
                return FaultOutcome(age=self._choose_age(occasion.plural))
        return super().decide(occasion)

    def _choose_age(self, plural: str) -> timedelta:
        begun = self._first_lists.setdefault(plural, now())
        if not self.struck.is_set() or self._plan is None or plural in self._aged:
            return NO_TIME
        self._aged.add(plural)
        return self._age(self._plan, plural, begun)

    def _age(self, plan: Plan, plural: str, begun: timedelta) -> timedelta:
        if plan.trouble is Trouble.FREEZE and plural == plan.plural:
            return now() - self._struck_at + MOMENT
        match plan.cache_age:
            case CacheAge.ONE_OLDER:
                return now() - self._get_last(plural) + MOMENT
            case CacheAge.ALL_OLDER:
                return now() - begun
            case CacheAge.FRESH:
                return NO_TIME

    def _get_last(self, plural: str) -> timedelta:
        """Return when an object of a kind was last changed."""
        assert self._sandbox is not None, "read a world first"
        for record in reversed(self._sandbox.history.records):
            if isinstance(record, Commit) and record.resource.plural == plural:
                return record.at
        return now()

    def _take(self, fault: Fault) -> None:
        self._struck_at = fault.at
        self.struck.set()
        self._record(fault)


@dataclass
class PlannedCourse:
    """A `Course` with one fault, or with none, to be recorded."""

    _plan: Plan | None
    patches_take: timedelta = NO_TIME
    faults: PlannedFaults = field(init=False)

    def make_faults(self, record: Callable[[Fault], None]) -> PlannedFaults:
        self.faults = PlannedFaults(self._plan, record)
        return self.faults

    async def begin(self, sandbox: Sandbox) -> None:
        self.faults.observe_world(sandbox)

    async def strike(self, sandbox: Sandbox, patient: Patient) -> bool:
        """Wait for the fault, restart where that belongs to it, and call it healed soon after."""
        plan = self._plan
        if plan is None:
            return True
        with suppress(TimeoutError):
            async with asyncio.timeout(STRIKE_LIMIT.total_seconds()):
                await self.faults.struck.wait()
        if plan.trouble is Trouble.FREEZE:
            await asyncio.sleep(BLIND.total_seconds())
            patient().crash(BACK_AFTER)
        await asyncio.sleep((LATE if plan.trouble is Trouble.DELAY else SETTLE).total_seconds())
        self.faults.heal()
        return True


_TROUBLES: Final[Mapping[Trouble, FaultOutcome]] = {
    Trouble.SKIP: FaultOutcome(fails=Failure.DROP),
    Trouble.DELAY: FaultOutcome(before=LATE),
    Trouble.FREEZE: FaultOutcome(freeze=FROZEN),
    Trouble.SPOIL: FaultOutcome(fails=Failure.SPOIL),
}


def _planned(plan: Plan) -> Planned:
    outcome = FaultOutcome(crash=plan.crash) if plan.trouble is None else _TROUBLES[plan.trouble]
    return Planned(
        kind=plan.step.kind, actor=NAME, number=plan.number, outcome=outcome, of=plan.plural
    )


# On a cluster before Kubernetes 1.37, where the operator records revisions: there are more steps.
SEED: Final = 4


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """How many steps of each kind the run without faults took."""

    outcome: Outcome
    calls: int
    pod_calls: int
    events: dict[str, int]
    """By plural."""


def record(scenario: Scenario) -> Recording:
    """Run a scenario without faults and count its steps."""
    course = PlannedCourse(None)
    outcome = play(scenario, SEED, course, quiet=QUIET)
    faults = course.faults
    return Recording(
        outcome=outcome, calls=faults.calls, pod_calls=faults.pod_calls, events=faults.events
    )


def list_plans(recording: Recording, kind: Kind) -> list[Plan]:
    """Return all plans of a kind that a recorded run gives, in the order of its steps."""
    if kind is Kind.EVENT:
        return [
            Plan(step=Step.EVENT, number=number, plural=plural, trouble=trouble)
            for plural, count in recording.events.items()
            for number in range(1, count + 1)
            for trouble in Trouble
        ]
    return [
        Plan(step=step, number=number, crash=crash, cache_age=cache_age)
        for step, count in ((Step.CALL, recording.calls), (Step.POD_CALL, recording.pod_calls))
        for number in range(1, count + 1)
        for crash in CrashPoint
        for cache_age in CacheAge
    ]


def run_plan(scenario: Scenario, plan: Plan, *, listens: bool = False) -> Outcome:
    return play(scenario, SEED, PlannedCourse(plan), quiet=QUIET, listens=listens)
