"""The shipped manifests with components, applied to a real API server."""

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from tests.rendered import MUTATING, VALIDATING, install
from tests.world.api import MUTATING_HOOKS, VALIDATING_HOOKS, Json
from tests.world.manifests import apply_manifests, remove_cluster_scoped
from tests.world.world import World

CONFIGURATIONS: Final = {VALIDATING: VALIDATING_HOOKS, MUTATING: MUTATING_HOOKS}


@asynccontextmanager
async def installed(
    world: World, at: Path, *components: str, port: int = 1
) -> AsyncIterator[list[Json]]:
    """Apply the base with components, and yield the objects; the cluster's own are removed after.

    There is no network for Services: theirs stands for `localhost`, and the configurations name
    the port that is listened on. All else is as shipped.
    """
    objects = install(at, *components, namespace=world.namespace)
    for one in objects:
        if one["kind"] in CONFIGURATIONS:
            one["webhooks"][0]["clientConfig"]["service"]["port"] = port
        if one["kind"] == "Service":
            ports = [{"name": "https", "port": port}]
            one["spec"] = {"type": "ExternalName", "externalName": "localhost", "ports": ports}
    try:
        await apply_manifests(world.api, world.namespace, objects)
        yield objects
    finally:
        await remove_cluster_scoped(world.api, objects)


async def trust(world: World, objects: list[Json], ca: bytes) -> None:
    """Let the API server believe a CA, in each configuration."""
    for one in objects:
        if one["kind"] in CONFIGURATIONS:
            step = {
                "op": "add",
                "path": "/webhooks/0/clientConfig/caBundle",
                "value": base64.b64encode(ca).decode(),
            }
            resource = CONFIGURATIONS[one["kind"]]
            await world.api.patch(resource, "", one["metadata"]["name"], [step], kind="json")
