"""The object behind a Scale: its labels, from the cache where that is certainly fresh enough.

A Scale carries the version of its object, so that no clock is needed: the cache is fresh where it
holds that version or a newer one (a write that was admitted against an older one cannot be
committed). Otherwise the object is read, once.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Protocol

import msgspec

from rollout_operator.aio.clock import Clock
from rollout_operator.kube.api import DEPLOYMENTS, REPLICASETS, STATEFULSETS, Reader, Resource
from rollout_operator.kube.store import is_older
from rollout_operator.model.decode import decode_statefulset
from rollout_operator.model.errors import DecodeError, Denied, InvalidInput, Unreachable
from rollout_operator.model.objects import StatefulSet, Unreadable
from rollout_operator.model.review import Review, Scalable

RESOURCES: Final[Mapping[str, Resource]] = {
    one.plural: one for one in (STATEFULSETS, DEPLOYMENTS, REPLICASETS)
}
# A watch is milliseconds behind what was just written: waiting is cheaper than a read.
CATCH_UP: Final = tuple(timedelta(milliseconds=span) for span in (5, 10, 20, 40))


class SetCache(Protocol):
    """The cached StatefulSets."""

    def get(self, namespace: str, name: str) -> StatefulSet | Unreadable | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Parent:
    """What the object behind a Scale carries."""

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


class _Metadata(msgspec.Struct):
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Object(msgspec.Struct):
    metadata: _Metadata


_OBJECT: Final = msgspec.json.Decoder(_Object)


class Parents:
    """Finds the object that a review of a Scale is about."""

    def __init__(self, sets: SetCache, reader: Reader, *, namespace: str, clock: Clock) -> None:
        self._sets = sets
        self._reader = reader
        self._namespace = namespace
        self._clock = clock

    async def find(self, review: Review, until: timedelta) -> Parent:
        """Return what the object carries.

        Raises InvalidInput for another kind, Denied for another namespace, DecodeError, and what
        `Reader.fetch` raises; Unreachable where no answer came in time.
        """
        resource = RESOURCES.get(review.resource)
        if resource is None:
            raise InvalidInput(f"unsupported resource {review.resource}")
        if resource is STATEFULSETS:
            sts = await self.find_set(review, until)
            return Parent(labels=sts.labels, annotations=sts.annotations)
        body = await self._fetch(resource, review, until)
        try:
            metadata = _OBJECT.decode(body).metadata
        except (msgspec.MsgspecError, RecursionError) as error:
            raise DecodeError(f"{resource.kind} {review.name}: {error}") from error
        return Parent(labels=metadata.labels or {}, annotations=metadata.annotations or {})

    async def find_set(self, review: Review, until: timedelta) -> StatefulSet:
        """Return the StatefulSet itself, at least as new as the review. Raises as `find`."""
        cached = await self._find_cached(review, until)
        if cached is not None:
            return cached
        return decode_statefulset(await self._fetch(STATEFULSETS, review, until))

    async def _find_cached(self, review: Review, until: timedelta) -> StatefulSet | None:
        if not isinstance(review.old, Scalable) or not review.old.resource_version:
            return None
        for pause in (*CATCH_UP, timedelta(0)):
            cached = self._sets.get(review.namespace, review.name)
            if not isinstance(cached, StatefulSet) or cached.uid != review.old.uid:
                return None
            if _covers(cached.resource_version, review.old.resource_version):
                return cached
            if self._clock.elapsed() + pause >= until:
                return None
            await self._clock.sleep(pause)
        return None

    async def _fetch(self, resource: Resource, review: Review, until: timedelta) -> bytes:
        if review.namespace != self._namespace:
            raise Denied(f"namespace {review.namespace} is not looked after")
        left = until - self._clock.elapsed()
        try:
            async with asyncio.timeout(max(left.total_seconds(), 0)):
                return await self._reader.fetch(resource, review.namespace, review.name)
        except TimeoutError as error:
            raise Unreachable(f"no answer within {left.total_seconds():.1f}s") from error


def _covers(version: str, asked: str) -> bool:
    return version == asked or is_older(asked, than=version)
