"""Zones under a budget, and who drains their nodes, for golden scenarios and tests of evictions."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from rollout_lab.zones import ZoneSpec

from rollout_operator.kube.api import JsonObject
from tests.simulation.drainers import Drainer, zone_budget
from tests.simulation.scenarios_drains import ZONE_LABEL, set_up
from tests.simulation.scenarios_people import People

if TYPE_CHECKING:
    from tests.simulation.traces import Director

LABELS: Final = {"app": "store"}
BY_ZONE: Final[JsonObject] = {"maxUnavailable": 1}
BY_PARTITION: Final[JsonObject] = {
    **BY_ZONE,
    "podNamePartitionRegex": "zone-[a-z]-([0-9]+)",
    "crossZoneEvictionDelay": "10s",
}


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


def drainer(director: "Director", letter: str) -> Drainer:
    return Drainer(people=director.people.split(f"drain-{letter}"))
