"""Budgets that know zones, and evictions, as users and their tools send them."""

from collections.abc import Mapping
from datetime import timedelta
from enum import Enum, auto
from typing import Final

from rollout_operator.lab.zones import ZoneSpec
from tests.world.api import PODS, Answer, Api, Json

GROUP: Final = "rollout-group"
PARTITION: Final = r"[a-z\-]+-zone-[a-z]-([0-9]+)"
POLICY: Final = "policy/v1"
# What `kubectl drain` sees as "try again".
TRY_AGAIN: Final = 429


class DryRun(Enum):
    """How a dry run of an eviction is asked for."""

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


def by_partition(name: str, selector: Mapping[str, str], **spec: object) -> Json:
    """Return a budget that counts by partition: the ordinal of a pod."""
    return zone_budget(name, selector, podNamePartitionRegex=PARTITION, **spec)


def grouped_zones(
    group: str = "ingester",
    *,
    letters: str = "abc",
    replicas: int = 3,
    max_unavailable: int | None = None,
    min_ready: timedelta = timedelta(0),
) -> tuple[ZoneSpec, ...]:
    """Return zones whose pods carry the label of their group, as a budget needs it."""
    return tuple(
        ZoneSpec(
            name=f"{group}-zone-{letter}",
            group=group,
            replicas=replicas,
            max_unavailable=max_unavailable,
            min_ready=min_ready,
            pod_labels={GROUP: group},
        )
        for letter in letters
    )


async def evict(
    api: Api, namespace: str, pod: str, *, dry_run: DryRun = DryRun.NO, uid: str = ""
) -> Answer:
    """Ask for the eviction of a pod once and return what came back.

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
    """Return a PodDisruptionBudget."""
    return {
        "apiVersion": POLICY,
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name},
        "spec": {
            "maxUnavailable": max_unavailable,
            "selector": {"matchLabels": dict(selector)},
        },
    }
