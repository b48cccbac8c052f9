"""Stories of counts that move through the zones by themselves: up at once, down one by one."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Final

from rollout_operator.lab.nodes.behaviour import Response
from rollout_operator.lab.schemas.kinds import REPLICA_TEMPLATES
from rollout_operator.lab.zones import ZoneSpec
from rollout_operator.model.names import (
    DOWNSCALE_DELAY,
    DOWNSCALE_DELAY_URL,
    LEADING_ZONE,
    MIRROR_API_VERSION,
    MIRROR_KIND,
    MIRROR_NAME,
)
from tests.simulation.scenarios_people import Route
from tests.simulation.stories import Story, Teller
from tests.simulation.stories_downscales import WAITING, zone

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


def note(one: ZoneSpec, annotations: Mapping[str, str]) -> ZoneSpec:
    """Return a zone with more annotations."""
    return replace(one, annotations={**one.annotations, **annotations})


def chain(first: Mapping[str, str]) -> list[ZoneSpec]:
    """Return three zones, each following the one before it; `first` annotates the first."""
    a, b, c = (zone(letter, WAITING) for letter in "abc")
    return [note(a, first), note(b, {LEADING_ZONE: a.name}), note(c, {LEADING_ZONE: b.name})]


async def _follow(teller: Teller) -> None:
    await teller.people.scale("zone-a", 5, Route.SCALE_MERGE)
    await teller.until_counts(5)
    await asyncio.sleep(30)
    await teller.people.scale("zone-a", 2, Route.SCALE_MERGE)
    await teller.until_counts(2)


async def _autoscale(teller: Teller) -> None:
    await teller.people.scale_template(TEMPLATE, 4)
    await teller.until_counts(4)
    await asyncio.sleep(30)
    await teller.people.scale_template(TEMPLATE, 3)
    await teller.until_counts(3)


async def _change_mind(teller: Teller) -> None:
    await teller.people.scale_template(TEMPLATE, 1)
    await asyncio.sleep(90)
    await teller.people.scale_template(TEMPLATE, 2)
    await asyncio.sleep(60)
    await teller.people.scale_template(TEMPLATE, 3)
    await asyncio.sleep(60)
    await teller.people.scale_template(TEMPLATE, 1)
    await teller.until_counts(1)


async def _take_turns(teller: Teller) -> None:
    await teller.roll("v2")
    await teller.until_image("zone-b-0", "v2")
    await teller.people.scale_template(TEMPLATE, 2)
    await teller.until_counts(2)
    await asyncio.sleep(310)
    teller.sandbox.cluster.endpoints.answer("zone-a-1", "POST", SLOW)
    await teller.people.scale_template(TEMPLATE, 1)
    await asyncio.sleep(1)
    await teller.roll("v3")
    await teller.until_counts(1)
    await teller.until_rolled()


STORIES: Final = (
    Story(
        name="following-zones",
        title="Zones that follow one another, up and down",
        about="zone-b follows zone-a, zone-c follows zone-b. More replicas are everywhere at once. "
        "Fewer go zone by zone, five minutes apart, and the pods that go are asked before.",
        zones=chain({}),
        play=_follow,
        has_webhooks=True,
    ),
    Story(
        name="autoscaled-zones",
        title="An autoscaler's object decides for all zones",
        about="An autoscaler scales the ReplicaTemplate, zone-a mirrors it, the others follow. Its "
        "status tells what zone-a has.",
        zones=chain(MIRRORS),
        templates={TEMPLATE: 3},
        play=_autoscale,
        has_webhooks=True,
    ),
    Story(
        name="delayed-downscale",
        title="A delayed downscale that is taken back, and then done",
        about="Pods of zone-a go only once they have been prepared for three minutes, by their own "
        "word. Two are asked; before their time one, and then both are wanted after all, and told "
        "so. Asked once more, they begin anew, and go when their time has come.",
        zones=[note(ZoneSpec(name="zone-a"), DELAYED)],
        templates={TEMPLATE: 3},
        play=_change_mind,
    ),
    Story(
        name="rollout-and-downscale",
        title="A rollout and a downscale wait for one another",
        about="In the middle of a rollout the autoscaler wants fewer replicas: no zone loses any "
        "until the rollout is over. Later a new template comes while zone-a-1 is being prepared: "
        "no pod is replaced until that downscale is done.",
        zones=chain(MIRRORS)[:2],
        templates={TEMPLATE: 3},
        play=_take_turns,
        has_webhooks=True,
    ),
)
