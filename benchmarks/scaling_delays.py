"""How soon a thousand pods have been asked for their delayed downscale, and what it costs others.

The operator runs as a process under the shipped Roles, with default flags, on a real control plane.
All pods of one zone are asked, each takes its time to answer; meanwhile another group is rolled
out. When pods were asked is what they saw; how soon the other group moves is in the audit log.
"""

import asyncio
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, Final

import msgspec
from rollout_lab.zones import ZoneSpec, statefulset

from benchmarks.figures import Figure, Result, median
from benchmarks.prepare import count_in_flight
from benchmarks.processes import read_time
from rollout_operator.model.names import (
    DOWNSCALE_DELAY,
    DOWNSCALE_DELAY_URL,
    MIRROR_API_VERSION,
    MIRROR_KIND,
    MIRROR_NAME,
)
from rollout_operator.pods import AT_MOST_PER_REVIEW
from tests.world.api import PODS, STATEFULSETS
from tests.world.assets import locate_assets
from tests.world.budgets import REPLICA_TEMPLATES, install_kinds
from tests.world.kubelet import Behaviour, always
from tests.world.operatorproc import OperatorProcess
from tests.world.plane import ControlPlane
from tests.world.sets import each_of, missing_ready, missing_rolled, set_image, wait_until
from tests.world.webpods import DELAYED_PATH, PodCall, Respond, WebPods
from tests.world.world import World

ASKED_S: Final = 3.0
DELAYED_MS: Final = 100.0
ANSWERS_AFTER: Final = timedelta(milliseconds=50)
STARTS: Final = Behaviour(
    ready_after=timedelta(milliseconds=50), terminates_after=timedelta(milliseconds=50)
)
BIG: Final = "store-zone-a"
OTHER: Final = "other-zone-a"
TEMPLATE: Final = "demo"
PAUSE_S: Final = 2.0
CREATED: Final = timedelta(minutes=5)
ROLLED: Final = timedelta(seconds=30)

Json = dict[str, Any]


class Wave(msgspec.Struct, frozen=True, kw_only=True):
    """All pods asked once, while another group was given a new template."""

    begun: float
    """Seconds from the new count until the first pod was asked."""
    requested: float
    """Until the last pod had answered."""
    calls: int
    in_flight: int
    cpu: float


@dataclass(slots=True, kw_only=True)
class _Setup:
    world: World
    pods: WebPods
    operator: OperatorProcess
    count: int
    image: int = 1

    async def scale(self, replicas: int) -> None:
        """Set the count that the big zone mirrors."""
        where = (REPLICA_TEMPLATES, self.world.namespace, TEMPLATE)
        await self.world.api.patch(*where, {"spec": {"replicas": replicas}})

    async def roll(self) -> None:
        """Give the other group a new template and wait until it has it."""
        self.image += 1
        api, namespace = self.world.api, self.world.namespace
        await set_image(api, namespace, [OTHER], f"v{self.image}")
        await wait_until(api, namespace, each_of([OTHER], missing_rolled), ROLLED)

    async def wait_called(self, method: str) -> Sequence[PodCall]:
        """Wait until every pod has answered one call, and return these calls."""

        def are_done() -> bool:
            # The cheap half first: it is asked with each step of each call.
            return len(self.pods.calls) >= self.count and len(done()) >= self.count

        def done() -> list[PodCall]:
            return [one for one in self.pods.calls if one.method == method and one.is_success]

        await self.pods.wait_until(f"{self.count} answers to {method}", are_done)
        return done()


async def measure(*, small: bool) -> Result:
    """Measure waves. Raises NoControlPlaneError."""
    count, rounds, pause = (20, 1, 0.0) if small else (1_000, 5, PAUSE_S)
    async with (
        ControlPlane(locate_assets()).running() as plane,
        World(plane, plane.folder, always(STARTS)) as world,
    ):
        setup = await _open(world, count)
        offset = plane.audit_size()
        quiet, busy = await _play(setup, rounds, pause)
        await world.judge.violations()  # the audit log is whole after that
        reactions = read_reactions(plane.read_audit(offset)[0], world.user)
    assert len(reactions) == quiet + len(busy), reactions
    setting = {
        "pods": count,
        "rounds": rounds,
        "pod_answers_after_ms": ANSWERS_AFTER / timedelta(milliseconds=1),
    }
    figures = [*_describe(busy, count), *describe_delay(reactions[:quiet], reactions[quiet:])]
    return Result(benchmark="scaling_delays", setting=setting, figures=figures)


async def _open(world: World, count: int) -> _Setup:
    pods = await world.serve_pods()
    pods.behave("", Respond(after=ANSWERS_AFTER))
    await install_kinds(world.api)
    await world.api.create(REPLICA_TEMPLATES, world.namespace, _template(count))
    big = ZoneSpec(
        name=BIG,
        group="store",
        replicas=count,
        node="world-node",
        annotations=_annotations(pods.port),
    )
    other = ZoneSpec(name=OTHER, group="other", replicas=1)
    for zone in (other, big):
        await world.api.create(STATEFULSETS, world.namespace, statefulset(zone, world.namespace))
    await world.wait_until(each_of([OTHER, BIG], missing_ready), CREATED)
    for component in ("scaling", "mirroring"):
        await world.grant(component)
    operator = await world.operator()
    setup = _Setup(world=world, pods=pods, operator=operator, count=count)
    await setup.wait_called("DELETE")  # that they stay is said to all at first
    return setup


async def _play(setup: _Setup, rounds: int, pause: float) -> tuple[int, list[Wave]]:
    """Roll the other group out without and with pods being asked; return how often without."""
    for _ in range(rounds):
        await setup.roll()
        await asyncio.sleep(pause)
    waves = []
    for _ in range(rounds):
        waves.append(await _request(setup))
        await setup.scale(setup.count)
        await setup.wait_called("DELETE")
        await asyncio.sleep(pause)
    return rounds, waves


async def _request(setup: _Setup) -> Wave:
    setup.pods.calls.clear()
    pid = setup.operator.child.pid
    before, begin = read_time(pid), asyncio.get_running_loop().time()
    await setup.scale(0)
    async with asyncio.TaskGroup() as tasks:
        requested = tasks.create_task(setup.wait_called("POST"))
        await setup.pods.wait_until("the first call", lambda: bool(setup.pods.calls))
        begun = asyncio.get_running_loop().time() - begin
        rolled = tasks.create_task(setup.roll())
        calls = await requested
        cpu = read_time(pid).cpu - before.cpu
        took = asyncio.get_running_loop().time() - begin
        await rolled
    setup.pods.calls.clear()
    return Wave(
        begun=begun, requested=took, calls=len(calls), in_flight=count_in_flight(calls), cpu=cpu
    )


def read_reactions(entries: Iterable[Json], operator: str) -> list[float]:
    """Return, for each new template of the other group, the seconds until its pod was deleted.

    From the API server's receiving the template to its receiving the delete. A template that no
    delete followed has none.
    """
    moments = sorted(
        (_time(entry["requestReceivedTimestamp"]), entry["verb"])
        for entry in entries
        if entry.get("responseStatus", {}).get("code", 0) < 300
        and (_is_template(entry, operator) or _is_delete(entry, operator))
    )
    return [
        later - at
        for (at, verb), (later, next_verb) in pairwise(moments)
        if (verb, next_verb) == ("patch", "delete")
    ]


def describe_delay(quiet: Sequence[float], busy: Sequence[float]) -> Sequence[Figure]:
    """Return the figures of the other group's rollouts."""
    return [
        Figure(
            name="rollout_quiet_median_ms",
            value=median(quiet) * 1000,
            means="from the API server's receiving a new template of another group to its receiving"
            " the delete of a pod, while nobody is asked",
        ),
        Figure(
            name="rollout_busy_median_ms",
            value=median(busy) * 1000,
            means="the same while all pods are being asked",
        ),
        Figure(
            name="rollout_delay_ms",
            value=max((median(busy) - median(quiet)) * 1000, 0.0),
            means="by how much the second is longer",
            at_most=DELAYED_MS,
        ),
    ]


def _describe(waves: Sequence[Wave], count: int) -> Sequence[Figure]:
    requested = [wave.requested for wave in waves]
    return [
        Figure(
            name="asked_median_s",
            value=median(requested),
            means="from a smaller count in the mirrored object until every pod has answered",
            at_most=ASKED_S,
        ),
        Figure(
            name="begun_median_s",
            value=median([wave.begun for wave in waves]),
            means="of that, until the first pod was asked",
        ),
        Figure(name="asked_max_s", value=max(requested), means="the longest of them"),
        Figure(
            name="floor_s",
            value=math.ceil(count / AT_MOST_PER_REVIEW) * ANSWERS_AFTER.total_seconds(),
            means="what the pods alone take, so many at a time as one zone may have",
        ),
        Figure(
            name="in_flight",
            value=max(wave.in_flight for wave in waves),
            means="the most calls at the pods at a time",
        ),
        Figure(
            name="calls_per_pod",
            value=max(wave.calls for wave in waves) / count,
            means="how often a pod was asked in a round, at most",
            at_most=1.0,
        ),
        Figure(
            name="cpu_ms_per_pod",
            value=median([wave.cpu for wave in waves]) * 1000 / count,
            means="processor time of the operator for each pod that was asked",
        ),
    ]


def _template(replicas: int) -> Json:
    return {
        "apiVersion": REPLICA_TEMPLATES.api_version,
        "kind": "ReplicaTemplate",
        "metadata": {"name": TEMPLATE},
        "spec": {"replicas": replicas},
    }


def _annotations(port: int) -> Mapping[str, str]:
    return {
        MIRROR_NAME: TEMPLATE,
        MIRROR_KIND: "ReplicaTemplate",
        MIRROR_API_VERSION: REPLICA_TEMPLATES.api_version,
        DOWNSCALE_DELAY: "1h",
        DOWNSCALE_DELAY_URL: f"http://pod:{port}{DELAYED_PATH}",
    }


def _is_template(entry: Json, operator: str) -> bool:
    target = entry.get("objectRef", {})
    what = (target.get("resource"), target.get("name"), target.get("subresource"), entry["verb"])
    is_patch = what == (STATEFULSETS.plural, OTHER, None, "patch")
    return is_patch and bool(entry["user"]["username"] != operator)


def _is_delete(entry: Json, operator: str) -> bool:
    what = (entry.get("objectRef", {}).get("resource"), entry["verb"], entry["user"]["username"])
    return what == (PODS.plural, "delete", operator)


def _time(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
