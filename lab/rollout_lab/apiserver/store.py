"""The store of the simulated API server: one order of all writes, all versions until compacted.

Decides revisions, and what a collection held at an earlier revision. Which writes are allowed is
decided before; which watches get them is `streams`' part. What it holds is never changed: a write
replaces.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Final

import msgspec

from rollout_lab.model.fields import metadata_of
from rollout_lab.model.history import Commit, History
from rollout_operator.kube.api import JsonObject, Resource

Collection = tuple[str, str]
"""Group and plural: all versions of a group share one collection."""

# As in a real cluster nothing has version 0, and the first write comes after the server's own.
FIRST_REVISION: Final = 1


class ObjectKey(msgspec.Struct, frozen=True):
    """Where one object is kept."""

    resource: Resource
    namespace: str
    name: str


class By(msgspec.Struct, frozen=True):
    """Who writes, and by which request; 0 for what the API server does by itself."""

    actor: str
    call: int = 0


def collection_of(resource: Resource) -> Collection:
    """Return the collection that holds the objects of a kind."""
    return resource.group, resource.plural


def versioned(obj: JsonObject, revision: int) -> JsonObject:
    """Return an object with another resourceVersion; all but the path to it is shared."""
    return {**obj, "metadata": {**metadata_of(obj), "resourceVersion": str(revision)}}


class ObjectStore:
    """All objects of one world. Never change what it returns."""

    def __init__(self, history: History, elapsed: Callable[[], timedelta]) -> None:
        self.revision = FIRST_REVISION
        self.compacted = FIRST_REVISION
        """Nothing older can be read or watched."""
        self.listeners: list[Callable[[Commit], None]] = []
        self._history = history
        self._elapsed = elapsed
        self._objects: dict[Collection, dict[tuple[str, str], JsonObject]] = defaultdict(dict)
        self._log: dict[Collection, list[Commit]] = defaultdict(list)

    def get(self, place: ObjectKey) -> JsonObject | None:
        """Return the newest version of an object, None where it does not exist."""
        held = self._objects.get(collection_of(place.resource))
        return None if held is None else held.get((place.namespace, place.name))

    def count(self, resource: Resource) -> int:
        """Return how many objects of a kind there are."""
        return len(self._objects.get(collection_of(resource), ()))

    def list(self, resource: Resource, namespace: str) -> Sequence[JsonObject]:
        """Return the objects of a namespace by name; of all namespaces where it is empty."""
        return _sorted(self._objects.get(collection_of(resource), {}), namespace)

    def list_at(self, resource: Resource, namespace: str, revision: int) -> Sequence[JsonObject]:
        """Return what `list` returned when `revision` was the newest.

        `revision` is at least `compacted`.
        """
        held = dict(self._objects.get(collection_of(resource), {}))
        for commit in reversed(self.commits_since(resource, revision)):
            if commit.before is None:
                held.pop((commit.namespace, commit.name), None)
            else:
                held[commit.namespace, commit.name] = commit.before
        return _sorted(held, namespace)

    def commits_since(self, resource: Resource, revision: int) -> Sequence[Commit]:
        """Return the writes of a kind after `revision`, oldest first."""
        log = self._log.get(collection_of(resource), [])
        first = len(log)
        while first and log[first - 1].revision > revision:
            first -= 1
        return log[first:]

    def write(self, place: ObjectKey, obj: JsonObject, by: By) -> JsonObject:
        """Store the newest version of an object and return it with its resourceVersion."""
        stored = versioned(obj, self.revision + 1)
        self._commit(place, stored, by)
        return stored

    def remove(self, place: ObjectKey, by: By) -> JsonObject:
        """Take an object away; return its last version under the revision of the removal."""
        last = self.get(place)
        assert last is not None, f"{place} does not exist"
        self._commit(place, None, by)
        return versioned(last, self.revision)

    def plant(self, place: ObjectKey, obj: JsonObject) -> None:
        """Put an object there that was there before the world began: no write, no record."""
        key = (place.namespace, place.name)
        self._objects[collection_of(place.resource)][key] = versioned(obj, FIRST_REVISION)

    def compact(self) -> None:
        """Forget all versions but the newest."""
        self.compacted = self.revision
        self._log.clear()

    def _commit(self, place: ObjectKey, after: JsonObject | None, by: By) -> None:
        collection = collection_of(place.resource)
        held, key = self._objects[collection], (place.namespace, place.name)
        before = held.get(key)
        if after is None:
            del held[key]
        else:
            held[key] = after
        self.revision += 1
        commit = Commit(
            at=self._elapsed(),
            revision=self.revision,
            actor=by.actor,
            resource=place.resource,
            namespace=place.namespace,
            name=place.name,
            before=before,
            after=after,
            call=by.call,
        )
        self._log[collection].append(commit)
        self._history.add(commit)
        for listener in self.listeners:
            listener(commit)


def _sorted(held: Mapping[tuple[str, str], JsonObject], namespace: str) -> Sequence[JsonObject]:
    """Return objects in the order of the keys of the real store, where a slash ends a namespace."""
    if namespace:
        return [held[key] for key in sorted(key for key in held if key[0] == namespace)]
    return [held[key] for key in sorted(held, key=lambda key: f"{key[0]}/{key[1]}")]
