"""Every way in which a user, a script or an autoscaler changes a replica count, and drains.

Each route does what its client does, on the wire, and brings back what that client is shown.

Drains are as `kubectl drain` makes them: each pod is evicted until another one stands in its place.
Unlike kubectl they name the UID of the pod: pods of this world are ready within moments, and an
answer that was meant for a pod which has gone meanwhile would hit the one that came after it.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Final

import msgspec

from tests.world.api import (
    DEPLOYMENTS,
    PATCH_TYPES,
    PODS,
    REPLICASETS,
    STATEFULSETS,
    Answer,
    Api,
    ApiError,
    Json,
    Resource,
)
from tests.world.budgets import TRY_AGAIN, evict

KINDS: Final = {STATEFULSETS: "StatefulSet", DEPLOYMENTS: "Deployment", REPLICASETS: "ReplicaSet"}


class Route(StrEnum):
    """How the count is changed."""

    MERGE = "merge patch"
    STRATEGIC = "strategic patch"
    JSON = "json patch"
    APPLY = "server-side apply"
    PUT = "put, no version"
    PUT_FRESH = "put, fresh version"
    PUT_STALE = "put, stale version"
    PUT_OMITTED = "put, replicas omitted"
    """Which means 1, whatever is requested."""
    UNLABEL = "json patch that also removes a label"
    SCALE_MERGE = "scale merge patch"
    SCALE_JSON = "scale json patch"
    SCALE_PUT = "scale put, no version"
    SCALE_PUT_FRESH = "scale put, fresh version"
    SCALE_PUT_STALE = "scale put, stale version"

    @property
    def is_scale(self) -> bool:
        return self.value.startswith("scale")

    @property
    def is_stale(self) -> bool:
        """Say whether the server refuses it in any case, after admission."""
        return self in (Route.PUT_STALE, Route.SCALE_PUT_STALE)


_PATCH_KINDS: Final = {
    Route.STRATEGIC: "strategic",
    Route.JSON: "json",
    Route.SCALE_JSON: "json",
    Route.UNLABEL: "json",
    Route.APPLY: "apply",
}
EVERY_ROUTE: Final = tuple(Route)
OF_ANY_COUNT: Final = tuple(
    route for route in Route if not route.is_stale and route is not Route.PUT_OMITTED
)
"""Routes that lead to the count that is requested."""


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """One object with replicas, as its clients see it."""

    api: Api
    namespace: str
    name: str
    resource: Resource = STATEFULSETS
    label: str = ""
    """Key of the label that `Route.UNLABEL` removes."""

    async def scale(self, replicas: int, route: Route, *, is_dry_run: bool = False) -> Answer:
        """Request so many replicas, once, and return what came back. Raises aiohttp.ClientError."""
        is_put = "put" in route.value
        kind = _PATCH_KINDS.get(route, "merge")
        query = {"fieldManager": "test-client", "force": "true"} if kind == "apply" else {}
        return await self.api.exchange(
            "PUT" if is_put else "PATCH",
            self.resource.path(self.namespace, self.name, "scale" if route.is_scale else ""),
            body=await self._whole(replicas, route) if is_put else self._patch(replicas, route),
            query={**query, **({"dryRun": "All"} if is_dry_run else {})},
            content_type="application/json" if is_put else PATCH_TYPES[kind],
        )

    def _patch(self, replicas: int, route: Route) -> object:
        change: Json = {"op": "replace", "path": "/spec/replicas", "value": replicas}
        match route:
            case Route.JSON | Route.SCALE_JSON:
                return [change]
            case Route.UNLABEL:
                key = self.label.replace("~", "~0").replace("/", "~1")
                return [{"op": "remove", "path": f"/metadata/labels/{key}"}, change]
            case Route.APPLY:
                return {
                    "apiVersion": "apps/v1",
                    "kind": KINDS[self.resource],
                    "metadata": {"name": self.name},
                    "spec": {"replicas": replicas},
                }
            case _:
                return {"spec": {"replicas": replicas}}

    async def _whole(self, replicas: int, route: Route) -> Json:
        subresource = "scale" if route.is_scale else ""
        body = await self.api.get(self.resource, self.namespace, self.name, subresource)
        body["spec"]["replicas"] = replicas
        body["metadata"].pop("managedFields", None)
        if route is Route.PUT_OMITTED:
            del body["spec"]["replicas"]
        if route.is_stale:  # any write will do to make what was read old
            version = body["metadata"]["resourceVersion"]
            touch = {"metadata": {"annotations": {"test-client": version}}}
            await self.api.patch(self.resource, self.namespace, self.name, touch)
        elif route not in (Route.PUT_FRESH, Route.SCALE_PUT_FRESH):
            del body["metadata"]["resourceVersion"]
        return body


def workload_body(resource: Resource, name: str, replicas: int) -> Json:
    """Return a Deployment or ReplicaSet; no controller of the world makes pods for them.

    For StatefulSets there is `sets.statefulset`.
    """
    selector = {"name": name}
    return {
        "apiVersion": "apps/v1",
        "kind": KINDS[resource],
        "metadata": {"name": name, "labels": selector},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": selector},
            "template": {
                "metadata": {"labels": selector},
                "spec": {"containers": [{"name": "app", "image": "v1"}]},
            },
        },
    }


# kubectl waits for 5 s, which only makes tests longer.
RETRY: Final = timedelta(milliseconds=200)
CREATED: Final = (200, 201)
# Replaced or gone since it was read: there is nothing left to do.
OVER: Final = (404, 409)
# What the API server itself says while no operator answers.
UNANSWERED: Final = "failed calling webhook"


class Victim(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    uid: str


@dataclass(slots=True)
class Drain:
    """Evicts pods side by side and keeps every answer."""

    api: Api
    namespace: str
    retry: timedelta = RETRY
    answers: list[tuple[str, Answer]] = field(default_factory=list)
    """Pod and answer, in order."""

    async def run(self, pods: Iterable[Victim], limit: timedelta) -> None:
        """Evict until each pod is gone. Raises TimeoutError that names those that are not."""
        left = {pod.name for pod in pods}
        victims = [pod for pod in pods if pod.name in left]

        async def evict_one(pod: Victim) -> None:
            await self._evict(pod)
            left.discard(pod.name)

        try:
            async with asyncio.timeout(limit.total_seconds()), asyncio.TaskGroup() as tasks:
                for pod in victims:
                    tasks.create_task(evict_one(pod), name=f"drain-{pod.name}")
        except TimeoutError as late:
            text = f"after {limit} not gone: {sorted(left)}\n{self.describe()}"
            raise TimeoutError(text) from late

    async def _evict(self, pod: Victim) -> None:
        while await self._stands(pod):
            answer = await evict(self.api, self.namespace, pod.name, uid=pod.uid)
            self.answers.append((pod.name, answer))
            await asyncio.sleep(self.retry.total_seconds())

    async def _stands(self, pod: Victim) -> bool:
        """Say whether the pod itself is still there; terminating, it is only waited for."""
        while True:
            try:
                found = await self.api.get(PODS, self.namespace, pod.name)
            except ApiError as error:
                if error.status == 404:
                    return False
                raise
            if found["metadata"]["uid"] != pod.uid:
                return False
            if "deletionTimestamp" not in found["metadata"]:
                return True
            await asyncio.sleep(self.retry.total_seconds())

    def refusals(self) -> list[tuple[str, Answer]]:
        """Return what was refused, for whatever reason."""
        return [(pod, answer) for pod, answer in self.answers if answer.status not in CREATED]

    def unexpected(self) -> list[str]:
        """Return answers after which a drain would give up.

        Not among them is what the API server says in the absence of an operator.
        """
        return [
            f"{pod}: {answer.status} {answer.message}"
            for pod, answer in self.refusals()
            if answer.status not in (TRY_AGAIN, *OVER) and UNANSWERED not in answer.message
        ]

    def describe(self) -> str:
        """Return how often each answer was given, the most frequent first."""
        counts = Counter((answer.status, answer.message) for _, answer in self.answers)
        return "\n".join(
            f"{many} x {status} {text}" for (status, text), many in counts.most_common(20)
        )


async def list_victims(api: Api, namespace: str, zones: Sequence[str]) -> list[Victim]:
    """Return the pods of these StatefulSets as they stand now, by ordinal and zone."""
    pods = await api.items(PODS, namespace)
    found = [pod for pod in pods if _zone(pod) in zones]
    found.sort(key=lambda pod: (_ordinal(pod), _zone(pod)))
    return [Victim(name=pod["metadata"]["name"], uid=pod["metadata"]["uid"]) for pod in found]


def _zone(pod: Json) -> str:
    return str(pod["metadata"]["name"]).rpartition("-")[0]


def _ordinal(pod: Json) -> int:
    return int(pod["metadata"]["name"].rpartition("-")[2])
