"""The object behind a Scale: its labels, from the cache where that is certainly fresh enough.

A Scale carries the UID and the version of its object, so that no clock is needed: a cache that has
that version, or a newer, is fresh, and so is the answer to a read that another review began (a
write that was admitted against an older version cannot be committed). Otherwise the object is read,
once for all reviews that wait for it: the number of reads is bounded by the objects that reviews
name, and not by how many reviews there are.
"""

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Final, TypeAlias

import msgspec

from rollout_operator.aio.clock import Clock
from rollout_operator.aio.shared import SingleFlight
from rollout_operator.kube.api import DEPLOYMENTS, REPLICASETS, STATEFULSETS, Reader, Resource
from rollout_operator.kube.cache.store import StatefulSetStore, is_older
from rollout_operator.model.decode.objects import decode_statefulset
from rollout_operator.model.errors import (
    ApiError,
    DeadlinePassed,
    DecodeError,
    Denied,
    InvalidInput,
    OperatorError,
)
from rollout_operator.model.objects import StatefulSet
from rollout_operator.model.review import Review, Scalable
from rollout_operator.web.reviews.read_shares import Standing, UnconfirmedReads

RESOURCES: Final[Mapping[str, Resource]] = {
    resource.plural: resource for resource in (STATEFULSETS, DEPLOYMENTS, REPLICASETS)
}
# A watch is milliseconds behind what was just written: waiting is cheaper than a read.
CATCH_UP: Final = tuple(timedelta(milliseconds=span) for span in (5, 10, 20, 40))


class Parent(msgspec.Struct, frozen=True, kw_only=True):
    """Labels and annotations of the object behind a Scale."""

    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}


class _Metadata(msgspec.Struct):
    uid: str = ""
    resource_version: str = msgspec.field(name="resourceVersion", default="")
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Object(msgspec.Struct):
    metadata: _Metadata


_OBJECT: Final = msgspec.json.Decoder(_Object)

_Answer: TypeAlias = StatefulSet | _Metadata | OperatorError
"""The answer to a read; all reviews that waited for it share an error."""


class Parents:
    """Finds the object that a review of a Scale is about."""

    def __init__(
        self,
        sets: StatefulSetStore,
        reader: Reader,
        reads: UnconfirmedReads,
        *,
        namespace: str,
        clock: Clock,
    ) -> None:
        self._sets = sets
        self._reader = reader
        self._limited = reads
        self._namespace = namespace
        self._clock = clock
        self._reads: SingleFlight[tuple[str, str, str], _Answer] = SingleFlight()

    async def fetch(self, review: Review, until: timedelta) -> Parent:
        """Return labels and annotations of the object.

        Raises InvalidInput for another kind, Denied for another namespace, DecodeError, and what
        `Reader.fetch` raises; DeadlinePassed where there was no answer before `until`.
        """
        resource = RESOURCES.get(review.resource)
        if resource is None:
            raise InvalidInput(f"unsupported resource {review.resource}")
        if resource is STATEFULSETS:
            sts = await self.get_set(review, until)
            return Parent(labels=sts.labels, annotations=sts.annotations)
        parent = await self._read(resource, review, until)
        assert isinstance(parent, _Metadata), "decoded by kind"
        return Parent(labels=parent.labels or {}, annotations=parent.annotations or {})

    async def get_set(self, review: Review, until: timedelta) -> StatefulSet:
        """Return the StatefulSet itself, at least as new as the review. Raises as `find`."""
        cached = await self._find_cached(review, until)
        if cached is not None:
            return cached
        parent = await self._read(STATEFULSETS, review, until)
        assert isinstance(parent, StatefulSet), "decoded by kind"
        return parent

    def _choose_standing(self, resource: Resource, review: Review) -> Standing:
        """Return the standing of the object to read: names are easily guessed, UIDs not."""
        if resource is not STATEFULSETS:
            return Standing.UNCACHED
        if not isinstance(review.old, Scalable):
            return Standing.UNKNOWN
        cached = self._sets.get(review.namespace, review.name)
        is_shown = cached is not None and cached.uid == review.old.uid
        return Standing.SHOWN if is_shown else Standing.UNKNOWN

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

    async def _read(
        self, resource: Resource, review: Review, until: timedelta
    ) -> StatefulSet | _Metadata:
        """Return the object, from a read that other reviews may share."""
        if review.namespace != self._namespace:
            raise Denied(f"namespace {review.namespace} is not looked after")
        key = (resource.plural, review.namespace, review.name)
        left = until - self._clock.elapsed()
        try:
            async with asyncio.timeout(max(left.total_seconds(), 0)):
                answer = await self._reads.share(
                    key,
                    lambda: self._fetch(resource, review, left),
                    lambda parent: _is_fresh(parent, review),
                )
        except TimeoutError as error:
            text = f"no answer within {left.total_seconds():.1f}s"
            raise DeadlinePassed(text) from error
        if isinstance(answer, OperatorError):
            raise answer.with_traceback(None)  # others raise it too
        return answer

    async def _fetch(self, resource: Resource, review: Review, within: timedelta) -> _Answer:
        try:
            body = await self._limited.fetch(
                self._reader,
                resource,
                review.namespace,
                review.name,
                standing=self._choose_standing(resource, review),
                within=within,
            )
            if resource is STATEFULSETS:
                return decode_statefulset(body)
            return _OBJECT.decode(body).metadata
        except (msgspec.MsgspecError, RecursionError) as error:
            return DecodeError(f"{resource.kind} {review.name}: {error}")
        except (ApiError, InvalidInput) as error:
            return error


def _is_fresh(answer: _Answer, review: Review) -> bool:
    """Return whether the answer to a read sent before the review came is new enough for it.

    An error proves nothing: the object may have been created since, or the right been granted.
    """
    old = review.old
    if isinstance(answer, OperatorError) or not isinstance(old, Scalable) or not old.uid:
        return False
    return answer.uid == old.uid and _covers(answer.resource_version, old.resource_version)


def _covers(version: str, wanted: str) -> bool:
    return bool(wanted) and (version == wanted or is_older(wanted, than=version))
