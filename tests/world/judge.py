"""Watch a namespace from outside and say what the operator did wrong.

The history comes from the store itself (one etcd watch over pods, StatefulSets, budgets and
policies), so that it is whole and ordered even while the API server restarts; whose a delete was,
and what was evicted, comes from the audit log.
"""

import asyncio
import base64
import time
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Final, Self

import aiohttp
import msgspec
from msgspec.structs import replace
from rollout_lab.model.history import Commit

from rollout_operator.kube.api import MULTI_AZ_ROLLOUTS, PODS, STATEFULSETS, ZONE_BUDGETS, Resource
from tests.judge.book import Write, read_write
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
)
from tests.world.observed import (
    PERSON,
    Delete,
    Observed,
    Request,
    Restart,
    list_restarts,
    match_deletes,
    match_evictions,
    read_delete,
    read_history,
    read_request,
)
from tests.world.plane import ControlPlane
from tests.world.webpods import PodCall

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
HOOKS: Final = frozenset((MUTATING_HOOKS.plural, VALIDATING_HOOKS.plural))


class Judge:
    """Watches one namespace for the deeds of one user. Use with `async with`."""

    def __init__(
        self,
        plane: ControlPlane,
        namespace: str,
        operator_user: str,
    ) -> None:
        self.plane = plane
        self.namespace = namespace
        self.operator_user = operator_user
        self.promises = Promises(
            namespace=namespace,
            operators=operator_user,
            is_observed=True,
            time_error=READY_ERROR,
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
        self._entries: list[Json] = []
        self._evictions: list[Request] = []
        self._writes: list[Request] = []
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

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if self._watch is not None:
                self._watch.cancel()
            await self._tasks.__aexit__(kind, error, trace)
        finally:
            await self._api.__aexit__(kind, error, trace)
            if self._store is not None:
                await self._store.close()

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
        """Return what deletes and evictions have broken so far."""
        observed = await self._observe()
        return list_observed_violations(read_history(observed), self.promises)

    async def downscale_violations(self, calls: Sequence[PodCall]) -> list[Violation]:
        """Return what SI-10 and SI-11 have against the downscales so far."""
        observed = replace(await self._observe(), calls=calls)
        return list_observed_downscales(read_history(observed), self.promises)

    async def _observe(self) -> Observed:
        return Observed(
            changes=self.changes,
            deletes=await self.deletes(),
            evictions=self._evictions,
            writes=self._writes,
            namespace=self.namespace,
            operator=self.operator_user,
            wall_offset=self.wall_offset,
        )

    async def assert_clean(self) -> None:
        """Raise BrokenPromise that names every violation and the deletes before it."""
        found = await self.violations()
        if found:
            lines = [f"{each.invariant}: {each.text}" for each in found]
            raise BrokenPromise("\n".join([*lines, "", self.describe(await self.deletes())]))

    async def deletes(self) -> list[Delete]:
        """Return the operator's pod deletes, refused ones included, in order."""
        await self.settle()
        found = [
            read_delete(entry)
            for entry in self._entries
            if _is_pod_delete(entry) and entry["objectRef"].get("namespace") not in self.elsewhere
        ]
        return sorted(found, key=lambda each: each.stamp)

    async def evictions(self) -> list[Request]:
        """Return all evictions that any client requested here, with refusals and dry runs."""
        await self.settle()
        return list(self._evictions)

    async def calls(self, *, with_events: bool = False) -> list[Request]:
        """Return every request of the operator, in order of their answers.

        Those that only report what it does are left out: they may come at any later time. So are
        questions about its own rights, which every account may ask, and which read no object.
        """
        await self.settle()
        calls = [read_request(entry) for entry in self._entries]
        reports = {("create", EVENTS.plural), ("patch", EVENTS.plural), ("list", "multiazrollouts")}
        left_out = set() if with_events else reports
        return [
            call
            for call in calls
            if call.resource != "selfsubjectaccessreviews"
            and (call.verb, call.resource) not in left_out
        ]

    async def restarts(self) -> list[Restart]:
        """Return how long each of the operator's restarts took."""
        return list_restarts(self.changes, await self.deletes())

    def describe(self, deletes: Sequence[Delete]) -> str:
        """Return the history as text: what changed, with the operator's deletes marked."""
        ours = match_deletes(self.changes, deletes)
        evicted = match_evictions(self.changes, self._evictions, self.wall_offset)
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
            rest = bytearray()
            async for chunk in response.content.iter_any():
                rest += chunk
                *lines, tail = bytes(rest).split(b"\n")
                rest = bytearray(tail)
                for line in filter(None, lines):
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
        user = self.operator_user
        entries, self._audit_offset = self.plane.read_audit(self._audit_offset)
        for entry in entries:
            target = entry.get("objectRef", {})
            found = found or target.get("name") == awaited
            if entry["user"].get("username") == user:
                self._entries.append(entry)
            if _is_eviction(entry) and target.get("namespace") == self.namespace:
                self._evictions.append(read_request(entry))
            if _is_of_set(entry) and target.get("namespace") == self.namespace:
                self._writes.append(read_request(entry))
        return found


def _is_of_set(entry: Json) -> bool:
    """Say whether it writes a StatefulSet, or its scale."""
    target = entry.get("objectRef", {})
    return (
        entry["verb"] in ("update", "patch")
        and target.get("resource") == "statefulsets"
        and target.get("subresource", "") in ("", "scale")
        and entry["stage"] == "ResponseComplete"
    )


def _is_pod_delete(entry: Json) -> bool:
    target = entry.get("objectRef", {})
    return (
        entry["verb"] in ("delete", "deletecollection")
        and target.get("resource") == "pods"
        and not target.get("subresource")
        and entry["stage"] == "ResponseComplete"
    )


def _is_eviction(entry: Json) -> bool:
    target = entry.get("objectRef", {})
    what = (target.get("resource"), target.get("subresource"), entry["stage"])
    return what == ("pods", "eviction", "ResponseComplete")


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
