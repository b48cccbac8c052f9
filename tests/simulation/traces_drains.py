"""Scenarios of evictions: nodes are drained, and a budget says which pod may go."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from rollout_lab.network.faults import CrashPoint, FaultDecision
from rollout_lab.zones import ZoneSpec

from rollout_operator.kube.api import JsonObject
from tests.simulation.drainers import Drainer, guard, unguard, zone_budget
from tests.simulation.scenarios_drains import ZONE_LABEL, node_name, set_up
from tests.simulation.scenarios_people import People
from tests.simulation.traces import Director, GoldenScenario, Mishap

LABELS: Final = {"app": "store"}
BY_ZONE: Final[JsonObject] = {"maxUnavailable": 1}
BY_PARTITION: Final[JsonObject] = {
    **BY_ZONE,
    "podNamePartitionRegex": "zone-[a-z]-([0-9]+)",
    "crossZoneEvictionDelay": "10s",
}
LATER: Final = 20.0  # seconds
POD: Final = "zone-a-0"


def zones(letters: str, pods: int) -> list[ZoneSpec]:
    """Return zones under the budget, each with two nodes."""
    return [
        ZoneSpec(
            name=f"zone-{letter}",
            replicas=pods,
            labels=LABELS,
            pod_labels=LABELS,
            node_selector={ZONE_LABEL: letter},
        )
        for letter in letters
    ]


def guarded(letters: str, pods: int, spec: JsonObject) -> Callable[[People], Awaitable[None]]:
    """Return people that set up the nodes and the budget of these zones."""
    return partial(set_up, zones=zones(letters, pods), budget=zone_budget("store", LABELS, **spec))


def drainer(director: Director, letter: str) -> Drainer:
    """Return who drains the nodes of a zone."""
    return Drainer(people=director.people.split(f"drain-{letter}"))


async def _drain_in_rollout(director: Director) -> None:
    await director.roll("v2")
    await director.until_image("zone-b-0", "v2")
    await drainer(director, "a").drain(node_name("zone-a", 0))
    await director.until_rolled()


async def _drain_both(director: Director) -> None:
    await asyncio.sleep(LATER)  # all have been ready for long enough
    async with asyncio.TaskGroup() as tasks:
        for letter in "ab":
            node = node_name(f"zone-{letter}", 0)
            tasks.create_task(drainer(director, letter).drain(node))
    await director.until_whole()


async def _refuse_later(director: Director) -> None:
    drain = drainer(director, "a")
    await guard(drain.people, "native", LABELS)
    await drain.people.attempt(lambda: drain.evict(POD))
    await unguard(drain.people, "native")
    await drain.people.attempt(lambda: drain.evict("zone-b-0"))
    await director.until_unmarked(POD)
    await drain.evict("zone-b-0")
    await director.until_whole()


async def _crash(director: Director) -> None:
    drain = drainer(director, "a")
    await drain.people.attempt(lambda: drain.evict(POD))
    await director.until_dead()
    await asyncio.sleep(1)
    director.start()
    await director.process.wait_ready()
    await drain.people.attempt(lambda: drain.evict("zone-b-0"))
    await director.until_unmarked(POD)
    await drain.evict("zone-b-0")
    await director.until_whole()


TRACES: Final = (
    GoldenScenario(
        name="drain-in-a-rollout",
        title="A node is drained while a rollout runs",
        about="The budget counts by zone: pods of one zone at a time, and one of them. zone-b is "
        "being rolled out when a node of zone-a is drained: an eviction that was refused has the "
        "next place, the rollout the one after that.",
        zones=zones("ab", 3),
        play=_drain_in_rollout,
        has_webhooks=True,
        prepare=guarded("ab", 3, BY_ZONE),
    ),
    GoldenScenario(
        name="drain-by-partition",
        title="Two zones are drained, and pods of one partition go one after the other",
        about="The budget counts by partition, the number of the pod: zone-a-0 and zone-b-0 hold "
        "the same data. A pod may go once its peer has been ready for 10 seconds; pods of other "
        "partitions go at the same time.",
        zones=zones("ab", 4),
        play=_drain_both,
        has_webhooks=True,
        prepare=guarded("ab", 4, BY_PARTITION),
    ),
    GoldenScenario(
        name="native-budget-refuses",
        title="The operator lets a pod go, and a native budget does not",
        about="The operator agrees to an eviction, which a PodDisruptionBudget refuses after "
        "that. The pod stays; what was written on it is released within ten seconds, and "
        "another zone may lose a pod.",
        zones=zones("ab", 2),
        play=_refuse_later,
        has_webhooks=True,
        prepare=guarded("ab", 2, BY_ZONE),
    ),
    GoldenScenario(
        name="crash-after-grant",
        title="The operator dies between its decision and its answer",
        about=f"What the operator has decided stands on {POD}, and its answer is not read. The "
        "next process finds it there and lets no pod of another zone go, until it has seen that "
        "the eviction did not happen.",
        zones=zones("ab", 2),
        play=_crash,
        mishap=Mishap(
            verb="patch",
            pod=POD,
            outcome=FaultDecision(crash=CrashPoint.AFTER_COMMIT),
            kind="crash",
            text=f"the process dies when it has been written on {POD} that it may go",
        ),
        has_webhooks=True,
        prepare=guarded("ab", 2, BY_ZONE),
    ),
)
