"""Rollouts: plain, rolled back, with a budget, into a broken revision, with a set that goes."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from msgspec.structs import replace
from rollout_lab.nodes.behaviour import DEFAULT
from rollout_lab.zones import ZoneSpec

from rollout_operator.kube.api import ROLLOUT_HEALTH_CHECKS
from rollout_operator.model.names import HEALTH_CHECK, ZONE_SOAK
from tests.gates.prometheus import NAME, WAYS, ScriptedPrometheus, render_check
from tests.simulation.scenarios import People, Scenario, Script, Size, crashing_at, list_zones
from tests.simulation.scenarios_drains import create_budget, zone_budget

BAD: Final = "bad"
# `minReadySeconds` of S2.
PATIENCE: Final = timedelta(seconds=5)
# Forty-three and more never moved, when the age of a read counted from before its turn.
GROUPS: Final = 50
GUARDED_GROUPS: Final = 8


def rolling(zones: Sequence[ZoneSpec], image: str) -> Script:
    """Return people that change the template of one set after the other, as kubectl does."""

    async def script(people: People) -> None:
        await people.wait(0, 10)
        for zone in zones:
            await people.insist(people.set_image, zone.name, image)
            await people.wait(0, 0.3)

    return script


def plain(size: Size) -> Scenario:
    """S1: one new template, and each pod is replaced once."""
    zones = list_zones(size)
    return Scenario("s1", size, zones, rolling(zones, "v2"))


def rolled_back(size: Size) -> Scenario:
    """S2: the old template comes back in the middle; pods count once they have stayed ready."""
    zones = [replace(zone, min_ready=PATIENCE) for zone in list_zones(size)]

    async def script(people: People) -> None:
        await rolling(zones, "v2")(people)
        await people.wait(2, 60)
        await rolling(zones, "v1")(people)

    return Scenario("s2", size, zones, script)


def soaked(size: Size) -> Scenario:
    """S16: zones wait for one another, some pods are lost meanwhile, and the wait is changed."""
    zones = list_zones(size)
    zones[0] = replace(zones[0], annotations={ZONE_SOAK: "20s"})

    async def script(people: People) -> None:
        await rolling(zones, "v2")(people)
        for _ in range(people.rng.randint(0, 3)):
            await people.wait(0, 40)
            zone, soak = people.rng.choice(zones).name, people.rng.choice((None, "5s", "30s"))
            pod = f"{zone}-{people.rng.randrange(size.pods)}"
            if people.rng.random() < 0.5:
                await people.attempt(people.end_pod, pod)
            else:
                await people.insist(people.annotate, zone, ZONE_SOAK, soak)
        if people.rng.random() < 0.3:
            await rolling(zones, "v1")(people)

    return Scenario("s16", size, zones, script)


def gated(size: Size) -> Scenario:
    """S17: a health check is between the zones."""
    zones = list_zones(size)
    return gate(Scenario("s17", size, zones, rolling(zones, "v2")))


def gate(scenario: Scenario, images: Sequence[str] = (), **spec: object) -> Scenario:
    """Have a health check whose Prometheus lies, fails, is slow or dead, and people lose pods."""
    prometheus = ScriptedPrometheus()
    zones = [replace(zone, annotations={HEALTH_CHECK: NAME}) for zone in scenario.zones]

    async def prepare(people: People) -> None:
        if scenario.prepare is not None:
            await scenario.prepare(people)
        prometheus.watch(people.sandbox)
        prometheus.ratios["v2"] = people.rng.choice((0.1, 0.2))
        await people.post(ROLLOUT_HEALTH_CHECKS, render_check(people.sandbox.namespace, **spec))

    async def script(people: People) -> None:
        rng = people.rng
        await scenario.script(people)
        for _ in range(rng.randint(0, 10 if images else 4)):
            await people.wait(0, 40)
            zone = rng.choice(zones)
            if rng.random() < (0.5 if images else 0.7):
                prometheus.how = rng.choice(WAYS)
            elif images and rng.random() < 0.5:
                await rolling(rng.choice(([zone], zones)), rng.choice((*images, BAD)))(people)
            else:
                pod = f"{zone.name}-{rng.randrange(scenario.size.pods)}"
                await people.attempt(people.end_pod, pod)
        if images or rng.random() < 0.3:
            await rolling(zones, rng.choice(images or ("v1",)))(people)
        await people.wait(0, 60)
        prometheus.how = "pass"

    bound = replace(scenario, zones=zones, script=script, prepare=prepare)
    return replace(bound, open_outbound=lambda limit: prometheus)


def two_at_a_time(size: Size) -> Scenario:
    """S3: two pods of a zone may be down at a time."""
    zones = [replace(zone, max_unavailable=2) for zone in list_zones(size)]
    return Scenario("s3", size, zones, rolling(zones, "v2"))


def crashing(size: Size) -> Scenario:
    """S4: a revision whose pods crash, pods that are lost to it, and at last its correction."""
    zones = list_zones(size)

    async def script(people: People) -> None:
        await rolling(zones, BAD)(people)
        for _ in range(people.rng.randint(0, 2)):
            await people.wait(5, 60)
            zone = people.rng.choice(zones).name
            await people.attempt(people.end_pod, f"{zone}-{people.rng.randrange(size.pods)}")
        await people.wait(5, 180)
        await rolling(zones, "v3")(people)

    return Scenario("s4", size, zones, script, make_choice=crashing_at(BAD))


def recreated(size: Size) -> Scenario:
    """S10: a set is deleted in mid-rollout, and one of the same name created soon after."""
    zones = list_zones(size)

    async def script(people: People) -> None:
        await rolling(zones, "v2")(people)
        await people.wait(0, 60)
        lost = people.rng.choice(zones)
        await people.delete(lost.name)
        await people.wait(0, 40)
        # Its old pods may still be there: the controller makes each new one once the old is gone.
        image = people.rng.choice(("v1", "v2"))
        await people.create(replace(lost, image=image))
        await people.wait(0, 60)
        await people.insist(people.set_image, lost.name, "v2")

    return Scenario("s10", size, zones, script)


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

    return Scenario(name, size, zones, script, make_choice=lambda rng: DEFAULT)


def _name_groups(count: int) -> list[str]:
    return [f"group-{number:02}" for number in range(count)]
