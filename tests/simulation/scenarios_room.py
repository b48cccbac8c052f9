"""S12: a cluster without room for an upscale; later fewer replicas are wanted again (D-67).

The first zone is scaled by hand, the second follows it, every further one mirrors a ReplicaTemplate
and calls its pods before they go. No node ever has room for more pods than there were: the new ones
stay Pending. Half of the time the template changes meanwhile.
"""

import random
from collections.abc import Callable
from typing import Final

from msgspec.structs import replace
from rollout_lab.model.fields import child, name_of
from rollout_lab.nodes.behaviour import Behaviour, Choose, StartKind

from rollout_operator.kube.api import JsonObject
from rollout_operator.model.names import FORCE_REPLICAS, LEADING_ZONE
from tests.simulation.scenarios import Scenario, Size, list_zones, usual
from tests.simulation.scenarios_downscales import PREPARE, prepare_zone, scale_anyhow
from tests.simulation.scenarios_people import People
from tests.simulation.scenarios_scaling import MIRRORS, TEMPLATE, WAIT, name_unsettled

# So many more are wanted than there is room for.
TOO_MANY: Final = 2
# After so many refusals a person reads what the last one says, and does it.
PATIENCE: Final = 20
WAY_OUT: Final = f"take the label {PREPARE} off"


def unplaced(size: Size) -> Scenario:
    """S12: up, no room, and down again, in every zone."""
    first, second, *others = (prepare_zone(zone, wait=WAIT) for zone in list_zones(size))
    follower = replace(second, annotations={**second.annotations, LEADING_ZONE: first.name})
    mirrors = [
        replace(zone, labels={}, annotations={**zone.annotations, **MIRRORS}) for zone in others
    ]
    zones = [first, follower, *mirrors]
    names = [zone.name for zone in zones]

    async def script(people: People) -> None:
        await people.wait(20, 90)
        await people.insist(scale_anyhow, people, first.name, size.pods + TOO_MANY)
        await people.insist(people.scale_template, TEMPLATE, size.pods + TOO_MANY)
        if people.rng.random() < 1 / 2:
            await people.wait(0, 30)
            for name in names:
                await people.insist(people.set_image, name, "v2")
        await people.wait(10, 120)  # sometimes too short for them to count as never used
        await people.insist(people.scale_template, TEMPLATE, size.pods)
        await _scale_back(people, first.name, size.pods)
        await _help(people, names, size.pods)

    choose, templates = without_room(size.pods), {TEMPLATE: size.pods}
    scenario = Scenario("s12", size, zones, script, name_unsettled, choose, has_webhooks=True)
    return replace(scenario, templates=templates)


def without_room(pods: int) -> Callable[[random.Random], Choose]:
    """Return a choice where only so many pods of each zone find a node."""

    def make(rng: random.Random) -> Choose:
        choose, pending = usual(rng), Behaviour(kind=StartKind.PENDING)

        def choose_by_room(pod: JsonObject) -> Behaviour:
            ordinal = int(name_of(pod).rpartition("-")[2])
            return choose(pod) if ordinal < pods else pending

        return choose_by_room

    return make


async def _scale_back(people: People, name: str, replicas: int) -> None:
    """Try until it is accepted; where patience ends and the answer says how to help, help."""
    patience, is_unlabelled = PATIENCE, False
    while not await people.attempt(scale_anyhow, people, name, replicas):
        patience -= 1
        if patience <= 0 and WAY_OUT in people.tries[-1]:
            await people.insist(people.label, name, PREPARE, None)
            is_unlabelled = True
        await people.wait(10, 30)
    if is_unlabelled:
        await people.insist(people.label, name, PREPARE, "true")


async def _help(people: People, names: list[str], replicas: int) -> None:
    """Do what the operator's page says of the zones that it cannot scale back by itself.

    It cannot where it was down, or blind, when their pods came.
    """
    if await _wait_counted(people, names, replicas):
        return
    names = names[1:]
    for name in names:
        await people.insist(people.annotate, name, FORCE_REPLICAS, f"{replicas}")
    await people.insist(people.label, names[0], PREPARE, None)
    await _wait_counted(people, names, replicas)
    await people.insist(people.label, names[0], PREPARE, "true")
    for name in names:
        await people.insist(people.annotate, name, FORCE_REPLICAS, None)


async def _wait_counted(people: People, names: list[str], replicas: int) -> bool:
    for _ in range(PATIENCE):
        await people.wait(10, 30)
        specs = [child(people.find(name) or {}, "spec") for name in names]
        if all(spec.get("replicas") == replicas for spec in specs):
            return True
    return False
