"""Take a dump: all that `simulate` reads, one list after the other, as kubectl does it."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from tests.world.api import (
    BUDGETS,
    CONFIG_MAPS,
    MUTATING_HOOKS,
    PODS,
    STATEFULSETS,
    VALIDATING_HOOKS,
    Json,
    Resource,
)
from tests.world.budgets import REPLICA_TEMPLATES, ZONE_BUDGETS
from tests.world.world import World

KINDS: Final = (STATEFULSETS, PODS, ZONE_BUDGETS, BUDGETS, CONFIG_MAPS, REPLICA_TEMPLATES)
HOOKS: Final = (VALIDATING_HOOKS, MUTATING_HOOKS)


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """A dump, and where in the history of the store it stands."""

    path: Path
    version: int
    """Of the store when the pods were listed."""
    pods: Sequence[Json]


async def take(world: World, path: Path) -> Taken:
    """Write a dump to a file."""
    items: list[Json] = []
    version, pods = 0, ()
    for kind in KINDS:
        listed = await world.api.list(kind, world.namespace)
        items += _name_kinds(kind, listed)
        if kind is PODS:
            version, pods = int(listed["metadata"]["resourceVersion"]), listed["items"]
    for kind in HOOKS:
        listed = await world.api.list(kind)
        found = _name_kinds(kind, listed)
        items += [one for one in found if one["metadata"]["name"].endswith(world.namespace)]
    _write(path, items)
    return Taken(path=path, version=version, pods=pods)


def _write(path: Path, items: list[Json]) -> None:
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))


def _name_kinds(resource: Resource, listed: Json) -> list[Json]:
    """Return the objects of a list with what each is, which only the list itself says."""
    kind = str(listed["kind"]).removesuffix("List")
    return [{"apiVersion": resource.api_version, "kind": kind, **one} for one in listed["items"]]
