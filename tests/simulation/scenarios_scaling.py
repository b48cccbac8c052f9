"""S5, S6 and S12: counts that move through the zones by themselves.

S5: a chain of zones follows a leading one, whose count an autoscaler and people change. S6: zones
mirror a ReplicaTemplate; their pods have a say before they go, and sometimes say nonsense. Of S5
there is one in which something else writes counts as well, one in which a person rewrites and
removes the times of downscales, and one of several groups before a slow API server.

S12: a cluster without room for an upscale; later fewer replicas are wanted again (D-67). The first
zone is scaled by hand, the second follows it, every further one mirrors a ReplicaTemplate and calls
its pods before they go. No node ever has room for more pods than there were: the new ones stay
Pending. Half of the time the template changes meanwhile.
"""

import asyncio
import random
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Final

from msgspec.structs import replace
from rollout_lab.model.fields import child, name_of, number
from rollout_lab.nodes.behaviour import (
    BROKEN,
    HANGS,
    REFUSES,
    Behaviour,
    Choose,
    Response,
    StartKind,
)
from rollout_lab.schemas.kinds import REPLICA_TEMPLATES
from rollout_lab.world import Sandbox
from rollout_lab.zones import ZoneSpec

from rollout_operator.kube.api import STATEFULSETS, JsonObject
from rollout_operator.model.names import (
    DOWNSCALE_DELAY,
    DOWNSCALE_DELAY_URL,
    FORCE_REPLICAS,
    LEADING_ZONE,
    MIN_TIME_BETWEEN_DOWNSCALES,
    MIRROR_API_VERSION,
    MIRROR_KIND,
    MIRROR_NAME,
    UPSCALE_WHEN_READY,
)
from rollout_operator.model.units import format_rfc3339
from tests.judge.objects import TEMPLATE_KIND, list_miscounted
from tests.simulation.scenarios import (
    LIVELY_ROUTES,
    Missing,
    People,
    Route,
    Scenario,
    Size,
    list_zones,
    name_unrolled,
    usual,
)
from tests.simulation.scenarios_downscales import PREPARE, prepare_zone, scale_anyhow

# Between downscales of two zones: so little that an autoscaler meets it now and then.
WAIT: Final = "40s"
DELAY: Final = "30s"
APART: Final = {MIN_TIME_BETWEEN_DOWNSCALES: WAIT}
# The zone of S5 that no webhook guards.
UNGUARDED: Final = 2
URL: Final = "http://localhost:8080/ingester/prepare-delayed"
# Of the autoscaler between two reads, and of troubles.
PERIODS: Final = (0, 90)  # seconds
# Of the other writer: how long it goes on, and how soon it sees what others write.
CONTESTS: Final = (60, 900)  # seconds
REACTS: Final = (0.05, 0.4)  # seconds
# Of a person who edits times: how often, at most how many times, and how often all zones at once.
EDITS: Final = (5, 90)  # seconds
MOST_EDITS: Final = 100
CLEAR_ALL: Final = 0.5
# In the end she gives zones time to go.
LAST_EDITS: Final = (300, 600)  # seconds
# Of those that are scaled down at once, and the seconds that each of their PATCHes takes.
GROUPS: Final = ("ingester", "querier", "store")
SLOW_PATCHES: Final = (2, 7)
LONG_APART: Final = {MIN_TIME_BETWEEN_DOWNSCALES: "30m"}
LONG_AGO: Final = "2020-01-01T00:00:00Z"
LATER: Final = "later"
AHEAD: Final = (timedelta(minutes=-25), timedelta(0), timedelta(minutes=2))
# Most of the time no person rolls out anything.
ROLLS: Final = 1 / 3
HPA_ROUTES: Final = (Route.SCALE_PUT_FRESH, Route.SCALE_PUT_FRESH, Route.SCALE_MERGE)
# What a pod may say instead of the truth. It does nothing then, so that a believer is
# found out; one whose clock is ahead is prepared all the same.
TIMES: Final = b'true 0 -1 1767323045000 1767330000 "1767323045"'.split()
NONSENSE: Final = (b"", b"no JSON", b"{}", *(b'{"timestamp": %b}' % time for time in TIMES))
TROUBLES: Final = (
    BROKEN,
    HANGS,
    REFUSES,
    Response(status=307),
    *(Response(body=body, acts=False) for body in NONSENSE),
)


def followed(size: Size) -> Scenario:
    """S5: every zone follows the one before it; an autoscaler scales the first.

    The pods of all but the third are prepared before they go: of that one only its times forbid it.
    """
    zones = [
        prepare_zone(zone, wait=WAIT) if place != UNGUARDED else annotated(zone, APART)
        for place, zone in enumerate(list_zones(size))
    ]
    for place, zone in enumerate(zones[:-1]):
        zones[place + 1] = annotated(zones[place + 1], {LEADING_ZONE: zone.name})
    names = [zone.name for zone in zones]

    async def script(people: People) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_autoscale(people.split("hpa"), names[0], size.pods))
            tasks.create_task(_meddle(people.split("bob"), names[1:], size.pods))
            tasks.create_task(_roll(people.split("dave"), names))

    return Scenario("s5", size, zones, script, name_unsettled, has_webhooks=True)


def mirrored(size: Size) -> Scenario:
    """S6: the first zone mirrors and the second follows it; every further one mirrors as well."""
    first, second, *others = list_zones(size)
    follower = annotated(prepare_zone(second, wait=WAIT), {LEADING_ZONE: first.name})
    mirrors = [annotated(zone, MIRRORS) for zone in (first, *others)]
    zones = [annotated(mirrors[0], APART), follower, *mirrors[1:]]
    names = [zone.name for zone in zones]
    delayed = [f"{zone.name}-{ordinal}" for zone in mirrors for ordinal in range(size.pods + 1)]

    async def script(people: People) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_autoscale_template(people.split("hpa"), size.pods))
            tasks.create_task(_confuse(people.split("pods"), delayed))
            tasks.create_task(_meddle(people.split("bob"), names, size.pods))
            tasks.create_task(_roll(people.split("dave"), names))

    scenario = Scenario("s6", size, zones, script, name_unsettled, has_webhooks=True)
    return replace(scenario, templates={TEMPLATE: size.pods})


def contested(size: Size) -> Scenario:
    """S5 with another writer, that puts the counts of a zone back at once for a while."""
    scenario = followed(size)
    names = [zone.name for zone in scenario.zones[1:]]

    async def script(people: People) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(scenario.script(people))
            tasks.create_task(_put_back(people.split("gitops"), names, size.pods))

    return replace(scenario, name="s5-contested", script=script)


def edited(size: Size, *, is_tracked: bool = False) -> Scenario:
    """S5 with half an hour between zones, and a person who lets them go sooner, or later.

    Nothing else meddles: in the end the counts wait for nothing but that person.
    """
    scenario = followed(size)
    zones = [annotated(zone, LONG_APART) for zone in scenario.zones]
    names = [zone.name for zone in zones]

    async def script(people: People) -> None:
        async with asyncio.TaskGroup() as tasks:
            scaling = tasks.create_task(_breathe(people.split("hpa"), names[0], size.pods))
            tasks.create_task(_edit(people.split("carol"), names, scaling, is_tracked=is_tracked))

    return replace(scenario, name="s5-edited", zones=zones, script=script)


def slowed(size: Size) -> Scenario:
    """S5 in several groups at once that no webhook guards, where each PATCH takes seconds.

    Some take longer than a live read counts.
    """
    groups = [list_zones(size, group) for group in GROUPS]
    zones = [
        annotated(zone, {LEADING_ZONE: before.name}) if before else zone
        for group in groups
        for before, zone in zip((None, *group), group, strict=False)
    ]
    leaders = [group[0].name for group in groups]

    async def script(people: People) -> None:
        for replicas in (size.pods - 1, size.pods + 1, 1):
            await people.wait(*PERIODS)
            for name in leaders:
                await people.insist(people.scale, name, replicas, Route.SCALE_MERGE)

    return Scenario("s5-slow", size, zones, script, name_unsettled, patches_take=SLOW_PATCHES)


TEMPLATE: Final = "ingesters"
MIRRORS: Final = {
    MIRROR_NAME: TEMPLATE,
    MIRROR_KIND: TEMPLATE_KIND,
    MIRROR_API_VERSION: f"{REPLICA_TEMPLATES.group}/{REPLICA_TEMPLATES.version}",
    DOWNSCALE_DELAY: DELAY,
    DOWNSCALE_DELAY_URL: URL,
}


def name_unsettled(sandbox: Sandbox) -> Missing:
    """Return which count is not as it should be, or what a set lacks to be rolled out and whole."""
    api, namespace = sandbox.api, sandbox.namespace
    sets, templates = (api.list(one, namespace) for one in (STATEFULSETS, REPLICA_TEMPLATES))
    return next(list_miscounted(sets, templates), "") or name_unrolled(sandbox)


def annotated(zone: ZoneSpec, annotations: dict[str, str]) -> ZoneSpec:
    return replace(zone, annotations={**zone.annotations, **annotations})


async def _autoscale(people: People, name: str, pods: int) -> None:
    """Want another count now and then, and try again where it is refused."""
    for _ in range(people.rng.choice((2, 3, 4))):
        await people.wait(*PERIODS)
        replicas, route = people.rng.randint(1, pods + 1), people.rng.choice(HPA_ROUTES)
        await people.attempt(people.scale, name, replicas, route)
    await people.wait(*PERIODS)
    last = people.rng.randint(1, pods + 1)
    await people.insist(lambda: people.scale(name, last, people.rng.choice(HPA_ROUTES)))


async def _breathe(people: People, name: str, pods: int) -> None:
    """Want more and fewer in turn, until that is accepted, and fewest in the end."""
    for replicas in (pods + 1, people.rng.randint(1, pods), pods + 1, 1):
        await people.wait(*PERIODS)
        route = people.rng.choice(HPA_ROUTES)
        await people.insist(people.scale, name, replicas, route)


async def _autoscale_template(people: People, pods: int) -> None:
    for _ in range(people.rng.choice((2, 3, 4))):
        await people.wait(*PERIODS)
        replicas = people.rng.randint(1, pods + 1)
        await people.insist(people.scale_template, TEMPLATE, replicas)


async def _meddle(people: People, names: list[str], pods: int) -> None:
    """Change by hand what the operator looks after, and annotations that have a say in it."""
    rng = people.rng
    for _ in range(2):
        await people.wait(*PERIODS)
        name, replicas = rng.choice(names), rng.randint(1, pods + 1)
        annotate = partial(people.annotate, name)
        match rng.randrange(4):
            case 0:
                route = rng.choice(LIVELY_ROUTES)
                await people.attempt(people.scale, name, replicas, route)
            case 1:
                await people.insist(annotate, UPSCALE_WHEN_READY, rng.choice(SWITCHES))
            case 2:
                await people.insist(annotate, FORCE_REPLICAS, f"{replicas}")
                await people.wait(*PERIODS)
                await people.insist(annotate, FORCE_REPLICAS, None)
            case _:
                pass


SWITCHES: Final = ("true", "true", "false", "maybe")


async def _edit(
    people: People, names: list[str], scaling: "asyncio.Task[None]", *, is_tracked: bool
) -> None:
    """Rewrite times of downscales for as long as counts are not right."""
    rng = people.rng
    for _ in range(MOST_EDITS):
        await people.wait(*EDITS)
        sets = people.sandbox.api.list(STATEFULSETS, people.sandbox.namespace)
        is_last = scaling.done()
        if is_last and not next(list_miscounted(sets, ()), ""):
            return
        for name in names if is_last or rng.random() < CLEAR_ALL else (rng.choice(names),):
            time = rng.choice((None, LONG_AGO, None if is_last else LATER))
            if time == LATER:
                time = format_rfc3339(people.sandbox.api.now() + rng.choice(AHEAD))
            write = partial(people.rewrite_record, name, time, is_tracked=is_tracked)
            await people.attempt(write)
        if is_last:
            await people.wait(*LAST_EDITS)


async def _put_back(people: People, names: list[str], pods: int) -> None:
    """Write one count of one zone again, whenever it is another."""
    rng = people.rng
    await people.wait(*PERIODS)
    name, replicas = rng.choice(names), rng.randint(1, pods + 1)
    people.say(f"keeps {name} at {replicas} from now on")
    until = asyncio.get_running_loop().time() + rng.uniform(*CONTESTS)
    while asyncio.get_running_loop().time() < until:
        found = people.find(name)
        if found is not None and number(found, "spec", "replicas") != replicas:
            await people.attempt(people.scale, name, replicas, Route.MERGE)
        await people.wait(*REACTS)
    people.say(f"leaves {name} alone")


async def _roll(people: People, names: list[str]) -> None:
    if people.rng.random() < ROLLS:
        await people.wait(*PERIODS)
        for name in names:
            await people.insist(people.set_image, name, "v2")


async def _confuse(people: People, pods: list[str]) -> None:
    """Let pods answer badly for a while, one after the other."""
    answer: Callable[[str, str, Response | None], None] = people.sandbox.cluster.endpoints.answer
    for _ in range(people.rng.choice((1, 2, 3))):
        await people.wait(0, 40)
        pod, method = people.rng.choice(pods), people.rng.choice(("POST", "DELETE"))
        # That a pod does not hear that it stays must show in the history, or nothing can be late.
        trouble = people.rng.choice(TROUBLES) if method == "POST" else BROKEN
        people.say(f"{pod} answers each {method} badly: {trouble.reply.name} {trouble.status}")
        answer(pod, method, trouble)
        await people.wait(1, 120)
        answer(pod, method, None)
        people.say(f"{pod} answers well again")


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
