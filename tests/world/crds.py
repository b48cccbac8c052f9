"""The shipped kinds, installed into a control plane once for all tests that need one."""

import asyncio
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Final

from tests.world.api import Api, ApiError, Json, Resource
from tests.world.manifests import read_manifests

FOLDER: Final = Path(__file__).parents[2] / "manifests" / "crds"
CRDS: Final = Resource("apiextensions.k8s.io/v1", "customresourcedefinitions", is_namespaced=False)
REPLICA_TEMPLATES: Final = Resource("rollout-operator.grafana.com/v1", "replicatemplates")
ZONE_BUDGETS: Final = Resource("rollout-operator.grafana.com/v1", "zoneawarepoddisruptionbudgets")
SERVED_LIMIT: Final = timedelta(seconds=60)
POLL: Final = timedelta(milliseconds=50)
_EXISTS: Final = 409


async def install_kinds(api: Api) -> None:
    """Create the shipped CustomResourceDefinitions and wait until their kinds are served."""
    for crd in read_manifests(FOLDER):
        try:
            await api.create(CRDS, "", crd)
        except ApiError as error:
            if error.status != _EXISTS:
                raise
        async with asyncio.timeout(SERVED_LIMIT.total_seconds()):
            while not await _is_served(api, crd["spec"]):  # noqa: ASYNC110 (an answer, no event)
                await asyncio.sleep(POLL.total_seconds())


async def _is_served(api: Api, spec: Json) -> bool:
    """Tell whether a kind is found by discovery, and its objects are there to be listed."""
    root = f"/apis/{spec['group']}"
    with suppress(ApiError):
        await api.call("GET", root)
        for version in (one["name"] for one in spec["versions"]):
            found = await api.call("GET", f"{root}/{version}")
            names = {one["name"] for one in found["resources"]}
            await api.call("GET", f"{root}/{version}/{spec['names']['plural']}")
            below = next(one for one in spec["versions"] if one["name"] == version)
            for subresource in below.get("subresources", {}):
                if f"{spec['names']['plural']}/{subresource}" not in names:
                    return False
        return True
    return False
