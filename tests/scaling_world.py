"""A simulated cluster in which counts move through zones, for tests of the whole operator."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, cast

from rollout_lab.model.fields import number
from rollout_lab.model.history import Called, Commit, Reviewed
from rollout_lab.model.request import MERGE_PATCH, ApiRequest
from rollout_lab.network.faults import Faults
from rollout_lab.nodes.behaviour import Behaviour, Choose, always
from rollout_lab.process import SimulatedProcess
from rollout_lab.schemas.kinds import REPLICA_TEMPLATES
from rollout_lab.world import Sandbox
from rollout_lab.zones import ZoneSpec

from rollout_operator.kube.api import STATEFULSETS, JsonObject
from rollout_operator.model.names import (
    DOWNSCALE_DELAY,
    DOWNSCALE_DELAY_URL,
    LEADING_ZONE,
    MIN_TIME_BETWEEN_DOWNSCALES,
    MIRROR_API_VERSION,
    MIRROR_KIND,
    MIRROR_NAME,
    PREPARE_DOWNSCALE,
    PREPARE_PATH,
    PREPARE_PORT,
)
from tests.simulation.scenarios_people import People
from tests.virtual_time import elapsed

OPERATOR: Final = "operator-1"
QUICK: Final = Behaviour(
    starts_after=timedelta(milliseconds=100),
    ready_after=timedelta(milliseconds=400),
    terminates_after=timedelta(milliseconds=200),
)
GUARDED: Final[Mapping[str, str]] = {PREPARE_DOWNSCALE: "true"}
PREPARED: Final[Mapping[str, str]] = {PREPARE_PATH: "prepare", PREPARE_PORT: "80"}
# A patch of a person is whole well before: seconds of virtual time.
PATIENCE: Final = 600.0


def follower(letter: str, of: str | None = None, *, wait: str = "5m", **more: str) -> ZoneSpec:
    """Return a zone that calls pods before it goes down; `more` annotations or labels."""
    leading = {} if of is None else {LEADING_ZONE: f"zone-{of}"}
    spaced = {MIN_TIME_BETWEEN_DOWNSCALES: wait} if wait else {}
    return ZoneSpec(
        name=f"zone-{letter}",
        labels={**GUARDED, **more},
        annotations={**PREPARED, **leading, **spaced},
    )


def mirror(
    letter: str, name: str = "demo", *, group: str = "ingester", delay: str = ""
) -> ZoneSpec:
    """Return a zone that mirrors a ReplicaTemplate; with `delay`, its pods are called before."""
    delayed = {DOWNSCALE_DELAY: delay, DOWNSCALE_DELAY_URL: "http://pod/delayed"} if delay else {}
    mirrored = {
        MIRROR_NAME: name,
        MIRROR_KIND: "ReplicaTemplate",
        MIRROR_API_VERSION: "rollout-operator.grafana.com/v1",
    }
    return ZoneSpec(name=f"zone-{letter}", group=group, annotations={**mirrored, **delayed})


@dataclass(slots=True, kw_only=True)
class ScalingWorld:
    """One world with one operator."""

    sandbox: Sandbox
    people: People
    process: SimulatedProcess
    began: timedelta = field(default_factory=elapsed)
    _written: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.sandbox.api.on_commit(lambda commit: self._written.set())

    def count(self, letter: str) -> int:
        """Return how many replicas a zone wants."""
        found = self.people.find(f"zone-{letter}")
        assert found is not None
        return number(found, "spec", "replicas")

    async def until(self, *counts: tuple[str, int]) -> timedelta:
        """Wait until these zones want so many; return when."""
        return await self.wait_until(
            lambda: all(self.count(letter) == wanted for letter, wanted in counts)
        )

    async def wait_until(self, holds: Callable[[], bool]) -> timedelta:
        """Wait until something holds that writes alone change; return when."""
        async with asyncio.timeout(PATIENCE):
            while not holds():
                self._written.clear()
                await self._written.wait()
        return elapsed()

    def writes(self, actor: str = OPERATOR) -> list[str]:
        """Return all counts that the operator has set, such as `zone-b 5`, in order."""
        return [f"{one.name} {_count(one.after)}" for one in self.list_scalings(actor)]

    def list_scalings(self, actor: str = OPERATOR) -> list[Commit]:
        """Return all writes by which the operator has changed a count."""
        return [
            one
            for one in self.sandbox.history.list_all(Commit)
            if one.actor == actor
            and one.resource == STATEFULSETS
            and one.before is not None
            and _count(one.before) != _count(one.after)
        ]

    def requests(self, since: timedelta, *verbs: str) -> list[Called]:
        """Return what the operator has sent to the API server since then."""
        return [
            one
            for one in self.sandbox.history.list_all(Called)
            if one.actor == OPERATOR and one.begun >= since and one.request.verb in verbs
        ]

    def refused(self) -> list[Reviewed]:
        """Return the reviews of the operator's own writes that were refused."""
        own = {one.number for one in self.sandbox.history.list_all(Called) if one.actor == OPERATOR}
        reviews = self.sandbox.history.list_all(Reviewed)
        return [one for one in reviews if not one.allowed and one.call in own]

    async def set_template(self, name: str, replicas: int) -> None:
        """Set the count that zones mirror, as an autoscaler does."""
        patch = ApiRequest(
            verb="patch",
            resource=REPLICA_TEMPLATES,
            namespace=self.sandbox.namespace,
            name=name,
            subresource="scale",
            body={"spec": {"replicas": replicas}},
            content_type=MERGE_PATCH,
            user="alice",
        )
        await self.sandbox.call(patch)

    async def create_template(self, name: str, replicas: int) -> None:
        """Make an object to mirror."""
        body: JsonObject = {
            "apiVersion": "rollout-operator.grafana.com/v1",
            "kind": "ReplicaTemplate",
            "metadata": {"name": name},
            "spec": {"replicas": replicas},
        }
        request = ApiRequest(
            verb="create",
            resource=REPLICA_TEMPLATES,
            namespace=self.sandbox.namespace,
            body=body,
            user="alice",
        )
        await self.sandbox.call(request)

    def show_status(self, name: str) -> object:
        """Return `status.replicas` of an object that zones mirror."""
        found = self.sandbox.api.get(REPLICA_TEMPLATES, self.sandbox.namespace, name)
        assert found is not None
        return cast(JsonObject, found.get("status", {})).get("replicas")


@asynccontextmanager
async def run_world(
    zones: Sequence[ZoneSpec],
    *,
    templates: Mapping[str, int] | None = None,
    args: Sequence[str] = (),
    choose: Choose = always(QUICK),  # noqa: B008 (a function, the same for all)
    faults: Faults | None = None,
    has_webhooks: bool = True,
) -> AsyncIterator[ScalingWorld]:
    """Make a world of these zones, whole, with an operator that is ready, and both webhooks."""
    async with Sandbox(choose=choose, faults=faults) as sandbox:
        people = People(sandbox=sandbox, rng=random.Random(0))
        process = sandbox.process(OPERATOR, webhooks=has_webhooks, args=args)
        world = ScalingWorld(sandbox=sandbox, people=people, process=process)
        for name, replicas in (templates or {}).items():
            await world.create_template(name, replicas)
        for zone in zones:
            await people.create(zone)
        await asyncio.sleep(5)
        if has_webhooks:
            await people.register_webhooks()
        process.start()
        await process.wait_ready()
        await asyncio.sleep(5)
        yield world


def _count(one: JsonObject | None) -> object:
    return None if one is None else cast(JsonObject, one["spec"])["replicas"]
