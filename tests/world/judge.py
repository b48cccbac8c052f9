"""Watch a namespace from outside and say what the operator did wrong.

The history comes from the store itself (one etcd watch over pods, StatefulSets, budgets and
policies), so that it is whole and ordered even while the API server restarts; whose a delete was,
and what was evicted, comes from the audit log, calls of pods from the pods. Versions of one store
are comparable across kinds, so that one number orders all writes. Times are seconds of one
monotonic clock, but those of requests: they are of the server's wall clock.
"""

import asyncio
import base64
import time
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Self

import aiohttp
import msgspec
from msgspec.structs import replace
from rollout_lab.model.history import Called, Commit, History, PodCalled, Reviewed
from rollout_lab.model.request import ApiRequest, Verb

from rollout_operator.kube.api import (
    MULTI_AZ_ROLLOUTS,
    PODS,
    STATEFULSETS,
    VALIDATING_WEBHOOKS,
    ZONE_BUDGETS,
    JsonObject,
    Resource,
)
from tests.judge.book import Write, read_write
from tests.judge.budgets import EVICTION_PATH
from tests.judge.downscales import PREPARE_PATH
from tests.judge.objects import Pod, Set
from tests.judge.promises import Promises, Violation
from tests.judge.verdict import list_observed_downscales, list_observed_violations
from tests.second_try import BrokenPromise
from tests.world.api import (
    CONFIG_MAPS,
    EVENTS,
    MUTATING_HOOKS,
    REOPEN_PAUSE,
    VALIDATING_HOOKS,
    Api,
    ApiError,
    Json,
    read_lines,
)
from tests.world.plane import ControlPlane
from tests.world.webpods import PodCall

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
    uid: str = ""
    """Of the pod in the answer to a delete; empty if it was refused."""
    version: int = 0
    """Of that pod."""

    def is_of(self, verbs: str, resources: str) -> bool:
        """Say whether it is one of these verbs, on one of these resources."""
        return self.verb in verbs.split() and self.resource in resources.split()

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
        return self.code in (200, 201, 202) and not self.is_dry_run

    @property
    def is_dry_run(self) -> bool:
        return "dryRun=" in self.uri


def read_request(entry: Json) -> Request:
    target, code = entry.get("objectRef", {}), entry.get("responseStatus", {}).get("code", 0)
    parts = (target.get("resource", ""), target.get("subresource", ""))
    answer = (entry.get("responseObject") or {}).get("metadata", {}) if code in (200, 202) else {}
    return Request(
        verb=entry["verb"],
        resource="/".join(part for part in parts if part),
        namespace=target.get("namespace", ""),
        name=target.get("name", ""),
        user=entry["user"].get("username", ""),
        code=code,
        uri=entry["requestURI"],
        stamp=entry["stageTimestamp"],
        received=_seconds(entry["requestReceivedTimestamp"]),
        answered=_seconds(entry["stageTimestamp"]),
        body=entry.get("requestObject"),
        uid=answer.get("uid", ""),
        version=int(answer.get("resourceVersion") or 0),
    )


def match_deletes(changes: Sequence[Write], deletes: Iterable[Request]) -> dict[int, Request]:
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
    found: dict[int, Request] = {}
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


class _Reader:
    """Makes the history that judges read.

    The operator counts as the reviewer of each eviction that was carried out, and its webhook for
    downscales as in force from the beginning: that is what the tests of the real world set up.
    """

    def __init__(self, namespace: str, operator: str, wall_offset: float) -> None:
        self._namespace, self._operator, self._wall_offset = namespace, operator, wall_offset
        self._number = 0
        self._history = History()

    def read(
        self,
        changes: Sequence[Write],
        *,
        deletes: Sequence[Request],
        evictions: Sequence[Request],
        writes: Sequence[Request],
        calls: Sequence[PodCall],
    ) -> History:
        """Return the history of writes, refused deletes included, and of calls of pods."""
        offset = self._wall_offset
        self._add_webhook()
        numbers: dict[int, int] = {}
        ours = {id(each): self._add_delete(each) for each in deletes}
        for version, scaling in match_scalings(changes, writes, offset).items():
            numbers[version] = self._add_call(scaling, "patch", STATEFULSETS, PERSON)
        for request in writes:
            if request.code >= 400 and request.replicas is not None and not request.is_dry_run:
                requested: JsonObject = {"spec": {"replicas": request.replicas}}
                self._add_call(request, "patch", STATEFULSETS, PERSON, body=requested)
        for version, eviction in match_evictions(changes, evictions, offset).items():
            numbers[version] = self._add_eviction(eviction)
        commits = match_deletes(changes, deletes)
        numbers |= {version: ours[id(each)] for version, each in commits.items()}
        for change in changes:
            revision = change.commit.revision
            actor = self._operator if revision in commits else PERSON
            number = numbers.get(revision, 0)
            self._history.add(replace(change.commit, actor=actor, call=number))
        for call in calls:
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

    def _add_delete(self, delete: Request) -> int:
        body: JsonObject = delete.body if isinstance(delete.body, dict) else {}
        return self._add_call(delete, "delete", PODS, self._operator, body=body)

    def _add_eviction(self, eviction: Request) -> int:
        """Add an eviction that was allowed; return the number of the delete that it led to."""
        number = self._add_call(eviction, "delete", PODS, eviction.user)
        requested = self._add_call(eviction, "create", PODS, eviction.user, subresource="eviction")
        self._history.add(
            Reviewed(
                at=self._at(eviction.answered),
                begun=self._at(eviction.received),
                call=requested,
                actor=self._operator,
                path=EVICTION_PATH,
                namespace=self._namespace,
                name=eviction.name,
                resource="pods/eviction",
                dry_run=False,
                allowed=True,
                status=0,
            )
        )
        return number

    def _add_call(
        self, request: Request, verb: Verb, resource: Resource, actor: str, **parts: Any
    ) -> int:
        self._number += 1
        target = {"namespace": request.namespace, "name": request.name, **parts}
        self._history.add(
            Called(
                at=self._at(request.answered),
                begun=self._at(request.received),
                number=self._number,
                actor=actor,
                request=ApiRequest(verb=verb, resource=resource, **target),
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
                actor=self._operator,
                method=call.method,
                pod=call.pod,
                uid=call.uid,
                path=call.path,
                status=call.status or 0 if is_done else 0,
                acted=True,
            )
        )

    def _at(self, wall: float) -> timedelta:
        return timedelta(seconds=wall - self._wall_offset)


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
        return self.pod.rpartition("-")[0]


def list_restarts(changes: Sequence[Write], deletes: Iterable[Request]) -> list[Restart]:
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


PODS_ROOT: Final = "/registry/pods/"
# Between pods and StatefulSets in the order of keys, and no resource of the API server.
MARKS_ROOT: Final = "/registry/rollout-judge/"
SETS_ROOT: Final = "/registry/statefulsets/"
# In the order of keys between the two, too.
BUDGETS_ROOT: Final = "/registry/rollout-operator.grafana.com/zoneawarepoddisruptionbudgets/"
POLICIES_ROOT: Final = "/registry/rollout.grafana.com/multiazrollouts/"
KINDS: Final[Mapping[str, Resource]] = {
    PODS_ROOT: PODS,
    SETS_ROOT: STATEFULSETS,
    BUDGETS_ROOT: ZONE_BUDGETS,
    POLICIES_ROOT: MULTI_AZ_ROLLOUTS,
}
# `lastTransitionTime` has whole seconds, rounded down, and the write of it is seen later.
READY_ERROR: Final = timedelta(seconds=1, milliseconds=500)
SETTLE_LIMIT: Final = timedelta(seconds=30)
DELETED: Final = "DELETE"
# Verbs and resources.
EVICTING: Final = ("create", "pods/eviction")
SCALING: Final = ("update patch", "statefulsets statefulsets/scale")
HOOKS: Final = frozenset((MUTATING_HOOKS.plural, VALIDATING_HOOKS.plural))


class Judge:
    """Watches one namespace for the deeds of one user. Use with `async with`."""

    def __init__(self, plane: ControlPlane, namespace: str, operator_user: str) -> None:
        self.plane = plane
        self.namespace = namespace
        self.operator_user = operator_user
        self.promises = Promises(
            namespace=namespace, operators=operator_user, is_observed=True, time_error=READY_ERROR
        )
        self.elsewhere: Collection[str] = ()
        """Namespaces in which the operator acts as well: others judge that."""
        self.changes: list[Write] = []
        """All writes of pods, StatefulSets and budgets of the namespace, in order."""
        self._api: Api = plane.api()
        self._objects: dict[str, Json] = {}
        self._revision = 0
        self._moved = asyncio.Condition()
        self._mark = 0
        self._marks_seen = 0
        self._audit_offset = plane.audit_size()
        self._requests: list[Request] = []
        """Those of the operator, and of anyone in the namespace."""
        self.wall_offset = time.time() - time.monotonic()
        """From the clock of `changes` to that of the audit log, in seconds."""
        self._store: aiohttp.ClientSession | None = None
        self._tasks = asyncio.TaskGroup()
        self._watch: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._store = aiohttp.ClientSession(
            base_url=f"http://127.0.0.1:{self.plane.etcd_port}", read_bufsize=2**20
        )
        await self._api.__aenter__()
        await self._tasks.__aenter__()
        await self._take_present()
        self._watch = self._tasks.create_task(self._follow(), name="judge-watch")
        return self

    async def __aexit__(self, *raised: Any) -> None:
        try:
            if self._watch is not None:
                self._watch.cancel()
            await self._tasks.__aexit__(*raised)
        finally:
            await self._api.__aexit__(*raised)
            if self._store is not None:
                await self._store.close()

    async def forget(self) -> None:
        """Begin anew with what is there now, as if nothing had happened: an hour is too much."""
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.wait([self._watch])
        for past in (self.changes, self._requests, self._objects):
            past.clear()
        await self._take_present()
        self._watch = self._tasks.create_task(self._follow(), name="judge-watch")

    # Questions

    async def settle(self) -> None:
        """Wait until all that has happened by now is in the history and in the audit log."""
        async with asyncio.timeout(SETTLE_LIMIT.total_seconds()):
            self._mark += 1
            key = f"{MARKS_ROOT}{self.namespace}"
            await self._request("kv/put", {"key": _b64(key), "value": _b64(str(self._mark))})
            await self._await_audit(f"judge-{self._mark}")
            async with self._moved:
                await self._moved.wait_for(lambda: self._marks_seen >= self._mark)

    async def violations(self) -> list[Violation]:
        return list_observed_violations(await self._read_history(), self.promises)

    async def downscale_violations(self, calls: Sequence[PodCall]) -> list[Violation]:
        """Return what SI-10 and SI-11 have against the downscales so far."""
        return list_observed_downscales(await self._read_history(calls), self.promises)

    async def _read_history(self, calls: Sequence[PodCall] = ()) -> History:
        reader = _Reader(self.namespace, self.operator_user, self.wall_offset)
        return reader.read(
            self.changes,
            deletes=await self.deletes(),
            evictions=self._list_here(*EVICTING),
            writes=self._list_here(*SCALING),
            calls=calls,
        )

    async def assert_clean(self) -> None:
        """Raise BrokenPromise that names every violation and the deletes before it."""
        found = await self.violations()
        if found:
            lines = [f"{each.invariant}: {each.text}" for each in found]
            raise BrokenPromise("\n".join([*lines, "", self.describe(await self.deletes())]))

    async def deletes(self) -> list[Request]:
        """Return the operator's pod deletes, refused ones included, in order."""
        await self.settle()
        found = [
            one
            for one in self._requests
            if one.user == self.operator_user
            and one.is_of("delete deletecollection", "pods")
            and one.namespace not in self.elsewhere
        ]
        return sorted(found, key=lambda each: each.stamp)

    async def evictions(self) -> list[Request]:
        """Return all evictions that any client requested here, with refusals and dry runs."""
        await self.settle()
        return self._list_here(*EVICTING)

    def _list_here(self, verbs: str, resources: str) -> list[Request]:
        """Return what anyone requested of this in the namespace."""
        found = (one for one in self._requests if one.namespace == self.namespace)
        return [one for one in found if one.is_of(verbs, resources)]

    async def calls(self, *, with_events: bool = False) -> list[Request]:
        """Return every request of the operator, in order of their answers.

        Those that only report what it does are left out: they may come at any later time. So are
        questions about its own rights, which every account may ask, and which read no object.
        """
        await self.settle()
        calls = [one for one in self._requests if one.user == self.operator_user]
        reports = {("create", EVENTS.plural), ("patch", EVENTS.plural), ("list", "multiazrollouts")}
        left_out = set() if with_events else reports
        return [
            call
            for call in calls
            if call.resource != "selfsubjectaccessreviews"
            and (call.verb, call.resource) not in left_out
        ]

    async def restarts(self) -> list[Restart]:
        return list_restarts(self.changes, await self.deletes())

    def describe(self, deletes: Sequence[Request]) -> str:
        """Return the history as text: what changed, with the operator's deletes marked."""
        ours = match_deletes(self.changes, deletes)
        evictions = self._list_here(*EVICTING)
        evicted = match_evictions(self.changes, evictions, self.wall_offset)
        start = self.changes[0].at if self.changes else timedelta(0)
        lines = []
        for change in self.changes:
            revision, at = change.commit.revision, (change.at - start).total_seconds()
            mark = "  <- evicted" if revision in evicted else ""
            mark = "  <- operator" if revision in ours else mark
            lines.append(f"{at:8.3f} {revision} {_describe(change)}{mark}")
        return "\n".join(lines)

    # Watching the store

    async def _take_present(self) -> None:
        present = 0
        for root in KINDS:
            start = f"{root}{self.namespace}/"
            requested = {"key": _b64(start), "range_end": _b64(_end(start))}
            # Both at one revision, from which the watch then goes on.
            answer = await self._request("kv/range", requested | {"revision": present})
            present = present or int(answer["header"]["revision"])
            for pair in answer.get("kvs", ()):
                self._take({"kv": pair}, time.monotonic())
        self._revision = present
        self.changes.sort(key=lambda change: change.commit.revision)

    async def _follow(self) -> None:
        while True:
            try:
                async for answer in self._watch_store():
                    now = time.monotonic()
                    for event in answer.get("events", ()):
                        self._take(event, now)
                    async with self._moved:
                        self._moved.notify_all()
            except aiohttp.ClientError:
                pass  # the store is away: go on after the last revision taken
            await asyncio.sleep(REOPEN_PAUSE.total_seconds())

    async def _watch_store(self) -> AsyncIterator[Json]:
        request = {
            "create_request": {
                "key": _b64(f"{PODS_ROOT}{self.namespace}/"),
                "range_end": _b64(_end(f"{SETS_ROOT}{self.namespace}/")),
                "start_revision": self._revision + 1,
            }
        }
        async with self._session.post(
            "/v3/watch",
            data=msgspec.json.encode(request),
            timeout=aiohttp.ClientTimeout(total=None),
        ) as response:
            async for line in read_lines(response):
                answer: Json = msgspec.json.decode(line)
                result: Json = answer["result"]
                if result.get("canceled"):
                    raise RuntimeError(f"the store ended the watch: {result}")
                yield result

    def _take(self, event: Json, at: float) -> None:
        pair = event["kv"]
        version = int(pair["mod_revision"])
        key = base64.b64decode(pair["key"]).decode()
        self._revision = max(self._revision, version)
        if key == f"{MARKS_ROOT}{self.namespace}":
            self._marks_seen = int(base64.b64decode(pair["value"]))
            return
        root = next((root for root in KINDS if key.startswith(root)), None)
        if root is None or not key.startswith(f"{root}{self.namespace}/"):
            return
        before, after = self._objects.pop(key, None), None
        if event.get("type") != DELETED:
            after = msgspec.json.decode(base64.b64decode(pair["value"]), type=Json)
            self._objects[key] = after
        commit = Commit(
            at=timedelta(seconds=at),
            revision=version,
            actor=PERSON,
            resource=KINDS[root],
            namespace=self.namespace,
            name=key.rpartition("/")[2],
            before=before,
            after=after,
        )
        self.changes.append(read_write(commit))

    async def _request(self, what: str, body: Json) -> Json:
        async with self._session.post(f"/v3/{what}", data=msgspec.json.encode(body)) as response:
            response.raise_for_status()
            answer: Json = msgspec.json.decode(await response.read())
            return answer

    @property
    def _session(self) -> aiohttp.ClientSession:
        if self._store is None:
            raise RuntimeError("use `async with Judge(...)`")
        return self._store

    # Reading the audit log

    async def _await_audit(self, name: str) -> None:
        """Make a call of our own and read on until the log shows it: what came before is in."""
        while not self._read_audit(name):
            try:
                await self._api.get(CONFIG_MAPS, self.namespace, name)
            except (ApiError, aiohttp.ClientError):
                await asyncio.sleep(REOPEN_PAUSE.total_seconds())

    def _read_audit(self, awaited: str) -> bool:
        found = False
        entries, self._audit_offset = self.plane.read_audit(self._audit_offset)
        for entry in entries:
            target = entry.get("objectRef", {})
            found = found or target.get("name") == awaited
            is_ours = entry["user"].get("username") == self.operator_user
            if is_ours or target.get("namespace") == self.namespace:
                self._requests.append(read_request(entry))
        return found


def _describe(change: Write) -> str:
    match change.now:
        case Pod() as pod:
            ending = " terminating" if pod.is_terminating else ""
            return f"{pod.name} {pod.revision} {'ready' if pod.is_ready else 'not ready'}{ending}"
        case Set() as found:
            return (
                f"{found.name} generation {found.generation} observed {found.observed}"
                f" ready {found.ready_replicas}/{found.replicas} update {found.update_revision}"
            )
    commit = change.commit
    if commit.after is None:
        return f"{commit.name} is gone"
    return f"{commit.resource.kind} {commit.name} {commit.after.get('spec')}"


def _b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _end(prefix: str) -> str:
    # The first key after all that start with the prefix, which ends in a slash.
    return prefix[:-1] + "0"
