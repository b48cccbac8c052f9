"""The garbage collector: what becomes of objects whose owners are gone, or are going.

Decides, a little after each write, which dependants are deleted or let go, and when an owner that
waits for them may go. An owner in another namespace is none; references to unknown kinds
keep an object from all of this.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Final

from rollout_operator.kube.api import JsonObject
from rollout_operator.lab.apiserver.deletions import FOREGROUND, ORPHAN
from rollout_operator.lab.apiserver.store import ObjectKey, ObjectStore
from rollout_operator.lab.model.fields import children, is_terminating, metadata_of, text, uid_of
from rollout_operator.lab.model.history import Commit
from rollout_operator.lab.model.request import MERGE_PATCH, ApiAnswer, ApiRequest, Verb
from rollout_operator.lab.schemas.kinds import KINDS
from rollout_operator.lab.virtual_loop.pace import Range, Timers, draw

ACTOR: Final = "garbage-collector"
# From a change until the collector has come to what it means.
DELAY: Final[Range] = (timedelta(milliseconds=10), timedelta(milliseconds=200))
# After a refusal, such as that of a webhook.
RETRY: Final[Range] = (timedelta(seconds=1), timedelta(seconds=2))
_KNOWN_KINDS: Final = frozenset(kind.resource.kind for kind in KINDS.values())


class GarbageCollector:
    """Follows all writes, and acts in small steps by timers of the running loop."""

    def __init__(
        self, store: ObjectStore, call: Callable[[ApiRequest], ApiAnswer], rng: random.Random
    ) -> None:
        self._store = store
        self._call = call
        self._rng = rng
        self._timers = Timers()
        self._waiting: set[ObjectKey] = set()
        self._owned: dict[str, dict[ObjectKey, None]] = defaultdict(dict)
        """By the UID of an owner: who names it, in the order in which they came."""
        self._alive: dict[str, ObjectKey] = {}
        store.listeners.append(self._record)

    def stop(self) -> None:
        """Do nothing any more."""
        self._timers.stop()

    def _record(self, commit: Commit) -> None:
        place = ObjectKey(commit.resource, commit.namespace, commit.name)
        before, after = commit.before, commit.after
        if before is None or after is None or _references(before) != _references(after):
            self._index(place, before, after)
        if before is None or after is None or uid_of(before) != uid_of(after):
            self._record_life(place, before, after)
        if after is not None and is_terminating(after) and _waits_for_dependants(after):
            self._check_soon(place)

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
            if not self._owned[uid]:
                del self._owned[uid]
            if uid in self._alive:
                self._check_if_waiting(self._alive[uid])
        for uid in () if after is None else _owner_uids(after):
            self._owned[uid][place] = None
        if after is not None and not all(self._is_owned(place, owner) for owner in _owners(after)):
            self._check_soon(place)

    def _check_if_waiting(self, place: ObjectKey) -> None:
        owner = self._store.get(place)
        if owner is not None and is_terminating(owner):
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
        if is_terminating(obj):
            if _has_finalizer(obj, ORPHAN):
                self._let_go(place, obj)
            elif _has_finalizer(obj, FOREGROUND):
                self._wait_for_dependants(place, obj)
            return
        self._judge(place, obj)

    def _judge(self, place: ObjectKey, obj: JsonObject) -> None:
        """Delete an object without a living owner; let others forget the dead owners."""
        references = _owners(obj)
        if not references or any(_is_unknown(reference) for reference in references):
            return
        solid, waiting = self._sort(place, references)
        gone = [reference for reference in references if reference not in solid]
        if solid and gone:
            self._set_owners(place, obj, solid)
        elif not solid:
            is_owner = bool(self._owned.get(uid_of(obj)))
            self._delete(place, obj, "Foreground" if waiting and is_owner else _own_policy(obj))

    def _sort(
        self, place: ObjectKey, references: list[JsonObject]
    ) -> tuple[list[JsonObject], list[JsonObject]]:
        """Return the references to owners that stay, and those to owners that wait for this."""
        solid, waiting = [], []
        for reference in references:
            if not self._is_owned(place, reference):
                continue
            owner = self._store.get(self._alive[text(reference, "uid")])
            is_waiting = owner is not None and is_terminating(owner)
            if is_waiting and owner is not None and _has_finalizer(owner, FOREGROUND):
                waiting.append(reference)
            else:
                solid.append(reference)
        return solid, waiting

    def _is_owned(self, place: ObjectKey, reference: JsonObject) -> bool:
        """Return whether the owner that a reference names is there, and may own."""
        home = self._alive.get(text(reference, "uid"))
        if home is None or home.name != text(reference, "name"):
            return False
        return not home.resource.is_namespaced or home.namespace == place.namespace

    def _wait_for_dependants(self, place: ObjectKey, obj: JsonObject) -> None:
        """Have those deleted that hold an owner; let it go when the last of them is gone."""
        uid = uid_of(obj)
        held = [owned for owned in self._owned.get(uid, ()) if self._is_held_by(owned, uid)]
        if not held:
            self._drop_finalizer(place, obj, FOREGROUND)
        self._check_all(owned for owned in held if not self._is_going(owned))

    def _is_held_by(self, place: ObjectKey, uid: str) -> bool:
        obj = self._store.get(place)
        return obj is not None and any(
            text(owner, "uid") == uid and owner.get("blockOwnerDeletion") is True
            for owner in _owners(obj)
        )

    def _is_going(self, place: ObjectKey) -> bool:
        obj = self._store.get(place)
        return obj is None or is_terminating(obj)

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
        return self._patch(place, obj, {"ownerReferences": kept or None})

    def _drop_finalizer(self, place: ObjectKey, obj: JsonObject, name: str) -> None:
        listed = metadata_of(obj).get("finalizers")
        kept = [entry for entry in listed if entry != name] if isinstance(listed, list) else []
        self._patch(place, obj, {"finalizers": kept})

    def _patch(self, place: ObjectKey, obj: JsonObject, metadata: JsonObject) -> bool:
        known: JsonObject = {key: metadata_of(obj)[key] for key in ("uid", "resourceVersion")}
        body: JsonObject = {"metadata": {**known, **metadata}}
        return self._send(place, "patch", body)

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
        answer = self._call(
            ApiRequest(
                verb=verb,
                resource=place.resource,
                namespace=place.namespace,
                name=place.name,
                body=body,
                content_type=MERGE_PATCH if verb == "patch" else "application/json",
                user=ACTOR,
            )
        )
        if not answer.is_ok and answer.status != 404:
            self._check_soon(place, RETRY)
        return answer.is_ok or answer.status == 404


def _references(obj: JsonObject) -> object:
    return metadata_of(obj).get("ownerReferences")


def _owners(obj: JsonObject) -> list[JsonObject]:
    return children(obj, "metadata", "ownerReferences")


def _owner_uids(obj: JsonObject) -> tuple[str, ...]:
    return tuple(text(owner, "uid") for owner in _owners(obj))


def _has_finalizer(obj: JsonObject, name: str) -> bool:
    listed = metadata_of(obj).get("finalizers")
    return isinstance(listed, list) and name in listed


def _waits_for_dependants(obj: JsonObject) -> bool:
    return _has_finalizer(obj, ORPHAN) or _has_finalizer(obj, FOREGROUND)


def _own_policy(obj: JsonObject) -> str:
    """Return what its own finalizers say is to become of the dependants of an object."""
    if _has_finalizer(obj, ORPHAN):
        return "Orphan"
    return "Foreground" if _has_finalizer(obj, FOREGROUND) else "Background"


def _is_unknown(reference: JsonObject) -> bool:
    return text(reference, "kind") not in _KNOWN_KINDS
