"""The counts of all references that zones mirror, followed for as long as somebody wants them.

Decides what is followed and who is told. When a scale is read is decided in `reference`, which
resource a kind has in `kube.client.discovery`, what changes tell in `metadata_watch`; what follows
from a count is left to the planner.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Final

from rollout_operator.aio.clock import Clock
from rollout_operator.kube.api import ApiClient, JsonObject, Reader, Resource
from rollout_operator.kube.client.discovery import KindCatalog
from rollout_operator.kube.scales import metadata_watch as touches
from rollout_operator.kube.scales.decode import SCALE, Shown, check_kind, decode_scale, explain
from rollout_operator.kube.scales.metadata_watch import Touches
from rollout_operator.kube.scales.publications import Publications
from rollout_operator.kube.scales.reference import FollowedReference, Rhythm, Ways
from rollout_operator.model.errors import ApiError, Conflict, InvalidInput
from rollout_operator.model.names import GroupName
from rollout_operator.model.scaling import NoScale, Reading, Reference, Scale
from rollout_operator.telemetry.logs import log

# Reads under way together: one that hangs holds up nobody as long as there are others.
READERS: Final = 8
_NOT_FOUND: Final = 404
SHORTEST_INTERVAL: Final = timedelta(seconds=1)


class _Audience:
    """The references to objects of one collection; told of changes by `touches.Touches`."""

    def __init__(self) -> None:
        self.members: dict[str, FollowedReference] = {}

    def on_list(self, versions: Mapping[str, str]) -> None:
        for name, member in self.members.items():
            if name in versions:
                member.touch(versions[name])
            elif isinstance(member.reading, Scale):
                member.touch("")

    def on_event(self, name: str, version: str) -> None:
        if name in self.members:
            self.members[name].touch(version)

    def on_state(self) -> None:
        for member in self.members.values():
            member.stir()


@dataclass(slots=True, kw_only=True)
class _Watch:
    touches: Touches
    audience: _Audience
    task: asyncio.Task[None] | None = None


@dataclass(slots=True, kw_only=True)
class _Followed:
    followed: FollowedReference
    resource: Resource | None = None
    """As it was found last; None before that."""
    task: asyncio.Task[None] | None = None


class References:
    """Readings of the references that are wanted, kept while `run` runs."""

    def __init__(
        self,
        client: ApiClient,
        namespace: str,
        *,
        looks: Reader,
        reconcile_interval: timedelta,
        clock: Clock,
        rng: Callable[[], float],
    ) -> None:
        """Follow objects of one namespace. `rng` returns numbers in 0..1.

        Where changes cannot be watched, scales are read about every `reconcile_interval`, as far as
        the rate limit of `client` lets them. `looks` is for reads that a downscale waits for.
        """
        self._client = client
        self._looks = looks
        self._namespace = namespace
        self._clock = clock
        self._rhythm = Rhythm(
            interval=max(reconcile_interval, SHORTEST_INTERVAL),
            clock=clock,
            rng=rng,
        )
        self._catalog = KindCatalog(client, clock)
        self._publications = Publications(clock)
        self._readers = asyncio.Semaphore(READERS)
        self._callbacks: list[Callable[[GroupName], None]] = []
        self._news = asyncio.Event()
        self._wanted: dict[GroupName, frozenset[Reference]] = {}
        self._entries: dict[Reference, _Followed] = {}
        self._watches: dict[Resource, _Watch] = {}

    @property
    def readings(self) -> Mapping[Reference, Reading]:
        """Return what was read last of each reference that is wanted and was read, as of now.

        See `reference` for how old that may be.
        """
        found = {one: entry.followed.reading for one, entry in self._entries.items()}
        return {one: reading for one, reading in found.items() if reading is not None}

    def on_change(self, callback: Callable[[GroupName], None]) -> None:
        """Call back with each group that wants a reference whose reading has changed."""
        self._callbacks.append(callback)

    def want(self, group: GroupName, references: Collection[Reference]) -> None:
        """Follow these for a group, and no others for it any more; none forgets the group."""
        wanted = frozenset(references)
        if wanted == self._wanted.get(group, frozenset()):
            return
        if wanted:
            self._wanted[group] = wanted
        else:
            del self._wanted[group]
        needed = frozenset().union(*self._wanted.values())
        for reference in sorted(self._entries.keys() - needed):
            self._drop(reference)
        for reference in sorted(needed - self._entries.keys()):
            self._entries[reference] = _Followed(followed=self._follow(reference))
        self._catalog.keep(frozenset(one.group for one in needed))
        self._news.set()

    async def refresh(self, reference: Reference) -> Reading:
        """Read a reference now, for what cannot be undone; it must be followed."""
        entry = self._entries.get(reference)
        if entry is None or entry.resource is None:
            return NoScale(why=f"{reference} has not been read yet", is_lasting=False)
        try:
            raw = await self._looks.fetch(entry.resource, self._namespace, reference.name, SCALE)
            scale = decode_scale(raw).scale
        except (ApiError, InvalidInput) as error:
            return self._explain(reference, error)
        if scale != entry.followed.reading:
            entry.followed.touch("")
        return scale

    async def publish(self, reference: Reference, replicas: int) -> None:
        """Write `status.replicas` of a reference.

        Raises what `kube.api.Writer.patch` raises, Conflict where the reference is not known, and
        Throttled where the same was written several times and something else undid it.
        """
        entry = self._entries.get(reference)
        if entry is None or entry.resource is None:
            raise Conflict(f"{reference} has not been read, so that its status cannot be written")
        self._publications.check(reference, replicas)
        status: JsonObject = {"status": {"replicas": replicas}}
        try:
            await self._client.patch(
                entry.resource, self._namespace, reference.name, status, "status"
            )
        except ApiError:
            entry.followed.touch("")
            raise
        self._publications.note(reference, replicas)
        entry.followed.expect(replicas)

    async def run(self) -> None:
        """Keep the readings until cancelled. Errors of the API server are retried for ever."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._news.clear()
                for reference, entry in self._entries.items():
                    if entry.task is None:
                        work = entry.followed.run()
                        entry.task = tasks.create_task(work, name=f"scale of {reference}")
                for resource, watch in self._watches.items():
                    if watch.task is None:
                        work = watch.touches.run()
                        watch.task = tasks.create_task(work, name=f"{resource.plural} touches")
                await self._news.wait()

    def _follow(self, reference: Reference) -> FollowedReference:
        ways = Ways(
            fetch=partial(self._fetch, reference),
            explain=partial(self._explain, reference),
            is_told=partial(self._is_told, reference),
            tell=partial(self._tell, reference),
        )
        return FollowedReference(ways, self._rhythm)

    async def _fetch(self, reference: Reference) -> Shown:
        served = await self._catalog.find(reference.group, reference.kind)
        try:
            resource = check_kind(reference, served)
        except InvalidInput:
            self._detach(reference, self._entries[reference])
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
        if isinstance(self._entries[reference].followed.reading, NoScale):
            self._watches[resource].touches.ask_again()
        return shown

    def _explain(self, reference: Reference, error: ApiError | InvalidInput) -> NoScale:
        return explain(reference, error, self._namespace)

    def _is_told(self, reference: Reference) -> bool:
        resource = self._entries[reference].resource
        watch = self._watches.get(resource) if resource is not None else None
        return watch is not None and watch.touches.is_live

    def _tell(self, reference: Reference) -> None:
        reading = self._entries[reference].followed.reading
        log.debug("Read scale", reference=f"{reference}", reading=f"{reading}")
        groups = [name for name, wanted in self._wanted.items() if reference in wanted]
        for group in sorted(groups):
            for callback in self._callbacks:
                callback(group)

    def _attach(self, reference: Reference, resource: Resource) -> None:
        """Have a reference told of changes of its object, which is of this resource."""
        entry = self._entries[reference]
        if entry.resource == resource:
            return
        self._detach(reference, entry)
        entry.resource = resource
        if resource not in self._watches:
            self._watches[resource] = self._watch(resource)
            self._news.set()
        self._watches[resource].audience.members[reference.name] = entry.followed

    def _watch(self, resource: Resource) -> _Watch:
        audience = _Audience()
        collection = touches.MetadataCollection(resource, self._namespace)
        follower = Touches(self._client, collection, audience, self._clock, self._rhythm.rng)
        return _Watch(touches=follower, audience=audience)

    def _detach(self, reference: Reference, entry: _Followed) -> None:
        """Let a reference be told no more, and end a watch that nobody needs."""
        resource, entry.resource = entry.resource, None
        if resource is None:
            return
        watch = self._watches[resource]
        del watch.audience.members[reference.name]
        if not watch.audience.members:
            del self._watches[resource]
            if watch.task is not None:
                watch.task.cancel()

    def _drop(self, reference: Reference) -> None:
        entry = self._entries.pop(reference)
        self._detach(reference, entry)
        self._publications.forget(reference)
        if entry.task is not None:
            entry.task.cancel()
