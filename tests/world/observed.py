"""What was observed of a namespace on a real control plane, and the history that it makes.

Writes come from the store, requests from the audit log, calls of pods from the pods. Versions of
one store are comparable across kinds, so that one number orders all writes. Times are seconds of
one monotonic clock, but those of requests: they are of the server's wall clock.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Literal

import msgspec
from msgspec.structs import replace
from rollout_lab.model.history import Called, Commit, History, PodCalled, Reviewed
from rollout_lab.model.request import ApiRequest

from rollout_operator.kube.api import PODS, STATEFULSETS, VALIDATING_WEBHOOKS, JsonObject, Resource
from tests.judge.book import Write
from tests.judge.budgets import EVICTION_PATH
from tests.judge.downscales import PREPARE_PATH
from tests.judge.objects import Pod, Set
from tests.world.webpods import PodCall

Json = dict[str, Any]
PERSON: Final = "a person"
# A write is seen some moments after its commit, more of them on a busy machine: that of an eviction
# or of a downscale, by the answers to their requests.
EVICTION_SEEN_LATE: Final = timedelta(seconds=5)
WRITE_SEEN_LATE: Final = timedelta(seconds=1)


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A request as the audit log has it."""

    verb: str
    resource: str
    """With its subresource, as in `statefulsets/status`."""
    namespace: str
    name: str
    user: str
    code: int
    uri: str
    stamp: str
    """When the server answered."""
    received: float
    answered: float
    body: object = None
    """What was sent with it, None where the log does not say."""

    @property
    def replicas(self) -> int | None:
        """Return how many replicas it requests, None where it leaves them, or is not known."""
        steps = self.body if isinstance(self.body, list) else [self.body]
        for step in steps:
            match step:
                case {"spec": {"replicas": int(count)}}:
                    return count
                case {"path": "/spec/replicas", "value": int(count)}:
                    return count
                case {"spec": dict()} if self.verb == "update":
                    return 1
        return None

    def may_request(self, replicas: int) -> bool:
        """Return whether it may have set this count."""
        return self.body is None or self.replicas == replicas

    @property
    def is_done(self) -> bool:
        """Say whether the server carried it out."""
        return self.code in (200, 201, 202) and not self.is_dry_run

    @property
    def is_dry_run(self) -> bool:
        """Say whether the query requests a dry run."""
        return "dryRun=" in self.uri


class Delete(Request, frozen=True, kw_only=True):
    """A request to delete a pod."""

    required_uid: str = ""
    """Precondition, empty if the request had none."""
    required_version: str = ""
    uid: str = ""
    """Of the pod in the answer; empty if it was refused."""
    version: int = 0
    """Of the pod in the answer."""


def read_request(entry: Json) -> Request:
    """Return an audit entry."""
    return Request(**_read_fields(entry), body=entry.get("requestObject"))


def read_delete(entry: Json) -> Delete:
    """Return the audit entry of a pod delete."""
    requested = (entry.get("requestObject") or {}).get("preconditions") or {}
    is_done = entry.get("responseStatus", {}).get("code") in (200, 202)
    answer = (entry.get("responseObject") or {}).get("metadata", {}) if is_done else {}
    return Delete(
        **_read_fields(entry),
        required_uid=requested.get("uid", ""),
        required_version=requested.get("resourceVersion", ""),
        uid=answer.get("uid", ""),
        version=int(answer.get("resourceVersion", "0")),
    )


def _read_fields(entry: Json) -> Json:
    target = entry.get("objectRef", {})
    parts = (target.get("resource", ""), target.get("subresource", ""))
    return {
        "verb": entry["verb"],
        "resource": "/".join(part for part in parts if part),
        "namespace": target.get("namespace", ""),
        "name": target.get("name", ""),
        "user": entry["user"].get("username", ""),
        "code": entry.get("responseStatus", {}).get("code", 0),
        "uri": entry["requestURI"],
        "stamp": entry["stageTimestamp"],
        "received": _seconds(entry["requestReceivedTimestamp"]),
        "answered": _seconds(entry["stageTimestamp"]),
    }


def match_deletes(changes: Sequence[Write], deletes: Iterable[Delete]) -> dict[int, Delete]:
    """Return the deletes by version of the write by which each began the end of a pod.

    The answer to a delete shows the version of that write, or where the pod is gone at once, as
    one without a node is, that of its removal: the server then marks and removes it in two writes.
    """
    answers = {(each.uid, each.version): each for each in deletes if each.code in (200, 202)}
    removals = {
        change.before.uid: change.commit.revision
        for change in changes
        if isinstance(change.before, Pod) and change.now is None
    }
    found: dict[int, Delete] = {}
    for change in changes:
        if (pod := change.ended_pod) is not None:
            marked = answers.get((pod.uid, change.commit.revision))
            delete = marked or answers.get((pod.uid, removals.get(pod.uid, change.commit.revision)))
            if delete is not None:
                found[change.commit.revision] = delete
    return found


def match_evictions(
    changes: Sequence[Write], evictions: Sequence[Request], wall_offset: float
) -> dict[int, Request]:
    """Return the evictions by version of the write by which each began the end of a pod.

    An answer to an eviction shows no version: name and time must do. A pod ends only once, and the
    next one of its name by something else.
    `wall_offset` is from the clock of the changes to that of the requests.
    """
    late = EVICTION_SEEN_LATE.total_seconds()
    found: dict[int, Request] = {}
    for change in changes:
        pod, at = change.ended_pod, change.at.total_seconds()
        for each in evictions:
            if pod is None or each.name != pod.name or not each.is_done:
                continue
            if each in found.values():
                continue
            if each.received - wall_offset <= at <= each.answered - wall_offset + late:
                found[change.commit.revision] = each
                break
    return found


def match_scalings(
    changes: Sequence[Write], requests: Sequence[Request], wall_offset: float
) -> dict[int, Request]:
    """Return the requests by version of the downscale that each made.

    Of several of a name it is the first that was under way then.
    """
    left = sorted((one for one in requests if one.is_done), key=lambda one: one.received)
    found: dict[int, Request] = {}
    for change in changes:
        match change.before, change.now:
            case Set() as before, Set() as now if now.replicas < before.replicas:
                at = change.at.total_seconds()
                oldest = at - WRITE_SEEN_LATE.total_seconds()
                for request in left:
                    begun, ended = request.received - wall_offset, request.answered - wall_offset
                    is_of_it = request.name == change.commit.name and request.may_request(
                        now.replicas
                    )
                    if is_of_it and begun <= at and ended >= oldest:
                        found[change.commit.revision] = request
                        left.remove(request)
                        break
    return found


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """All that was observed of one namespace."""

    changes: Sequence[Write]
    """Writes of StatefulSets, pods and budgets, in order of version."""
    deletes: Sequence[Delete] = ()
    """Of pods by the operator, refused ones included."""
    evictions: Sequence[Request] = ()
    """By whomever."""
    writes: Sequence[Request] = ()
    """Updates and patches of StatefulSets, by whomever."""
    calls: Sequence[PodCall] = ()
    namespace: str
    operator: str
    """User of the operator."""
    wall_offset: float = 0.0
    """From the clock of the changes to that of the requests."""


def read_history(observed: Observed) -> History:
    """Return the history as judges read it.

    The operator counts as the reviewer of each eviction that was carried out, and its webhook for
    downscales as in force from the beginning: that is what the tests of the real world set up.
    """
    return _Reader(observed).read()


class _Reader:
    def __init__(self, observed: Observed) -> None:
        self._observed = observed
        self._history = History()
        self._number = 0

    def read(self) -> History:
        observed, offset = self._observed, self._observed.wall_offset
        self._add_webhook()
        numbers: dict[int, int] = {}
        ours = {id(each): self._add_delete(each) for each in observed.deletes}
        for version, scaling in match_scalings(observed.changes, observed.writes, offset).items():
            numbers[version] = self._add_call(scaling, "patch", STATEFULSETS, PERSON)
        for request in observed.writes:
            if request.code >= 400 and request.replicas is not None and not request.is_dry_run:
                requested: JsonObject = {"spec": {"replicas": request.replicas}}
                self._add_call(request, "patch", STATEFULSETS, PERSON, body=requested)
        for version, eviction in match_evictions(
            observed.changes, observed.evictions, offset
        ).items():
            numbers[version] = self._add_eviction(eviction)
        commits = match_deletes(observed.changes, observed.deletes)
        numbers |= {version: ours[id(each)] for version, each in commits.items()}
        for change in observed.changes:
            revision = change.commit.revision
            actor = observed.operator if revision in commits else PERSON
            number = numbers.get(revision, 0)
            self._history.add(replace(change.commit, actor=actor, call=number))
        for call in observed.calls:
            self._add_pod_call(call)
        return self._history

    def _add_webhook(self) -> None:
        hook: JsonObject = {
            "clientConfig": {"service": {"path": PREPARE_PATH}},
            "rules": [{"operations": ["*"], "resources": ["*/*"]}],
        }
        self._history.add(
            Commit(
                at=timedelta.min,
                revision=0,
                actor=PERSON,
                resource=VALIDATING_WEBHOOKS,
                namespace="",
                name="prepare-downscale",
                before=None,
                after={"webhooks": [hook]},
            )
        )

    def _add_delete(self, delete: Delete) -> int:
        requested = {"uid": delete.required_uid, "resourceVersion": delete.required_version}
        body: JsonObject = {"preconditions": {key: text for key, text in requested.items() if text}}
        return self._add_call(delete, "delete", PODS, self._observed.operator, body=body)

    def _add_eviction(self, eviction: Request) -> int:
        """Add an eviction that was allowed; return the number of the delete that it led to."""
        number = self._add_call(eviction, "delete", PODS, eviction.user)
        requested = self._add_call(eviction, "create", PODS, eviction.user, subresource="eviction")
        self._history.add(
            Reviewed(
                at=self._at(eviction.answered),
                begun=self._at(eviction.received),
                call=requested,
                actor=self._observed.operator,
                path=EVICTION_PATH,
                namespace=self._observed.namespace,
                name=eviction.name,
                resource="pods/eviction",
                dry_run=False,
                allowed=True,
                status=0,
            )
        )
        return number

    def _add_call(
        self,
        request: Request,
        verb: Literal["create", "delete", "patch"],
        resource: Resource,
        actor: str,
        **parts: Any,
    ) -> int:
        self._number += 1
        self._history.add(
            Called(
                at=self._at(request.answered),
                begun=self._at(request.received),
                number=self._number,
                actor=actor,
                request=ApiRequest(
                    verb=verb,
                    resource=resource,
                    namespace=request.namespace,
                    name=request.name,
                    **parts,
                ),
                status=request.code,
            )
        )
        return self._number

    def _add_pod_call(self, call: PodCall) -> None:
        """Add a call; whether a pod has acted on a DELETE is not known: it counts as if it had."""
        is_done = call.done_at is not None
        self._history.add(
            PodCalled(
                at=timedelta(seconds=call.done_at) if call.done_at is not None else timedelta.max,
                begun=timedelta(seconds=call.at),
                actor=self._observed.operator,
                method=call.method,
                pod=call.pod,
                uid=call.uid,
                path=call.path,
                status=call.status or 0 if is_done else 0,
                acted=True,
            )
        )

    def _at(self, wall: float) -> timedelta:
        return timedelta(seconds=wall - self._observed.wall_offset)


def _seconds(stamp: str) -> float:
    return datetime.fromisoformat(stamp).timestamp()


class Restart(msgspec.Struct, kw_only=True):
    """A pod that the operator has deleted; moments are on the clock of the changes, in seconds."""

    pod: str
    deleted: float
    """The delete's commit."""
    ready: float | None = None
    """The new pod's readiness is in the store; None is "not yet"."""

    @property
    def zone(self) -> str:
        """Return the StatefulSet of the pod."""
        return self.pod.rpartition("-")[0]


def list_restarts(changes: Sequence[Write], deletes: Iterable[Delete]) -> list[Restart]:
    """Return the operator's restarts in the order of their commits."""
    commits = match_deletes(changes, deletes)
    restarts: list[Restart] = []
    running: dict[str, Restart] = {}
    for change in changes:
        pod, at = change.ended_pod, change.at.total_seconds()
        if pod is not None and change.commit.revision in commits:
            running[pod.name] = Restart(pod=pod.name, deleted=at)
            restarts.append(running[pod.name])
        match change.now:
            case Pod(is_terminating=False, is_ready=True, name=name) if name in running:
                running.pop(name).ready = at
    return restarts
