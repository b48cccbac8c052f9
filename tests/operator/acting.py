"""Zones on a simulated cluster, what people do with them, and the processes beside them."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Final

from msgspec.structs import replace
from rollout_lab.model.fields import number
from rollout_lab.model.request import MERGE_PATCH, STRATEGIC_PATCH, ApiRequest
from rollout_lab.nodes.behaviour import image_of
from rollout_lab.process import SimulatedProcess
from rollout_lab.world import Sandbox
from rollout_lab.zones import ZoneSpec, statefulset

from rollout_operator.kube.api import PODS, STATEFULSETS, JsonObject

ZONES: Final = ("zone-a", "zone-b")
SHADOW: Final = "shadow"
# Then a process has acted for long enough to know what others delete.
SETTLED: Final = timedelta(minutes=2)


@asynccontextmanager
async def running(
    *names: str, elects: bool = False, pods: int = 3
) -> AsyncIterator[tuple[Sandbox, Sequence[SimulatedProcess]]]:
    """Run a group of two zones, and processes that have acted for long enough."""
    async with Sandbox() as sandbox:
        await create(sandbox, *(ZoneSpec(name=zone, replicas=pods) for zone in ZONES))
        processes = [
            sandbox.process(name, elects=elects, args=("-mode=shadow",) if name == SHADOW else ())
            for name in names
        ]
        for process in processes:
            process.start()
        await asyncio.sleep(SETTLED.total_seconds())
        yield sandbox, processes


async def call(sandbox: Sandbox, request: ApiRequest) -> None:
    """Send a request to the namespace."""
    answer = await sandbox.call(replace(request, namespace=sandbox.namespace))
    assert answer.is_ok, answer


async def create(sandbox: Sandbox, *zones: ZoneSpec) -> None:
    """Create StatefulSets."""
    for zone in zones:
        body = statefulset(zone, sandbox.namespace)
        await call(sandbox, ApiRequest(verb="create", resource=STATEFULSETS, body=body))


async def patch(
    sandbox: Sandbox, name: str, body: JsonObject, content_type: str = MERGE_PATCH
) -> None:
    """Change a StatefulSet as a person does."""
    request = ApiRequest(verb="patch", resource=STATEFULSETS, name=name, body=body)
    await call(sandbox, replace(request, content_type=content_type))


async def annotate(sandbox: Sandbox, name: str, key: str, text: str | None) -> None:
    """Annotate a StatefulSet as a person does, or remove the annotation with None."""
    await patch(sandbox, name, {"metadata": {"annotations": {key: text}}})


async def change(sandbox: Sandbox, *names: str, image: str = "v2") -> None:
    """Change the templates of StatefulSets, by default of both zones."""
    containers: list[JsonObject] = [{"name": "app", "image": image}]
    body: JsonObject = {"spec": {"template": {"spec": {"containers": containers}}}}
    for name in names or ZONES:
        await patch(sandbox, name, body, STRATEGIC_PATCH)


async def delete(sandbox: Sandbox, name: str) -> None:
    """Delete a pod as another operator does."""
    request = ApiRequest(verb="delete", resource=PODS, name=name, user="another-holder")
    await call(sandbox, request)


def is_rolled_out(sandbox: Sandbox) -> bool:
    """Return whether all pods that are wanted run the newest template."""
    sets, pods = (sandbox.api.list(kind, sandbox.namespace) for kind in (STATEFULSETS, PODS))
    wanted = sum(number(sts, "spec", "replicas") for sts in sets)
    return [image_of(pod) for pod in pods] == ["v2"] * wanted
