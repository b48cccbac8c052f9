"""All that happened in one simulated world, in order: the ground truth that is judged.

Times are virtual, since the world began. Objects are those that the store holds: never change them.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

import msgspec

from rollout_lab.model.request import ApiRequest
from rollout_operator.kube.api import JsonObject, Resource


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """One write of the store; commits are totally ordered by `revision`."""

    at: timedelta
    revision: int
    actor: str
    """Who wrote: a process of the operator (`operator-1`), a controller, a kubelet, a person."""
    resource: Resource
    namespace: str
    name: str
    before: JsonObject | None
    after: JsonObject | None
    """None where the object went away for good; a graceful deletion is a change before that."""
    call: int = 0
    """Number of the request that did it, 0 for what the API server does by itself."""


class Called(msgspec.Struct, frozen=True, kw_only=True):
    """A request that the API server has answered, whether or not the answer arrived."""

    at: timedelta
    """When it was answered."""
    begun: timedelta
    """When it arrived at the API server."""
    number: int
    actor: str
    request: ApiRequest
    status: int
    reason: str = ""
    message: str = ""


class Reviewed(msgspec.Struct, frozen=True, kw_only=True):
    """A question of admission that the API server sent to a webhook."""

    at: timedelta
    begun: timedelta
    call: int
    """Number of the request that it was about."""
    actor: str
    """The process that answered, or did not."""
    path: str
    namespace: str
    name: str
    resource: str
    """With its subresource, as in `statefulsets/scale`."""
    dry_run: bool
    allowed: bool
    status: int
    """Code of a refusal, 0 for none; -1 where no useful answer came."""
    message: str = ""


class PodCalled(msgspec.Struct, frozen=True, kw_only=True):
    """An HTTP request that arrived at a pod, with what it answered."""

    at: timedelta
    begun: timedelta
    actor: str
    method: str
    pod: str
    uid: str
    path: str
    status: int
    """0 where the caller got no answer; the pod has acted on it where `acted`."""
    acted: bool


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was made to go wrong."""

    at: timedelta
    number: int
    kind: str
    """A word such as `crash` or `drop_event`: the dose of each is counted by it."""
    actor: str
    text: str


class Lived(msgspec.Struct, frozen=True, kw_only=True):
    """A step in the life of a process: started, ready, crashed, stopped."""

    at: timedelta
    actor: str
    what: str


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the operator's log, or what a person did and why, for the readers of a story."""

    at: timedelta
    actor: str
    text: str


Record = Commit | Called | Reviewed | PodCalled | Fault | Lived | Said
_R = TypeVar("_R", Commit, Called, Reviewed, PodCalled, Fault, Lived, Said)


class History(msgspec.Struct):
    """The records of one world, in the order in which they happened."""

    records: list[Record] = []
    listeners: list[Callable[[Record], None]] = []
    """Called with each record as it happens, to watch a world live."""

    def add(self, record: Record) -> None:
        """Record what just happened."""
        self.records.append(record)
        for listener in self.listeners:
            listener(record)

    def list_all(self, kind: type[_R]) -> list[_R]:
        """Return the records of one kind, in order."""
        return [record for record in self.records if isinstance(record, kind)]

    def revision_at(self, at: timedelta) -> int:
        """Return the newest version at a time, 0 where nothing had been written yet."""
        for record in reversed(self.records):
            if isinstance(record, Commit) and record.at <= at:
                return record.revision
        return 0
