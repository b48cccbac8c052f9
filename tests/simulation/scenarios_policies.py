"""Policies over zones: the sample of the page, whole groups, and people who change their minds.

The StatefulSets of a policy have the label of no group, but for those of `grouped`.
"""

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Final

from msgspec.structs import replace
from rollout_lab.zones import ZoneSpec

from rollout_operator.kube.api import MULTI_AZ_ROLLOUTS, JsonObject
from rollout_operator.model.names import PAUSED
from tests.simulation.scenarios import People, Scenario, Script, Size, crashing_at, list_zones, make
from tests.simulation.scenarios_rollouts import BAD, gate, rolling

OBEYING: Final = ("-multi-az-rollouts.enabled",)
SAMPLE: Final = "sample"
YOUNGER: Final = "younger"
LABELS: Final = {"app": "db"}
KEY: Final = "topology.kubernetes.io/zone"
REGION: Final = "us-west-2"
MOST_EDITS: Final = 8
INTERVAL: Final = timedelta(seconds=5)


def sampled(size: Size, limit: int = 1) -> Scenario:
    """P1: the sample of the page with a pause of 5 s, and one new template."""
    zones = _list_sample(size)
    return _obey("p1", size, zones, rolling(zones, "v2"), limit)


def soaked(size: Size) -> Scenario:
    """P4: zones wait for one another longer than batches do, and pods are lost meanwhile."""
    zones = _list_sample(size)

    async def script(people: People) -> None:
        await rolling(zones, "v2")(people)
        for _ in range(people.rng.randint(0, 3)):
            await people.wait(0, 40)
            pod = f"{people.rng.choice(zones).name}-{people.rng.randrange(size.pods)}"
            await people.attempt(people.end_pod, pod)
            seconds = people.rng.choice((0, 10, 30))
            update: JsonObject = {"zoneIntervalSeconds": seconds}
            await people.attempt(change_policy, people, SAMPLE, {"rollingUpdate": update})

    async def prepare(people: People) -> None:
        await create_policy(people, SAMPLE)
        await change_policy(people, SAMPLE, {"rollingUpdate": {"zoneIntervalSeconds": 20}})

    return replace(_obey("p4", size, zones, script), prepare=prepare)


def grouped(size: Size) -> Scenario:
    """P2: a policy over a whole group, beside a group that only its label drives."""
    ours = [replace(zone, labels=LABELS) for zone in list_zones(size)]
    zones = [*ours, *list_zones(Size(2, size.pods), "store")]
    return _obey("p2", size, zones, rolling(zones, "v2"))


def changed(size: Size) -> Scenario:
    """P3: in mid-rollout the policy is changed, paused, doubled, deleted and created again."""
    zones = _list_sample(size)

    async def script(people: People) -> None:
        await rolling(zones, "v2")(people)
        for _ in range(people.rng.randint(2, MOST_EDITS)):
            await people.wait(0, 40)
            await people.attempt(people.rng.choice(_list_edits(people, zones)))
        await people.wait(0, 30)
        # One policy is left, which nothing pauses.
        await people.attempt(delete_policy, people, YOUNGER)
        await people.attempt(create_policy, people, SAMPLE)
        await people.insist(change_policy, people, SAMPLE, {"paused": False})
        for zone in zones:
            await people.insist(people.annotate, zone.name, PAUSED, None)
        await rolling(zones, "v3")(people)

    return replace(_obey("p3", size, zones, script), make_choice=crashing_at(BAD))


def gated(size: Size) -> Scenario:
    """P5: a health check is between the zones of the sample, whose templates change often."""
    scenario = replace(sampled(size), name="p5", make_choice=crashing_at(BAD))
    return gate(scenario, ("v1", "v2", "v3"), selector={"matchLabels": LABELS})


def _obey(
    name: str, size: Size, zones: Sequence[ZoneSpec], script: Script, limit: int = 1
) -> Scenario:
    async def prepare(people: People) -> None:
        await create_policy(people, SAMPLE, limit)

    return Scenario(name, size, zones, script, prepare=prepare, args=OBEYING)


def _list_sample(size: Size) -> list[ZoneSpec]:
    return [
        replace(
            zone,
            name=f"db-{zone.name[-1]}",
            group=None,
            labels={**LABELS, KEY: f"{REGION}{zone.name[-1]}"},
        )
        for zone in list_zones(size)
    ]


def _list_edits(people: People, zones: Sequence[ZoneSpec]) -> list[Callable[[], Awaitable[None]]]:
    rng = people.rng
    zone = rng.choice(zones).name
    update: JsonObject = {
        "intervalSeconds": rng.choice((0, 1, 5, 20)),
        "maxUnavailable": rng.choice((1, 2, "50%")),
        "podOrder": rng.choice(("Ascending", "Descending")),
    }
    order: list[JsonObject | str] = [f"{REGION}{letter}" for letter in rng.sample("abc", 3)]
    return [
        partial(change_policy, people, SAMPLE, {"rollingUpdate": update}),
        partial(change_policy, people, SAMPLE, {"azOrder": order}),
        partial(change_policy, people, SAMPLE, {"paused": rng.random() < 0.5}),
        partial(create_policy, people, YOUNGER),
        partial(delete_policy, people, rng.choice((SAMPLE, YOUNGER))),
        partial(create_policy, people, SAMPLE),
        partial(people.annotate, zone, PAUSED, rng.choice((None, "true"))),
        partial(people.set_image, zone, rng.choice(("v1", "v2", BAD))),
        partial(people.change_spec, zone, {"replicas": rng.choice((1, 2, 3, 4))}),
    ]


async def create_policy(people: People, name: str, limit: int = 1) -> None:
    """Create a policy over all that has the labels, with a short pause."""
    people.say(f"creates the policy {name}")
    update = {"maxUnavailable": limit, "intervalSeconds": int(INTERVAL.total_seconds())}
    spec: JsonObject = {"statefulSetSelector": {"matchLabels": LABELS}, "rollingUpdate": update}
    namespace = people.sandbox.namespace
    await people.post(MULTI_AZ_ROLLOUTS, make(MULTI_AZ_ROLLOUTS, name, spec, namespace=namespace))


async def change_policy(people: People, name: str, spec: JsonObject) -> None:
    people.say(f"changes the policy {name}: {spec}")
    await people.patch(MULTI_AZ_ROLLOUTS, name, {"spec": spec})


async def delete_policy(people: People, name: str) -> None:
    people.say(f"deletes the policy {name}")
    await people.remove(MULTI_AZ_ROLLOUTS, name)
