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
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Final

from rollout_operator.kube.api import JsonObject
from rollout_operator.lab.model.fields import name_of
from rollout_operator.lab.nodes.behaviour import Behaviour, Choose
from rollout_operator.lab.zones import ZoneSpec
from rollout_operator.model.names import GROUP_LABEL
from tests.simulation.scenarios import Scenario, Size, find_unrolled, usual
from tests.simulation.scenarios_downscales import PREPARE, prepare_zone, scale_anyhow
from tests.simulation.scenarios_people import People
from tests.simulation.scenarios_rollouts import list_zones

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
            await people.insist(partial(people.set_image, one.name, "v2"))

    return Scenario(
        name="s14",
        size=size,
        zones=[zone, *others],
        script=script,
        find_missing=find_unrolled,
        make_choice=replaying(zone.name),
        spoils=SPOILS,
    )


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Absence:
    """A zone that goes, but for a few pods."""

    people: People
    zone: ZoneSpec
    left: int

    async def scale(self, replicas: int) -> None:
        """Scale it, as often as it takes."""
        await self.people.insist(partial(scale_anyhow, self.people, self.zone.name, replicas))

    async def come_back(self) -> None:
        """Want all of its pods again."""
        await self.scale(self.zone.replicas or 0)

    async def label(self, key: str, value: str | None) -> None:
        """Change a label of it, as often as it takes."""
        await self.people.insist(partial(self.people.label, self.zone.name, key, value))

    async def recreate(self, *, orphans: bool) -> None:
        """Delete the set, and create it with the pods that are left."""
        await self.people.delete(self.zone.name, orphans=orphans)
        await self.people.wait(0, 40)
        smaller = replace(self.zone, replicas=self.left)
        await self.people.insist(partial(self.people.create, smaller))

    async def move(self, first_ordinal: int, replicas: int) -> None:
        """Give it another first ordinal."""
        spec: JsonObject = {"ordinals": {"start": first_ordinal}, "replicas": replicas}
        await self.people.insist(partial(self.people.change_spec, self.zone.name, spec))


ComeBack = Callable[[], Awaitable[None]]


async def _scale_down(absence: Absence) -> ComeBack:
    await absence.scale(absence.left)
    return absence.come_back


async def _recreate_over_orphans(absence: Absence) -> ComeBack:
    await absence.recreate(orphans=True)
    return absence.come_back


async def _recreate_over_volumes(absence: Absence) -> ComeBack:
    await absence.recreate(orphans=False)
    return absence.come_back


async def _scale_down_without_the_label(absence: Absence) -> ComeBack:
    await absence.label(PREPARE, None)
    await absence.scale(absence.left)
    await absence.people.wait(0, 20)
    await absence.label(PREPARE, "true")
    return absence.come_back


async def _scale_down_out_of_the_group(absence: Absence) -> ComeBack:
    await absence.label(GROUP_LABEL, "elsewhere")
    await absence.scale(absence.left)
    await absence.people.wait(0, 20)
    await absence.label(GROUP_LABEL, absence.zone.group)
    return absence.come_back


async def _move_away(absence: Absence) -> ComeBack:
    replicas = absence.zone.replicas or 0
    await absence.move(replicas, absence.left)

    async def move_back() -> None:
        await absence.move(0, absence.left)
        await absence.people.wait(32, 60)
        await absence.come_back()

    return move_back


WAYS: Final = (
    _scale_down,
    _recreate_over_orphans,
    _recreate_over_volumes,
    _scale_down_without_the_label,
    _scale_down_out_of_the_group,
    _move_away,
)
