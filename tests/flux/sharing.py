"""Flux applies its own objects, as from Git, while a Rollout writes their tag."""

from collections.abc import Mapping
from typing import Any, Final

import yaml

from tests.flux.artifacts import push_manifests
from tests.flux.play import KINDS, Play
from tests.flux.waits import is_applied, request_again, wait_calm, wait_flux
from tests.oci.registries import NAME
from tests.system.releasing import create, read_status, read_tags, show_condition
from tests.system.waits import wait_true
from tests.world.api import Json
from tests.world.flux import KUSTOMIZATIONS, OCI_REPOSITORIES
from tests.world.world import World

_PARENT: Final = "parent"
# What a person writes into them, beside what a Rollout does.
_WRITTEN: Final = ("interval", "url", "insecure", "secretRef", "prune", "sourceRef")
_IF_NOT_PRESENT: Final = {"kustomize.toolkit.fluxcd.io/ssa": "IfNotPresent"}
_PASSES: Final = 3
_MOST_PASSES: Final = 12


async def share_objects(play: Play) -> None:
    """Beside the tag, with another one that is for the first time only, and with one for ever."""
    before = await _read_all(play)
    await _create_parent(play)
    await _apply(play, "parent-1")
    await _apply(play, "parent-2", annotations=_IF_NOT_PRESENT, ref={"tag": "1.0.0"})
    await wait_calm(play.world, [*KINDS.values()])
    assert await _read_all(play) == before
    await play.note("Flux applies the objects as well")
    await _apply(play, "parent-3", ref={"tag": "1.0.0"})
    await _contest(play)


async def _contest(play: Play) -> None:
    """Have Flux write its tag again and again until the Rollout leaves it alone, and says so."""
    world = play.world
    for number in range(_MOST_PASSES):
        await request_again(play.world, KUSTOMIZATIONS, _PARENT, f"contested, {number}")
        await wait_true("corrected, or left alone", lambda: _is_answered(world))
        if await _is_contested(world):
            break
    assert await _is_contested(world)
    assert await read_tags(world) == ("1.0.0", "1.4.0")


async def _is_answered(world: World) -> bool:
    return await _is_contested(world) or (await read_tags(world))[0] == "1.4.0"


async def _is_contested(world: World) -> bool:
    return show_condition(await read_status(world), "TargetConflict") == "True TargetConflict"


async def _read_all(play: Play) -> tuple[object, ...]:
    """Return the tags, and how often the objects were changed."""
    bodies = [await play.world.get(resource, "app") for resource in KINDS.values()]
    return (*await read_tags(play.world), *(body["metadata"]["generation"] for body in bodies))


async def _create_parent(play: Play) -> None:
    """Create what applies the objects; nothing of it is annotated for a Rollout."""
    source = {
        "interval": "1h",
        "url": f"oci://{play.host}/{NAME}",
        "insecure": True,
        "secretRef": {"name": "pull"},
        "ref": {"tag": _PARENT},
    }
    await create(play.world, OCI_REPOSITORIES, "OCIRepository", _PARENT, source)
    reference = {"kind": "OCIRepository", "name": _PARENT}
    applied = {"interval": "1h", "prune": True, "sourceRef": reference}
    await create(play.world, KUSTOMIZATIONS, "Kustomization", _PARENT, applied)


async def _apply(
    play: Play, tag: str, annotations: Mapping[str, str] | None = None, **source: Any
) -> None:
    """Have the objects applied several times; more of the OCIRepository by keyword."""
    files = {}
    for kind, resource in KINDS.items():
        body = await play.world.get(resource, "app")
        more = source if resource is OCI_REPOSITORIES else {}
        files[f"{kind}.yaml"] = yaml.safe_dump(_render(body, annotations or {}, more))
    push_manifests(play.host, tag, files)
    await play.world.patch(OCI_REPOSITORIES, _PARENT, {"spec": {"ref": {"tag": tag}}})
    await wait_flux(play.world, KUSTOMIZATIONS, is_applied(tag), _PARENT)
    for number in range(_PASSES):
        await request_again(play.world, KUSTOMIZATIONS, _PARENT, f"{tag}, {number}")


def _render(body: Json, annotations: Mapping[str, str], more: Mapping[str, Any]) -> Json:
    """Return an object as it would stand in Git."""
    metadata = body["metadata"]
    own = {key: value for key, value in metadata["annotations"].items() if "kuberik" in key}
    return {
        "apiVersion": body["apiVersion"],
        "kind": body["kind"],
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "annotations": {**own, **annotations},
        },
        "spec": {**{key: body["spec"][key] for key in _WRITTEN if key in body["spec"]}, **more},
    }
