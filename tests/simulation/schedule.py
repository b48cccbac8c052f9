"""Run one scenario under the faults that one seed draws.

The same scenario, seed, profile and `only` give the same history to the last record. Half of the
schedules and more heal at some instant: they must come to rest and stay there for an hour. The
others end in the middle, and are judged for what must never happen.
"""

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Final

from msgspec.structs import replace
from rollout_lab.model.history import Fault
from rollout_lab.network.faults import Faults
from rollout_lab.world import Sandbox

from tests.simulation.chaos import LATER_NAME, Chaos, FaultyHooks, draw_blows, later_webhook
from tests.simulation.fault_rates import FaultProfile, choose_profile, name_profile
from tests.simulation.random_faults import RandomFaults
from tests.simulation.runs import Outcome, play
from tests.simulation.runtime import Patient, split
from tests.simulation.scenarios import Scenario

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
            async with (
                asyncio.timeout(self._active.total_seconds()),
                asyncio.TaskGroup() as tasks,
            ):
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
