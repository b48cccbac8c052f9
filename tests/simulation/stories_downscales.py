"""Stories of fewer pods: who may refuse, what pods are told, and who waits for whom."""

import asyncio
from collections.abc import Mapping
from typing import Final, cast

import msgspec

from rollout_operator.kube.api import JsonObject
from rollout_operator.lab.admission.webhooks import HookCall, HookCaller
from rollout_operator.lab.zones import ZoneSpec
from rollout_operator.model.names import (
    MIN_TIME_BETWEEN_DOWNSCALES,
    NO_DOWNSCALE,
    PREPARE_DOWNSCALE,
    PREPARE_PATH,
    PREPARE_PORT,
)
from tests.simulation.chaos_hooks import later_webhook
from tests.simulation.scenarios_people import Route
from tests.simulation.stories import Story, Teller

PREPARED: Final = {PREPARE_DOWNSCALE: "true"}
WAITING: Final = {**PREPARED, MIN_TIME_BETWEEN_DOWNSCALES: "5m"}
QUOTA_PATH: Final = "/quota"


def zone(letter: str, labels: Mapping[str, str]) -> ZoneSpec:
    """Return a zone with these labels, whose pods are asked at the usual path."""
    annotations = {PREPARE_PATH: "ingester/prepare-shutdown", PREPARE_PORT: "80"}
    return ZoneSpec(name=f"zone-{letter}", labels=labels, annotations=annotations)


async def _forbid(teller: Teller) -> None:
    people = teller.people
    await people.attempt(lambda: people.scale("zone-a", 2, Route.MERGE))
    await asyncio.sleep(20)
    await people.scale("zone-b", 2, Route.SCALE_MERGE, is_dry_run=True)
    await asyncio.sleep(20)
    await people.scale("zone-b", 2, Route.SCALE_MERGE)
    await teller.until_whole()


async def _refuse_later(teller: Teller) -> None:
    people, api = teller.people, teller.sandbox.api
    assert api.hooks is not None
    quota = Quota(api.hooks)
    api.hooks = quota
    await teller.sandbox.call(
        later_webhook(teller.sandbox.namespace, name="quota", path=QUOTA_PATH, policy="Fail")
    )
    await people.attempt(lambda: people.scale("zone-b", 2, Route.SCALE_MERGE))
    await asyncio.sleep(120)
    quota.is_used_up = False
    await people.scale("zone-b", 2, Route.SCALE_MERGE)
    await teller.until_whole()


async def _take_turns(teller: Teller) -> None:
    people = teller.people
    await people.scale("zone-a", 2, Route.SCALE_MERGE)
    await asyncio.sleep(1)
    await people.attempt(lambda: people.scale("zone-b", 2, Route.SCALE_MERGE))
    await asyncio.sleep(310)
    await people.scale("zone-b", 2, Route.SCALE_MERGE)
    await teller.until_whole()


class Quota:
    """A webhook of somebody else behind ours: a `HookCaller` around the one to the operator."""

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


STORIES: Final = (
    Story(
        name="forbidden-downscale-and-dry-run",
        title="A downscale that is forbidden, a dry run, and one that is done",
        about="zone-a has no-downscale: it keeps its pods. zone-b has prepare-downscale: a dry run "
        "says yes and tells no pod anything, the downscale itself asks the pod that is to go.",
        zones=[zone("a", {NO_DOWNSCALE: "true"}), zone("b", PREPARED)],
        play=_forbid,
        has_webhooks=True,
    ),
    Story(
        name="refused-by-somebody-else",
        title="Pods are prepared, and somebody else refuses the downscale",
        about="The operator has prepared zone-b-2 and agreed; then another webhook refuses. The "
        "pod must not believe for ever that it goes: it is told that it stays. Later the same "
        "downscale is granted.",
        zones=[zone("a", PREPARED), zone("b", PREPARED)],
        play=_refuse_later,
        has_webhooks=True,
    ),
    Story(
        name="two-downscales-at-once",
        title="Two zones are scaled down at once",
        about="Both zones are labelled to wait five minutes between their downscales. The first is "
        "granted, the second refused with the reason and before any pod is told; asked again "
        "after five minutes, it is granted as well.",
        zones=[zone("a", WAITING), zone("b", WAITING)],
        play=_take_turns,
        has_webhooks=True,
    ),
)
