"""Stories of rollouts on which nothing but pods and people's minds goes wrong."""

import asyncio
from typing import Final

from rollout_operator.lab.zones import ZoneSpec
from rollout_operator.model.names import PAUSED
from tests.simulation.stories import BAD, Story, Teller


def zones(letters: str = "abc", pods: int = 3, limit: int | None = None) -> list[ZoneSpec]:
    """Return zones of one group, by the names that stories use."""
    return [
        ZoneSpec(name=f"zone-{letter}", replicas=pods, max_unavailable=limit) for letter in letters
    ]


async def roll(teller: Teller) -> None:
    """Let one new template be rolled out."""
    await teller.roll("v2")
    await teller.until_rolled()


async def _fix(teller: Teller) -> None:
    await teller.roll(BAD)
    await asyncio.sleep(90)
    await teller.roll("v3")
    await teller.until_rolled()


async def _roll_back(teller: Teller) -> None:
    await teller.roll("v2")
    await teller.until_image("zone-b-1", "v2")
    await teller.roll("v1")
    await teller.until_rolled()


async def _lose_pod(teller: Teller) -> None:
    await teller.roll("v2")
    await teller.until_image("zone-b-0", "v2")
    teller.fail("zone-a-1")
    await asyncio.sleep(60)
    teller.mend("zone-a-1")
    await teller.until_rolled()


async def _pause(teller: Teller) -> None:
    await teller.people.annotate("zone-b", PAUSED, "true")
    await teller.roll("v2")
    await asyncio.sleep(120)
    await teller.people.annotate("zone-b", PAUSED, None)
    await teller.until_rolled()


STORIES: Final = (
    Story(
        name="plain-rollout",
        title="A new version of three zones with three pods each",
        about="All templates change within a second. One zone moves at a time, and in it one pod: "
        "the next goes as soon as the last is ready again, and the next zone begins as soon as "
        "this one is whole.",
        zones=zones(),
        play=roll,
    ),
    Story(
        name="two-pods-at-a-time",
        title="Two pods of a zone may be down at a time",
        about="Both zones have rollout-max-unavailable: 2. The third pod goes as soon as one of "
        "the first two is back, not when both are.",
        zones=zones("ab", pods=5, limit=2),
        play=roll,
    ),
    Story(
        name="bad-revision-then-fix",
        title="A version that crashes, and its fix",
        about="The first pod of the bad version never gets ready, so no other pod is touched: that "
        "is all the damage there is. With the fix the broken pod goes first, which costs nothing.",
        zones=zones(),
        play=_fix,
    ),
    Story(
        name="rollback-in-the-middle",
        title="Back to the old version when one zone and a pod have the new one",
        about="The templates go back to v1 while zone-b-1 starts with v2. Only the pods that have "
        "v2 are replaced again; the others are at the wanted revision already.",
        zones=zones(),
        play=_roll_back,
    ),
    Story(
        name="pod-dies-in-another-zone",
        title="A pod dies in another zone during the rollout",
        about="zone-a has the new version and zone-b is being rolled when zone-a-1 dies. No pod of "
        "zone-b goes as long as zone-a is not whole; nor does zone-a-1, which has the wanted "
        "revision: nothing would be better. A minute later it is back, and the rollout goes on.",
        zones=zones(),
        play=_lose_pod,
    ),
    Story(
        name="paused-zone",
        title="A zone is paused for two minutes",
        about="zone-b has rollout-paused: true. It is passed over and the others are rolled; once "
        "the annotation is gone, zone-b follows.",
        zones=zones(),
        play=_pause,
    ),
)
