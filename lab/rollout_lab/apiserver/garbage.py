"""The garbage collector: what becomes of objects whose owners are gone, or are going.

Decides, a little after each write, which dependants are deleted or let go, and when an owner that
is deleted in the foreground has outlived them. An owner in another namespace is none; references to
unknown kinds keep an object from all of this.
"""

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable
from datetime import timedelta
from typing import Any, Final

from rollout_lab.apiserver.deletions import FOREGROUND, ORPHAN
from rollout_lab.apiserver.store import ObjectKey, ObjectStore
from rollout_lab.model.fields import children, is_terminating, metadata_of, text, uid_of
from rollout_lab.model.history import Commit
from rollout_lab.model.request import MERGE_PATCH, ApiAnswer, ApiRequest, Verb
from rollout_lab.schemas.kinds import KINDS
from rollout_lab.virtual_loop.pace import Range, Timers, draw
from rollout_operator.kube.api import JsonObject

ACTOR: Final = "garbage-collector"
# From a change until the collector has come to what it means.
DELAY: Final[Range] = (timedelta(milliseconds=10), timedelta(milliseconds=200))
# After a refusal, such as that of a webhook.
RETRY: Final[Range] = (timedelta(seconds=1), timedelta(seconds=2))
_KNOWN_KINDS: Final = frozenset(kind.resource.kind for kind in KINDS.values())


class GarbageCollector:
    """Follows all writes, and acts in small steps by timers of the running loop."""

    def __init__(
        self,
        store: ObjectStore,
        call: Callable[[ApiRequest], ApiAnswer],
        call_reviewed: Callable[[ApiRequest], Coroutine[Any, Any, ApiAnswer]],
        rng: random.Random,
    ) -> None:
        self._store = store
        self._call = call
        self._call_reviewed = call_reviewed
        """For what webhooks may review, as they do writes of StatefulSets."""
        self._rng = rng
        self._timers = Timers()
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: set[ObjectKey] = set()
        self._owned: dict[str, dict[ObjectKey, None]] = defaultdict(dict)
        """By the UID of an owner: who names it, in the order in which they came."""
        self._alive: dict[str, ObjectKey] = {}
        store.listeners.append(self._record)

    def stop(self) -> None:
        """Do nothing any more."""
        self._timers.stop()
        for task in self._tasks:
            task.cancel()

    def _record(self, commit: Commit) -> None:
        place = ObjectKey(commit.resource, commit.namespace, commit.name)
        before, after = commit.before, commit.after
        if before is None or after is None or _references(before) != _references(after):
            self._index(place, before, after)
        if before is None or after is None or uid_of(before) != uid_of(after):
            self._record_life(place, before, after)
        if after is not None and is_terminating(after) and _is_held(after):
            self._check_soon(place)
            if _has_finalizer(after, FOREGROUND):
                self._check_all(self._owned.get(uid_of(after), ()))

    def _record_life(
        self, place: ObjectKey, before: JsonObject | None, after: JsonObject | None
    ) -> None:
        if after is not None:
            self._alive[uid_of(after)] = place
        if before is not None:
            uid = uid_of(before)
            self._alive.pop(uid, None)
            self._check_all(self._owned.get(uid, ()))

    def _index(self, place: ObjectKey, before: JsonObject | None, after: JsonObject | None) -> None:
        for uid in () if before is None else _owner_uids(before):
            self._owned[uid].pop(place, None)
            if (home := self._alive.get(uid)) is not None and self._waits(home):
                self._check_soon(home)
            if not self._owned[uid]:
                del self._owned[uid]
        for uid in () if after is None else _owner_uids(after):
            self._owned[uid][place] = None
        if after is not None and not all(self._is_owned(place, owner) for owner in _owners(after)):
            self._check_soon(place)

    def _check_all(self, places: Iterable[ObjectKey]) -> None:
        for place in tuple(places):
            self._check_soon(place)

    def _check_soon(self, place: ObjectKey, after: Range = DELAY) -> None:
        if place not in self._waiting:
            self._waiting.add(place)
            self._timers.after(draw(self._rng, after), lambda: self._step(place))

    def _step(self, place: ObjectKey) -> None:
        self._waiting.discard(place)
        obj = self._store.get(place)
        if obj is None:
            return
        if not is_terminating(obj):
            self._judge(place, obj)
        elif _has_finalizer(obj, ORPHAN):
            self._let_go(place, obj)
        elif _has_finalizer(obj, FOREGROUND) and not self._is_blocked(obj):
            self._drop_finalizer(place, obj, FOREGROUND)

    def _judge(self, place: ObjectKey, obj: JsonObject) -> None:
        """Delete an object without a living owner; let others forget the dead owners."""
        references = _owners(obj)
        if not references or any(_is_unknown(reference) for reference in references):
            return
        solid = [reference for reference in references if self._is_owned(place, reference)]
        if not solid:
            self._delete(place, obj, self._choose_policy(obj, references))
        elif len(solid) < len(references):
            self._set_owners(place, obj, solid)

    def _choose_policy(self, obj: JsonObject, references: list[JsonObject]) -> str:
        for policy, finalizer in (("Orphan", ORPHAN), ("Foreground", FOREGROUND)):
            if _has_finalizer(obj, finalizer):
                return policy
        homes = [self._alive.get(text(reference, "uid")) for reference in references]
        is_awaited = any(home is not None and self._waits(home) for home in homes)
        return "Foreground" if is_awaited and self._owned.get(uid_of(obj)) else "Background"

    def _waits(self, place: ObjectKey) -> bool:
        """Return whether an object goes only once its dependants are gone."""
        obj = self._store.get(place)
        return obj is not None and is_terminating(obj) and _has_finalizer(obj, FOREGROUND)

    def _is_blocked(self, obj: JsonObject) -> bool:
        """Return whether a dependant is left that keeps its owner from going."""
        uid = uid_of(obj)
        dependants = [self._store.get(place) for place in self._owned.get(uid, ())]
        return any(
            text(owner, "uid") == uid and owner.get("blockOwnerDeletion")
            for dependant in dependants
            if dependant is not None
            for owner in _owners(dependant)
        )

    def _is_owned(self, place: ObjectKey, reference: JsonObject) -> bool:
        """Return whether the owner that a reference names is there, and may own."""
        home = self._alive.get(text(reference, "uid"))
        if home is None or home.name != text(reference, "name") or self._waits(home):
            return False
        return not home.resource.is_namespaced or home.namespace == place.namespace

    def _let_go(self, place: ObjectKey, obj: JsonObject) -> None:
        """Make all dependants forget an owner, then let it go."""
        uid, are_free = uid_of(obj), True
        for owned in tuple(self._owned.get(uid, ())):
            dependant = self._store.get(owned)
            if dependant is not None:
                kept = [each for each in _owners(dependant) if text(each, "uid") != uid]
                are_free = self._set_owners(owned, dependant, kept) and are_free
        if are_free:
            self._drop_finalizer(place, obj, ORPHAN)
        else:
            self._check_soon(place, RETRY)

    def _set_owners(self, place: ObjectKey, obj: JsonObject, kept: list[JsonObject]) -> bool:
        body = _changed(obj, {"ownerReferences": kept or None})
        return self._send(place, "patch", body)

    def _drop_finalizer(self, place: ObjectKey, obj: JsonObject, finalizer: str) -> None:
        listed = metadata_of(obj).get("finalizers")
        kept = [entry for entry in listed if entry != finalizer] if isinstance(listed, list) else []
        request = _request_of(place, "patch", _changed(obj, {"finalizers": kept}))
        self._waiting.add(place)
        task = asyncio.get_running_loop().create_task(self._release(place, request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _release(self, place: ObjectKey, request: ApiRequest) -> None:
        answer = await self._call_reviewed(request)
        self._waiting.discard(place)
        self._try_again(place, answer)

    def _delete(self, place: ObjectKey, obj: JsonObject, policy: str) -> None:
        known = metadata_of(obj)
        options: JsonObject = {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "preconditions": {"uid": known["uid"], "resourceVersion": known["resourceVersion"]},
            "propagationPolicy": policy,
        }
        self._send(place, "delete", options)

    def _send(self, place: ObjectKey, verb: Verb, body: JsonObject) -> bool:
        answer = self._call(_request_of(place, verb, body))
        return self._try_again(place, answer)

    def _try_again(self, place: ObjectKey, answer: ApiAnswer) -> bool:
        """Look once more where a request was refused; return whether it was not."""
        is_done = answer.is_ok or answer.status == 404
        if not is_done:
            self._check_soon(place, RETRY)
        return is_done


def _changed(obj: JsonObject, metadata: JsonObject) -> JsonObject:
    known: JsonObject = {key: metadata_of(obj)[key] for key in ("uid", "resourceVersion")}
    return {"metadata": {**known, **metadata}}


def _request_of(place: ObjectKey, verb: Verb, body: JsonObject) -> ApiRequest:
    return ApiRequest(
        verb=verb,
        resource=place.resource,
        namespace=place.namespace,
        name=place.name,
        body=body,
        content_type=MERGE_PATCH if verb == "patch" else "application/json",
        user=ACTOR,
    )


def _references(obj: JsonObject) -> object:
    return metadata_of(obj).get("ownerReferences")


def _owners(obj: JsonObject) -> list[JsonObject]:
    return children(obj, "metadata", "ownerReferences")


def _owner_uids(obj: JsonObject) -> tuple[str, ...]:
    return tuple(text(owner, "uid") for owner in _owners(obj))


def _is_held(obj: JsonObject) -> bool:
    """Return whether an object goes only once its dependants have forgotten it, or are gone."""
    return _has_finalizer(obj, ORPHAN) or _has_finalizer(obj, FOREGROUND)


def _has_finalizer(obj: JsonObject, finalizer: str) -> bool:
    listed = metadata_of(obj).get("finalizers")
    return isinstance(listed, list) and finalizer in listed


def _is_unknown(reference: JsonObject) -> bool:
    return text(reference, "kind") not in _KNOWN_KINDS
