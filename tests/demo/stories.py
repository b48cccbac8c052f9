"""The stories: what a person does on the cluster, and what has to be seen before the next step."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Final

import msgspec
from rollout_lab.model.fields import number
from rollout_lab.trace.lines import LOUD, explain_pod, is_whole

from tests.demo.stage import ZONES, Stage
from tests.world.api import STATEFULSETS
from tests.world.clients import Drain, list_victims
from tests.world.kubelet import Behaviour, Kind
from tests.world.sets import PAUSED, Snapshot

GOOD: Final = "v2"
BAD: Final = "v2"
MENDED: Final = "v3"
FIRST, MIDDLE, LAST = ZONES
NO_DOWNSCALE: Final = "grafana.com/no-downscale"
# For reading what the operator says, before the story goes on.
READ: Final = timedelta(seconds=2)
DRAIN_LIMIT: Final = timedelta(minutes=5)
# Sooner than kubectl, which tries each 5 s.
TRY_AGAIN_AFTER: Final = timedelta(seconds=1)


class ClusterStory(msgspec.Struct, frozen=True, kw_only=True):
    """One story."""

    title: str
    play: Callable[[Stage], Awaitable[None]]
    images: Mapping[str, Behaviour] = {}
    """How pods of some images behave, where that is not the ordinary way."""


async def _roll_out(stage: Stage) -> None:
    await stage.change_image(GOOD, f"new image for all zones: {GOOD}")
    await _until_done(stage)


async def _roll_out_bad(stage: Stage) -> None:
    await stage.change_image(BAD, f"new image for all zones: {BAD}, which crashes")
    await stage.until(_has_broken)
    await asyncio.sleep(READ.total_seconds())
    await stage.change_image(MENDED, f"new image for all zones: {MENDED}, which works")
    await _until_done(stage)


async def _lose_pod(stage: Stage) -> None:
    await stage.change_image(GOOD, f"new image for all zones: {GOOD}")
    await stage.until(lambda now: _is_moving(now, LAST))
    kubelet, pod = stage.world.kubelet, f"{FIRST}-0"
    await stage.act(f"{pod} crashes", kubelet.crash(pod))
    await asyncio.sleep(READ.total_seconds())
    await stage.act(f"{pod} is well again", kubelet.make_ready(pod))
    await _until_done(stage)


async def _pause_zone(stage: Stage) -> None:
    pause, release = ({PAUSED: value} for value in ("true", None))
    await stage.act(f"pause {MIDDLE}, by an annotation", stage.world.annotate(MIDDLE, **pause))
    await stage.change_image(GOOD, f"new image for all zones: {GOOD}")
    await stage.until(lambda now: is_done(now, FIRST) and is_done(now, LAST))
    await asyncio.sleep(READ.total_seconds())
    await stage.act(f"release {MIDDLE}", stage.world.annotate(MIDDLE, **release))
    await _until_done(stage)


async def _forbid_downscale(stage: Stage) -> None:
    label = {NO_DOWNSCALE: None}
    fewer = number(stage.seen.sets[LAST], "spec", "replicas") - 1
    await _scale(stage, LAST, fewer)
    await asyncio.sleep(READ.total_seconds())
    text = f"take the label {NO_DOWNSCALE} off {LAST}"
    await stage.act(text, stage.world.label(LAST, **label))
    await _scale(stage, LAST, fewer)
    path = ("status", "replicas")
    await stage.until(lambda now: number(now.sets[LAST], *path) == fewer and is_done(now, LAST))


async def _drain_node(stage: Stage) -> None:
    await stage.change_image(GOOD, f"new image for all zones: {GOOD}")
    await stage.until(lambda now: _is_moving(now, MIDDLE))
    api, namespace = stage.world.api, stage.world.namespace
    drain = Drain(api, namespace, retry=TRY_AGAIN_AFTER)
    victims = await list_victims(api, namespace, [FIRST])
    stage.say(f"drain the nodes of {FIRST}, as kubectl does it")
    await drain.run(victims, DRAIN_LIMIT)
    for _, answer in drain.refusals()[:1]:
        stage.say(
            f"{len(drain.refusals())} times refused, the first: {answer.message}", "API server"
        )
    await _until_done(stage)


async def _scale(stage: Stage, zone: str, replicas: int) -> None:
    stage.say(f"scale {zone} to {replicas}")
    answer = await stage.world.api.exchange(
        "PATCH",
        STATEFULSETS.path(stage.world.namespace, zone, "scale"),
        body={"spec": {"replicas": replicas}},
        content_type="application/merge-patch+json",
    )
    if answer.message:
        stage.say(f"refused: {answer.message}", "API server")


async def _until_done(stage: Stage) -> None:
    await stage.until(lambda now: all(is_done(now, zone) for zone in ZONES))


def is_done(now: Snapshot, zone: str) -> bool:
    """Return whether a zone is rolled out: every pod, and the revision in its status."""
    return is_whole(now.sets[zone])


def _is_moving(now: Snapshot, zone: str) -> bool:
    sts = now.sets[zone]
    return number(sts, "status", "readyReplicas") < number(sts, "spec", "replicas")


def _has_broken(now: Snapshot) -> bool:
    return any(explain_pod(pod) in LOUD for pod in now.pods.values())


CRASHES: Final = Behaviour(kind=Kind.CRASH_LOOP, ready_after=timedelta(milliseconds=300))
TALES: Final[Mapping[str, ClusterStory]] = {
    "rollout": ClusterStory(
        title="A new image for all zones: one zone after the other",
        play=_roll_out,
    ),
    "bad-revision": ClusterStory(
        title="A new image that crashes: the rollout stops, until a better one comes",
        play=_roll_out_bad,
        images={BAD: CRASHES},
    ),
    "pod-dies": ClusterStory(
        title="A pod of another zone dies: the rollout waits until it is back",
        play=_lose_pod,
    ),
    "paused-zone": ClusterStory(
        title="A paused zone keeps its pods, and follows when it is released",
        play=_pause_zone,
    ),
    "forbidden-downscale": ClusterStory(
        title="A label forbids a downscale: the operator refuses it",
        play=_forbid_downscale,
    ),
    "drained-node": ClusterStory(
        title="Nodes are drained in mid-rollout: evictions wait for their turn",
        play=_drain_node,
    ),
}
