"""Calls to the API server: kinds, verbs and time limits, and the Protocols of the client.

Callers see only the error classes of `model.names`. `kube.client.Client` implements the Protocols;
the simulated cluster of the lab does as well.
"""

import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from typing import Final, Protocol
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from rollout_operator.model.decode.wire import MANAGED_FIELDS
from rollout_operator.model.names import InvalidInput, Uid

JsonObject = dict[str, object]

Fence = Callable[[str], timedelta | None]
"""Called last before a write is sent, with the call in words; raises NotElected where none may be.

Returns how soon the write must be on its way, None where that does not matter.
"""


def no_fence(call: str) -> None:
    """Let every write be sent, however late."""


class Resource(msgspec.Struct, frozen=True):
    """A kind of object, as the API's paths name it."""

    group: str
    version: str
    plural: str
    kind: str
    is_namespaced: bool = True
    """Objects of a kind that is not namespaced belong to the cluster: their namespace is empty."""

    def path(self, namespace: str, name: str = "", subresource: str = "") -> str:
        """Return the path of a collection, an object or its subresource."""
        scope = ("namespaces", namespace) if self.is_namespaced else ()
        root = ("/apis" if self.group else "/api", self.group, self.version)
        parts = (*root, *scope, self.plural, name, subresource)
        return "/".join(part for part in parts if part)


PODS: Final = Resource("", "v1", "pods", "Pod")
SECRETS: Final = Resource("", "v1", "secrets", "Secret")
CONFIG_MAPS: Final = Resource("", "v1", "configmaps", "ConfigMap")
SERVICES: Final = Resource("", "v1", "services", "Service")
STATEFULSETS: Final = Resource("apps", "v1", "statefulsets", "StatefulSet")
DEPLOYMENTS: Final = Resource("apps", "v1", "deployments", "Deployment")
REPLICASETS: Final = Resource("apps", "v1", "replicasets", "ReplicaSet")
LEASES: Final = Resource("coordination.k8s.io", "v1", "leases", "Lease")
EVENTS: Final = Resource("events.k8s.io", "v1", "events", "Event")
ZONE_BUDGETS: Final = Resource(
    "rollout-operator.grafana.com",
    "v1",
    "zoneawarepoddisruptionbudgets",
    "ZoneAwarePodDisruptionBudget",
)
MULTI_AZ_ROLLOUTS: Final = Resource(
    "rollout.grafana.com", "v1alpha1", "multiazrollouts", "MultiAZRollout"
)
ROLLOUT_HEALTH_CHECKS: Final = Resource(
    "rollout-operator.grafana.com", "v1", "rollouthealthchecks", "RolloutHealthCheck"
)
DEFINITIONS: Final = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False
)
NATIVE_BUDGETS: Final = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
NAMESPACES: Final = Resource("", "v1", "namespaces", "Namespace", False)
NODES: Final = Resource("", "v1", "nodes", "Node", False)
_AUTHORIZATION: Final = "authorization.k8s.io"
ACCESS_REVIEWS: Final = Resource(
    _AUTHORIZATION, "v1", "subjectaccessreviews", "SubjectAccessReview", False
)
LOCAL_ACCESS_REVIEWS: Final = Resource(
    _AUTHORIZATION, "v1", "localsubjectaccessreviews", "LocalSubjectAccessReview"
)
SELF_ACCESS_REVIEWS: Final = Resource(
    _AUTHORIZATION, "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", False
)
SELF_REVIEWS: Final = Resource(
    "authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", False
)
_ADMISSION: Final = "admissionregistration.k8s.io"
VALIDATING_WEBHOOKS: Final = Resource(
    _ADMISSION, "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", False
)
MUTATING_WEBHOOKS: Final = Resource(
    _ADMISSION, "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", False
)


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """A kind as an API server's discovery shows it."""

    resource: Resource
    subresources: frozenset[str]


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a list: undecoded objects, version of the whole list, token of the next part."""

    items: Sequence[msgspec.Raw]
    resource_version: str
    next_token: str = ""


class WatchEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a watch: ADDED, MODIFIED, DELETED or BOOKMARK with the undecoded object.

    An ERROR line never arrives as an event: it is raised as an error of `model.names`.
    """

    type: str
    object: msgspec.Raw


class Precondition(msgspec.Struct, frozen=True, kw_only=True):
    """What must still hold for a delete to be carried out (`DeleteOptions.preconditions`)."""

    uid: Uid
    resource_version: str


class Reader(Protocol):
    """Reads that leave no trace.

    Where their age counts, it counts from when they are sent and not from when they began to wait
    for that: the caller then waits for its turn by `LiveReader.wait_turn`, and reads with
    `has_turn`.
    """

    async def fetch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        subresource: str = "",
        *,
        has_turn: bool = False,
    ) -> bytes:
        """Return one object, or its subresource, as JSON: from the store and not from a cache.

        Raises NotFound, Denied, Unreachable, TooManyRequests, Throttled.
        """
        ...

    async def fetch_page(
        self,
        resource: Resource,
        namespace: str,
        *,
        selector: str = "",
        field_selector: str = "",
        limit: int = 500,
        token: str = "",
        resource_version: str | None = None,
        has_turn: bool = False,
    ) -> Page:
        """Return one page of a list.

        `resource_version` None reads the newest state from the store; "0" takes what the server has
        cached, as a whole: it may ignore the limit. Raises Gone where `token` has expired, and what
        `fetch` raises.
        """
        ...


class LiveReader(Reader, Protocol):
    async def wait_turn(self, resource: Resource, namespace: str) -> None:
        """Wait until the process's own rate limits let one more read of this kind be sent.

        The read is then sent at once, with `has_turn`: it waits for nothing more. Raises Throttled.
        """
        ...


class Watcher(Protocol):
    def watch(
        self,
        resource: Resource,
        namespace: str,
        *,
        resource_version: str,
        selector: str = "",
        field_selector: str = "",
        lasts: timedelta,
        has_state: bool = False,
    ) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]:
        """Open a watch with bookmarks, to end after `lasts`.

        With `has_state`, and no version, all objects come first, as ADDED, then a bookmark that
        says so; raises Refused where the server does not offer that.

        Entering waits for the response's head. The iterator ends when the server closes the stream
        in order; it raises Gone (HTTP 410 or an ERROR line with code 410), Unreachable (cut,
        garbage, or silence beyond `lasts`), TooManyRequests and what `fetch` raises.
        """
        ...


class Patcher(Protocol):
    """The part of a Writer that changes single fields."""

    async def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        patch: JsonObject | Sequence[JsonObject],
        subresource: str = "",
        *,
        has_turn: bool = False,
    ) -> bytes:
        """PATCH an object, or its subresource, and return it as JSON.

        By a merge patch, or by JSON patch steps.

        Raises as `Writer.delete`; Conflict where `metadata.uid` or `metadata.resourceVersion` of a
        merge patch is not that of the object, or where a `test` step failed or another step does
        not apply.
        """
        ...


class TimedPatcher(Patcher, Protocol):
    """Patches whose caller has to know whether they may have been sent."""

    async def wait_turn_to_patch(self, resource: Resource, namespace: str, name: str) -> None:
        """Wait until the process's own rate limits let an object be patched.

        The patch is then sent at once, with `has_turn`: it waits for nothing more. Raises
        Throttled.
        """
        ...


class Applier(Protocol):
    """Server-side apply: each field manager has fields of its own in one object."""

    async def apply(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        body: JsonObject,
        *,
        manager: str,
        is_forced: bool = False,
        is_trial: bool = False,
    ) -> bytes:
        """Make an object's fields what `body` says, and return all of it as JSON.

        What `manager` applied before and `body` leaves out is let go of. `is_forced` takes fields
        from other managers; without it that raises Conflict, whose text names them and the fields.
        With `metadata.uid` in the body no other object is written, and none is created: Conflict.
        `is_trial` only asks whether the API server and its admission take it: nothing is stored.
        Raises else as `Writer.delete`.
        """
        ...


class Writer(Patcher, Protocol):
    """Writes. A write without an answer raises UnknownOutcome, never Unreachable."""

    async def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        precondition: Precondition,
        sent_within: timedelta | None = None,
    ) -> None:
        """Delete one object if it is still what `precondition` says.

        With `sent_within` it is Throttled rather than made to wait longer for its turn: what it
        rests on may be too old by then. Raises NotFound, Conflict (precondition failed), Refused
        (admission), Denied (role), TooManyRequests, Throttled (nothing was sent), UnknownOutcome.
        """
        ...

    async def replace_status(
        self, resource: Resource, namespace: str, name: str, body: JsonObject
    ) -> None:
        """PUT a whole, freshly read object on its `status` subresource.

        Raises as `delete`; Conflict where the object changed since it was read.
        """
        ...

    async def create(self, resource: Resource, namespace: str, body: JsonObject) -> bytes:
        """POST a new object and return it as JSON.

        Raises Conflict where an object of its name exists, else as `delete`.
        """
        ...

    async def replace(
        self, resource: Resource, namespace: str, name: str, body: JsonObject
    ) -> bytes:
        """PUT a whole object and return it as JSON.

        Raises as `delete`; Conflict where `metadata.resourceVersion` of the body is not the newest
        version.
        """
        ...


class DryRunner(Protocol):
    """Writes that pass admission, webhooks included, and are not stored. Raise as a Writer does."""

    async def try_write(
        self,
        verb: str,
        resource: Resource,
        namespace: str,
        body: JsonObject,
        name: str = "",
        subresource: str = "",
    ) -> None:
        """`create` an object, or `patch` it by a merge patch, or do so with a subresource."""
        ...


class Discoverer(Protocol):
    async def fetch_group(self, group: str) -> Sequence[str]:
        """Return the versions of an API group, the preferred one first.

        The core group, whose name is empty, is known to have one: no request is sent. Raises
        NotFound where the group is not served, and InvalidInput where it can be no group's name.
        """
        ...

    async def fetch_resources(self, group: str, version: str) -> Sequence[Served]:
        """Return the kinds of a version of an API group. Raises NotFound where it is not served."""
        ...


class ApiClient(LiveReader, Watcher, Writer, TimedPatcher, Applier, Discoverer, Protocol):
    """Everything that one component needs of the API server."""

    def server_time(self) -> datetime | None:
        """Return what the API server's clock shows now, up to a second too early.

        None before its first answer.
        """
        ...


# The verb of calls that read which kinds there are; a Role knows it as `get` of a path.
DISCOVER: Final = "discover"
CORE_GROUP: Final = "core"
"""What metrics and rate limits call the group without a name."""
CORE_VERSIONS: Final = ("v1",)

DRY_RUN: Final = {"dryRun": "All"}
"""The query of a write that passes admission and is not stored."""

_METHODS: Final = {
    DISCOVER: "GET",
    "get": "GET",
    "list": "GET",
    "watch": "GET",
    "create": "POST",
    "update": "PUT",
    "patch": "PATCH",
    "delete": "DELETE",
}
_OF_COLLECTIONS: Final = frozenset({DISCOVER, "list", "watch", "create"})
# Segments that a URL drops together with the segment before them.
_DOTS: Final = frozenset({".", ".."})
# API groups are DNS names; a reference names a group as people wrote it.
_IS_GROUP: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


class Call(msgspec.Struct, frozen=True):
    """One call. Raises InvalidInput where a name is missing, too much or would change the path.

    A delete without a name would be a delete of the whole collection, one of `..` of the namespace.
    """

    verb: str
    resource: Resource
    namespace: str
    """Empty exactly where the kind belongs to the cluster."""
    name: str = ""
    subresource: str = ""

    def __post_init__(self) -> None:
        needed: dict[str, str] = {}
        if self.resource.is_namespaced:
            needed["namespace"] = self.namespace
        elif self.namespace:
            kind = self.resource.kind
            raise InvalidInput(
                f"cannot {self.text}: namespace: {self.namespace!r}, but {kind} is in none"
            )
        if self.verb not in _OF_COLLECTIONS:
            needed["name"] = self.name
        for field, value in needed.items():
            if not value or value in _DOTS or "/" in value:
                raise InvalidInput(f"cannot {self.text}: {field}: {value!r} names nothing")

    @property
    def is_write(self) -> bool:
        return self.method != "GET"

    @property
    def is_stream(self) -> bool:
        """Return whether the answer goes on for as long as both sides want."""
        return self.verb == "watch"

    @property
    def is_proxied(self) -> bool:
        """Return whether the API server passes it on: then the answer may be a stranger's."""
        return self.subresource.partition("/")[0] == "proxy"

    @property
    def method(self) -> str:
        return _METHODS[self.verb]

    @property
    def path(self) -> str:
        return self.resource.path(quote(self.namespace), quote(self.name), self.subresource)

    @property
    def text(self) -> str:
        """Return the call as people read it: `delete pods/a-0 in namespace prod`.

        What belongs to the cluster is in no namespace.
        """
        if self.verb == DISCOVER:
            return f"{self.verb} {self.path.removeprefix('/')}"
        parts = (self.resource.plural, self.name, self.subresource)
        target = "/".join(part for part in parts if part)
        scope = f" in namespace {self.namespace}" if self.resource.is_namespaced else ""
        return f"{self.verb} {target}{scope}"


def discovery_call(group: str, version: str = "") -> Call:
    """Return the call that reads the versions of a group, or the kinds of one version.

    Raises InvalidInput where the group's name would change the path.
    """
    if group and not _IS_GROUP.fullmatch(group):
        raise InvalidInput(f"cannot {DISCOVER}: API group: {group!r} names nothing")
    resource = Resource(group, version, "", "", is_namespaced=False)
    return Call(DISCOVER, resource, "")


def page_query(
    selector: str, field_selector: str, *, limit: int, token: str, version: str | None
) -> dict[str, str]:
    query = {
        "limit": f"{limit}",
        "labelSelector": selector,
        "fieldSelector": field_selector,
        "continue": token,
        # The token stands for a version: the server refuses both together.
        "resourceVersion": "" if token else version or "",
    }
    return _given(query)


def watch_query(
    selector: str, field_selector: str, *, version: str, lasts: timedelta, has_state: bool = False
) -> dict[str, str]:
    """Return the query of a watch; with `has_state`, of a watch that begins with all objects."""
    query = {
        "watch": "1",
        "allowWatchBookmarks": "true",
        "resourceVersion": version,
        "sendInitialEvents": "true" if has_state else "",
        "resourceVersionMatch": "NotOlderThan" if has_state else "",
        "timeoutSeconds": f"{max(round(lasts.total_seconds()), 1)}",
        "labelSelector": selector,
        "fieldSelector": field_selector,
    }
    return _given(query)


def _given(query: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in query.items() if value}


def apply_query(manager: str, *, is_forced: bool, is_trial: bool) -> dict[str, str]:
    query = _given({"fieldManager": manager, "force": "true" if is_forced else ""})
    return {**query, **DRY_RUN} if is_trial else query


def delete_options(precondition: Precondition) -> JsonObject:
    return {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {
            "uid": precondition.uid,
            "resourceVersion": precondition.resource_version,
        },
    }


def without_managed_fields(body: JsonObject) -> JsonObject:
    metadata = body.get("metadata")
    if not isinstance(metadata, dict) or MANAGED_FIELDS not in metadata:
        return body
    return {
        **body,
        "metadata": {key: value for key, value in metadata.items() if key != MANAGED_FIELDS},
    }


# The orderly end of a shorter one would not prove to `kube.informer` that it was alive.
SHORTEST_WATCH: Final = timedelta(seconds=5)


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """How long a call may take, answer included; no limit ends a living watch."""

    read: timedelta = timedelta(seconds=30)
    """Also of the head of a watch."""
    write: timedelta = timedelta(seconds=30)
    page: timedelta = timedelta(seconds=60)
    watch: timedelta = timedelta(minutes=5)
    """The longest watch that is requested."""
    silence: timedelta = timedelta(seconds=5)
    """For how much longer than its requested end a watch may say nothing."""

    def at_most(self, limit: timedelta) -> "Timeouts":
        return replace(
            self,
            read=min(self.read, limit),
            write=min(self.write, limit),
            page=min(self.page, limit),
            watch=min(self.watch, max(limit, SHORTEST_WATCH)),
        )


DEFAULT_TIMEOUTS: Final = Timeouts()


_GROUP: Final = "kuberik.com"
_VERSION: Final = "v1alpha1"
ROLLOUTS: Final = Resource(_GROUP, _VERSION, "rollouts", "Rollout")
ROLLOUT_GATES: Final = Resource(_GROUP, _VERSION, "rolloutgates", "RolloutGate")
HEALTH_CHECKS: Final = Resource(_GROUP, _VERSION, "healthchecks", "HealthCheck")
ROLLOUT_SCHEDULES: Final = Resource(_GROUP, _VERSION, "rolloutschedules", "RolloutSchedule")
CLUSTER_ROLLOUT_SCHEDULES: Final = Resource(
    _GROUP, _VERSION, "clusterrolloutschedules", "ClusterRolloutSchedule", False
)

_IMAGES: Final = "image.toolkit.fluxcd.io"
IMAGE_POLICIES: Final = tuple(
    Resource(_IMAGES, version, "imagepolicies", "ImagePolicy") for version in ("v1", "v1beta2")
)
IMAGE_REPOSITORIES: Final = tuple(
    Resource(_IMAGES, version, "imagerepositories", "ImageRepository")
    for version in ("v1", "v1beta2")
)
OCI_REPOSITORIES: Final = tuple(
    Resource("source.toolkit.fluxcd.io", version, "ocirepositories", "OCIRepository")
    for version in ("v1", "v1beta2")
)
KUSTOMIZATIONS: Final = (
    Resource("kustomize.toolkit.fluxcd.io", "v1", "kustomizations", "Kustomization"),
)


async def list_items(
    reader: Reader, resource: Resource, namespace: str, *, selector: str = ""
) -> list[msgspec.Raw]:
    """Return the objects of all pages of a list. Raises as `Reader.fetch_page`."""
    pages = iterate_pages(reader, resource, namespace, selector=selector)
    return [raw async for page in pages for raw in page.items]


async def iterate_pages(
    client: Reader,
    resource: Resource,
    namespace: str,
    *,
    selector: str = "",
    resource_version: str | None = None,
) -> AsyncIterator[Page]:
    """Yield all pages of a list. Raises ApiError."""
    token = ""
    while True:
        page = await client.fetch_page(
            resource,
            namespace,
            selector=selector,
            token=token,
            resource_version=resource_version,
        )
        yield page
        token = page.next_token
        if not token:
            return
