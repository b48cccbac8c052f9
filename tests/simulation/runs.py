"""One run of a scenario on a simulated world: build it, let things go wrong, heal, wait for rest.

What goes wrong is a `Course`: by plan in `plans`, here by chance. The same scenario, seed, profile
and `only` give the same history to the last record. Half of such schedules and more heal at some
instant: they must come to rest and stay there for an hour. The others end in the middle, and are
judged for what must never happen. What is to be said of a history is the judge's part.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Protocol

import msgspec
from msgspec.structs import replace
from rollout_lab.model.history import Fault, History
from rollout_lab.network.faults import Faults
from rollout_lab.trace.trace import trace_hash
from rollout_lab.virtual_loop.loop import VirtualTimeLoop
from rollout_lab.world import Sandbox

from tests.judge.promises import QUIET, Promises, Verdict, Violation
from tests.judge.verdict import judge_book
from tests.simulation.chaos import LATER_NAME, Chaos, FaultyHooks, draw_blows, later_webhook
from tests.simulation.faults import FaultProfile, RandomFaults, choose_profile, name_profile
from tests.simulation.runtime import LogRecorder, Patient, Supervisor, find_acting, split
from tests.simulation.scenarios import People, Scenario, name_unready
from tests.virtual_time import elapsed as now

OPERATORS: Final = "operator"
# Those of grafana/rollout-operator: requests that wait for one another find more than the defaults.
LIMITS: Final = ("-kubernetes.client-qps=5", "-kubernetes.client-burst=10")
# By these; some more for what was on its way, and for a process begun anew.
REQUESTS_A_MINUTE: Final = 360
# Of the longest waits of clients and of zones for one another: what is not at rest then, never is.
REST_LIMIT: Final = timedelta(hours=2)
# After rest is reached, the operator writes its last words about it.
SETTLE: Final = timedelta(minutes=5)
POLL_EVERY: Final = timedelta(seconds=3)
# More often than clean-ups lie within one another.
CANCELS: Final = 10


class Course(Protocol):
    """What goes wrong in one run."""

    @property
    def patches_take(self) -> timedelta:
        """Return what each PATCH of a StatefulSet takes, where no fault holds it up."""
        ...

    def make_faults(self, record: Callable[[Fault], None]) -> Faults:
        """Return what decides about calls and events; called once, before the world begins.

        Each fault that strikes is to be recorded.
        """
        ...

    async def begin(self, sandbox: Sandbox) -> None:
        """Add what the world needs for it; called once all pods are ready."""
        ...

    async def strike(self, sandbox: Sandbox, patient: Patient) -> bool:
        """Let things go wrong, and return when that is over: whether all is healed then."""
        ...


class End(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ended, for the judge."""

    history: History
    ended_at: timedelta
    healed_at: timedelta | None = None
    quiet: timedelta = QUIET
    patches_take: timedelta = timedelta(0)
    missing: str = ""
    """What rest lacked when all patience was used up."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    scenario: Scenario
    seed: int
    history: History
    verdict: Verdict
    trace_hash: str
    faults: Counter[str]
    """How often each kind struck."""
    numbers: tuple[int, ...]
    """Of the faults that struck or might have, for `only`."""
    span: timedelta
    """Of virtual time."""
    steps: int
    is_healed: bool


def play(
    scenario: Scenario,
    seed: int,
    course: Course,
    *,
    quiet: timedelta = QUIET,
    listens: bool = False,
) -> Outcome:
    """Run a scenario on a world of its own, from its first zone to its end, and judge it.

    Where it `listens`, the history has the operator's log for readers, and hence another hash.
    """
    loops: list[VirtualTimeLoop] = []
    recorder = LogRecorder(listens=listens)

    def make_loop() -> VirtualTimeLoop:
        loops.append(VirtualTimeLoop(split(seed, "loop")))
        return loops[-1]

    with asyncio.Runner(loop_factory=make_loop) as runner:
        with recorder.listening():
            ends: list[End] = []
            runner.run(_Run(scenario, seed, course, recorder).play(quiet, ends.append))
            runner.run(_end_all())
        (end,) = ends
        span, steps = timedelta(seconds=loops[0].time()), loops[0].steps
    faults = end.history.list_all(Fault)
    return Outcome(
        scenario=scenario,
        seed=seed,
        history=end.history,
        verdict=judge(end, recorder.defects),
        trace_hash=trace_hash(end.history),
        faults=Counter(fault.kind for fault in faults),
        numbers=tuple(sorted({fault.number for fault in faults})),
        span=span,
        steps=steps,
        is_healed=end.healed_at is not None,
    )


async def _end_all() -> None:
    """Cancel what dead processes still wait for, as often as it takes.

    A task that is cancelled may clean up, by a request that a dead process is never answered.
    """
    for _ in range(CANCELS):
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.sleep(0.001)


def judge(end: End, defects: Sequence[Violation] = ()) -> Verdict:
    """Return what all invariants say, and what the operator itself calls a bug.

    A world that never came to rest is a violation of LI-01.
    """
    promises = Promises(
        healed_at=end.healed_at,
        ended_at=end.ended_at,
        requests_a_minute=REQUESTS_A_MINUTE,
        quiet=end.quiet,
        patches_take=end.patches_take,
    )
    verdict = judge_book(end.history, promises)
    late = []
    if end.missing:
        text = f"not at rest {REST_LIMIT} after all had healed: {end.missing}"
        late.append(Violation(invariant="LI-01", at=end.ended_at, text=text))
    return replace(verdict, violations=(*verdict.violations, *defects, *late))


@dataclass
class _Run:
    _scenario: Scenario
    _seed: int
    _course: Course
    _recorder: LogRecorder
    _worlds: list[Sandbox] = field(default_factory=list)

    async def play(self, quiet: timedelta, render: Callable[[End], None]) -> None:
        # Printed and not returned: the runner shows its task nowhere, with all of the history.
        scenario, seed = self._scenario, self._seed
        self._quiet = min(quiet, scenario.quiet)
        sandbox = Sandbox(
            seed=seed,
            choose=scenario.make_choice(split(seed, "pods")),
            faults=self._course.make_faults(self._record),
            completes_on_delete=split(seed, "kubernetes").random() < 0.5,
            open_outbound=scenario.open_outbound,
        )
        self._worlds.append(sandbox)
        self._recorder.history = sandbox.history
        people = People(sandbox=sandbox, rng=split(seed, "people"))
        async with sandbox:
            if scenario.prepare is not None:
                await scenario.prepare(people)
            for zone in scenario.zones:
                await people.create(zone)
            for name, replicas in scenario.templates.items():
                await people.create_template(name, replicas)
            await _wait_ready(sandbox)
            if scenario.has_webhooks:
                await people.register_webhooks(evictions=scenario.has_budgets)
            await self._course.begin(sandbox)
            supervisors = [
                Supervisor(
                    sandbox,
                    (*LIMITS, *scenario.args),
                    has_webhooks=scenario.has_webhooks,
                    elects=scenario.elects,
                    name=f"{OPERATORS}-{number}",
                    back_after=scenario.back_after,
                )
                for number in range(1, scenario.replicas + 1)
            ]
            render(await self._operate(people, supervisors))

    async def _operate(self, people: People, supervisors: Sequence[Supervisor]) -> End:
        """Let the operator live, people act, and things go wrong and right again.

        Blows strike one process, the one that acts where they elect one; calls and events go wrong
        for all of them.
        """
        sandbox, healed_at, missing = people.sandbox, None, ""
        async with asyncio.TaskGroup() as tasks:
            script = tasks.create_task(self._act(people), name="people")
            supervising = [
                tasks.create_task(one.run(), name=f"supervisor of {one.process.name}")
                for one in supervisors
            ]
            replicas = supervisors if self._scenario.elects else supervisors[:1]
            if await self._course.strike(sandbox, lambda: find_acting(replicas)):
                healed_at = now()
                for one in supervisors:
                    if one.process.is_running:
                        one.process.link.heal()
                        one.process.clock.rate = 1.0
                    one.hurry()
                missing = await self._wait_rest(sandbox, script)
            ended_at = now()
            for task in (script, *supervising):
                task.cancel()
        return End(
            history=sandbox.history,
            ended_at=ended_at,
            healed_at=healed_at,
            quiet=self._quiet,
            patches_take=self._course.patches_take,
            missing=missing,
        )

    async def _act(self, people: People) -> None:
        if self._scenario.watched_for:
            await asyncio.sleep(self._scenario.watched_for.total_seconds())
        await self._scenario.script(people)

    def _record(self, fault: Fault) -> None:
        self._worlds[0].history.add(fault)

    async def _wait_rest(self, sandbox: Sandbox, script: "asyncio.Task[None]") -> str:
        """Wait for rest and for the quiet after it; return what is missing where it never comes."""
        find_missing = self._scenario.find_missing
        try:
            async with asyncio.timeout(REST_LIMIT.total_seconds()):
                await asyncio.wait([script])
                while find_missing(sandbox):  # noqa: ASYNC110 (a state, no event)
                    await asyncio.sleep(POLL_EVERY.total_seconds())
        except TimeoutError:
            return find_missing(sandbox) or "people are not content yet"
        await asyncio.sleep((SETTLE + self._quiet).total_seconds())
        return ""


async def _wait_ready(sandbox: Sandbox) -> None:
    """Wait until all pods of the beginning are ready: before that, nothing goes wrong."""
    async with asyncio.timeout(REST_LIMIT.total_seconds()):
        while name_unready(sandbox):  # noqa: ASYNC110 (a state, no event)
            await asyncio.sleep(1)


HEALING_SHARE: Final = 0.6
# The part of a schedule in which things go wrong: a rollout of nine pods takes about three minutes.
LEAST_ACTIVE: Final = timedelta(seconds=20)
MOST_ACTIVE: Final = timedelta(minutes=8)
# As often as an API server sends one on a watch: `defaultBookmarkFrequency` of its watch cache.
BOOKMARK_PERIOD: Final = timedelta(minutes=1)


def run(
    scenario: Scenario,
    seed: int,
    *,
    profile: FaultProfile | None = None,
    only: frozenset[int] | None = None,
    listens: bool = False,
) -> Outcome:
    """Run a scenario under the faults of a seed; with `only`, just the faults of these numbers.

    Without a profile, it is the seed's own: mostly the usual one.
    """
    if profile is None:
        profile = choose_profile(name_profile(seed, has_webhooks=scenario.has_webhooks))
        if scenario.spoils is not None:
            profile = replace(profile, calls=replace(profile.calls, spoil_event=scenario.spoils))
    course = RandomCourse(scenario, seed, profile, only)
    outcome = play(scenario, seed, course, listens=listens)
    # Blows that find nothing to strike take their turns too: a run without them is another.
    return replace(outcome, numbers=tuple(sorted({*outcome.numbers, *course.numbers})))


def is_healing(seed: int) -> bool:
    """Return whether the schedules of a seed heal: no more is known before they run."""
    return _draw_course(seed)[2]


class RandomCourse:
    """What one seed makes of a fault profile: a `Course`."""

    def __init__(
        self, scenario: Scenario, seed: int, profile: FaultProfile, only: frozenset[int] | None
    ) -> None:
        self._scenario = scenario
        self._seed = seed
        self._profile = profile
        self._only = only
        self._hooks: FaultyHooks | None = None
        spans = scenario.patches_take or (0, 0)
        self.patches_take = timedelta(seconds=split(seed, "patches").uniform(*spans))
        rng, self._active, self._is_healing = _draw_course(seed)
        drawn = draw_blows(profile.blows, rng, self._active)
        self._blows = [blow for blow in drawn if self._may_strike(blow.number)]

    @property
    def numbers(self) -> list[int]:
        return [blow.number for blow in self._blows]

    def make_faults(self, record: Callable[[Fault], None]) -> Faults:
        self._faults = RandomFaults(
            split(self._seed, "faults"), self._profile.calls, record, only=self._only
        )
        self._faults.is_held = bool(self._scenario.watched_for)
        self._faults.patches_take = self.patches_take
        return self._faults

    async def begin(self, sandbox: Sandbox) -> None:
        """Stand between the API server and its webhooks, and add another webhook."""
        if not self._scenario.has_webhooks:
            return
        assert sandbox.api.hooks is not None, "the sandbox calls no webhooks"
        self._hooks = FaultyHooks(
            sandbox.api.hooks,
            sandbox.history,
            self._profile.hooks,
            split(self._seed, "hooks"),
            self._may_strike,
        )
        sandbox.api.hooks = self._hooks
        await sandbox.call(later_webhook(sandbox.namespace))
        if self._scenario.has_budgets:
            name = f"{LATER_NAME}-evictions"
            await sandbox.call(later_webhook(sandbox.namespace, name=name, evictions=True))

    async def strike(self, sandbox: Sandbox, patient: Patient) -> bool:
        """Strike for the active time, then heal everything if this is a schedule that heals."""
        if self._faults.is_held:
            await asyncio.sleep(self._scenario.watched_for.total_seconds())
            self._faults.is_held = False
        chaos = Chaos(sandbox, patient, self._blows)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._active.total_seconds()), asyncio.TaskGroup() as tasks:
                tasks.create_task(_send_bookmarks(sandbox))
                await chaos.run()
        if self._is_healing:
            self._faults.heal()
            chaos.heal()
            if self._hooks is not None:
                self._hooks.heal()
        return self._is_healing

    def _may_strike(self, number: int) -> bool:
        return self._only is None or number in self._only


def _draw_course(seed: int) -> tuple[random.Random, timedelta, bool]:
    """Return how long things go wrong and whether they heal, and what draws the rest."""
    rng = split(seed, "course")
    active = LEAST_ACTIVE + (MOST_ACTIVE - LEAST_ACTIVE) * rng.random()
    return rng, active, rng.random() < HEALING_SHARE


async def _send_bookmarks(sandbox: Sandbox) -> None:
    while True:
        await asyncio.sleep(BOOKMARK_PERIOD.total_seconds())
        sandbox.api.send_bookmarks()
