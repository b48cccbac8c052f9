"""Rollouts: plain, rolled back, with a budget, into a broken revision, with a set that goes."""

import asyncio
from collections.abc import Iterator, Sequence
from datetime import timedelta
from functools import partial
from typing import Final

from msgspec.structs import replace
from rollout_lab.nodes.behaviour import DEFAULT
from rollout_lab.zones import ZoneSpec

from tests.simulation.drainers import create_budget, zone_budget
from tests.simulation.scenarios import Scenario, Script, Size, crashing_at, name_unrolled
from tests.simulation.scenarios_people import People

GROUP: Final = "ingester"
BAD: Final = "bad"
# `minReadySeconds` of S2.
PATIENCE: Final = timedelta(seconds=5)


def plain(size: Size) -> Scenario:
    """S1: one new template, and each pod is replaced once."""
    return Scenario(
        name="s1",
        size=size,
        zones=list_zones(size),
        script=_rolling(size, "v2"),
        find_missing=name_unrolled,
    )


def rolled_back(size: Size) -> Scenario:
    """S2: the old template comes back in the middle; pods count once they have stayed ready."""
    zones = [replace(zone, min_ready=PATIENCE) for zone in list_zones(size)]

    async def script(people: People) -> None:
        await _rolling(size, "v2")(people)
        await people.wait(2, 60)
        await _rolling(size, "v1")(people)

    return Scenario(name="s2", size=size, zones=zones, script=script, find_missing=name_unrolled)


def two_at_a_time(size: Size) -> Scenario:
    """S3: two pods of a zone may be down at a time."""
    zones = [replace(zone, max_unavailable=2) for zone in list_zones(size)]
    return Scenario(
        name="s3",
        size=size,
        zones=zones,
        script=_rolling(size, "v2"),
        find_missing=name_unrolled,
    )


def crashing(size: Size) -> Scenario:
    """S4: a revision whose pods crash, pods that are lost to it, and at last its correction."""

    async def script(people: People) -> None:
        await _rolling(size, BAD)(people)
        for _ in range(people.rng.randint(0, 2)):
            await people.wait(5, 60)
            zone = people.rng.choice(list_zones(size)).name
            await people.attempt(
                partial(people.end_pod, f"{zone}-{people.rng.randrange(size.pods)}")
            )
        await people.wait(5, 180)
        await _rolling(size, "v3")(people)

    return Scenario(
        name="s4",
        size=size,
        zones=list_zones(size),
        script=script,
        find_missing=name_unrolled,
        make_choice=crashing_at(BAD),
    )


def recreated(size: Size) -> Scenario:
    """S10: a set is deleted in mid-rollout, and one of the same name created soon after."""
    zones = list_zones(size)

    async def script(people: People) -> None:
        await _rolling(size, "v2")(people)
        await people.wait(0, 60)
        lost = people.rng.choice(zones)
        await people.delete(lost.name)
        await people.wait(0, 40)
        # Its old pods may still be there: the controller makes each new one once the old is gone.
        image = people.rng.choice(("v1", "v2"))
        await people.create(replace(lost, image=image))
        await people.wait(0, 60)
        await people.insist(lambda: people.set_image(lost.name, "v2"))

    return Scenario(name="s10", size=size, zones=zones, script=script, find_missing=name_unrolled)


def list_zones(size: Size, group: str = GROUP) -> list[ZoneSpec]:
    """Return the zones a, b, ... of a group."""
    return [
        ZoneSpec(name=f"{group}-zone-{letter}", group=group, replicas=size.pods)
        for letter in _letters(size.zones)
    ]


def _letters(count: int) -> Iterator[str]:
    return (chr(ord("a") + number) for number in range(count))


def _rolling(size: Size, image: str) -> Script:
    """Return people that change the template of one set after the other, as kubectl does."""

    async def script(people: People) -> None:
        await people.wait(0, 10)
        for zone in list_zones(size):
            await people.set_image(zone.name, image)
            await people.wait(0, 0.3)

    return script


# Forty-three and more never moved, when the age of a read counted from before its turn.
GROUPS: Final = 50
GUARDED_GROUPS: Final = 8


def crowded(size: Size) -> Scenario:
    """S11: the templates of fifty groups change within a moment."""
    zones = [zone for name in _name_groups(GROUPS) for zone in list_zones(size, name)]
    return _change_all("s11", size, zones)


def crowded_under_budgets(size: Size) -> Scenario:
    """S13: eight groups, each under a budget of its own: every delete takes a patch more."""
    selectors = {name: {"rollout-group": name} for name in _name_groups(GUARDED_GROUPS)}
    zones = [
        replace(zone, pod_labels=selector)
        for name, selector in selectors.items()
        for zone in list_zones(size, name)
    ]

    async def prepare(people: People) -> None:
        for name, selector in selectors.items():
            await create_budget(people, zone_budget(name, selector, maxUnavailable=1))

    return replace(_change_all("s13", size, zones), prepare=prepare, has_budgets=True)


def _change_all(name: str, size: Size, zones: Sequence[ZoneSpec]) -> Scenario:
    async def script(people: People) -> None:
        await people.wait(0, 10)
        async with asyncio.TaskGroup() as tasks:
            for zone in zones:
                tasks.create_task(people.set_image(zone.name, "v2"))

    return Scenario(
        name=name,
        size=size,
        zones=zones,
        script=script,
        find_missing=name_unrolled,
        make_choice=lambda rng: DEFAULT,
    )


def _name_groups(count: int) -> list[str]:
    return [f"group-{number:02}" for number in range(count)]
