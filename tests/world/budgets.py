"""The shipped kinds, installed into a control plane once for all tests that need one."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from enum import Enum, auto
from pathlib import Path
from typing import Final

from rollout_lab.zones import ZoneSpec

from tests.world.api import PODS, Answer, Api, ApiError, Json, Resource
from tests.world.manifests import read_manifests

FOLDER: Final = Path(__file__).parents[2] / "manifests" / "crds"
CRDS: Final = Resource("apiextensions.k8s.io/v1", "customresourcedefinitions", is_namespaced=False)
REPLICA_TEMPLATES: Final = Resource("rollout-operator.grafana.com/v1", "replicatemplates")
ZONE_BUDGETS: Final = Resource("rollout-operator.grafana.com/v1", "zoneawarepoddisruptionbudgets")
SERVED_LIMIT: Final = timedelta(seconds=60)
POLL: Final = timedelta(milliseconds=50)
_EXISTS: Final = 409


async def install_kinds(api: Api, folder: Path = FOLDER) -> None:
    """Create the shipped CustomResourceDefinitions and wait until their kinds are served."""
    for crd in read_manifests(folder):
        try:
            await api.create(CRDS, "", crd)
        except ApiError as error:
            if error.status != _EXISTS:
                raise
        await wait_served(api, crd)


def definition(
    group: str, kind: str, plural: str, versions: Sequence[str], schema: Json, scope: str
) -> Json:
    """Return a CustomResourceDefinition with a status, stored as the first of its versions."""
    names = {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()}
    served = [
        {
            "name": version,
            "served": True,
            "storage": version == versions[0],
            "schema": {"openAPIV3Schema": {"type": "object", **schema}},
            "subresources": {"status": {}},
        }
        for version in versions
    ]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "scope": scope, "names": names, "versions": served},
    }


async def wait_served(api: Api, crd: Json) -> None:
    async with asyncio.timeout(SERVED_LIMIT.total_seconds()):
        while not await _is_served(api, crd["spec"]):  # noqa: ASYNC110 (an answer, no event)
            await asyncio.sleep(POLL.total_seconds())


async def _is_served(api: Api, spec: Json) -> bool:
    """Return whether a kind is found by discovery, and its objects are there to be listed."""
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


GROUP: Final = "rollout-group"
POLICY: Final = "policy/v1"
# What `kubectl drain` sees as "try again".
TRY_AGAIN: Final = 429


class DryRun(Enum):
    """How a dry run of an eviction is requested."""

    NO = auto()
    QUERY = auto()
    """`?dryRun=All`"""
    OPTIONS = auto()
    """`deleteOptions.dryRun` of the body, as `kubectl drain --dry-run=server` sends it."""


def zone_budget(name: str, selector: Mapping[str, str], **spec: object) -> Json:
    """Return a ZoneAwarePodDisruptionBudget; more fields of its spec by keyword."""
    return {
        "apiVersion": "rollout-operator.grafana.com/v1",
        "kind": "ZoneAwarePodDisruptionBudget",
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": dict(selector)}, **spec},
    }


def grouped_zones(
    group: str = "ingester",
    *,
    letters: str = "abc",
    replicas: int = 3,
    max_unavailable: int | None = None,
) -> tuple[ZoneSpec, ...]:
    """Return zones whose pods carry the label of their group, as a budget needs it."""
    return tuple(
        ZoneSpec(
            name=f"{group}-zone-{letter}",
            group=group,
            replicas=replicas,
            max_unavailable=max_unavailable,
            min_ready=timedelta(0),
            pod_labels={GROUP: group},
        )
        for letter in letters
    )


async def evict(
    api: Api, namespace: str, pod: str, *, dry_run: DryRun = DryRun.NO, uid: str = ""
) -> Answer:
    """Request the eviction of a pod once and return what came back.

    Raises aiohttp.ClientError.
    """
    options: Json = {}
    if uid:
        options["preconditions"] = {"uid": uid}
    if dry_run is DryRun.OPTIONS:
        options["dryRun"] = ["All"]
    return await api.exchange(
        "POST",
        PODS.path(namespace, pod, "eviction"),
        body={
            "apiVersion": POLICY,
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": namespace},
            **({"deleteOptions": options} if options else {}),
        },
        query={"dryRun": "All"} if dry_run is DryRun.QUERY else None,
    )


def native_budget(name: str, selector: Mapping[str, str], max_unavailable: int) -> Json:
    return {
        "apiVersion": POLICY,
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name},
        "spec": {"maxUnavailable": max_unavailable, "selector": {"matchLabels": dict(selector)}},
    }
