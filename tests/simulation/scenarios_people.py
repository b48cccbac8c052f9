"""What people and their scripts do to a simulated world, and what they do when it says no.

Each change is a request as of kubectl or an autoscaler, recorded in the history. What is
refused is tried again by `insist`, as people do; nothing here reads the operator.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from typing import Final, Literal, assert_never, cast

import msgspec
from msgspec.structs import replace
from rollout_lab.admission.registrations import no_downscale, pod_eviction, prepare_downscale
from rollout_lab.model.request import (
    JSON_PATCH,
    MERGE_PATCH,
    STRATEGIC_PATCH,
    ApiRefusal,
    ApiRequest,
)
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
)
from rollout_operator.model.names import LAST_DOWNSCALE
from rollout_operator.model.scaling import format_entry

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


Propagation = Literal["Background", "Foreground", "Orphan"]
"""What becomes of the pods of a set that is deleted."""
_WITH_PODS: Final[Mapping[Propagation, str]] = {
    "Background": "",
    "Foreground": " after its pods",
    "Orphan": ", and not its pods",
}
LIVELY_ROUTES: Final = tuple(route for route in Route if route is not Route.PUT_STALE)
"""Routes that lead to the count that is requested."""


class People(msgspec.Struct, frozen=True, kw_only=True):
    """All writers outside of the operator, with the chance that they own."""

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

    async def create(self, zone: ZoneSpec) -> None:
        """Create the StatefulSet of a zone. Raises Refusal."""
        self.say(f"creates {zone.name}")
        body = statefulset(zone, self.sandbox.namespace)
        await self._send(ApiRequest(verb="create", resource=STATEFULSETS, body=body))

    async def create_template(self, name: str, replicas: int) -> None:
        """Create a ReplicaTemplate. Raises Refusal."""
        self.say(f"creates the ReplicaTemplate {name} with {replicas} replicas")
        body: JsonObject = {
            "apiVersion": f"{REPLICA_TEMPLATES.group}/{REPLICA_TEMPLATES.version}",
            "kind": REPLICA_TEMPLATES.kind,
            "metadata": {"name": name},
            "spec": {"replicas": replicas},
        }
        await self._send(ApiRequest(verb="create", resource=REPLICA_TEMPLATES, body=body))

    async def scale_template(self, name: str, replicas: int) -> None:
        """Have a ReplicaTemplate want so many replicas, as an autoscaler does. Raises Refusal."""
        self.say(f"scales the ReplicaTemplate {name} to {replicas}")
        body: JsonObject = {"spec": {"replicas": replicas}}
        await self._send(
            ApiRequest(
                verb="patch",
                resource=REPLICA_TEMPLATES,
                name=name,
                subresource="scale",
                body=body,
                content_type=MERGE_PATCH,
            )
        )

    async def register_webhooks(self, *, evictions: bool = False) -> None:
        """Register what the operator serves, as its manifests do. Raises Refusal.

        It reviews `evictions` only where that is wanted.
        """
        hooks = [
            (no_downscale, VALIDATING_WEBHOOKS),
            (prepare_downscale, MUTATING_WEBHOOKS),
            *([(pod_eviction, VALIDATING_WEBHOOKS)] if evictions else []),
        ]
        for make, resource in hooks:
            body = make(self.sandbox.namespace)
            await self.sandbox.call(
                ApiRequest(verb="create", resource=resource, body=body, user=self.name)
            )

    async def delete(self, name: str, propagation: Propagation = "Background") -> None:
        """Delete a set, before its pods, after them, or without them. Raises Refusal."""
        self.say(f"deletes {name}{_WITH_PODS[propagation]}")
        options: JsonObject = {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "propagationPolicy": propagation,
        }
        await self._send(ApiRequest(verb="delete", resource=STATEFULSETS, name=name, body=options))

    async def end_pod(self, name: str) -> None:
        """Delete a pod. Raises Refusal."""
        await self._send(ApiRequest(verb="delete", resource=PODS, name=name))

    async def set_image(self, name: str, image: str) -> None:
        """Change the template, which makes a new revision. Raises Refusal."""
        containers: list[JsonObject] = [{"name": "app", "image": image}]
        body: JsonObject = {"spec": {"template": {"spec": {"containers": containers}}}}
        self.say(f"sets the image of {name} to {image}")
        await self._patch(name, body, STRATEGIC_PATCH)

    async def annotate(self, name: str, key: str, value: str | None) -> None:
        """Set an annotation, or remove it with None. Raises Refusal."""
        self.say(f"annotates {name} with {key}={value}")
        await self._patch(name, {"metadata": {"annotations": {key: value}}})

    async def rewrite_record(self, name: str, time: str | None, *, is_tracked: bool) -> None:
        """Set when a zone was scaled down last, or remove it with None. Raises Refusal."""
        if not is_tracked:
            await self.annotate(name, LAST_DOWNSCALE, time)
            return
        self.say(f"sets the entry of {name} to {time}")
        entry = None if time is None else format_entry(time)
        await self._send(
            ApiRequest(
                verb="patch",
                resource=CONFIG_MAPS,
                name=ZONE_TRACKER,
                body={"data": {name: entry}},
                content_type=MERGE_PATCH,
            )
        )

    async def create_tracker(self) -> None:
        """Create an empty zone tracker: no zone has been scaled down yet. Raises Refusal."""
        self.say("creates the zone tracker")
        body: JsonObject = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": ZONE_TRACKER},
            "data": {},
        }
        await self._send(ApiRequest(verb="create", resource=CONFIG_MAPS, body=body))

    async def label(self, name: str, key: str, value: str | None) -> None:
        """Set a label, or remove it with None. Raises Refusal."""
        self.say(f"labels {name} with {key}={value}")
        await self._patch(name, {"metadata": {"labels": {key: value}}})

    async def change_spec(self, name: str, spec: JsonObject) -> None:
        """Merge some fields into the spec. Raises Refusal."""
        self.say(f"changes the spec of {name}: {spec}")
        await self._patch(name, {"spec": spec})

    async def scale(
        self, name: str, replicas: int, route: Route, *, is_dry_run: bool = False
    ) -> None:
        """Request once so many replicas. Raises Refusal."""
        dry = " in a dry run" if is_dry_run else ""
        self.say(f"scales {name} to {replicas} by {route}{dry}")
        await self._send(await self._scale_request(name, replicas, route), is_dry_run=is_dry_run)

    async def insist(self, act: Callable[[], Awaitable[None]]) -> None:
        """Try until it is accepted."""
        while not await self.attempt(act):  # noqa: ASYNC110 (an answer, no event)
            await asyncio.sleep(self.rng.uniform(0.5, 1.5) * TRY_AGAIN)

    async def attempt(self, act: Callable[[], Awaitable[None]]) -> bool:
        """Try once; return whether it was accepted."""
        try:
            await act()
        except ApiRefusal as refusal:
            self.tries.append(f"{refusal}")
            return False
        return True

    def find(self, name: str) -> JsonObject | None:
        """Return a StatefulSet as it is stored."""
        return self.sandbox.api.get(STATEFULSETS, self.sandbox.namespace, name)

    async def _scale_request(self, name: str, replicas: int, route: Route) -> ApiRequest:
        spec: JsonObject = {"spec": {"replicas": replicas}}
        step: JsonObject = {"op": "replace", "path": "/spec/replicas", "value": replicas}
        match route:
            case Route.MERGE:
                return _patch_of(name, spec, MERGE_PATCH)
            case Route.STRATEGIC:
                return _patch_of(name, spec, STRATEGIC_PATCH)
            case Route.JSON:
                return ApiRequest(
                    verb="patch",
                    resource=STATEFULSETS,
                    name=name,
                    body=[step],
                    content_type=JSON_PATCH,
                )
            case Route.SCALE_MERGE:
                return _patch_of(name, spec, MERGE_PATCH, subresource="scale")
            case (
                Route.PUT
                | Route.PUT_FRESH
                | Route.PUT_STALE
                | Route.SCALE_PUT
                | Route.SCALE_PUT_FRESH
            ):
                return await self._put_request(name, replicas, route)
            case _:
                assert_never(route)

    async def _put_request(self, name: str, replicas: int, route: Route) -> ApiRequest:
        subresource = "scale" if route in (Route.SCALE_PUT, Route.SCALE_PUT_FRESH) else ""
        found = await self._send(
            ApiRequest(verb="get", resource=STATEFULSETS, name=name, subresource=subresource)
        )
        metadata = dict(cast(JsonObject, found["metadata"]))
        if route in (Route.PUT, Route.SCALE_PUT):
            metadata.pop("resourceVersion", None)
        if route is Route.PUT_STALE:  # any write will do to make what was read old
            await self.annotate(name, "example.com/touched", str(metadata["resourceVersion"]))
        spec = {**cast(JsonObject, found["spec"]), "replicas": replicas}
        body: JsonObject = {**found, "metadata": metadata, "spec": spec}
        return ApiRequest(
            verb="update", resource=STATEFULSETS, name=name, subresource=subresource, body=body
        )

    async def _patch(self, name: str, body: JsonObject, kind: str = MERGE_PATCH) -> None:
        await self._send(_patch_of(name, body, kind))

    async def _send(self, request: ApiRequest, *, is_dry_run: bool = False) -> JsonObject:
        whole = ApiRequest(
            verb=request.verb,
            resource=request.resource,
            namespace=self.sandbox.namespace,
            name=request.name,
            subresource=request.subresource,
            query={**request.query, **(DRY_RUN if is_dry_run else {})},
            body=request.body,
            content_type=request.content_type,
            user=self.name,
        )
        return (await self.sandbox.call(whole)).body

    def say(self, text: str) -> None:
        """Have readers know what is done."""
        self.sandbox.say(self.name, text)


def _patch_of(name: str, body: JsonObject, kind: str, subresource: str = "") -> ApiRequest:
    return ApiRequest(
        verb="patch",
        resource=STATEFULSETS,
        name=name,
        subresource=subresource,
        body=body,
        content_type=kind,
    )
