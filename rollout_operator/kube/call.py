"""Calls to the API server, in the words of its authoriser, and how long each may take."""

import re
from datetime import timedelta
from typing import Final
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from rollout_operator.kube.api import PODS, JsonObject, Precondition, Resource
from rollout_operator.model.decode.nesting import MANAGED_FIELDS
from rollout_operator.model.downscale import Target
from rollout_operator.model.errors import InvalidInput

# The verb of calls that read which kinds there are; a Role knows it as `get` of a path.
DISCOVER: Final = "discover"
CORE_GROUP: Final = "core"
"""What metrics and rate limits call the group without a name."""
CORE_VERSIONS: Final = ("v1",)
"""Of the core group, in all clusters there are."""

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


class Call(msgspec.Struct, frozen=True, kw_only=True):
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
        """Return whether the call changes something where it succeeds."""
        return self.method != "GET"

    @property
    def is_stream(self) -> bool:
        """Return whether the answer goes on for as long as both sides want."""
        return self.verb == "watch"

    @property
    def method(self) -> str:
        """Return the HTTP method."""
        return _METHODS[self.verb]

    @property
    def path(self) -> str:
        """Return the path of the URL, quoted."""
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


def object_call(
    verb: str, resource: Resource, namespace: str, name: str, subresource: str = ""
) -> Call:
    """Return the call about one object, or its subresource. Raises InvalidInput."""
    return Call(
        verb=verb, resource=resource, namespace=namespace, name=name, subresource=subresource
    )


def proxy_call(namespace: str, pod: str, target: Target) -> Call:
    """Return the call that the API server passes on to a pod. Raises InvalidInput."""
    scheme = "" if target.scheme == "http" else f"{target.scheme}:"
    return object_call(
        "get", PODS, namespace, f"{scheme}{pod}:{target.port}", f"proxy/{target.path}"
    )


def discovery_call(group: str, version: str = "") -> Call:
    """Return the call that reads the versions of a group, or the kinds of one version.

    Raises InvalidInput where the group's name would change the path.
    """
    if group and not _IS_GROUP.fullmatch(group):
        raise InvalidInput(f"cannot {DISCOVER}: API group: {group!r} names nothing")
    resource = Resource(group, version, "", "", is_namespaced=False)
    return Call(verb=DISCOVER, resource=resource, namespace="")


def page_query(
    selector: str, field_selector: str, *, limit: int, token: str, version: str | None
) -> dict[str, str]:
    """Return the query of one page of a list."""
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
    """Return the query of a server-side apply."""
    query = _given({"fieldManager": manager, "force": "true" if is_forced else ""})
    return {**query, **DRY_RUN} if is_trial else query


def delete_options(precondition: Precondition) -> JsonObject:
    """Return the body of a delete that holds for this object in this state only."""
    return {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {
            "uid": precondition.uid,
            "resourceVersion": precondition.resource_version,
        },
    }


def without_managed_fields(body: JsonObject) -> JsonObject:
    """Leave out managedFields: it may nest deeply, and the API server keeps what it has."""
    metadata = body.get("metadata")
    if not isinstance(metadata, dict) or MANAGED_FIELDS not in metadata:
        return body
    return {
        **body,
        "metadata": {key: value for key, value in metadata.items() if key != MANAGED_FIELDS},
    }


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
        """Return these with no call and no watch longer than `limit`."""
        return replace(
            self,
            read=min(self.read, limit),
            write=min(self.write, limit),
            page=min(self.page, limit),
            watch=min(self.watch, limit),
        )


DEFAULT_TIMEOUTS: Final = Timeouts()
