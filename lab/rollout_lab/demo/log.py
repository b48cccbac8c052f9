"""What is worth a line: records of the simulated world, and of the operator's own log.

What stands in the grid anyway, as pods that come and go, is no entry.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from rollout_lab.demo.objects import OPERATOR, PERSON
from rollout_lab.demo.snapshot import DemoEntry, DemoReason
from rollout_lab.model.fields import text as read_text
from rollout_lab.model.history import Called, Commit, Fault, PodCalled, Record, Reviewed, Said
from rollout_lab.trace.releases import is_of_releases, list_release_changes, name_of_release
from rollout_operator.kube.api import JsonObject
from rollout_operator.model.lease import LEASE_DURATION
from rollout_operator.model.outcome import Code
from rollout_operator.telemetry.metrics import GroupState

API_SERVER: Final = "API server"
TERMINATING: Final = "Terminating pod"
POLICY_WAITING: Final = "Policy waits"
RECORDING: Final = "Recording revision"
ELECTED: Final = "Elected: this process acts"
# Told by what comes of it.
WRITING: Final = "Writing an object of Flux"


_ACTORS: Final = {
    OPERATOR: "operator",
    **dict.fromkeys(("source-controller", "kustomize-controller"), "Flux"),
}
# What is shown of the log of an operator that is stuck.
TAIL_LINES: Final = 6


class Journal(msgspec.Struct):
    """What was done and said since it was opened."""

    is_open: bool = False
    entries: list[DemoEntry] = []
    move: DemoReason | None = None
    """Why the last pod was taken."""
    policy_waits: tuple[DemoReason, ...] = ()
    """Why the policy waits, or did last."""
    tail: deque[str] = msgspec.field(default_factory=lambda: deque(maxlen=TAIL_LINES))
    _refused: set[str] = set()

    def read_line(self, line: bytes, at: float, who: str) -> None:
        """Take a line of the operator's log."""
        keys = msgspec.json.decode(line, type=dict[str, object])
        self.tail.append(line.decode("utf-8", "replace").rstrip())
        self.move = read_move(keys) or self.move
        self.policy_waits = read_policy_waits(keys) or self.policy_waits
        self._add(read_log(keys, at, who))

    def record(self, record: Record, begin: timedelta) -> None:
        """Take a record of the world; what is refused in the same words again is no news."""
        for said in read_release(record, begin):
            self._add(said)
        entry = read_record(record, begin)
        if entry is not None and is_retried(record):
            if entry.text in self._refused:
                return
            self._refused.add(entry.text)
        self._add(entry)

    def _add(self, entry: DemoEntry | None) -> None:
        if entry is not None and self.is_open:
            self.entries.append(entry)


def read_release(record: Record, begin: timedelta) -> Iterator[DemoEntry]:
    """Yield what a write to an object of releases says first."""
    if isinstance(record, Commit) and is_of_releases(record.resource):
        at = (record.at - begin).total_seconds()
        for sentence in list_release_changes(record):
            text = f"{name_of_release(record)}: {sentence}"
            yield DemoEntry(at=at, who=_ACTORS.get(record.actor, record.actor), text=text)


def read_record(record: Record, begin: timedelta) -> DemoEntry | None:
    """Return what a record of the world is worth, None where it is not worth a line."""
    at = (record.at - begin).total_seconds()
    match record:
        case PodCalled(actor=actor, method=method, pod=pod, path=path, status=status):
            answer = f"HTTP {status}" if status else "no answer"
            call = f"{method} {pod}/{path.lstrip('/')}: {answer}"
            return DemoEntry(at=at, who=_name(actor), text=call)
        case Reviewed(path=path, allowed=allowed, resource=resource, name=name):
            hook = path.partition("?")[0].rpartition("/")[2]
            subresource = resource.partition("/")[2]
            what = f"{subresource} of " if subresource else ""
            verdict = "allowed" if allowed else "denied"
            return DemoEntry(at=at, who="operator", text=f"review {hook}, {what}{name}: {verdict}")
        case Called(actor=actor, status=status, message=message):
            if actor != PERSON or status < 400:
                return None
            return DemoEntry(at=at, who=API_SERVER, text=f"refused: {message}")
        case Fault(text=said):
            return DemoEntry(at=at, who="fault", text=said)
        case Said(actor=actor, text=said) if actor != OPERATOR:
            return DemoEntry(at=at, who=actor, text=said)
    return None


def is_retried(record: Record) -> bool:
    """Return whether a record is about an eviction that was refused, and will be tried again."""
    match record:
        case Reviewed(resource="pods/eviction"):
            return not record.allowed
        case Called(request=request):
            return request.subresource == "eviction" and record.status >= 400
    return False


def read_log(keys: Mapping[str, object], at: float, who: str = "operator") -> DemoEntry | None:
    """Return what a record of the operator's log is worth: what it does, and its reasons."""
    message, code = keys.get("msg"), keys.get("reason")
    if message == TERMINATING:
        return DemoEntry(at=at, who=who, text=f"deletes {keys.get('pod')}: {code}")
    if message == RECORDING:
        return DemoEntry(at=at, who=who, text=f"{_name_set(keys)} is done: {code}")
    if message == ELECTED:
        before = _name_holder(str(keys.get("before")))
        text = f"takes the lease {keys.get('lease')} after {before}, and acts from now on"
        return DemoEntry(at=at, who=who, text=text)
    if code is None or code == Code.STATUS_BEHIND or "why" not in keys or message == WRITING:
        return None  # a status that is behind catches up at once
    return DemoEntry(at=at, who=who, text=f"{code}: {keys['why']}", is_why=True)


def read_move(keys: Mapping[str, object]) -> DemoReason | None:
    """Return why a zone moves, where a record of the log is about that."""
    if keys.get("msg") != TERMINATING:
        return None
    return DemoReason(zone=_name_set(keys), code=str(keys.get("reason")), text=str(keys.get("why")))


def _name_set(keys: Mapping[str, object]) -> str:
    """Return the StatefulSet of a record: of a label group it is the zone."""
    return str(keys.get("statefulset", keys.get("zone")))


def read_policy_waits(keys: Mapping[str, object]) -> tuple[DemoReason, ...]:
    """Return why a policy waits, where a record of the log is about that."""
    if keys.get("msg") != POLICY_WAITING:
        return ()
    return (DemoReason(zone="", code=str(keys.get("reason")), text=str(keys.get("why"))),)


def read_waits(entries: Iterable[GroupState]) -> Sequence[DemoReason]:
    """Return why zones wait, as the last plan of each group says; a status catches up at once."""
    return [
        DemoReason(zone=reason.zone, code=reason.code, text=reason.text)
        for entry in entries
        for reason in entry.plan.waits
        if reason.code != Code.STATUS_BEHIND
    ]


def measure_lease(lease: JsonObject, now: datetime) -> timedelta:
    """Return how long ago a Lease was renewed."""
    return now - datetime.fromisoformat(read_text(lease, "spec", "renewTime"))


def read_lease(lease: JsonObject, now: datetime) -> DemoReason:
    """Return why no replica acts while its holder does not renew a Lease."""
    holder = _name_holder(read_text(lease, "spec", "holderIdentity"))
    seconds = measure_lease(lease, now).total_seconds()
    text = (
        f"lease {read_text(lease, 'metadata', 'name')} was renewed {seconds:.0f} s ago by {holder};"
        f" another replica takes it after {LEASE_DURATION.total_seconds():g} s without a renewal"
    )
    return DemoReason(zone="", code=Code.NOT_ELECTED, text=text)


def _name_holder(identity: str) -> str:
    """Return which replica a Lease names: its identity ends with that of its life."""
    return identity.rpartition("_")[0]


def _name(actor: str) -> str:
    return "operator" if actor == OPERATOR else actor
