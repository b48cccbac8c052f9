"""Scenarios of rollouts on which nothing but pods and people's minds goes wrong."""

import asyncio
from typing import Final

from rollout_lab.network.faults import CrashPoint, Failure, FaultDecision
from rollout_lab.zones import ZoneSpec

from rollout_operator.model.names import PAUSED
from tests.simulation.traces import BAD, Director, GoldenScenario, Mishap


def zones(letters: str = "abc", pods: int = 3, limit: int | None = None) -> list[ZoneSpec]:
    """Return zones of one group, by the names that scenarios use."""
    return [
        ZoneSpec(name=f"zone-{letter}", replicas=pods, max_unavailable=limit) for letter in letters
    ]


async def roll(director: Director) -> None:
    """Let one new template be rolled out."""
    await director.roll("v2")
    await director.until_rolled()


async def _fix(director: Director) -> None:
    await director.roll(BAD)
    await asyncio.sleep(90)
    await director.roll("v3")
    await director.until_rolled()


async def _fix_two(director: Director) -> None:
    await director.roll(BAD)
    await asyncio.sleep(30)
    await director.people.end_pod("zone-c-1")
    await asyncio.sleep(60)
    await director.roll("v3")
    await director.until_rolled()


async def _roll_back(director: Director) -> None:
    await director.roll("v2")
    await director.until_image("zone-b-1", "v2")
    await director.roll("v1")
    await director.until_rolled()


async def _lose_pod(director: Director) -> None:
    await director.roll("v2")
    await director.until_image("zone-b-0", "v2")
    director.fail("zone-a-1")
    await asyncio.sleep(60)
    director.mend("zone-a-1")
    await director.until_rolled()


async def _pause(director: Director) -> None:
    await director.people.annotate("zone-b", PAUSED, "true")
    await director.roll("v2")
    await asyncio.sleep(120)
    await director.people.annotate("zone-b", PAUSED, None)
    await director.until_rolled()


TRACES: Final = (
    GoldenScenario(
        name="plain-rollout",
        title="A new version of three zones with three pods each",
        about="All templates change within a second. One zone moves at a time, and in it one pod: "
        "the next goes as soon as the last is ready again, and the next zone begins as soon as "
        "this one is whole.",
        zones=zones(),
        play=roll,
    ),
    GoldenScenario(
        name="two-pods-at-a-time",
        title="Two pods of a zone may be down at a time",
        about="Both zones have rollout-max-unavailable: 2. The third pod goes as soon as one of "
        "the first two is back, not when both are.",
        zones=zones("ab", pods=5, limit=2),
        play=roll,
    ),
    GoldenScenario(
        name="bad-revision-then-fix",
        title="A version that crashes, and its fix",
        about="The first pod of the bad version never gets ready, so no other pod is touched: that "
        "is all the damage there is. With the fix the broken pod goes first, which costs nothing.",
        zones=zones(),
        play=_fix,
    ),
    GoldenScenario(
        name="bad-revision-in-two-zones",
        title="A version that crashes comes to two zones, and is fixed",
        about="While zone-a-0 crashes, zone-c-1 is lost and comes back with the bad version as "
        "well. Two zones are short, so that no healthy pod may go; with the fix both broken pods "
        "do, because nothing is lost with them.",
        zones=zones(),
        play=_fix_two,
    ),
    GoldenScenario(
        name="rollback-in-the-middle",
        title="Back to the old version when one zone and a pod have the new one",
        about="The templates go back to v1 while zone-b-1 starts with v2. Only the pods that have "
        "v2 are replaced again; the others are at the wanted revision already.",
        zones=zones(),
        play=_roll_back,
    ),
    GoldenScenario(
        name="pod-dies-in-another-zone",
        title="A pod dies in another zone during the rollout",
        about="zone-a has the new version and zone-b is being rolled when zone-a-1 dies. No pod of "
        "zone-b goes as long as zone-a is not whole; nor does zone-a-1, which has the wanted "
        "revision: nothing would be better. A minute later it is back, and the rollout goes on.",
        zones=zones(),
        play=_lose_pod,
    ),
    GoldenScenario(
        name="paused-zone",
        title="A zone is paused for two minutes",
        about="zone-b has rollout-paused: true. It is passed over and the others are rolled; once "
        "the annotation is gone, zone-b follows.",
        zones=zones(),
        play=_pause,
    ),
)


POD: Final = "zone-a-1"


async def _crash(director: Director) -> None:
    await director.roll("v2")
    await director.until_dead()
    await asyncio.sleep(1)
    director.start()
    await director.until_rolled()


FAULT_TRACES: Final = (
    GoldenScenario(
        name="crash-after-delete",
        title="The operator dies right after a delete, and comes back",
        about=f"The API server has carried out the delete of {POD}; its answer is not read. The "
        "next process of the operator knows of nothing but the API server, finds the pod down, and "
        "takes no other before it is back.",
        zones=zones("ab"),
        play=_crash,
        mishap=Mishap(
            verb="delete",
            pod=POD,
            outcome=FaultDecision(crash=CrashPoint.AFTER_COMMIT),
            kind="crash",
            text=f"the process dies when the delete of {POD} has been carried out",
        ),
    ),
    GoldenScenario(
        name="lost-answer",
        title="The answer to a delete is lost",
        about=f"The delete of {POD} is carried out, and no answer comes. The operator waits "
        "until its patience is over, and takes no other pod meanwhile. Then it reads back what has "
        "become of this one, finds another in its place, and goes on.",
        zones=zones("ab"),
        play=roll,
        mishap=Mishap(
            verb="delete",
            pod=POD,
            outcome=FaultDecision(fails=Failure.TIMEOUT),
            kind="timeout",
            text=f"the delete of {POD} is carried out, and its answer lost",
        ),
    ),
)
