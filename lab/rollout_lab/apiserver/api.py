"""The simulated API server: what comes in, who answers it, and what is reported of it.

Decides which paths and verbs there are and takes the records. How it is answered is decided in
`writes`, `deletions` and `store`; what an object of a kind must look like in
`lab.schemas.kinds`.

There are no roles in this world: every user may do everything, but for what `forbidden` names.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from msgspec.structs import replace

from rollout_lab.admission.webhooks import Admission, HookCaller
from rollout_lab.apiserver.deletions import GarbageCollector, check_eviction, delete_object, evict
from rollout_lab.apiserver.store import (
    By,
    ObjectKey,
    ObjectStore,
    Stream,
    Streams,
    check_reached,
    parse_version,
    render_list,
)
from rollout_lab.apiserver.writes import Turn, Writes, read_scale
from rollout_lab.model.fields import name_of, namespace_of
from rollout_lab.model.history import Called, Commit, History
from rollout_lab.model.request import (
    APPLY_PATCH,
    ApiAnswer,
    ApiRefusal,
    ApiRequest,
    api_version_of,
    not_modelled,
)
from rollout_lab.schemas.kinds import KINDS, NAMESPACES, REPLICA_TEMPLATES, ObjectKind, get_kind
from rollout_lab.schemas.metadata import (
    NoPage,
    copy_json,
    expect,
    expect_one_of,
    forbidden,
    no_resource,
    not_found,
    timed_out,
)
from rollout_operator.kube.api import ZONE_BUDGETS, JsonObject, Resource

_LISTED: Final = frozenset(
    {
        *("labelSelector", "fieldSelector", "limit", "continue", "resourceVersion"),
        *("resourceVersionMatch", "timeoutSeconds", "allowWatchBookmarks", "sendInitialEvents"),
    }
)
_WRITTEN: Final = frozenset({"dryRun", "fieldManager", "fieldValidation"})
_PARAMETERS: Final[Mapping[str, frozenset[str]]] = {
    "get": frozenset({"resourceVersion"}),
    "list": _LISTED,
    "watch": _LISTED | {"watch"},
    "create": _WRITTEN,
    "update": _WRITTEN,
    "patch": _WRITTEN | {"force"},
    "delete": frozenset({"dryRun"}),
}


def check_query(request: ApiRequest) -> None:
    """Raise NotModelled for what the real server might heed, or refuse, and this would not."""
    query = request.query
    if not query:
        return
    if unknown := sorted(query.keys() - _PARAMETERS[request.verb]):
        not_modelled(f"the query parameters {', '.join(unknown)} of a {request.verb}")
    expect_one_of(("", "All"), "dryRun", query.get("dryRun", ""))
    if "force" in query:
        expect(request.content_type == APPLY_PATCH, "force of another patch", query["force"])
    expect_one_of(("", "Ignore", "Warn"), "fieldValidation", query.get("fieldValidation", ""))


# What subresources are of, where that is not the kind itself.
_SUBKINDS: Final = {"scale": "Scale", "eviction": "Eviction"}


def discover(resource: Resource) -> ApiAnswer:
    """Return the versions of a group, or the kinds of a version. Raises Refusal (404)."""
    kinds = [kind for kind in KINDS.values() if kind.resource.group == resource.group]
    versions = sorted({kind.resource.version for kind in kinds})
    if not versions or resource.version not in ("", *versions):
        is_custom = resource.group == REPLICA_TEMPLATES.group
        raise no_resource() if versions and not is_custom else NoPage
    if not resource.version:
        return ApiAnswer(status=200, body=_group(resource.group, versions))
    listed = [kind for kind in kinds if kind.resource.version == resource.version]
    body: JsonObject = {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": api_version_of(resource),
        "resources": [entry for other in listed for entry in _entries(other)],
    }
    return ApiAnswer(status=200, body=body)


def _group(group: str, versions: Sequence[str]) -> JsonObject:
    if len(versions) > 1:
        not_modelled(f"which version of the API group {group!r} is preferred")
    served = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": group,
        "versions": served,
        "preferredVersion": served[0],
    }


def _entries(kind: ObjectKind) -> Sequence[JsonObject]:
    resource = kind.resource
    names = ["", *sorted(kind.subresources)]
    return [
        {
            "name": f"{resource.plural}/{name}".rstrip("/"),
            "kind": _SUBKINDS.get(name, resource.kind),
            "namespaced": resource.is_namespaced,
        }
        for name in names
    ]


# The real server answers 504 after this, whatever still goes on.
REQUEST_LIMIT: Final = timedelta(seconds=34)
LARGEST_PAGE: Final = 500
_NAMELESS: Final = frozenset({"list", "watch", "create"})
_OF_SUBRESOURCE: Final = frozenset({"get", "update", "patch"})
# Paths below objects that the real server has and this server has not.
_NOT_MODELLED: Final = frozenset(
    {
        *("attach", "binding", "ephemeralcontainers", "exec", "finalize", "log", "portforward"),
        *("proxy", "resize", "token"),
    }
)


class SimulatedApi:
    """One API server with its store, its watches and its garbage collector."""

    def __init__(
        self,
        history: History,
        *,
        elapsed: Callable[[], timedelta],
        epoch: datetime,
        rng: random.Random,
    ) -> None:
        self.history = history
        self.hooks: HookCaller | None = None
        """The caller of webhooks; None: all of them are unreachable."""
        self.clock_offset = timedelta(0)
        """How far the server's own clock is ahead of the world's."""
        self.forbidden: set[tuple[str, str, str]] = set()
        """User, verb and plural (with its subresource: `pods/eviction`) of what is refused."""
        self.absent: set[str] = set()
        """API groups that this server does not have."""
        self.has_state_streams = False
        """Whether processes may have all objects streamed; else it is as before Kubernetes 1.34."""
        self.largest_page = LARGEST_PAGE
        """How many objects of a list a process is given at a time, however many it requests."""
        self.elapsed = elapsed
        self.rng = rng
        self._epoch = epoch
        self._calls = 0
        self._callbacks: list[Callable[[Commit], None]] = []
        self._store = ObjectStore(history, elapsed)
        self._streams = Streams(self._store, rng)
        self.admission = Admission(self)
        self._writes = Writes(self._store, self.admission, now=self.now, rng=rng)
        self.garbage = GarbageCollector(self._store, self.call_now, self.call, rng)
        self._store.listeners += [self.admission.see, self._notify]
        self._plant_namespace("default")

    @property
    def revision(self) -> int:
        """Return the newest resourceVersion."""
        return self._store.revision

    def now(self) -> datetime:
        """Return what the server's clock shows."""
        return self._epoch + self.elapsed() + self.clock_offset

    async def call(self, request: ApiRequest) -> ApiAnswer:
        """Answer any request but a watch; a refusal is an answer. Raises NotModelled."""
        return await self._serve(request, may_wait=True)

    def call_now(self, request: ApiRequest) -> ApiAnswer:
        """Answer at once. Raises NotModelled, also where a webhook would have to be called."""
        return _finish(self._serve(request, may_wait=False))

    def open_watch(self, request: ApiRequest) -> Stream:
        """Open a watch, with the query of a list. Raises Refusal (403, 404)."""
        self._calls += 1
        number = self._calls
        try:
            self._check_group(request)
            self._get_kind(request)
            stream = self._streams.open(request)
        except ApiRefusal as refusal:
            self._record(request, number, self.elapsed(), refusal.answer())
            raise
        self._record(request, number, self.elapsed(), ApiAnswer(status=200, body={}))
        return stream

    def get(self, resource: Resource, namespace: str, name: str) -> JsonObject | None:
        """Return the newest version of an object, None where it does not exist. Never change it."""
        return self._store.get(ObjectKey(resource, namespace, name))

    def list(self, resource: Resource, namespace: str) -> Sequence[JsonObject]:
        """Return the objects of a namespace by name; of all where it is empty. Change none."""
        return self._store.list(resource, namespace)

    def on_commit(self, callback: Callable[[Commit], None]) -> None:
        """Call `callback` right after each write."""
        self._callbacks.append(callback)

    def compact(self) -> None:
        """Forget old versions: watches and lists that begin there are 410 from now on."""
        self._store.compact()
        self._streams.forget_bodies()

    def send_bookmarks(self) -> None:
        """Send a bookmark on all open watches that allowed it."""
        self._streams.send_bookmarks()

    def put(self, obj: JsonObject, *, actor: str) -> None:
        """Store a whole object as it is, with a new resourceVersion, whatever is there.

        Its namespace is made where it does not exist. No rule of its kind is applied.
        """
        resource = _resource_of(obj)
        namespace = namespace_of(obj) if resource.is_namespaced else ""
        if namespace and self.get(NAMESPACES, "", namespace) is None:
            self._plant_namespace(namespace)
        self._store.write(ObjectKey(resource, namespace, name_of(obj)), obj, By(actor))

    def stop(self) -> None:
        """Do nothing by itself any more."""
        self.garbage.stop()

    async def _serve(self, request: ApiRequest, *, may_wait: bool) -> ApiAnswer:
        self._calls += 1
        number, begun = self._calls, self.elapsed()
        try:
            self._check_group(request)
            if request.verb == "discover":
                answer = discover(request.resource)
            else:
                turn = Turn(
                    request=request,
                    kind=self._get_kind(request),
                    number=number,
                    may_wait=may_wait,
                    deadline=begun + REQUEST_LIMIT,
                )
                answer = await self._answer_in_time(turn)
        except ApiRefusal as refusal:
            answer = refusal.answer()
            if not refusal.reason:
                answer.body.pop("reason", None)
        if warnings := self.admission.take_warnings(number):
            answer = replace(answer, warnings=warnings)
        self._record(request, number, begun, answer)
        return answer

    async def _answer_in_time(self, turn: Turn) -> ApiAnswer:
        """Answer, within the server's limit where webhooks can make it long."""
        if not (turn.may_wait and self.admission.has_webhooks):
            return await self._answer(turn)
        try:
            async with asyncio.timeout(REQUEST_LIMIT.total_seconds()):
                return await self._answer(turn)
        except TimeoutError:
            raise timed_out() from None

    async def _answer(self, turn: Turn) -> ApiAnswer:
        request = turn.request
        match request.verb:
            case "get":
                return self._get(turn)
            case "list":
                return ApiAnswer(status=200, body=render_list(self._store, request))
            case "create" if request.subresource == "eviction":
                return await self._evict(turn)
            case "create":
                return await self._writes.create(turn)
            case "update":
                return await self._writes.update(turn)
            case "patch":
                return await self._writes.patch(turn)
            case "delete":
                return await delete_object(self._writes, turn)
            case "watch" | "discover":
                return not_modelled("a watch as a call: it is opened by open_watch")

    async def _evict(self, turn: Turn) -> ApiAnswer:
        check_eviction(turn.request)
        body = turn.request.body
        assert isinstance(body, dict), "it has been checked"
        body = copy_json(body)
        turn.check_namespace(body)
        body = await self._writes.admit(turn, body)
        return evict(self, replace(turn.request, body=body))

    def _get(self, turn: Turn) -> ApiAnswer:
        request = turn.request
        check_reached(self._store, parse_version(request.query.get("resourceVersion", "")))
        obj = self._store.get(turn.place)
        if obj is None:
            raise not_found(turn.kind.resource, request.name)
        return ApiAnswer(
            status=200, body=read_scale(obj) if request.subresource == "scale" else obj
        )

    def _check_group(self, request: ApiRequest) -> None:
        if request.resource.group in self.absent:
            raise NoPage

    def _get_kind(self, request: ApiRequest) -> ObjectKind:
        """Return the kind that a request names. Raises Refusal for an unknown path or verb."""
        plural = request.resource.plural
        if request.subresource:
            plural = f"{plural}/{request.subresource}"
        # Also of kinds that it does not know.
        if (request.user, request.verb, plural) in self.forbidden:
            raise forbidden(request)
        kind = get_kind(request.resource)
        _check_path(request, kind)
        check_query(request)
        return kind

    def _record(
        self, request: ApiRequest, number: int, begun: timedelta, answer: ApiAnswer
    ) -> None:
        self.history.add(
            Called(
                at=self.elapsed(),
                begun=begun,
                number=number,
                actor=request.user,
                request=request,
                status=answer.status,
                reason=answer.reason,
                message=answer.message,
            )
        )

    def _notify(self, commit: Commit) -> None:
        for callback in self._callbacks:
            callback(commit)

    def _plant_namespace(self, name: str) -> None:
        """Make a namespace that was there before the world began."""
        obj: JsonObject = {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name}}
        get_kind(NAMESPACES).prepare_create(obj)
        self._store.plant(ObjectKey(NAMESPACES, "", name), obj)


def _finish(work: Coroutine[Any, Any, ApiAnswer]) -> ApiAnswer:
    """Run what does not have to wait for anything, without a loop, and return what it returns."""
    try:
        work.send(None)
    except StopIteration as done:
        answer: ApiAnswer = done.value
        return answer
    work.close()
    return not_modelled("a wait in a call that needs its answer at once")


def _check_path(request: ApiRequest, kind: ObjectKind) -> None:
    """Raise Refusal (404) where there is no such path, NotModelled where its verb is no use."""
    verb, subresource = request.verb, request.subresource
    is_nameless = verb in _NAMELESS
    if subresource:
        if subresource not in kind.subresources:
            if subresource in _NOT_MODELLED:
                not_modelled(f"{request.resource.plural}/{subresource}")
            is_custom = kind.resource.group == ZONE_BUDGETS.group
            raise not_found(kind.resource, request.name) if is_custom else no_resource()
        verbs = ("create",) if subresource == "eviction" else _OF_SUBRESOURCE
        expect(verb in verbs, f"the verb of {subresource}", verb)
        is_nameless = False
    if not kind.resource.is_namespaced:
        expect(not request.namespace, "a namespace", request.namespace)
    elif not request.namespace:
        expect(verb in ("list", "watch"), "all namespaces at once", verb)
    expect(is_nameless is not bool(request.name), f"a name of a {verb}", request.name)


def _resource_of(obj: JsonObject) -> Resource:
    """Return the resource of an object by its kind and version. Raises Refusal (404)."""
    version, kind = str(obj.get("apiVersion", "")), obj.get("kind")
    for supported in KINDS.values():
        if (api_version_of(supported.resource), supported.resource.kind) == (version, kind):
            return supported.resource
    raise no_resource()
