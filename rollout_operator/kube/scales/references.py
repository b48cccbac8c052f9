"""The counts of all references that zones mirror, followed for as long as a group wants them.

Decides what is followed, how closely, and which groups learn of it. When a scale is read is decided
in `reference`, which resource a kind has in `kube.client.discovery`; what follows from a count is
left to the planner.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from functools import partial
from typing import Final, NoReturn

from rollout_operator.aio.backoff import Rewrites
from rollout_operator.aio.clock import Clock
from rollout_operator.aio.tasks import check_cancelled, gather_all, race
from rollout_operator.kube.api import ApiClient, JsonObject, Reader, Resource
from rollout_operator.kube.cache.collection import Collection, ObjectSource
from rollout_operator.kube.cache.informer import Informer
from rollout_operator.kube.cache.store import Store
from rollout_operator.kube.client.discovery import KindCatalog
from rollout_operator.kube.scales.decode import (
    SCALE,
    Shown,
    change_decoder,
    check_kind,
    decode_scale,
    explain,
    is_lasting,
)
from rollout_operator.kube.scales.reference import Callbacks, FollowedReference, Schedule
from rollout_operator.model.errors import ApiError, Conflict, InvalidInput, Throttled
from rollout_operator.model.names import GroupName
from rollout_operator.model.objects import AnyWatched
from rollout_operator.model.scaling import NoScale, Reading, Reference, Scale
from rollout_operator.telemetry.logs import log

# Reads under way together: a read that hangs holds up no other as long as there are more.
READERS: Final = 8
_NOT_FOUND: Final = 404
SHORTEST_INTERVAL: Final = timedelta(seconds=1)
# An idle watch costs one request in three minutes. A stream proves by its end that it was alive: so
# long a change may go unseen on a dead stream.
WATCH_LASTS: Final = timedelta(minutes=3)
# What a watch has failed to bring is found at the end of its stream: within five minutes (LI-02).
RELIST: Final = timedelta(minutes=2)
# A role that does not let us watch seldom changes.
REFUSED_PAUSE: Final = timedelta(minutes=10)


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
        self.subscribers: dict[str, FollowedReference] = {}
        """By name of the object."""
        self.task: asyncio.Task[None] | None = None
        """Runs `run`; set by its starter."""
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
        """Try now, where the API server has refused and there is reason to hope."""
        self._requested.set()

    async def run(self) -> NoReturn:
        """Follow until cancelled. What is refused is tried again after a pause."""
        while True:
            self._informer = self._make_informer()
            try:
                await self._informer.run()
            except ApiError as error:
                check_cancelled()
                log.info("Polling: no watch", call=error.call, again_in=REFUSED_PAUSE, err=error)
            self._requested.clear()
            await race(requested=self._requested.wait(), due=self._clock.sleep(REFUSED_PAUSE))

    def _make_informer(self) -> Informer[AnyWatched]:
        store: Store[AnyWatched] = Store()
        of: Collection[AnyWatched] = Collection(
            resource=self._resource,
            namespace=self._namespace,
            decode=change_decoder(self._resource.kind),
            store=store,
            watch_lasts=WATCH_LASTS,
            relist=RELIST,
            ends_on=is_lasting,
        )
        # Without metrics: those of a kind are shown once, and StatefulSets are cached as well.
        informer = Informer(self._api, of, None, self._clock, self._rng)
        store.on_replaced(lambda: self._compare(store))
        informer.on_change(self._report)
        informer.liveness.on_change(self._wake)
        return informer

    def _compare(self, store: Store[AnyWatched]) -> None:
        """Have read whatever a list shows in another version than it was read in.

        The events of the watch are not enough: they are ignored while a read fails, and what went
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

    def _wake(self) -> None:
        for subscriber in self.subscribers.values():
            subscriber.wake()


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
        the rate limit of `client` lets them. `looks` is for reads that a downscale waits for.
        """
        self._client = client
        self._reader = reader
        self._namespace = namespace
        self._clock = clock
        self._schedule = Schedule(
            interval=max(reconcile_interval, SHORTEST_INTERVAL),
            clock=clock,
            rng=rng,
        )
        self._catalog = KindCatalog(client, clock)
        self._rewrites: Rewrites[Reference, int] = Rewrites(clock)
        self._readers = asyncio.Semaphore(READERS)
        self._callbacks: list[Callable[[GroupName], None]] = []
        self._news = asyncio.Event()
        self._wanted: dict[GroupName, frozenset[Reference]] = {}
        self._followed: dict[Reference, FollowedReference] = {}
        self._watches: dict[Resource, ChangeWatch] = {}

    @property
    def readings(self) -> Mapping[Reference, Reading]:
        """Return what was read last of each reference that is wanted and was read, as of now.

        See `reference` for how old that may be.
        """
        return {
            reference: followed.reading
            for reference, followed in self._followed.items()
            if followed.reading is not None
        }

    def on_change(self, callback: Callable[[GroupName], None]) -> None:
        """Call back with each group that wants a reference whose reading has changed."""
        self._callbacks.append(callback)

    def want(self, group: GroupName, references: Iterable[Reference]) -> None:
        """Follow these for a group, and no others for it any more; none forgets the group."""
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
            self._followed[reference] = self._follow(reference)
        self._catalog.keep(frozenset(each.group for each in needed))
        self._news.set()

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
        """Keep the readings until cancelled. Errors of the API server are retried for ever."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._news.clear()
                for reference, followed in self._followed.items():
                    if followed.task is None:
                        name = f"scale of {reference}"
                        followed.task = tasks.create_task(followed.run(), name=name)
                for resource, watch in self._watches.items():
                    if watch.task is None:
                        name = f"{resource.plural} metadata watch"
                        watch.task = tasks.create_task(watch.run(), name=name)
                await self._news.wait()

    def _follow(self, reference: Reference) -> FollowedReference:
        callbacks = Callbacks(
            fetch=partial(self._fetch, reference),
            explain=partial(explain, reference, namespace=self._namespace),
            is_watched=partial(self._is_watched, reference),
            on_change=partial(self._notify, reference),
        )
        return FollowedReference(callbacks, self._schedule)

    def _check_rewrite(self, reference: Reference, replicas: int) -> None:
        wait = self._rewrites.wait_before(reference, replicas)
        if wait:
            times = self._rewrites.count(reference, replicas)
            raise Throttled(
                f"status.replicas of {reference} was set to {replicas} {times} times and did"
                f" not stay, something else writes it: set again in {wait.total_seconds():.0f}s"
            )

    async def _fetch(self, reference: Reference) -> Shown:
        served = await self._catalog.find(reference.group, reference.kind)
        try:
            resource = check_kind(reference, served)
        except InvalidInput:
            self._detach(reference, self._followed[reference])
            raise
        self._attach(reference, resource)
        try:
            async with self._readers:
                raw = await self._client.fetch(resource, self._namespace, reference.name, SCALE)
        except ApiError as error:
            # The object is gone, or its kind: then the answer is that of no API server.
            if error.status == _NOT_FOUND:
                self._catalog.doubt(reference.group)
            raise
        shown = decode_scale(raw)
        if isinstance(self._followed[reference].reading, NoScale):
            self._watches[resource].try_again()
        return shown

    def _is_watched(self, reference: Reference) -> bool:
        resource = self._followed[reference].resource
        watch = self._watches.get(resource) if resource is not None else None
        return watch is not None and watch.is_live

    def _notify(self, reference: Reference) -> None:
        reading = self._followed[reference].reading
        log.debug("Read scale", reference=f"{reference}", reading=f"{reading}")
        groups = [name for name, wanted in self._wanted.items() if reference in wanted]
        for group in sorted(groups):
            for callback in self._callbacks:
                callback(group)

    def _attach(self, reference: Reference, resource: Resource) -> None:
        """Subscribe a reference to changes of its object, which is of this resource."""
        followed = self._followed[reference]
        if followed.resource == resource:
            return
        self._detach(reference, followed)
        followed.resource = resource
        if resource not in self._watches:
            self._watches[resource] = ChangeWatch(
                self._client, resource, self._namespace, self._clock, self._schedule.rng
            )
            self._news.set()
        self._watches[resource].subscribers[reference.name] = followed

    def _detach(self, reference: Reference, followed: FollowedReference) -> None:
        """End a subscription, and a watch that has no subscriber any more."""
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
    """Reads scales by one client; what kinds there are is remembered."""

    def __init__(self, client: ApiClient, namespace: str, clock: Clock) -> None:
        self._client = client
        self._namespace = namespace
        self._catalog = KindCatalog(client, clock)

    async def read(self, references: Iterable[Reference]) -> Mapping[Reference, Reading]:
        """Return what each reference shows, or why it shows nothing."""
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
