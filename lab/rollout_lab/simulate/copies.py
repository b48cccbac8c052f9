"""Copy the objects on which a namespace is decided, with rights to read, for `simulate`.

StatefulSets and pods are required; all other kinds may be missing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import msgspec

from rollout_operator.aio.clock import Clock
from rollout_operator.config.flags import get_flag
from rollout_operator.kube.api import (
    CONFIG_MAPS,
    MULTI_AZ_ROLLOUTS,
    MUTATING_WEBHOOKS,
    NATIVE_BUDGETS,
    NODES,
    PODS,
    ROLLOUT_HEALTH_CHECKS,
    STATEFULSETS,
    VALIDATING_WEBHOOKS,
    ZONE_BUDGETS,
    ApiClient,
    JsonObject,
    Resource,
    list_items,
)
from rollout_operator.kube.responses import KindCatalog
from rollout_operator.kube.scales import check_kind
from rollout_operator.model.decode.objects import decode_statefulset
from rollout_operator.model.decode.wire import decode_or_salvage
from rollout_operator.model.names import ApiError, InvalidInput, NotFound
from rollout_operator.model.objects import Unreadable
from rollout_operator.model.scaling import Reference
from rollout_operator.operator.inspect import check_namespace
from rollout_operator.planning.scaling import list_references

_OPTIONAL: Final = (
    *(ZONE_BUDGETS, NATIVE_BUDGETS, VALIDATING_WEBHOOKS, MUTATING_WEBHOOKS, NODES),
    *(MULTI_AZ_ROLLOUTS, ROLLOUT_HEALTH_CHECKS),
)
# A cluster without such a kind may refuse to list it.
_RARE: Final = (MULTI_AZ_ROLLOUTS, ROLLOUT_HEALTH_CHECKS)
_Found = tuple[Resource, msgspec.Raw]


class ObjectsCopy(msgspec.Struct, frozen=True, kw_only=True):
    objects: Sequence[JsonObject]
    read_at: datetime
    known: frozenset[str] = frozenset()
    """Kinds that were read completely, even if there is no object."""
    unread: tuple[str, ...] = ()
    """What could not be read, a sentence each."""


async def copy_namespace(client: ApiClient, namespace: str, clock: Clock) -> ObjectsCopy:
    """Return the objects of a namespace. Raises ApiError without StatefulSets or pods."""
    reading = _Reading(client, namespace, clock)
    sets = await reading.list_all(STATEFULSETS)
    others = [entry for kind in _OPTIONAL for entry in await reading.list_optional(kind)]
    tracker: str = get_flag("zone-tracker.config-map-name").default
    others += await reading.fetch_optional(CONFIG_MAPS, tracker)
    for reference in _list_references(sets):
        others += await reading.fetch_mirrored(reference)
    # Pods last: they are no older than what their sets want.
    pods = await reading.list_all(PODS)
    if not sets and not pods:
        await check_namespace(client, namespace)
    return ObjectsCopy(
        objects=[_decode(raw, kind) for kind, raw in (*sets, *pods, *others)],
        read_at=client.server_time() or clock.now(),
        known=frozenset(reading.known),
        unread=tuple(reading.unread),
    )


@dataclass(slots=True)
class _Reading:
    client: ApiClient
    namespace: str
    clock: Clock
    known: set[str] = field(default_factory=set)
    unread: list[str] = field(default_factory=list)

    async def list_all(self, resource: Resource) -> list[_Found]:
        namespace = self.namespace if resource.is_namespaced else ""
        items = await list_items(self.client, resource, namespace)
        self.known.add(resource.kind)
        return [(resource, raw) for raw in items]

    async def list_optional(self, resource: Resource) -> list[_Found]:
        """Return all objects of a kind; record why, and return none, if they may not be read."""
        try:
            return await self.list_all(resource)
        except NotFound:
            self.known.add(resource.kind)  # the kind is not installed
        except ApiError as error:
            if resource in _RARE and await self._is_missing(resource):
                self.known.add(resource.kind)
            else:
                self._leave_out(f"{resource.plural} are", error)
        return []

    def _leave_out(self, what: str, error: Exception) -> None:
        self.unread.append(f"{what} left out: {error}")

    async def _is_missing(self, resource: Resource) -> bool:
        """Return whether a kind is not installed, which the API server may answer by a 403."""
        try:
            served = await KindCatalog(self.client, self.clock).find(resource.group, resource.kind)
        except ApiError:
            return False
        return served is None

    async def fetch_optional(self, resource: Resource, name: str) -> list[_Found]:
        """Return one object; record why, and return none, if it may not be read."""
        try:
            raw = await self.client.fetch(resource, self.namespace, name)
            return [(resource, msgspec.Raw(raw))]
        except NotFound:
            return []
        except ApiError as error:
            self._leave_out(f"{resource.kind} {name} is", error)
            return []

    async def fetch_mirrored(self, reference: Reference) -> list[_Found]:
        catalog = KindCatalog(self.client, self.clock)
        try:
            served = await catalog.find(reference.group, reference.kind)
            resource = check_kind(reference, served)
        except (ApiError, InvalidInput) as error:
            self._leave_out(f"{reference} is", error)
            return []
        if resource == STATEFULSETS:
            return []  # it is listed already
        return await self.fetch_optional(resource, reference.name)


def _list_references(sets: Sequence[_Found]) -> Sequence[Reference]:
    decoded = [decode_or_salvage(kind.kind, decode_statefulset, raw) for kind, raw in sets]
    return list_references(sts for sts in decoded if not isinstance(sts, Unreadable))


def _decode(raw: msgspec.Raw, resource: Resource) -> JsonObject:
    """Return an object with its type, which objects in a list lack."""
    version = f"{resource.group}/{resource.version}" if resource.group else resource.version
    head: Mapping[str, object] = {"apiVersion": version, "kind": resource.kind}
    return {**msgspec.json.decode(raw, type=dict[str, object]), **head}
