"""What a scenario is: zones at the start, what people do, how pods behave, what rest looks like.

What people and their scripts do is a request as of kubectl or an autoscaler. What is refused is
tried again by `insist`, as people do; nothing here reads the operator, or knows of faults. The
scenarios stand in the modules beside this one by what they are about; `scenarios_book` knows all by
name.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final, Literal, cast

import msgspec
from msgspec.structs import replace
from rollout_lab.admission.registrations import no_downscale, pod_eviction, prepare_downscale
from rollout_lab.model.fields import controller_of, is_terminating, name_of, number, text, uid_of
from rollout_lab.model.request import (
    JSON_PATCH,
    MERGE_PATCH,
    STRATEGIC_PATCH,
    ApiRefusal,
    ApiRequest,
    Body,
    api_version_of,
    create,
    patch,
)
from rollout_lab.nodes.behaviour import Behaviour, Choose, Response, StartKind, image_of
from rollout_lab.schemas.kinds import REPLICA_TEMPLATES
from rollout_lab.world import Sandbox
from rollout_lab.zones import ZoneSpec, statefulset

from rollout_operator.kube.api import (
    CONFIG_MAPS,
    MUTATING_WEBHOOKS,
    PODS,
    STATEFULSETS,
    VALIDATING_WEBHOOKS,
    JsonObject,
    Resource,
)
from rollout_operator.model.names import LAST_DOWNSCALE, REVISION_LABEL
from rollout_operator.model.scaling import format_entry
from rollout_operator.outbound import Outbound
from tests.judge.promises import QUIET
from tests.simulation.runtime import BACK_AFTER

# As a person tries again.
TRY_AGAIN: Final = 20.0  # seconds
# As `-zone-tracker.config-map-name` has it by default.
ZONE_TRACKER: Final = "rollout-operator-zone-tracker"
DRY_RUN: Final[Mapping[str, str]] = {"dryRun": "All"}


class Route(StrEnum):
    """How a replica count is changed."""

    MERGE = "merge patch"
    STRATEGIC = "strategic patch"
    JSON = "json patch"
    PUT = "put without version"
    PUT_FRESH = "put with version"
    PUT_STALE = "put with a stale version"
    """Which the API server refuses after all webhooks were called."""
    SCALE_MERGE = "scale merge patch"
    SCALE_PUT = "scale put without version"
    SCALE_PUT_FRESH = "scale put with version"


Act = Callable[..., Awaitable[None]]
Propagation = Literal["Background", "Foreground", "Orphan"]
"""What becomes of the pods of a set that is deleted."""
_WITH_PODS: Final[Mapping[Propagation, str]] = {
    "Background": "",
    "Foreground": " after its pods",
    "Orphan": ", and not its pods",
}
LIVELY_ROUTES: Final = tuple(route for route in Route if route is not Route.PUT_STALE)
"""Routes that lead to the count that is requested."""
_PATCHES: Final = {
    Route.MERGE: MERGE_PATCH,
    Route.STRATEGIC: STRATEGIC_PATCH,
    Route.JSON: JSON_PATCH,
    Route.SCALE_MERGE: MERGE_PATCH,
}


class People(msgspec.Struct, frozen=True, kw_only=True):
    """All writers outside of the operator, with the chance that they own.

    Whatever they write may be refused: it raises ApiRefusal.
    """

    sandbox: Sandbox
    rng: random.Random
    name: str = "alice"
    tries: list[str] = []
    """What was refused, for those who read a failure."""

    def split(self, name: str) -> "People":
        """Return one of them; what is drawn for one changes nothing for another."""
        return replace(self, name=name, rng=random.Random(self.rng.getrandbits(64)))

    async def wait(self, least: float, most: float) -> None:
        """Let some time pass, in seconds."""
        await asyncio.sleep(self.rng.uniform(least, most))

    def say(self, text: str) -> None:
        """Have readers know what is done."""
        self.sandbox.say(self.name, text)

    async def insist(self, act: Act, *words: object) -> None:
        """Try until it is accepted."""
        while not await self.attempt(act, *words):  # noqa: ASYNC110 (an answer, no event)
            await asyncio.sleep(self.rng.uniform(0.5, 1.5) * TRY_AGAIN)

    async def attempt(self, act: Act, *words: object) -> bool:
        """Try once; return whether it was accepted."""
        try:
            await act(*words)
        except ApiRefusal as refusal:
            self.tries.append(f"{refusal}")
            return False
        return True

    def find(self, name: str) -> JsonObject | None:
        return self.sandbox.api.get(STATEFULSETS, self.sandbox.namespace, name)

    # StatefulSets and their pods

    async def create(self, zone: ZoneSpec) -> None:
        self.say(f"creates {zone.name}")
        await self.post(STATEFULSETS, statefulset(zone, self.sandbox.namespace))

    async def delete(self, name: str, propagation: Propagation = "Background") -> None:
        """Delete a set, before its pods, after them, or without them."""
        self.say(f"deletes {name}{_WITH_PODS[propagation]}")
        options: JsonObject = {"kind": "DeleteOptions", "apiVersion": "v1"}
        await self.remove(STATEFULSETS, name, {**options, "propagationPolicy": propagation})

    async def end_pod(self, name: str) -> None:
        await self.remove(PODS, name)

    async def set_image(self, name: str, image: str) -> None:
        containers: list[JsonObject] = [{"name": "app", "image": image}]
        body: JsonObject = {"spec": {"template": {"spec": {"containers": containers}}}}
        self.say(f"sets the image of {name} to {image}")
        await self.patch(STATEFULSETS, name, body, STRATEGIC_PATCH)

    async def annotate(self, name: str, key: str, value: str | None) -> None:
        """Set an annotation, or remove it with None."""
        self.say(f"annotates {name} with {key}={value}")
        await self.patch(STATEFULSETS, name, {"metadata": {"annotations": {key: value}}})

    async def label(self, name: str, key: str, value: str | None) -> None:
        """Set a label, or remove it with None."""
        self.say(f"labels {name} with {key}={value}")
        await self.patch(STATEFULSETS, name, {"metadata": {"labels": {key: value}}})

    async def change_spec(self, name: str, spec: JsonObject) -> None:
        self.say(f"changes the spec of {name}: {spec}")
        await self.patch(STATEFULSETS, name, {"spec": spec})

    async def scale(
        self, name: str, replicas: int, route: Route, *, is_dry_run: bool = False
    ) -> None:
        dry = " in a dry run" if is_dry_run else ""
        self.say(f"scales {name} to {replicas} by {route}{dry}")
        request = await self._scale_request(name, replicas, route)
        await self.send(replace(request, query=DRY_RUN) if is_dry_run else request)

    async def _scale_request(self, name: str, replicas: int, route: Route) -> ApiRequest:
        subresource = "scale" if route.value.startswith("scale") else ""
        whole = ApiRequest(verb="get", resource=STATEFULSETS, name=name, subresource=subresource)
        if route in _PATCHES:
            body: Body = {"spec": {"replicas": replicas}}
            if route is Route.JSON:
                body = [{"op": "replace", "path": "/spec/replicas", "value": replicas}]
            return replace(whole, verb="patch", body=body, content_type=_PATCHES[route])
        found = await self.send(whole)
        metadata = dict(cast(JsonObject, found["metadata"]))
        if route in (Route.PUT, Route.SCALE_PUT):
            metadata.pop("resourceVersion", None)
        if route is Route.PUT_STALE:  # any write will do to make what was read old
            await self.annotate(name, "example.com/touched", str(metadata["resourceVersion"]))
        spec = {**cast(JsonObject, found["spec"]), "replicas": replicas}
        return replace(whole, verb="update", body={**found, "metadata": metadata, "spec": spec})

    # What else there is

    async def create_template(self, name: str, replicas: int) -> None:
        self.say(f"creates the ReplicaTemplate {name} with {replicas} replicas")
        await self.post(REPLICA_TEMPLATES, make(REPLICA_TEMPLATES, name, {"replicas": replicas}))

    async def scale_template(self, name: str, replicas: int) -> None:
        self.say(f"scales the ReplicaTemplate {name} to {replicas}")
        body: JsonObject = {"spec": {"replicas": replicas}}
        await self.patch(REPLICA_TEMPLATES, name, body, subresource="scale")

    async def register_webhooks(self, *, evictions: bool = False) -> None:
        """Register what the operator serves, as its manifests do; evictions where wanted."""
        namespace = self.sandbox.namespace
        await self.post(VALIDATING_WEBHOOKS, no_downscale(namespace))
        await self.post(MUTATING_WEBHOOKS, prepare_downscale(namespace))
        if evictions:
            await self.post(VALIDATING_WEBHOOKS, pod_eviction(namespace))

    async def rewrite_record(self, name: str, time: str | None, *, is_tracked: bool) -> None:
        """Set when a zone was scaled down last, or remove it with None."""
        if not is_tracked:
            await self.annotate(name, LAST_DOWNSCALE, time)
            return
        self.say(f"sets the entry of {name} to {time}")
        entry = None if time is None else format_entry(time)
        await self.patch(CONFIG_MAPS, ZONE_TRACKER, {"data": {name: entry}})

    async def create_tracker(self) -> None:
        """Create an empty zone tracker: no zone has been scaled down yet."""
        self.say("creates the zone tracker")
        body: JsonObject = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": ZONE_TRACKER},
            "data": {},
        }
        await self.post(CONFIG_MAPS, body)

    # Requests

    async def post(self, resource: Resource, body: JsonObject) -> None:
        await self.send(create(resource, body))

    async def patch(
        self,
        resource: Resource,
        name: str,
        body: JsonObject,
        kind: str = MERGE_PATCH,
        *,
        subresource: str = "",
    ) -> None:
        await self.send(patch(resource, name, body, subresource=subresource, kind=kind))

    async def remove(self, resource: Resource, name: str, options: Body = None) -> None:
        await self.send(ApiRequest(verb="delete", resource=resource, name=name, body=options))

    async def send(self, request: ApiRequest) -> JsonObject:
        """Send a request in the name of this user, and return what came back."""
        namespace = self.sandbox.namespace if request.resource.is_namespaced else ""
        named = replace(request, namespace=namespace, user=self.name)
        return (await self.sandbox.call(named)).body


def make(resource: Resource, name: str, spec: JsonObject, **metadata: object) -> JsonObject:
    return {
        "apiVersion": api_version_of(resource),
        "kind": resource.kind,
        "metadata": {"name": name, **metadata},
        "spec": spec,
    }


Script = Callable[[People], Coroutine[Any, Any, None]]
Missing = str
"""What rest still lacks, in words; empty where the world is at rest."""
GROUP: Final = "ingester"


class Size(msgspec.Struct, frozen=True):
    """How large the world of a scenario is."""

    zones: int
    pods: int

    @property
    def text(self) -> str:
        return f"{self.zones}x{self.pods}"


FULL = Size(3, 3)
SMALL = Size(2, 2)


class Scenario(msgspec.Struct, frozen=True):
    """One story, without the faults that will befall it."""

    name: str
    size: Size
    zones: Sequence[ZoneSpec]
    script: Script
    """Returns when people are content, or have given up."""
    find_missing: Callable[[Sandbox], Missing] = lambda sandbox: name_unrolled(sandbox)
    """Judged only after the script has ended and all faults are over."""
    make_choice: Callable[[random.Random], Choose] = lambda rng: usual(rng)
    """How the pods behave, by a chance of their own."""
    has_webhooks: bool = False
    prepare: Script | None = None
    """What people set up before anything else: nodes and budgets."""
    has_budgets: bool = False
    """Whether the operator reviews evictions, too."""
    replicas: int = 1
    """Processes of the operator that live at a time."""
    elects: bool = False
    """Whether they elect one that acts; else each acts as if it were alone."""
    quiet: timedelta = QUIET
    """For how long nothing more may happen in the end."""
    templates: Mapping[str, int] = {}
    """ReplicaTemplates by name, and how many replicas they want."""
    watched_for: timedelta = timedelta(0)
    """How long the operator watches in peace before anything happens."""
    spoils: float | None = None
    """The chance of an event that cannot be decoded, where it is another one than usual."""
    patches_take: tuple[float, float] | None = None
    """Seconds that each PATCH of a StatefulSet takes: one schedule, one span, between these.

    No fault, and nothing heals it: such an API server is slow for as long as the run lasts.
    """
    args: Sequence[str] = ()
    """Flags of the operator, beside those that every sandbox gives."""
    back_after: timedelta = BACK_AFTER
    """For how long a process that ended is away."""
    open_outbound: Callable[[timedelta], Outbound] | None = None
    """Opens the way to servers that tenants name."""


def list_zones(size: Size, group: str = GROUP) -> list[ZoneSpec]:
    return [
        ZoneSpec(name=f"{group}-zone-{letter}", group=group, replicas=size.pods)
        for letter in "abcdefgh"[: size.zones]
    ]


def usual(rng: random.Random) -> Choose:
    """Return pods as they mostly are: some start fast, some take half a minute."""

    def choose(pod: JsonObject) -> Behaviour:
        answer = Response(after=timedelta(seconds=rng.choice((0.005, 0.05, 0.7, 1.5))))
        return Behaviour(
            starts_after=timedelta(seconds=rng.uniform(0.05, 1.5)),
            ready_after=timedelta(seconds=rng.choice((0.2, 1, 3, 8, 20, 30))),
            terminates_after=timedelta(seconds=rng.choice((0.05, 0.5, 2, 10, 25))),
            prepare=answer,
            cancel=answer,
        )

    return choose


def crashing_at(bad: str) -> Callable[[random.Random], Choose]:
    """Return a choice where pods of one image crash as soon as they run."""

    def make(rng: random.Random) -> Choose:
        choose = usual(rng)
        crashing = Behaviour(kind=StartKind.CRASH_LOOP)
        return lambda pod: crashing if image_of(pod) == bad else choose(pod)

    return make


def name_unrolled(sandbox: Sandbox) -> Missing:
    """Return what any set lacks to be whole, at its update revision, and seen to be so."""
    return _name_first(sandbox, lambda one: _lacks_pods(sandbox, one) or _lag(sandbox, one))


def name_unready(sandbox: Sandbox) -> Missing:
    """Return what any set lacks to be whole, whatever revision its pods have."""
    return _name_first(sandbox, lambda one: _lacks_pods(sandbox, one))


def _name_first(sandbox: Sandbox, name: Callable[[JsonObject], Missing]) -> Missing:
    for found in sandbox.api.list(STATEFULSETS, sandbox.namespace):
        if missing := name(found):
            return f"{name_of(found)}: {missing}"
    return ""


def list_pods(sandbox: Sandbox, found: JsonObject) -> list[JsonObject]:
    """Return the pods that a set owns, by name."""
    pods = sandbox.api.list(PODS, sandbox.namespace)
    return [pod for pod in pods if text(controller_of(pod), "uid") == uid_of(found)]


def _lacks_pods(sandbox: Sandbox, found: JsonObject) -> Missing:
    wanted = number(found, "spec", "replicas")
    if is_terminating(found):
        return "is going"
    # The controller may write the status of a set that is gone over that of its successor, as the
    # real one does after a conflict: then it has seen a later generation than there is.
    observed = number(found, "status", "observedGeneration")
    if observed < number(found, "metadata", "generation"):
        return "its status is behind"
    there, able = (number(found, "status", key) for key in ("replicas", "availableReplicas"))
    if (there, able) != (wanted, wanted) or len(list_pods(sandbox, found)) != wanted:
        return f"{there} pods, {able} available, wants {wanted}"
    return ""


def _lag(sandbox: Sandbox, found: JsonObject) -> Missing:
    pods = list_pods(sandbox, found)
    if not pods:
        # Nothing runs, nothing is rolled: the controller moves the revision with the next pod.
        return ""
    update, current = (text(found, "status", f"{one}Revision") for one in ("update", "current"))
    old = [pod for pod in pods if text(pod, "metadata", "labels", REVISION_LABEL) != update]
    if old:
        return f"outdated: {', '.join(map(name_of, old))}"
    return "" if current == update else f"current revision {current}, update revision {update}"
