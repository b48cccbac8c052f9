"""Inputs for tests of `simulate`: what kubectl would print of a simulated group."""

import asyncio
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import yaml
from rollout_lab.model.request import ApiRequest
from rollout_lab.virtual_loop.loop import VirtualTimeLoop
from rollout_lab.world import Sandbox
from rollout_lab.zones import ZoneSpec, statefulset

from rollout_operator.kube.api import PODS, STATEFULSETS

Json = dict[str, Any]
NAMESPACE = "prod"
THREE = tuple(ZoneSpec(name=f"zone-{letter}") for letter in "abc")


def _grow(zones: tuple[ZoneSpec, ...], failed: tuple[str, ...]) -> list[Json]:
    # No two worlds may have the same UIDs, nor the one that simulates: its seeds are small.
    seed = 1000 + len(_KNOWN)

    async def grow() -> list[Json]:
        async with Sandbox(namespace=NAMESPACE, seed=seed) as sandbox:
            for zone in zones:
                body = statefulset(zone, NAMESPACE)
                request = ApiRequest(
                    verb="create", resource=STATEFULSETS, namespace=NAMESPACE, body=body
                )
                await sandbox.call(request)
            await asyncio.sleep(10)
            for pod in failed:
                sandbox.cluster.fail_pod(pod)
            await asyncio.sleep(10)
            sets, pods = (sandbox.api.list(kind, NAMESPACE) for kind in (STATEFULSETS, PODS))
            return [*sets, *pods]

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(grow())


# Growing takes a while. A Zone has no hash: those that are known are compared.
_KNOWN: list[tuple[tuple[ZoneSpec, ...], tuple[str, ...], list[Json]]] = []


def grow(*zones: ZoneSpec, failed: Sequence[str] = ()) -> list[Json]:
    """Return the objects of a group that is whole but for the pods that crash; a fresh copy."""
    wanted = (zones or THREE, tuple(failed))
    for known_zones, known_failed, objects in _KNOWN:
        if (known_zones, known_failed) == wanted:
            return deepcopy(objects)
    objects = _grow(*wanted)
    _KNOWN.append((*wanted, objects))
    return deepcopy(objects)


def pick(objects: Sequence[Json], name: str) -> Json:
    """Return the object of a name."""
    return next(one for one in objects if one["metadata"]["name"] == name)


def to_yaml(objects: Sequence[Json]) -> bytes:
    """Return them as `kubectl get -o yaml` prints them."""
    listed = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
    return str(yaml.dump(listed, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper))).encode()
