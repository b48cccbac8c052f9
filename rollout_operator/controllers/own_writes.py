"""The newest known state of objects that this process writes: as written, until caches show it.

A write that got no answer, or was refused because the object has changed since, leaves a doubt:
nothing is decided by that object until it was read back.
"""

from collections.abc import Callable
from typing import Generic, TypeAlias, TypeVar

import msgspec

from rollout_operator.kube.api import JsonObject, Patcher, Reader, Resource
from rollout_operator.kube.cache.store import is_older
from rollout_operator.model.decode.wire import JsonBytes
from rollout_operator.model.errors import Conflict, NotFound, UnknownOutcome
from rollout_operator.model.objects import Unreadable, WatchedObject
from rollout_operator.model.policy.watched import WatchedPolicy

Written = TypeVar("Written", WatchedObject, WatchedPolicy)
GetCached: TypeAlias = Callable[[str, str], Written | Unreadable | None]


class NewestObjects(Generic[Written]):
    """Objects of one kind in one namespace."""

    def __init__(
        self,
        get_cached: GetCached[Written],
        namespace: str,
        reader: Reader,
        decode: Callable[[JsonBytes], Written],
    ) -> None:
        """`get_cached` returns the cached object, by namespace and name."""
        self._get_cached: GetCached[Written] = get_cached
        self._namespace = namespace
        self._reader = reader
        self._decode: Callable[[JsonBytes], Written] = decode
        self._written: dict[str, Written] = {}
        self._doubtful: set[str] = set()

    def get(self, name: str) -> Written | Unreadable | None:
        """Return the newest state of an object; None where the cache shows none."""
        cached = self._get_cached(self._namespace, name)
        return None if cached is None else self.choose(cached)

    def choose(self, cached: Written | Unreadable) -> Written | Unreadable:
        """Return the object as written where the cache shows an older state, else as cached."""
        written = self._written.get(cached.name)
        if written is None:
            return cached
        if is_older(cached.resource_version, written.resource_version):
            return written
        del self._written[cached.name]
        return cached

    def doubt(self, name: str) -> None:
        """Have an object read back before anything is decided."""
        self._doubtful.add(name)

    def record(self, body: JsonBytes) -> Written:
        """Take an object as the API server answered it. Raises DecodeError."""
        written = self._decode(body)
        self._written[written.name] = written
        self._doubtful.discard(written.name)
        return written

    async def settle(self, resource: Resource, name: str) -> Written | Unreadable | None:
        """Return the newest state of an object to decide by; None where it is gone.

        An object in doubt is read back first. Raises as `read_back`.
        """
        if self.get(name) is not None and name in self._doubtful:
            await self.read_back(resource, name)
        return self.get(name)

    async def read_back(self, resource: Resource, name: str) -> None:
        """Read an object as the store has it. Raises as `Reader.fetch`, and DecodeError."""
        try:
            self.record(await self._reader.fetch(resource, self._namespace, name))
        except NotFound:
            self.forget(name)
            raise

    def forget(self, name: str) -> None:
        """Forget an object that is gone."""
        self._written.pop(name, None)
        self._doubtful.discard(name)


class StatusWriter(Generic[Written]):
    """Writes the statuses of one kind: one a pass, whole, over the state of the decision.

    A write is refused where the object has changed since, so two processes never record over each
    other.
    """

    def __init__(self, client: Patcher, resource: Resource, newest: NewestObjects[Written]) -> None:
        self._client = client
        self._resource = resource
        self._newest: NewestObjects[Written] = newest

    async def write(
        self, watched: Written, status: msgspec.Struct, *, has_turn: bool = False
    ) -> Written:
        """Write a status over the known state, and return the object that results.

        With `has_turn` it waits for no turn: see `TimedPatcher`. Raises Conflict where the object
        has changed since, and as `Patcher.patch`, and DecodeError.
        """
        head: JsonObject = {"uid": watched.uid, "resourceVersion": watched.resource_version}
        patch: JsonObject = {"metadata": head, "status": _render_patch(status)}
        try:
            body = await self._client.patch(
                self._resource,
                watched.namespace,
                watched.name,
                patch,
                subresource="status",
                has_turn=has_turn,
            )
        except (UnknownOutcome, Conflict):
            self._newest.doubt(watched.name)
            raise
        return self._newest.record(body)


def _render_patch(status: msgspec.Struct) -> JsonObject:
    """Return a status as a merge patch: fields that are absent are null, and go."""
    patch: JsonObject = msgspec.json.decode(msgspec.json.encode(status))
    for field in msgspec.structs.fields(status):
        part = getattr(status, field.name)
        if isinstance(part, msgspec.Struct):
            patch[field.encode_name] = _render_patch(part)
        else:
            patch.setdefault(field.encode_name, None)
    return patch
