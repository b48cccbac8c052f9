"""Scenarios of fewer pods: who may refuse, how pods are called, and which zone waits for which."""

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Final, cast

import msgspec
from msgspec.structs import replace
from rollout_lab.admission.webhooks import HookCall, HookCaller
from rollout_lab.nodes.behaviour import Response
from rollout_lab.schemas.kinds import REPLICA_TEMPLATES
from rollout_lab.zones import ZoneSpec

from rollout_operator.kube.api import JsonObject
from rollout_operator.model.names import (
    DOWNSCALE_DELAY,
    DOWNSCALE_DELAY_URL,
    LEADING_ZONE,
    MIN_TIME_BETWEEN_DOWNSCALES,
    MIRROR_API_VERSION,
    MIRROR_KIND,
    MIRROR_NAME,
    NO_DOWNSCALE,
    PREPARE_DOWNSCALE,
    PREPARE_PATH,
    PREPARE_PORT,
)
from tests.simulation.chaos import later_webhook
from tests.simulation.scenarios_people import Route
from tests.simulation.traces import Director, GoldenScenario

PREPARED: Final = {PREPARE_DOWNSCALE: "true"}
WAITING: Final = {**PREPARED, MIN_TIME_BETWEEN_DOWNSCALES: "5m"}
QUOTA_PATH: Final = "/quota"


def zone(letter: str, labels: Mapping[str, str]) -> ZoneSpec:
    """Return a zone with these labels, whose pods are called at the usual path."""
    annotations = {PREPARE_PATH: "ingester/prepare-shutdown", PREPARE_PORT: "80"}
    return ZoneSpec(name=f"zone-{letter}", labels=labels, annotations=annotations)


async def _forbid(director: Director) -> None:
    people = director.people
    await people.attempt(lambda: people.scale("zone-a", 2, Route.MERGE))
    await asyncio.sleep(20)
    await people.scale("zone-b", 2, Route.SCALE_MERGE, is_dry_run=True)
    await asyncio.sleep(20)
    await people.scale("zone-b", 2, Route.SCALE_MERGE)
    await director.until_whole()


async def _refuse_later(director: Director) -> None:
    people, api = director.people, director.sandbox.api
    assert api.hooks is not None
    quota = Quota(api.hooks)
    api.hooks = quota
    await director.sandbox.call(
        later_webhook(director.sandbox.namespace, name="quota", path=QUOTA_PATH, policy="Fail")
    )
    await people.attempt(lambda: people.scale("zone-b", 2, Route.SCALE_MERGE))
    await asyncio.sleep(120)
    quota.is_used_up = False
    await people.scale("zone-b", 2, Route.SCALE_MERGE)
    await director.until_whole()


async def _take_turns(director: Director) -> None:
    people = director.people
    await people.scale("zone-a", 2, Route.SCALE_MERGE)
    await asyncio.sleep(1)
    await people.attempt(lambda: people.scale("zone-b", 2, Route.SCALE_MERGE))
    await asyncio.sleep(310)
    await people.scale("zone-b", 2, Route.SCALE_MERGE)
    await director.until_whole()


class Quota:
    """Another webhook behind ours: a `HookCaller` around the one to the operator."""

    def __init__(self, inner: HookCaller) -> None:
        self._inner = inner
        self.is_used_up = True

    async def __call__(self, call: HookCall) -> bytes:
        if not call.path.startswith(QUOTA_PATH):
            return await self._inner(call)
        review = cast(JsonObject, msgspec.json.decode(call.body))
        response: JsonObject = {"uid": cast(JsonObject, review["request"])["uid"], "allowed": True}
        if self.is_used_up:
            response |= {"allowed": False, "status": {"code": 403, "message": "not today"}}
        return msgspec.json.encode({**review, "response": response})


TRACES: Final = (
    GoldenScenario(
        name="forbidden-downscale-and-dry-run",
        title="A downscale that is forbidden, a dry run, and one that is done",
        about="zone-a has no-downscale: it keeps its pods. zone-b has prepare-downscale: a dry run "
        "says yes and calls no pod, the downscale itself calls the pod that is to go.",
        zones=[zone("a", {NO_DOWNSCALE: "true"}), zone("b", PREPARED)],
        play=_forbid,
        has_webhooks=True,
    ),
    GoldenScenario(
        name="refused-by-another-webhook",
        title="Pods are prepared, and another webhook refuses the downscale",
        about="The operator has prepared zone-b-2 and agreed; then another webhook refuses. The "
        "pod must not believe for ever that it goes: it is un-prepared. Later the same "
        "downscale is granted.",
        zones=[zone("a", PREPARED), zone("b", PREPARED)],
        play=_refuse_later,
        has_webhooks=True,
    ),
    GoldenScenario(
        name="two-downscales-at-once",
        title="Two zones are scaled down at once",
        about="Both zones are labelled to wait five minutes between their downscales. The first is "
        "granted, the second refused with the reason and before any pod is called; requested again "
        "after five minutes, it is granted as well.",
        zones=[zone("a", WAITING), zone("b", WAITING)],
        play=_take_turns,
        has_webhooks=True,
    ),
)


TEMPLATE: Final = "ingesters"
MIRRORS: Final = {
    MIRROR_NAME: TEMPLATE,
    MIRROR_KIND: REPLICA_TEMPLATES.kind,
    MIRROR_API_VERSION: f"{REPLICA_TEMPLATES.group}/{REPLICA_TEMPLATES.version}",
}
DELAYED: Final = {
    **MIRRORS,
    DOWNSCALE_DELAY: "3m",
    DOWNSCALE_DELAY_URL: "http://pod:8080/prepare-delayed",
}
# As long as a pod may take to say that it may go.
SLOW: Final = Response(after=timedelta(seconds=4))


def annotated(one: ZoneSpec, annotations: Mapping[str, str]) -> ZoneSpec:
    """Return a zone with more annotations."""
    return replace(one, annotations={**one.annotations, **annotations})


def chain(first: Mapping[str, str]) -> list[ZoneSpec]:
    """Return three zones, each following the one before it; `first` annotates the first."""
    a, b, c = (zone(letter, WAITING) for letter in "abc")
    return [
        annotated(a, first),
        annotated(b, {LEADING_ZONE: a.name}),
        annotated(c, {LEADING_ZONE: b.name}),
    ]


async def _follow(director: Director) -> None:
    await director.people.scale("zone-a", 5, Route.SCALE_MERGE)
    await director.until_counts(5)
    await asyncio.sleep(30)
    await director.people.scale("zone-a", 2, Route.SCALE_MERGE)
    await director.until_counts(2)


async def _autoscale(director: Director) -> None:
    await director.people.scale_template(TEMPLATE, 4)
    await director.until_counts(4)
    await asyncio.sleep(30)
    await director.people.scale_template(TEMPLATE, 3)
    await director.until_counts(3)


async def _change_mind(director: Director) -> None:
    await director.people.scale_template(TEMPLATE, 1)
    await asyncio.sleep(90)
    await director.people.scale_template(TEMPLATE, 2)
    await asyncio.sleep(60)
    await director.people.scale_template(TEMPLATE, 3)
    await asyncio.sleep(60)
    await director.people.scale_template(TEMPLATE, 1)
    await director.until_counts(1)


async def _scale_in_turns(director: Director) -> None:
    await director.roll("v2")
    await director.until_image("zone-b-0", "v2")
    await director.people.scale_template(TEMPLATE, 2)
    await director.until_counts(2)
    await asyncio.sleep(310)
    director.sandbox.cluster.endpoints.answer("zone-a-1", "POST", SLOW)
    await director.people.scale_template(TEMPLATE, 1)
    await asyncio.sleep(1)
    await director.roll("v3")
    await director.until_counts(1)
    await director.until_rolled()


SCALING_TRACES: Final = (
    GoldenScenario(
        name="following-zones",
        title="Zones that follow one another, up and down",
        about="zone-b follows zone-a, zone-c follows zone-b. More replicas are everywhere at once. "
        "Fewer go zone by zone, five minutes apart, and the pods that go are called before.",
        zones=chain({}),
        play=_follow,
        has_webhooks=True,
    ),
    GoldenScenario(
        name="autoscaled-zones",
        title="An autoscaler's object decides for all zones",
        about="An autoscaler scales the ReplicaTemplate, zone-a mirrors it, the others follow. Its "
        "status says what zone-a has.",
        zones=chain(MIRRORS),
        templates={TEMPLATE: 3},
        play=_autoscale,
        has_webhooks=True,
    ),
    GoldenScenario(
        name="delayed-downscale",
        title="A delayed downscale that is reverted, and then done",
        about="Pods of zone-a go only once they have been prepared for three minutes, by their own "
        "answer. Two are called; before their time one, and then both are wanted after all, and "
        "un-prepared. Called once more, they begin anew, and go when their time has come.",
        zones=[annotated(ZoneSpec(name="zone-a"), DELAYED)],
        templates={TEMPLATE: 3},
        play=_change_mind,
    ),
    GoldenScenario(
        name="rollout-and-downscale",
        title="A rollout and a downscale wait for one another",
        about="In the middle of a rollout the autoscaler wants fewer replicas: no zone loses any "
        "until the rollout is over. Later a new template comes while zone-a-1 is being prepared: "
        "no pod is replaced until that downscale is done.",
        zones=chain(MIRRORS)[:2],
        templates={TEMPLATE: 3},
        play=_scale_in_turns,
        has_webhooks=True,
    ),
)
