"""What three watches brought of sets, pods and revisions, named in words that two worlds share.

Pods are named by name and life (`a-0 #2` is the second pod of that name), revisions by set and
order of appearance (`a:r1`).
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from typing import Any, Final

import msgspec

from rollout_operator.kube.api import STATEFULSETS, JsonObject
from tests.contract.sides import PODS, REVISIONS

Json = Any

WATCHED: Final = (STATEFULSETS, PODS, REVISIONS)
REVISION_LABEL: Final = "controller-revision-hash"
# The first changes with each read that a sequence forces; the second is empty.
_LEFT_OUT: Final = ("observedGeneration", "conditions")


class Move(msgspec.Struct, frozen=True):
    """Something that happened to one pod."""

    pod: str
    """Its name and life."""
    what: str

    def __str__(self) -> str:
        return f"{self.pod} {self.what}"


class Seen(msgspec.Struct):
    """The newest objects by kind and name, and what happened since it was last read."""

    objects: dict[str, dict[str, Json]] = msgspec.field(
        default_factory=lambda: {resource.plural: {} for resource in WATCHED}
    )
    newest: dict[str, int] = msgspec.field(
        default_factory=lambda: {resource.plural: 0 for resource in WATCHED}
    )
    """Version of the last event of each kind."""
    on_change: Callable[[], None] = lambda: None
    _moves: list[Move] = []
    _statuses: dict[str, list[Json]] = {}
    _lives: dict[str, list[str]] = {}
    """UIDs of all pods that had a name, in order."""
    _revisions: dict[str, str] = {}

    @property
    def sets(self) -> dict[str, Json]:
        return self.objects[STATEFULSETS.plural]

    @property
    def pods(self) -> dict[str, Json]:
        return self.objects[PODS.plural]

    @property
    def revisions(self) -> dict[str, Json]:
        return self.objects[REVISIONS.plural]

    def take(self, plural: str, event: JsonObject) -> None:
        """Move on by one event."""
        new: Json = event["object"]
        name = new["metadata"]["name"]
        old = self.objects[plural].pop(name, None)
        is_gone = event["type"] == "DELETED"
        self.newest[plural] = int(new["metadata"]["resourceVersion"])
        if not is_gone:
            self.objects[plural][name] = new
        if plural == PODS.plural:
            self._record_pod(old, new, is_gone=is_gone)
        elif plural == REVISIONS.plural:
            self._record_revision(name)
        elif not is_gone:
            self._record_status(name, new)
        self.on_change()

    def _record_pod(self, old: Json, new: Json, *, is_gone: bool) -> None:
        lives = self._lives.setdefault(new["metadata"]["name"], [])
        if new["metadata"]["uid"] not in lives:
            lives.append(new["metadata"]["uid"])
            old = None
            self._move(new, "made")
        before, after = _controller(old or new), _controller(new)
        if before != after:
            self._move(
                new, f"passed from {before or 'no controller'} to {after or 'no controller'}"
            )
        if is_going(new) and not (old and is_going(old)) and not is_gone:
            self._move(new, "terminating")
        if is_gone:
            self._move(new, "gone")

    def _move(self, pod: Json, what: str) -> None:
        self._moves.append(Move(self.call_pod(pod), what))

    def _record_revision(self, name: str) -> None:
        if name not in self._revisions:
            owner = name.rpartition("-")[0]
            number = sum(shown.startswith(f"{owner}:r") for shown in self._revisions.values())
            self._revisions[name] = f"{owner}:r{number + 1}"

    def _record_status(self, name: str, sts: Json) -> None:
        status = {key: value for key, value in sts["status"].items() if key not in _LEFT_OUT}
        known = self._statuses.setdefault(name, [])
        if not known or known[-1] != status:
            known.append(status)

    # Words

    def call_pod(self, pod: Json) -> str:
        """Return a pod's name and life."""
        name = pod["metadata"]["name"]
        return f"{name} #{self._lives[name].index(pod['metadata']['uid']) + 1}"

    def count_lives(self, name: str) -> int:
        return len(self._lives.get(name, ()))

    def call_revision(self, name: str) -> str:
        """Return a revision's set and number, or what it says where none of that name was seen."""
        return self._revisions.get(name, name or "none")

    def describe_pods(self) -> dict[str, str]:
        return {self.call_pod(pod): self._describe(pod) for pod in self.pods.values()}

    def _describe(self, pod: Json) -> str:
        labels = pod["metadata"].get("labels", {})
        parts = (
            self.call_revision(labels.get(REVISION_LABEL, "")),
            pod["status"].get("phase", "no phase"),
            "ready" if is_ready(pod) else "unready",
            "going" if is_going(pod) else "",
            f"of {_controller(pod) or 'no controller'}",
        )
        return " ".join(part for part in parts if part)

    def describe_sets(self) -> dict[str, JsonObject]:
        """Return what each set wants and what its status says."""
        return {
            name: {
                "wants": sts["spec"]["replicas"],
                "is going": is_going(sts),
                "is observed": is_observed(sts),
                "status": self._describe_status(sts["status"]),
            }
            for name, sts in sorted(self.sets.items())
        }

    def _describe_status(self, status: Json) -> JsonObject:
        kept = {key: value for key, value in status.items() if key not in _LEFT_OUT}
        names = ("currentRevision", "updateRevision")
        return {
            key: self.call_revision(value) if key in names else value for key, value in kept.items()
        }

    def describe_revisions(self) -> dict[str, str]:
        return {
            self.call_revision(
                name
            ): f"number {one['revision']} of {_controller(one) or 'no controller'}"
            for name, one in sorted(self.revisions.items())
        }

    def take_moves(self, *, is_ordered: bool) -> list[str] | dict[str, list[str]]:
        """Return what happened to pods since the last call: all in order, or for each by itself.

        In order, what several pods went through at once is sorted.
        """
        moves, self._moves = self._moves, []
        if is_ordered:
            runs = groupby(moves, key=lambda move: move.what)
            return [line for _, run in runs for line in sorted(map(str, run))]
        return {
            pod: [move.what for move in moves if move.pod == pod]
            for pod in sorted({move.pod for move in moves})
        }

    def take_statuses(self) -> dict[str, list[JsonObject]]:
        """Return the different statuses of each set since the last call; the last comes again."""
        found = {
            name: [self._describe_status(status) for status in statuses]
            for name, statuses in sorted(self._statuses.items())
        }
        self._statuses = {name: statuses[-1:] for name, statuses in self._statuses.items()}
        return found

    def shape(self) -> JsonObject:
        """Return all that must not change any more where things are at rest."""
        return {
            "pods": {
                name: (pod["metadata"]["uid"], is_going(pod), pod["status"].get("phase"))
                for name, pod in self.pods.items()
            },
            "sets": {
                name: {key: one for key, one in sts["status"].items() if key not in _LEFT_OUT}
                for name, sts in self.sets.items()
            },
            "revisions": {name: one["revision"] for name, one in self.revisions.items()},
        }

    def versions(self, plural: str) -> Mapping[str, str]:
        return versions_of(self.objects[plural].values())


def versions_of(objects: Iterable[Json]) -> dict[str, str]:
    return {one["metadata"]["name"]: one["metadata"]["resourceVersion"] for one in objects}


def is_going(obj: Json) -> bool:
    return "deletionTimestamp" in obj["metadata"]


def is_ready(pod: Json) -> bool:
    found = pod["status"].get("conditions", ())
    return any(one["type"] == "Ready" and one["status"] == "True" for one in found)


def is_observed(sts: Json) -> bool:
    """Return whether a set's status has caught up with its spec."""
    return bool(sts["status"].get("observedGeneration", 0) == sts["metadata"]["generation"])


def _controller(obj: Json) -> str:
    owners = obj["metadata"].get("ownerReferences", ())
    return next((str(one["name"]) for one in owners if one.get("controller")), "")
