"""The hook no-downscale, and the objects behind the Scales that both downscale hooks review.

A Scale whose object the API server does not give is allowed. One that the operator itself had no
room or time to read is refused for now (D-20). `planning.requests` decides the rest.

A Scale carries the UID and version of its object: a cache with that version, or a newer one, is
fresh enough, and so is the answer to a read for another review, because a write admitted against an
older version cannot be committed. Otherwise the object is read, once for all waiting reviews.

Any client may send a review: of objects that never were, or of real ones again and again. Reads of
objects that the cache does not confirm therefore wait for a small bucket of their own, and rollouts
and honest reviews keep the rest of the rate limit.
"""

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import replace

from rollout_operator.aio.clock import Clock
from rollout_operator.aio.tasks import SingleFlight
from rollout_operator.kube.api import DEPLOYMENTS, PODS, REPLICASETS, STATEFULSETS, Reader, Resource
from rollout_operator.kube.rate_limit import Priority, RateLimiter
from rollout_operator.kube.store import StatefulSetStore, is_older
from rollout_operator.model.decode.objects import decode_statefulset
from rollout_operator.model.names import (
    ApiError,
    DeadlinePassed,
    DecodeError,
    Denied,
    InvalidInput,
    NotFound,
    OperatorError,
    Throttled,
    TooManyRequests,
    Uid,
)
from rollout_operator.model.objects import Decrease, StatefulSet
from rollout_operator.model.outcome import Code, Verdict
from rollout_operator.model.scaling import Review, Scalable
from rollout_operator.planning.requests import (
    RETRY,
    allow,
    assess_no_downscale,
    assess_no_downscale_change,
    refuse_decrease,
)
from rollout_operator.web.connection import giving_way

# Of the requests that the process may send to an API group, for each bucket of a kind.
_SHARE: Final = 0.1
# A drain evicts all pods of a node at once: a few of them may have ended, or be new.
_BURST: Final = 5
# Of kinds without a cache every honest review needs a read: `kubectl scale deployment --all`.
_UNCACHED_SHARE: Final = 0.3
_UNCACHED_BURST: Final = 10
# Reads of groups whose set was under review a moment ago: clients try again, and the API server
# sends the review anew where another client has written.
_AGAIN_SHARE: Final = 0.2
_AGAIN_BURST: Final = 10
_READ_AGAIN: Final = "downscales that are requested again"
# The first read of the group of a set in so long a time takes from no bucket of repetitions.
LATELY: Final = timedelta(minutes=1)
_RESOURCES: Final[Mapping[str, Resource]] = {
    resource.plural: resource for resource in (STATEFULSETS, DEPLOYMENTS, REPLICASETS)
}
# A watch is milliseconds behind what was just written: waiting is cheaper than a read.
CATCH_UP: Final = tuple(timedelta(milliseconds=span) for span in (5, 10, 20, 40))
# A read without an answer ends so long before the review does: its verdict is decided here, and not
# by the server, which refuses whatever is late.
_TO_DECIDE: Final = timedelta(milliseconds=200)
# What clients wait before they send the request again; one read serves all that come meanwhile.
_AGAIN: Final = timedelta(seconds=1)
# Load, which the sender of requests can make: no reason to let a request pass.
_Overload = Throttled | TooManyRequests | DeadlinePassed


class Standing(StrEnum):
    """How far the cache confirms an object."""

    SHOWN = "that the cache shows otherwise"
    """It has the name and the UID of the review: there are only so many."""
    UNKNOWN = "that the cache does not show"
    """Perhaps made up: there is no end of them."""
    UNCACHED = "of kinds without a cache"
    """Perhaps made up as well, but honest reviews have no other way."""


class UnconfirmedReads:
    """Reads objects that the cache does not confirm, for all hooks of a process.

    Each kind has a bucket for objects that the cache shows and one for the others, so that made-up
    names delay no real objects, and one kind no other. Kinds without a cache share one.
    """

    def __init__(self, qps: float) -> None:
        """Read at shares of `qps` requests a second; without a limit for zero or less."""
        self._limits = RateLimiter(qps * _SHARE, _BURST)
        self._uncached = RateLimiter(qps * _UNCACHED_SHARE, _UNCACHED_BURST)

    async def fetch(
        self,
        reader: Reader,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        standing: Standing,
        within: timedelta,
    ) -> bytes:
        """Return an object as stored.

        Raises as `Reader.fetch`, and Throttled if its turn would come only after `within`.
        """
        if standing is Standing.UNCACHED:
            await self._uncached.take(standing, Priority.READ, within)
        else:
            await self._limits.take(f"{resource.plural} {standing}", Priority.READ, within)
        return await reader.fetch(resource, namespace, name)


class UnknownPods:
    """Reads pods of which the cache does not hold enough; all reviews of a pod share a read."""

    def __init__(self, reader: Reader, namespace: str, reads: UnconfirmedReads) -> None:
        self._reader = reader
        self._namespace = namespace
        self._limited = reads
        self._reads: SingleFlight[str, bytes | ApiError] = SingleFlight()

    async def fetch(self, name: str, standing: Standing, within: timedelta) -> bytes:
        """Return a pod by a read sent after the call. Raises as `UnconfirmedReads.fetch`."""
        with giving_way():
            answer = await self._reads.share(
                name, lambda: self._fetch(name, standing, within), lambda begun_before: False
            )
        if isinstance(answer, ApiError):
            raise answer.with_traceback(None)  # others raise it too
        return answer

    async def _fetch(self, name: str, standing: Standing, within: timedelta) -> bytes | ApiError:
        try:
            return await self._limited.fetch(
                self._reader, PODS, self._namespace, name, standing=standing, within=within
            )
        except ApiError as error:
            return error


class RepeatedReads:
    """Paces the live reads for reviews of confirmed StatefulSets.

    A client that knows name, UID and count can repeat such a review for ever. The first read in a
    minute is free, so that others' repetitions do not delay the first answer about a StatefulSet.
    """

    def __init__(self, qps: float, clock: Clock) -> None:
        """Limit reads to `qps` requests a second; not at all for zero or less."""
        self._limits = RateLimiter(qps * _AGAIN_SHARE, _AGAIN_BURST)
        self._clock = clock
        self._free: dict[Uid, timedelta] = {}
        """When each StatefulSet had a free read, the oldest first."""

    async def wait_turn(self, set_uid: Uid, within: timedelta) -> None:
        """Wait for a read of the StatefulSet's group.

        Raises Throttled if that would be only after `within`.
        """
        now = self._clock.elapsed()
        self._forget_before(now - LATELY)
        if set_uid not in self._free:
            self._free[set_uid] = now
            return
        await self._limits.take(_READ_AGAIN, Priority.READ, within)

    def _forget_before(self, then: timedelta) -> None:
        for uid, at in list(self._free.items()):
            if at > then:
                return
            del self._free[uid]


class Parent(msgspec.Struct, frozen=True, kw_only=True):
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
"""The answer to a read; all waiting reviews share an error."""


class Parents:
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
        """Return labels and annotations of the object under review.

        Raises InvalidInput for another kind, Denied for another namespace, DecodeError, what
        `Reader.fetch` raises, and DeadlinePassed if there was no answer before `until`.
        """
        resource = _RESOURCES.get(review.resource)
        if resource is None:
            raise InvalidInput(f"unsupported resource {review.resource}")
        if resource is STATEFULSETS:
            sts = await self.get_set(review, until)
            return Parent(labels=sts.labels, annotations=sts.annotations)
        parent = await self._read(resource, review, until)
        assert isinstance(parent, _Metadata), "decoded by kind"
        return Parent(labels=parent.labels or {}, annotations=parent.annotations or {})

    async def get_set(self, review: Review, until: timedelta) -> StatefulSet:
        """Return the StatefulSet, at least as new as the review. Raises as `fetch`."""
        cached = await self._find_cached(review, until)
        if cached is not None:
            return cached
        parent = await self._read(STATEFULSETS, review, until)
        assert isinstance(parent, StatefulSet), "decoded by kind"
        return parent

    def _choose_standing(self, resource: Resource, review: Review) -> Standing:
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
        """Return the object by a read that other reviews may share."""
        if review.namespace != self._namespace:
            raise Denied(f"namespace {review.namespace} is not looked after")
        key = (resource.plural, review.namespace, review.name)
        left = until - self._clock.elapsed()
        try:
            async with asyncio.timeout(max(left.total_seconds(), 0)):
                with giving_way():
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

    An error is not: the object may have been created since, or the right been granted.
    """
    old = review.old
    if isinstance(answer, OperatorError) or not isinstance(old, Scalable) or not old.uid:
        return False
    return answer.uid == old.uid and _covers(answer.resource_version, old.resource_version)


def _covers(version: str, wanted: str) -> bool:
    return bool(wanted) and (version == wanted or is_older(wanted, than=version))


class NoDownscale:
    def __init__(self, parents: Parents, *, fails_closed: bool) -> None:
        self._parents = parents
        self._fails_closed = fails_closed

    async def review(self, review: Review, until: timedelta) -> Verdict:
        change = assess_no_downscale_change(review, fails_closed=self._fails_closed)
        if isinstance(change, Verdict):
            return change
        assert isinstance(review.old, Scalable), "nothing else is a decrease"
        if review.old.kind != "Scale":
            return assess_no_downscale(change, review.old.labels, review.old.annotations)
        try:
            parent = await self._parents.fetch(review, until - _TO_DECIDE)
        except (ApiError, InvalidInput) as error:
            return self._assess_unread(review, change, error)
        return assess_no_downscale(change, parent.labels, parent.annotations)

    def _assess_unread(self, review: Review, change: Decrease, error: OperatorError) -> Verdict:
        what = f"can't get {review.resource}/{review.name} in namespace {review.namespace}"
        if isinstance(error, _Overload):
            why = f"{what}: {error}"
            verdict = refuse_decrease(change, Code.CANNOT_CHECK, why, status=RETRY)
            return replace(verdict, retry_after=_AGAIN)
        # What is not there or may not be read stays so: refusing would block it for good.
        is_settled = isinstance(error, NotFound) or (isinstance(error, Denied) and error.is_by_role)
        if self._fails_closed and not is_settled:
            return refuse_decrease(change, Code.CANNOT_CHECK, f"{what}: {error}", status=RETRY)
        return allow(Code.CANNOT_CHECK, warning=f"{what}, allowing the change: {error}")
