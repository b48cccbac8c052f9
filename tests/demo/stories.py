"""The stories: what a person does on the cluster, and what has to be seen before the next step."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

import msgspec
from rollout_lab.model.fields import number
from rollout_lab.trace.lines import LOUD, explain_pod, is_whole

from tests.demo.stage import ZONES, Stage
from tests.stories import Steps
from tests.system.zones import NO_DOWNSCALE
from tests.world.clients import Drain, Route, Workload, list_victims
from tests.world.kubelet import Behaviour, Kind
from tests.world.sets import PAUSED, Snapshot

LAST: Final = ZONES[-1]
DRAIN_LIMIT: Final = timedelta(minutes=5)
# Sooner than kubectl, which tries each 5 s.
TRY_AGAIN_AFTER: Final = timedelta(seconds=1)
CRASHES: Final = Behaviour(kind=Kind.CRASH_LOOP, ready_after=timedelta(milliseconds=300))


class ClusterStory(msgspec.Struct, frozen=True, kw_only=True):
    """One story: its title, and commands of `Teller`; some seconds are for reading."""

    title: str
    script: str
    images: Mapping[str, Behaviour] = {}
    """How pods of some images behave, where that is not the ordinary way."""


TALES: Final[Mapping[str, ClusterStory]] = {
    "rollout": ClusterStory(
        title="A new image for all zones: one zone after the other",
        script="image v2; done",
    ),
    "bad-revision": ClusterStory(
        title="A new image that crashes: the rollout stops, until a better one comes",
        script="image v2 ', which crashes'; broken; 2s; image v3 ', which works'; done",
        images={"v2": CRASHES},
    ),
    "pod-dies": ClusterStory(
        title="A pod of another zone dies: the rollout waits until it is back",
        script="image v2; moving zone-c; crash zone-a-0; 2s; well zone-a-0; done",
    ),
    "paused-zone": ClusterStory(
        title="A paused zone keeps its pods, and follows when it is released",
        script="pause zone-b; image v2; done zone-a zone-c; 2s; release zone-b; done",
    ),
    "forbidden-downscale": ClusterStory(
        title="A label forbids a downscale: the operator refuses it",
        script="fewer zone-c; 2s; unlabel zone-c; fewer zone-c; scaled zone-c; done zone-c",
    ),
    "drained-node": ClusterStory(
        title="Nodes are drained in mid-rollout: evictions wait for their turn",
        script="image v2; moving zone-b; drain zone-a; done",
    ),
}


class Teller(Steps):
    """Acts on the cluster, says so, and waits."""

    def __init__(self, stage: Stage) -> None:
        self.stage, self.world = stage, stage.world
        self.wanted = 0

    async def do_image(self, image: str, remark: str = "") -> None:
        text = f"new image for all zones: {image}{remark}"
        await self.stage.act(text, self.world.set_image(ZONES, image))

    async def do_crash(self, pod: str) -> None:
        await self.stage.act(f"{pod} crashes", self.world.kubelet.crash(pod))

    async def do_well(self, pod: str) -> None:
        await self.stage.act(f"{pod} is well again", self.world.kubelet.make_ready(pod))

    async def do_pause(self, zone: str) -> None:
        pausing = self.world.annotate(zone, **{PAUSED: "true"})
        await self.stage.act(f"pause {zone}, by an annotation", pausing)

    async def do_release(self, zone: str) -> None:
        await self.stage.act(f"release {zone}", self.world.annotate(zone, **{PAUSED: None}))

    async def do_unlabel(self, zone: str) -> None:
        text = f"take the label {NO_DOWNSCALE} off {zone}"
        await self.stage.act(text, self.world.label(zone, **{NO_DOWNSCALE: None}))

    async def do_fewer(self, zone: str) -> None:
        self.wanted = number(self.stage.seen.sets[zone], "spec", "replicas") - 1
        self.stage.say(f"scale {zone} to {self.wanted}")
        workload = Workload(api=self.world.api, namespace=self.world.namespace, name=zone)
        answer = await workload.scale(self.wanted, Route.SCALE_MERGE)
        if answer.message:
            self.stage.say(f"refused: {answer.message}", "API server")

    async def do_drain(self, zone: str) -> None:
        api, namespace = self.world.api, self.world.namespace
        drain = Drain(api, namespace, retry=TRY_AGAIN_AFTER)
        victims = await list_victims(api, namespace, [zone])
        self.stage.say(f"drain the nodes of {zone}, as kubectl does it")
        await drain.run(victims, DRAIN_LIMIT)
        for _, answer in drain.refusals()[:1]:
            text = f"{len(drain.refusals())} times refused, the first: {answer.message}"
            self.stage.say(text, "API server")

    async def do_scaled(self, zone: str) -> None:
        path = ("status", "replicas")
        await self.stage.until(lambda now: number(now.sets[zone], *path) == self.wanted)

    async def do_moving(self, zone: str) -> None:
        def holds(now: Snapshot) -> bool:
            sts = now.sets[zone]
            return number(sts, "status", "readyReplicas") < number(sts, "spec", "replicas")

        await self.stage.until(holds)

    async def do_broken(self) -> None:
        await self.stage.until(
            lambda now: any(explain_pod(pod) in LOUD for pod in now.pods.values())
        )

    async def do_done(self, *zones: str) -> None:
        """Wait until zones, or all, are rolled out: every pod, and the revision in the status."""
        wanted = zones or ZONES
        await self.stage.until(lambda now: all(is_whole(now.sets[zone]) for zone in wanted))
