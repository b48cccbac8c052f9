"""Follow the replica counts that zones mirror: the `scale` subresources of any kind.

A reading is what was read last. A read that fails for a reason that may pass leaves it as it is for
half a minute and replaces it then, so that no downscale rests on a count that cannot be confirmed.
While a watch brings changes, an idle scale is not read again: after a connection died unnoticed its
reading may be as old as a watch lasts. What follows from a count is left to the planner.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from functools import partial
from typing import Final, NoReturn

import msgspec
from msgspec.structs import replace

from rollout_operator.aio.clock import Clock
from rollout_operator.aio.queue import LONGEST_RETRY_AFTER, REFERENCES, Rewrites, WorkQueue
from rollout_operator.aio.tasks import gather_all, race
from rollout_operator.kube.api import ApiClient, JsonObject, Reader, Resource, Served
from rollout_operator.kube.informer import Collection, Informer, ObjectSource
from rollout_operator.kube.responses import KindCatalog
from rollout_operator.kube.store import Store
from rollout_operator.model.decode.objects import place_decoder, read_as
from rollout_operator.model.decode.wire import Int32, JsonBytes, Required, Wire
from rollout_operator.model.names import (
    ApiError,
    Conflict,
    Denied,
    GroupName,
    InvalidInput,
    NotFound,
    Refused,
    Throttled,
    TooManyRequests,
)
from rollout_operator.model.objects import AnyWatched, WatchedObject
from rollout_operator.model.scaling import NoScale, Reading, Reference, Scale
from rollout_operator.telemetry.logs import log

SCALE: Final = "scale"
_FORBIDDEN: Final = 403


# For so long a failed read changes nothing.
_OLD_LASTS: Final = timedelta(seconds=30)
# What was written in one go is read in one go.
_DEBOUNCE: Final = timedelta(milliseconds=50)
# Between two reads that changes cause: the status of a busy object changes all the time.
_SPACING: Final = timedelta(seconds=1)
# Between two reads that fail until a person does something.
_LASTING_PAUSE: Final = timedelta(minutes=1)
_JITTER: Final = 0.1

# Reads under way together: a read that hangs holds up no other as long as there are more.
_READERS: Final = 8
_NOT_FOUND: Final = 404
_SHORTEST_INTERVAL: Final = timedelta(seconds=1)
# An idle watch costs one request in three minutes. A stream proves by its end that it was alive: so
# long a change may go unseen on a dead stream.
_WATCH_LASTS: Final = timedelta(minutes=3)
# What a watch has failed to bring is found at the end of its stream: within five minutes (LI-02).
_RELIST: Final = timedelta(minutes=2)
# A role that does not let us watch seldom changes.
_REFUSED_PAUSE: Final = timedelta(minutes=10)


class _Head(Wire):
    name: Required
    resource_version: str = ""


class _Replicas(Wire):
    replicas: Int32 = 0


class _WireScale(Wire):
    metadata: _Head
    spec: _Replicas | None = None
    status: _Replicas | None = None
    kind: str | None = None


_SCALE: Final = msgspec.json.Decoder(_WireScale)


class Shown(msgspec.Struct, frozen=True):
    """A scale, and the version of the object that it is of."""

    scale: Scale
    version: str


def decode_scale(raw: bytes) -> Shown:
    """Return what a `Scale` of autoscaling/v1 shows; a number that is left out is 0.

    Raises DecodeError naming field and value where a number is not whole or not in 0..2^31-1.
    """
    wire = read_as("Scale", raw, _SCALE)
    scale = Scale(
        replicas=wire.spec.replicas if wire.spec else 0,
        status_replicas=wire.status.replicas if wire.status else 0,
    )
    return Shown(scale, wire.metadata.resource_version)


def change_decoder(kind: str) -> Callable[[JsonBytes], WatchedObject]:
    """Return a decoder of an object's version alone, which every change of it changes."""
    decode = place_decoder(kind)

    def decode_change(raw: JsonBytes) -> WatchedObject:
        placed = decode(raw)
        return replace(placed, decoded=placed.resource_version)

    return decode_change


def check_kind(reference: Reference, served: Served | None) -> Resource:
    """Return the resource of a reference. Raises InvalidInput if it has no scale."""
    if served is None:
        group = f"API group {reference.group!r}" if reference.group else "the core API group"
        raise InvalidInput(f"the API server knows no kind {reference.kind!r} in {group}")
    resource = served.resource
    if SCALE not in served.subresources:
        raise InvalidInput(f"{resource.plural} in {_version(resource)} have no scale subresource")
    if not resource.is_namespaced:
        raise InvalidInput(f"{resource.plural} in {_version(resource)} belong to no namespace")
    return resource


def is_lasting(error: ApiError | InvalidInput) -> bool:
    """Return whether the same read would fail the same way until a person changes something."""
    match error:
        case InvalidInput() | NotFound() | Refused():
            return True
        case Denied(status=status):
            # Other refusals are of a credential that is being replaced, or of a wrong server.
            return status == _FORBIDDEN
        case _:
            return False


def explain(reference: Reference, error: ApiError | InvalidInput, namespace: str) -> NoScale:
    text = f"{error}"
    if isinstance(error, Denied) and error.status == _FORBIDDEN:
        text = f"not allowed in namespace {namespace}: {text}"
    return NoScale(why=f"{reference}: {text}", is_lasting=is_lasting(error))


def _version(resource: Resource) -> str:
    return f"{resource.group}/{resource.version}" if resource.group else resource.version


class _Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """When references are read though no watch has shown a change; shared by all of them."""

    interval: timedelta
    clock: Clock
    rng: Callable[[], float]

    def vary(self, span: timedelta) -> timedelta:
        """Return about `span`, so that not all come at once."""
        return span * (1 + _JITTER * (2 * self.rng() - 1))

    def spread(self) -> timedelta:
        return self.interval * self.rng()


class _FollowedReference:
    """One reference: what was read of it, and when it is read next."""

    def __init__(
        self, reference: Reference, queue: WorkQueue[Reference], schedule: _Schedule
    ) -> None:
        self.reading: Reading | None = None
        self.resource: Resource | None = None
        """The resource as it was found last; None before that."""
        self.task: asyncio.Task[None] | None = None
        """The read that is under way."""
        self._reference = reference
        self._queue = queue
        self._schedule = schedule
        self._clock = schedule.clock
        self._must_read = True
        # While reads fail otherwise than by absence, changes of the object are no reason to read.
        self._ignores_changes = False
        self._version: str | None = None
        """Of the object as it was read last; None where that failed."""
        self._began = timedelta(0)
        self._due_at: timedelta | None = None
        """When it is read next for no reason but time; None where changes cause reads."""
        self._failing_since: timedelta | None = None
        self._failures = 0
        queue.add(reference)

    def begin(self) -> bool:
        """Begin to read; return False, and come back later, if that is not due."""
        now = self._clock.elapsed()
        if not self._must_read and (self._due_at is None or now < self._due_at):
            self._plan()
            return False
        self._must_read = False
        self._began = now
        return True

    def read_again(self) -> None:
        self._must_read = True
        quiet = self._clock.elapsed() - self._began
        self._queue.add_after(self._reference, max(_DEBOUNCE, _SPACING - quiet))

    def read_unless(self, version: str) -> None:
        """Read again, unless the object was read in this version. Empty: it is gone."""
        # A role or a server is mended elsewhere: the object may change as often as it likes.
        if not self._ignores_changes and (not version or version != self._version):
            self.read_again()

    def expect(self, status_replicas: int) -> None:
        """Show a status that was just written, until the next read shows what became of it."""
        if isinstance(self.reading, Scale):
            self.reading = replace(self.reading, status_replicas=status_replicas)
        self.read_again()

    def turn(self, *, is_watched: bool) -> None:
        """Rely on changes from now on, or poll: in no burst where many are watched no more."""
        if not self._failures:
            self._due_at = None if is_watched else self._clock.elapsed() + self._schedule.spread()
            self._plan()

    def record(self, shown: Shown, *, is_watched: bool) -> None:
        self._version = shown.version
        self._failures, self._failing_since, self._ignores_changes = 0, None, False
        if is_watched:
            self._due_at = None
        elif self._due_at is None:
            self._due_at = self._clock.elapsed() + self._schedule.spread()
        else:
            self._due_at = self._began + self._schedule.vary(self._schedule.interval)
        self._plan()
        self.reading = shown.scale

    def record_failure(
        self, error: ApiError | InvalidInput, reason: NoScale, *, is_watched: bool
    ) -> None:
        self._version = None
        self._failures += 1
        self._ignores_changes = not isinstance(error, NotFound | InvalidInput)
        if self._failing_since is None:
            self._failing_since = self._began
        if reason.is_lasting:
            soon = isinstance(error, NotFound) and not is_watched
            pause = self._schedule.interval if soon else _LASTING_PAUSE
            self._due_at = self._began + self._schedule.vary(pause)
        else:
            self._due_at = self._began + self._retry_delay(error)
        old_until = self._failing_since + _OLD_LASTS
        is_kept = isinstance(self.reading, Scale) and not reason.is_lasting
        if is_kept and self._clock.elapsed() < old_until:
            self._due_at = min(self._due_at, old_until)
            log.debug("Scale not read", err=error, again_in=self._due_at - self._began)
        else:
            self.reading = reason
        self._plan()

    def _retry_delay(self, error: ApiError | InvalidInput) -> timedelta:
        delay = REFERENCES.delay(self._failures, 0.5 + self._schedule.rng() / 2)
        if isinstance(error, TooManyRequests) and error.retry_after is not None:
            delay = max(delay, min(error.retry_after, LONGEST_RETRY_AFTER))
        return delay

    def _plan(self) -> None:
        if self._due_at is not None:
            self._queue.add_after(self._reference, self._due_at - self._clock.elapsed())


class ChangeWatch:
    """Reports changes of all objects of a kind, by their versions alone, while `run` runs."""

    def __init__(
        self,
        api: ObjectSource,
        resource: Resource,
        namespace: str,
        clock: Clock,
        rng: Callable[[], float],
    ) -> None:
        self.subscribers: dict[str, _FollowedReference] = {}
        self.task: asyncio.Task[None] | None = None
        self._api = api
        self._resource = resource
        self._namespace = namespace
        self._clock = clock
        self._rng = rng
        self._informer: Informer[AnyWatched] | None = None
        self._requested = asyncio.Event()

    @property
    def is_live(self) -> bool:
        """Return whether subscribers learn of changes; else objects must be read to know."""
        return self._informer is not None and self._informer.liveness.is_live

    def try_again(self) -> None:
        """Try now: the API server refused before, and something may have changed."""
        self._requested.set()

    async def run(self) -> NoReturn:
        while True:
            self._informer = self._make_informer()
            try:
                await self._informer.run()
            except ApiError as error:
                log.info("Polling: no watch", call=error.call, again_in=_REFUSED_PAUSE, err=error)
            self._requested.clear()
            await race(requested=self._requested.wait(), due=self._clock.sleep(_REFUSED_PAUSE))

    def _make_informer(self) -> Informer[AnyWatched]:
        store: Store[AnyWatched] = Store()
        of: Collection[AnyWatched] = Collection(
            resource=self._resource,
            namespace=self._namespace,
            decode=change_decoder(self._resource.kind),
            store=store,
            watch_lasts=_WATCH_LASTS,
            relist=_RELIST,
            ends_on=is_lasting,
        )
        # Without metrics: those of a kind are shown once, and StatefulSets are cached as well.
        informer = Informer(self._api, of, None, self._clock, self._rng)
        store.on_replaced(lambda: self._compare(store))
        informer.on_change(self._report)
        informer.liveness.on_change(self._turn)
        return informer

    def _compare(self, store: Store[AnyWatched]) -> None:
        """Read again what a list shows in another version.

        Events of the watch are not enough: they are ignored while a read fails, and what happened
        before the first list is no change.
        """
        for name, subscriber in self.subscribers.items():
            if (listed := store.get(self._namespace, name)) is not None:
                subscriber.read_unless(listed.resource_version)
            elif isinstance(subscriber.reading, Scale):
                subscriber.read_again()

    def _report(self, old: AnyWatched | None, new: AnyWatched | None) -> None:
        last = old if new is None else new
        if last is not None and last.name in self.subscribers:
            self.subscribers[last.name].read_unless("" if new is None else new.resource_version)

    def _turn(self) -> None:
        for subscriber in self.subscribers.values():
            subscriber.turn(is_watched=self.is_live)


class References:
    """Readings of the references that are wanted, kept while `run` runs."""

    def __init__(
        self,
        client: ApiClient,
        namespace: str,
        *,
        reader: Reader,
        reconcile_interval: timedelta,
        clock: Clock,
        rng: Callable[[], float],
    ) -> None:
        """Follow objects of one namespace. `rng` returns numbers in 0..1.

        Where changes cannot be watched, scales are read about every `reconcile_interval`, as far as
        the rate limit of `client` lets them. `reader` is for reads that a downscale waits for.
        """
        self._client = client
        self._reader = reader
        self._namespace = namespace
        self._clock = clock
        self._schedule = _Schedule(
            interval=max(reconcile_interval, _SHORTEST_INTERVAL),
            clock=clock,
            rng=rng,
        )
        self._catalog = KindCatalog(client, clock)
        self._rewrites: Rewrites[Reference, int] = Rewrites(clock)
        self._readers = asyncio.Semaphore(_READERS)
        self._callbacks: list[Callable[[GroupName], None]] = []
        self._queue: WorkQueue[Reference] = WorkQueue()
        self._tasks: asyncio.TaskGroup
        self._wanted: dict[GroupName, frozenset[Reference]] = {}
        self._followed: dict[Reference, _FollowedReference] = {}
        self._watches: dict[Resource, ChangeWatch] = {}

    @property
    def readings(self) -> Mapping[Reference, Reading]:
        """Return the last reading of each reference that is wanted and was read."""
        return {
            reference: followed.reading
            for reference, followed in self._followed.items()
            if followed.reading is not None
        }

    def on_change(self, callback: Callable[[GroupName], None]) -> None:
        self._callbacks.append(callback)

    def want(self, group: GroupName, references: Iterable[Reference]) -> None:
        """Follow exactly these for a group; none forgets the group."""
        wanted = frozenset(references)
        if wanted == self._wanted.get(group, frozenset()):
            return
        if wanted:
            self._wanted[group] = wanted
        else:
            del self._wanted[group]
        needed = frozenset().union(*self._wanted.values())
        for reference in sorted(self._followed.keys() - needed):
            self._drop(reference)
        for reference in sorted(needed - self._followed.keys()):
            self._followed[reference] = _FollowedReference(reference, self._queue, self._schedule)
        self._catalog.keep(frozenset(each.group for each in needed))

    async def refresh(self, reference: Reference) -> Reading:
        """Read a reference now, for an act that is final; it must be followed."""
        followed = self._followed.get(reference)
        if followed is None or followed.resource is None:
            return NoScale(why=f"{reference} has not been read yet", is_lasting=False)
        try:
            raw = await self._reader.fetch(
                followed.resource, self._namespace, reference.name, SCALE
            )
            scale = decode_scale(raw).scale
        except (ApiError, InvalidInput) as error:
            # Otherwise the reading stays, and callers try the act again and again.
            followed.read_again()
            return explain(reference, error, self._namespace)
        if scale != followed.reading:
            followed.read_again()
        return scale

    async def publish(self, reference: Reference, replicas: int) -> None:
        """Write `status.replicas` of a reference.

        Raises what `kube.api.Writer.patch` raises, Conflict where the reference is not known, and
        Throttled where the same was written several times and something else undid it.
        """
        followed = self._followed.get(reference)
        if followed is None or followed.resource is None:
            raise Conflict(f"{reference} has not been read, so that its status cannot be written")
        self._check_rewrite(reference, replicas)
        status: JsonObject = {"status": {"replicas": replicas}}
        try:
            await self._client.patch(
                followed.resource, self._namespace, reference.name, status, "status"
            )
        except ApiError:
            followed.read_again()
            raise
        self._rewrites.record(reference, replicas)
        followed.expect(replicas)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as self._tasks:
            while True:
                reference = await self._queue.take()
                followed = self._followed.get(reference)
                if followed is not None and followed.begin():
                    name = f"scale of {reference}"
                    work = self._read(reference, followed)
                    followed.task = self._tasks.create_task(work, name=name)
                    # Not in the task itself, which may be cancelled before it begins.
                    followed.task.add_done_callback(partial(self._end_read, reference))
                else:
                    self._queue.done(reference)

    def _check_rewrite(self, reference: Reference, replicas: int) -> None:
        wait = self._rewrites.wait_before(reference, replicas)
        if wait:
            times = self._rewrites.count(reference, replicas)
            raise Throttled(
                f"status.replicas of {reference} was set to {replicas} {times} times and did"
                f" not stay, something else writes it: set again in {wait.total_seconds():.0f}s"
            )

    def _end_read(self, reference: Reference, task: asyncio.Task[None]) -> None:
        self._queue.done(reference)

    async def _read(self, reference: Reference, followed: _FollowedReference) -> None:
        before = followed.reading
        try:
            shown = await self._fetch(reference, followed)
        except (ApiError, InvalidInput) as error:
            reason = explain(reference, error, self._namespace)
            followed.record_failure(error, reason, is_watched=self._is_watched(followed))
        else:
            followed.record(shown, is_watched=self._is_watched(followed))
        finally:
            followed.task = None
        if followed.reading != before:
            self._notify(reference, followed.reading)

    async def _fetch(self, reference: Reference, followed: _FollowedReference) -> Shown:
        served = await self._catalog.find(reference.group, reference.kind)
        try:
            resource = check_kind(reference, served)
        except InvalidInput:
            self._detach(reference, followed)
            raise
        self._attach(reference, followed, resource)
        try:
            async with self._readers:
                raw = await self._client.fetch(resource, self._namespace, reference.name, SCALE)
        except ApiError as error:
            # The object is gone, or its kind: then the answer is that of no API server.
            if error.status == _NOT_FOUND:
                self._catalog.doubt(reference.group)
            raise
        shown = decode_scale(raw)
        if isinstance(followed.reading, NoScale):
            self._watches[resource].try_again()
        return shown

    def _is_watched(self, followed: _FollowedReference) -> bool:
        """Return whether `read_unless` is called with versions of the object."""
        resource = followed.resource
        watch = self._watches.get(resource) if resource is not None else None
        return watch is not None and watch.is_live

    def _notify(self, reference: Reference, reading: Reading | None) -> None:
        log.debug("Read scale", reference=f"{reference}", reading=f"{reading}")
        groups = [name for name, wanted in self._wanted.items() if reference in wanted]
        for group in sorted(groups):
            for callback in self._callbacks:
                callback(group)

    def _attach(
        self, reference: Reference, followed: _FollowedReference, resource: Resource
    ) -> None:
        if followed.resource == resource:
            return
        self._detach(reference, followed)
        followed.resource = resource
        if (watch := self._watches.get(resource)) is None:
            watch = self._watches[resource] = ChangeWatch(
                self._client, resource, self._namespace, self._clock, self._schedule.rng
            )
            name = f"{resource.plural} metadata watch"
            watch.task = self._tasks.create_task(watch.run(), name=name)
        watch.subscribers[reference.name] = followed

    def _detach(self, reference: Reference, followed: _FollowedReference) -> None:
        resource, followed.resource = followed.resource, None
        if resource is None:
            return
        watch = self._watches[resource]
        del watch.subscribers[reference.name]
        if not watch.subscribers:
            del self._watches[resource]
            if watch.task is not None:
                watch.task.cancel()

    def _drop(self, reference: Reference) -> None:
        followed = self._followed.pop(reference)
        self._detach(reference, followed)
        self._rewrites.forget(reference)
        if followed.task is not None:
            followed.task.cancel()


class ScaleReader:
    def __init__(self, client: ApiClient, namespace: str, clock: Clock) -> None:
        self._client = client
        self._namespace = namespace
        self._catalog = KindCatalog(client, clock)

    async def read(self, references: Iterable[Reference]) -> Mapping[Reference, Reading]:
        wanted = sorted(set(references))
        readings = await gather_all(self._read(reference) for reference in wanted)
        return dict(zip(wanted, readings, strict=True))

    async def _read(self, reference: Reference) -> Reading:
        try:
            served = await self._catalog.find(reference.group, reference.kind)
            resource = check_kind(reference, served)
            raw = await self._client.fetch(resource, self._namespace, reference.name, SCALE)
            return decode_scale(raw).scale
        except (ApiError, InvalidInput) as error:
            return explain(reference, error, self._namespace)
