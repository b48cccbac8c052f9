"""Kinds of Flux, as far as releases read and write them, and what its controllers do with one.

The schemas are ours: the fields by their names, and whatever else Flux has in them is kept.
"""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

from tests.world.api import Api, ApiError, Json, Resource
from tests.world.budgets import CRDS, POLL, SERVED_LIMIT, definition, wait_served

IMAGES: Final = "image.toolkit.fluxcd.io"
IMAGE_POLICIES: Final = Resource(f"{IMAGES}/v1", "imagepolicies")
IMAGE_REPOSITORIES: Final = Resource(f"{IMAGES}/v1", "imagerepositories")
OCI_REPOSITORIES: Final = Resource("source.toolkit.fluxcd.io/v1", "ocirepositories")
KUSTOMIZATIONS: Final = Resource("kustomize.toolkit.fluxcd.io/v1", "kustomizations")

_TEXT: Final = {"type": "string"}
_OPEN: Final = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_REF: Final = {"type": "object", "properties": dict.fromkeys(("tag", "digest", "semver"), _TEXT)}
_TEXTS: Final = {"type": "object", "additionalProperties": _TEXT}
_POST_BUILD: Final = {"type": "object", "properties": {"substitute": _TEXTS}}
# By kind: plural, group, versions, and the fields of a spec that are written.
_KINDS: Final[dict[str, tuple[str, str, tuple[str, ...], Json]]] = {
    "ImagePolicy": ("imagepolicies", IMAGES, ("v1", "v1beta2"), {}),
    "ImageRepository": ("imagerepositories", IMAGES, ("v1", "v1beta2"), {}),
    "OCIRepository": (
        "ocirepositories",
        "source.toolkit.fluxcd.io",
        ("v1", "v1beta2"),
        {"ref": _REF},
    ),
    "Kustomization": (
        "kustomizations",
        "kustomize.toolkit.fluxcd.io",
        ("v1",),
        {"postBuild": _POST_BUILD},
    ),
}


def render_kind(kind: str, *, without: str = "") -> Json:
    """Return the definition of a kind, perhaps without one of its versions."""
    plural, group, versions, fields = _KINDS[kind]
    served = [one for one in versions if one != without] or [*versions]
    schema = {"properties": {"spec": {**_OPEN, "properties": fields}, "status": _OPEN}}
    return definition(group, kind, plural, served, schema, "Namespaced")


def render_fetched(revision: str, generation: int, now: str) -> Json:
    """Return the status of an OCIRepository that source-controller is through with."""
    message = f"stored artifact for digest '{revision}'"
    return {
        "observedGeneration": generation,
        "artifact": {"revision": revision},
        "conditions": [
            _render_condition(kind, "Succeeded", message, generation, now)
            for kind in ("Ready", "ArtifactInStorage")
        ],
    }


def render_applied(revision: str, generation: int, now: str) -> Json:
    """Return the status of a Kustomization that kustomize-controller is through with.

    What it has in its inventory is left to `render_inventory`.
    """
    message = f"Applied revision: {revision}"
    return {
        "observedGeneration": generation,
        "lastAppliedRevision": revision,
        "lastAttemptedRevision": revision,
        "conditions": [
            _render_condition("Ready", "ReconciliationSucceeded", message, generation, now)
        ],
    }


def render_inventory(namespace: str, sets: Iterable[str]) -> Json:
    """Return the inventory of a Kustomization that applied StatefulSets."""
    return {"entries": [{"id": f"{namespace}_{one}_apps_StatefulSet", "v": "v1"} for one in sets]}


def _render_condition(kind: str, reason: str, message: str, generation: int, now: str) -> Any:
    return {
        "type": kind,
        "status": "True",
        "reason": reason,
        "message": message,
        "observedGeneration": generation,
        "lastTransitionTime": now,
    }


async def install_flux(api: Api, *, without: str = "") -> None:
    """Create the kinds that are not there yet, and wait until all are served."""
    for kind in _KINDS:
        crd = render_kind(kind, without=without)
        try:
            await api.create(CRDS, "", crd)
        except ApiError as error:
            if error.status != 409:
                raise
            # Flux's own one, perhaps, which has other versions.
            crd = await api.get(CRDS, "", crd["metadata"]["name"])
        await wait_served(api, crd)


async def remove_flux(api: Api) -> None:
    """Remove the kinds and all their objects, where there are any, and wait until they are gone."""
    for plural, group, _, _ in _KINDS.values():
        name = f"{plural}.{group}"
        with suppress(ApiError):
            await api.delete(CRDS, "", name)
        async with asyncio.timeout(SERVED_LIMIT.total_seconds()):
            while await _is_there(api, name):  # noqa: ASYNC110 (an answer, no event)
                await asyncio.sleep(POLL.total_seconds())


async def _is_there(api: Api, name: str) -> bool:
    try:
        await api.get(CRDS, "", name)
    except ApiError as error:
        if error.status != 404:
            raise
        return False
    return True
