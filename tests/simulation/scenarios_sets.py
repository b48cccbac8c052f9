"""S14: a zone has fewer pods for a minute or two, and comes back with its data (SI-02, D-67).

People scale it down, delete and create it, with its pods or without them, take labels off for the
downscale and put them back, or move its first ordinal. When it wants all of its pods again, these
take minutes to read what they had, and the other zones are to be rolled out meanwhile: they wait.
Events that cannot be decoded are not rare. No webhook is registered: here none can review what the
garbage collector orphans.
"""

import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import msgspec
from msgspec.structs import replace
from rollout_lab.model.fields import name_of
from rollout_lab.nodes.behaviour import Behaviour, Choose
from rollout_lab.zones import ZoneSpec

from rollout_operator.kube.api import JsonObject
from rollout_operator.model.names import (
    GROUP_LABEL,
    MAX_UNAVAILABLE,
    MIN_TIME_BETWEEN_DOWNSCALES,
    PAUSED,
    PREPARE_PORT,
)
from tests.simulation.scenarios import (
    GROUP,
    LIVELY_ROUTES,
    People,
    Propagation,
    Scenario,
    Size,
    list_zones,
    usual,
)
from tests.simulation.scenarios_downscales import PREPARE, prepare_zone, scale_anyhow

# More than an hour: all that was there before is long ago.
WATCHED: Final = timedelta(minutes=65)
# So many pods stay, at most.
MOST_LEFT: Final = 1
# Pods that read their volumes again.
REPLAYS: Final = (120, 360)  # seconds
SPOILS: Final = 0.03


def returned(size: Size) -> Scenario:
    """S14: the first zone goes, mostly, and returns; then there is a new template for all."""
    first, *others = list_zones(size)
    zone = prepare_zone(first)

    async def script(people: People) -> None:
        await people.wait(5, 30)
        absence = Absence(people=people, zone=zone, left=people.rng.randint(0, MOST_LEFT))
        come_back = await people.rng.choice(WAYS)(absence)
        await people.wait(32, 150)  # longer than ordinals take to count as new
        await come_back()
        await people.wait(1, 20)
        for one in (*others, zone):
            await people.insist(people.set_image, one.name, "v2")

    choose = replaying(zone.name)
    return Scenario("s14", size, [zone, *others], script, make_choice=choose, spoils=SPOILS)


def replaying(zone: str) -> Callable[[random.Random], Choose]:
    """Return a choice where all but the first pods of each name of a zone have data to read."""

    def make(rng: random.Random) -> Choose:
        choose, made = usual(rng), Counter[str]()

        def choose_by_past(pod: JsonObject) -> Behaviour:
            name = name_of(pod)
            made[name] += 1
            behaviour = choose(pod)
            if made[name] == 1 or not name.startswith(zone):
                return behaviour
            return replace(behaviour, ready_after=timedelta(seconds=rng.uniform(*REPLAYS)))

        return choose_by_past

    return make


ComeBack = Callable[[], Awaitable[None]]


class Absence(msgspec.Struct, frozen=True, kw_only=True):
    """A zone that goes, but for a few pods; each way to go returns the way back."""

    people: People
    zone: ZoneSpec
    left: int

    async def come_back(self) -> None:
        """Want all of its pods again."""
        await self._scale(self.zone.replicas or 0)

    async def scale_down(self) -> ComeBack:
        await self._scale(self.left)
        return self.come_back

    async def recreate(self, propagation: Propagation) -> ComeBack:
        """Delete the set, and create it with the pods that are left."""
        await self.people.delete(self.zone.name, propagation)
        await self.people.wait(0, 40)
        await self.people.insist(self.people.create, replace(self.zone, replicas=self.left))
        return self.come_back

    async def scale_down_without(
        self, key: str, meanwhile: str | None, usual: str | None
    ) -> ComeBack:
        """Scale it down while a label has another value, or is not there."""
        await self.people.insist(self.people.label, self.zone.name, key, meanwhile)
        await self._scale(self.left)
        await self.people.wait(0, 20)
        await self.people.insist(self.people.label, self.zone.name, key, usual)
        return self.come_back

    async def move_away(self) -> ComeBack:
        """Give it another first ordinal."""
        await self._move(self.zone.replicas or 0)

        async def move_back() -> None:
            await self._move(0)
            await self.people.wait(32, 60)
            await self.come_back()

        return move_back

    async def _scale(self, replicas: int) -> None:
        await self.people.insist(scale_anyhow, self.people, self.zone.name, replicas)

    async def _move(self, first_ordinal: int) -> None:
        spec: JsonObject = {"ordinals": {"start": first_ordinal}, "replicas": self.left}
        await self.people.insist(self.people.change_spec, self.zone.name, spec)


WAYS: Final[tuple[Callable[[Absence], Awaitable[ComeBack]], ...]] = (
    Absence.scale_down,
    lambda absence: absence.recreate("Orphan"),
    lambda absence: absence.recreate("Background"),
    lambda absence: absence.scale_down_without(PREPARE, None, "true"),
    lambda absence: absence.scale_down_without(GROUP_LABEL, "elsewhere", absence.zone.group),
    Absence.move_away,
)


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

    return Scenario("walk", size, list_zones(size), script)


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
            await self.people.attempt(self.people.create, zone)
            return
        steps = self._wrong if rng.random() < WRONG_SHARE else self._right
        await self.people.attempt(lambda: rng.choice(steps())(zone.name))

    async def mend(self) -> None:
        """Leave every set in its group, able to roll, at one last template.

        Sometimes all but one, which is deleted for good: nothing may wait for it.
        """
        lost = self.people.rng.choice(self.zones)
        if self.people.rng.random() < LOST_SHARE:
            self.zones.remove(lost)
            if self.people.find(lost.name) is not None:
                await self.people.attempt(self.people.delete, lost.name)
        for zone in self.zones:
            if self.people.find(zone.name) is None:
                await self.people.insist(self.people.create, zone)
            for repair in self._repairs(zone):
                await self.people.insist(repair)

    def _right(self) -> list[Callable[[str], Awaitable[None]]]:
        people, rng = self.people, self.people.rng
        limit = rng.choice((None, "1", "2", "50%", "0"))
        paused = rng.choice((None, "true", "false"))
        count = rng.choice((0, 1, 2, 3, 4, 5))
        return [
            *3 * [self._renew],
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
                await self.people.attempt(self.people.set_image, zone.name, image)
