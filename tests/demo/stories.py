"""The stories: what a person does on the cluster, and what has to be seen before the next step."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Final

import msgspec
from rollout_lab.demo.snapshot import PodCell, ZoneRow

from tests.demo.stage import OLD_IMAGE, ZONES, Stage
from tests.world.api import STATEFULSETS
from tests.world.clients import Drain, list_victims
from tests.world.kubelet import Behaviour, Kind
from tests.world.sets import PAUSED

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
MOVING: Final = (PodCell.ENDING, PodCell.GONE, PodCell.STARTING)


class ClusterStory(msgspec.Struct, frozen=True, kw_only=True):
    """One story."""

    title: str
    play: Callable[[Stage], Awaitable[None]]
    goal: str = GOOD
    """The version by which progress is counted at first."""
    images: Mapping[str, Behaviour] = {}
    """How pods of some images behave, where that is not the ordinary way."""


async def _roll_out(stage: Stage) -> None:
    await stage.change_image(GOOD, f"new image for all zones: {GOOD}")
    await _until_done(stage)


async def _roll_out_bad(stage: Stage) -> None:
    await stage.change_image(BAD, f"new image for all zones: {BAD}, which crashes")
    await stage.until(lambda rows: _count(rows, PodCell.BROKEN) > 0)
    await asyncio.sleep(READ.total_seconds())
    await stage.change_image(MENDED, f"new image for all zones: {MENDED}, which works")
    await _until_done(stage)


async def _lose_pod(stage: Stage) -> None:
    await stage.change_image(GOOD, f"new image for all zones: {GOOD}")
    await stage.until(lambda rows: any(cell.state in MOVING for cell in rows[-1].cells))
    kubelet, pod = stage.world.kubelet, f"{FIRST}-0"
    await stage.act(f"{pod} crashes", kubelet.crash(pod))
    await asyncio.sleep(READ.total_seconds())
    await stage.act(f"{pod} is well again", kubelet.make_ready(pod))
    await _until_done(stage)


async def _pause_zone(stage: Stage) -> None:
    pause, release = ({PAUSED: value} for value in ("true", None))
    await stage.act(f"pause {MIDDLE}, by an annotation", stage.world.annotate(MIDDLE, **pause))
    await stage.change_image(GOOD, f"new image for all zones: {GOOD}")
    await stage.until(lambda rows: all(is_done(row) for row in rows if not row.is_paused))
    await asyncio.sleep(READ.total_seconds())
    await stage.act(f"release {MIDDLE}", stage.world.annotate(MIDDLE, **release))
    await _until_done(stage)


async def _forbid_downscale(stage: Stage) -> None:
    label = {NO_DOWNSCALE: None}
    fewer = len(stage.rows[-1].cells) - 1
    await _scale(stage, LAST, fewer)
    await asyncio.sleep(READ.total_seconds())
    text = f"take the label {NO_DOWNSCALE} off {LAST}"
    await stage.act(text, stage.world.label(LAST, **label))
    await _scale(stage, LAST, fewer)
    await stage.until(lambda rows: len(rows[-1].cells) == fewer == rows[-1].existing)


async def _drain_node(stage: Stage) -> None:
    await stage.change_image(GOOD, f"new image for all zones: {GOOD}")
    await stage.until(lambda rows: any(cell.state in MOVING for cell in rows[1].cells))
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
    await stage.until(lambda rows: all(is_done(row) for row in rows))


def is_done(row: ZoneRow) -> bool:
    """Return whether a zone is rolled out: every pod, and the revision in its status."""
    return row.current == row.update and all(cell.state is PodCell.NEW for cell in row.cells)


def _count(rows: Sequence[ZoneRow], state: PodCell) -> int:
    return sum(cell.state is state for row in rows for cell in row.cells)


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
        goal=OLD_IMAGE,
    ),
    "drained-node": ClusterStory(
        title="Nodes are drained in mid-rollout: evictions wait for their turn",
        play=_drain_node,
    ),
}
