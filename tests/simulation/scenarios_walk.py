"""A random walk of changes to a group, one in five of them wrong, and the clean-up at its end.

Every step is something that people really do: a template, a budget, a pause, counts down to zero,
ordinals, a strategy for a while, a zone moved to another group, a set deleted. The last step mends
whatever the steps before have left broken, so that the walk ends in a group that can be rolled out.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from rollout_operator.lab.zones import ZoneSpec
from rollout_operator.model.names import (
    GROUP_LABEL,
    MAX_UNAVAILABLE,
    MIN_TIME_BETWEEN_DOWNSCALES,
    PAUSED,
    PREPARE_PORT,
)
from tests.simulation.scenarios import Scenario, Size, find_unrolled
from tests.simulation.scenarios_people import LIVELY_ROUTES, People
from tests.simulation.scenarios_rollouts import GROUP, list_zones

LEAST_STEPS: Final = 8
MOST_STEPS: Final = 14
WRONG_SHARE: Final = 0.2
# Walks that end without one of their sets.
LOST_SHARE: Final = 0.5
LAST_IMAGE: Final = "last"
WRONG_LIMITS: Final = ("-1", "-50%", "two", "", "1e3", "101%%", " 2", "99999999999999999999")


def walked(size: Size) -> Scenario:
    """Return the walk; which steps it takes is drawn by the people's chance."""

    async def script(people: People) -> None:
        walk = _Walk(people, list_zones(size))
        for _ in range(people.rng.randint(LEAST_STEPS, MOST_STEPS)):
            await people.wait(0, 30)
            await walk.step()
        await people.wait(0, 30)
        await walk.mend()

    return Scenario(
        name="walk",
        size=size,
        zones=list_zones(size),
        script=script,
        find_missing=find_unrolled,
    )


@dataclass(slots=True)
class _Walk:
    people: People
    zones: list[ZoneSpec]
    _versions: int = 1

    async def step(self) -> None:
        """Take one step, right or wrong, in any zone that is there."""
        rng = self.people.rng
        zone = rng.choice(self.zones)
        if self.people.find(zone.name) is None:
            await self._try(lambda: self.people.create(zone))
            return
        steps = self._wrong if rng.random() < WRONG_SHARE else self._right
        await self._try(lambda: rng.choice(steps())(zone.name))

    async def mend(self) -> None:
        """Leave every set in its group, able to roll, at one last template.

        Sometimes all but one, which is deleted for good: nobody may wait for it.
        """
        lost = self.people.rng.choice(self.zones)
        if self.people.rng.random() < LOST_SHARE:
            self.zones.remove(lost)
            if self.people.find(lost.name) is not None:
                await self._try(partial(self.people.delete, lost.name))
        for zone in self.zones:
            if self.people.find(zone.name) is None:
                await self.people.insist(partial(self.people.create, zone))
            for repair in self._repairs(zone):
                await self.people.insist(repair)

    def _right(self) -> list[Callable[[str], Awaitable[None]]]:
        people, rng = self.people, self.people.rng
        limit = rng.choice((None, "1", "2", "50%", "0"))
        paused = rng.choice((None, "true", "false"))
        count = rng.choice((0, 1, 2, 3, 4, 5))
        return [
            self._renew,
            self._renew,
            self._renew,
            lambda name: people.annotate(name, MAX_UNAVAILABLE, limit),
            lambda name: people.annotate(name, PAUSED, paused),
            lambda name: people.scale(name, count, rng.choice(LIVELY_ROUTES)),
            lambda name: people.change_spec(name, {"ordinals": {"start": rng.randint(0, 3)}}),
            people.delete,
        ]

    def _wrong(self) -> list[Callable[[str], Awaitable[None]]]:
        people, rng = self.people, self.people.rng
        limit = rng.choice(WRONG_LIMITS)
        group = rng.choice((None, "elsewhere", ""))
        return [
            lambda name: people.annotate(name, MAX_UNAVAILABLE, limit),
            lambda name: people.annotate(name, PAUSED, "maybe"),
            lambda name: people.annotate(name, PREPARE_PORT, "80@example.com"),
            lambda name: people.label(name, MIN_TIME_BETWEEN_DOWNSCALES, "soon"),
            lambda name: people.change_spec(name, {"updateStrategy": {"type": "RollingUpdate"}}),
            lambda name: people.change_spec(name, {"replicas": -1}),
            lambda name: people.label(name, GROUP_LABEL, group),
        ]

    def _repairs(self, zone: ZoneSpec) -> list[Callable[[], Awaitable[None]]]:
        people, name = self.people, zone.name
        strategy = {"updateStrategy": {"type": "OnDelete", "rollingUpdate": None}}
        return [
            lambda: people.label(name, GROUP_LABEL, GROUP),
            lambda: people.annotate(name, MAX_UNAVAILABLE, None),
            lambda: people.annotate(name, PAUSED, None),
            lambda: people.change_spec(name, {**strategy, "replicas": zone.replicas}),
            lambda: people.set_image(name, LAST_IMAGE),
        ]

    async def _renew(self, name: str) -> None:
        """Change a template; most often people change all, one after the other."""
        self._versions += 1
        image = f"v{self._versions}"
        if self.people.rng.random() < 0.3:
            await self.people.set_image(name, image)
            return
        for zone in self.zones:
            if self.people.find(zone.name) is not None:
                await self._try(partial(self.people.set_image, zone.name, image))

    async def _try(self, act: Callable[[], Awaitable[None]]) -> None:
        await self.people.attempt(act)
