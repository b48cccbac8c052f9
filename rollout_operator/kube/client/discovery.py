"""Find the resource of a kind: what API servers call discovery, read and remembered.

Decides when a group is read again. Which kinds may be mirrored is left to callers.
"""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final, TypeVar

import msgspec

from rollout_operator.aio.clock import Clock
from rollout_operator.kube.api import Discoverer, Resource, Served
from rollout_operator.kube.call import Call
from rollout_operator.model.errors import ApiError, NotFound, Unreachable

# A kind may be installed at any time; a kind that is missing is a typing error more often.
MISSING_LASTS: Final = timedelta(minutes=1)
# What is there stays there, or is missed by its users.
FOUND_LASTS: Final = timedelta(minutes=10)
# All waiters for a group that could not be read share one failure.
FAILURE_LASTS: Final = timedelta(seconds=5)


class _Version(msgspec.Struct):
    version: str


class _Group(msgspec.Struct):
    versions: list[_Version]
    preferredVersion: _Version | None = None


class _Kind(msgspec.Struct):
    name: str
    kind: str
    namespaced: bool = False


class _Resources(msgspec.Struct):
    resources: list[_Kind] | None = None


_Shape = TypeVar("_Shape")

_GROUP: Final = msgspec.json.Decoder(_Group)
_RESOURCES: Final = msgspec.json.Decoder(_Resources)


def decode_group(call: Call, body: bytes) -> Sequence[str]:
    """Return the versions of an APIGroup, the preferred one first. Raises Unreachable."""
    group = _read(call, body, _GROUP)
    preferred = [group.preferredVersion] if group.preferredVersion else []
    return tuple(dict.fromkeys(version.version for version in (*preferred, *group.versions)))


def decode_resources(call: Call, body: bytes) -> Sequence[Served]:
    """Return the kinds of an APIResourceList, in its order. Raises Unreachable."""
    listed = _read(call, body, _RESOURCES).resources or ()
    below: dict[str, set[str]] = defaultdict(set)
    for entry in listed:
        plural, _, subresource = entry.name.partition("/")
        if subresource:
            below[plural].add(subresource)
    group, version = call.resource.group, call.resource.version
    return tuple(
        Served(
            resource=Resource(group, version, entry.name, entry.kind, entry.namespaced),
            subresources=frozenset(below[entry.name]),
        )
        for entry in listed
        if "/" not in entry.name
    )


def _read(call: Call, body: bytes, decoder: "msgspec.json.Decoder[_Shape]") -> _Shape:
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Unreachable.of(call.text, f"the answer is no discovery: {error}") from error


class _GroupState(msgspec.Struct):
    """What is known of one API group."""

    kinds: Mapping[str, Served] = {}
    read_at: timedelta | None = None
    is_doubted: bool = False
    error: ApiError | None = None
    """Why it could not be read, the last time."""
    failed_at: timedelta = timedelta(0)
    lock: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)


class KindCatalog:
    """The kinds of those API groups that callers need.

    A group is read again when it is used and was last read ten minutes ago, and at most once a
    minute where a kind is missing in it or doubted.
    """

    def __init__(self, api: Discoverer, clock: Clock) -> None:
        self._api = api
        self._clock = clock
        self._groups: dict[str, _GroupState] = {}

    async def find(self, group: str, kind: str) -> Served | None:
        """Return a kind in the version that the API server prefers; None where there is none.

        A kind that has a `scale` goes before a kind that has none. Raises ApiError where nothing is
        known yet, and InvalidInput where no group can have such a name.
        """
        state = self._groups.setdefault(group, _GroupState())
        # A call that waits for a group that hangs delays no call for another group.
        async with state.lock:
            if self._is_due(state, kind):
                await self._refresh(group, state, kind)
        return state.kinds.get(kind)

    def doubt(self, group: str) -> None:
        """Record that a kind of a group was not found: read the group again, if not just done."""
        if group in self._groups:
            self._groups[group].is_doubted = True

    def keep(self, groups: frozenset[str]) -> None:
        """Forget all but these groups."""
        for group in self._groups.keys() - groups:
            del self._groups[group]

    def _is_due(self, state: _GroupState, kind: str) -> bool:
        if state.read_at is None:
            return True
        is_sure = kind in state.kinds and not state.is_doubted
        lasts = FOUND_LASTS if is_sure else MISSING_LASTS
        return self._clock.elapsed() - state.read_at >= lasts

    async def _refresh(self, group: str, state: _GroupState, kind: str) -> None:
        now = self._clock.elapsed()
        if state.error is None or now - state.failed_at >= FAILURE_LASTS:
            state.error = None
            try:
                state.kinds = await self._fetch_kinds(group)
                state.read_at, state.is_doubted = self._clock.elapsed(), False
            except ApiError as error:
                state.error, state.failed_at = error, self._clock.elapsed()
        # What was found before is still the best guess, and its users find out.
        if state.error is not None and kind not in state.kinds:
            raise state.error.with_traceback(None)

    async def _fetch_kinds(self, group: str) -> Mapping[str, Served]:
        kinds: dict[str, Served] = {}
        try:
            versions = await self._api.fetch_group(group)
        except NotFound:
            return kinds
        for version in versions:
            try:
                listed = await self._api.fetch_resources(group, version)
            except NotFound:
                continue
            for entry in listed:
                before = kinds.get(entry.resource.kind)
                if before is None or _has_scale(entry) > _has_scale(before):
                    kinds[entry.resource.kind] = entry
        return kinds


def _has_scale(served: Served) -> bool:
    return "scale" in served.subresources
