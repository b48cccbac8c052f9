"""Lists: which objects, at which version, and in which parts.

Decides what `resourceVersion`, `resourceVersionMatch`, `limit` and `continue` lead to, as the real
server does from its watch cache. Which objects are requested is `selection`'s part.
"""

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from rollout_lab.apiserver.selection import read_selection
from rollout_lab.apiserver.store import ObjectStore
from rollout_lab.model.fields import name_of, namespace_of
from rollout_lab.model.request import ApiRequest, api_version_of, not_modelled
from rollout_lab.schemas.refusals import (
    ContinueExpired,
    bad_request,
    expect,
    expect_one_of,
    refuse_list,
)
from rollout_operator.kube.api import JsonObject

EXACT: Final = "Exact"
NOT_OLDER: Final = "NotOlderThan"
_MATCHES: Final = ("", EXACT, NOT_OLDER)
_TOKEN_VERSION: Final = "meta.k8s.io/v1"  # noqa: S105 (of a list: not secret)
# Lists of custom resources are written as they are, and say also what is empty.
_CUSTOM: Final = frozenset({"rollout-operator.grafana.com"})
# A token that goes on with whatever is there now.
_NEWEST: Final = -1


class _Token(msgspec.Struct):
    """Where a list goes on, in the form in which the real server writes it."""

    v: str = ""
    rv: int = 0
    start: str = ""


class _Cut(msgspec.Struct, frozen=True, kw_only=True):
    """Which part of the objects is requested."""

    revision: int
    start: str = ""
    """The first key that may come."""
    limit: int = 0
    """0: all of them."""


_TOKEN: Final = msgspec.json.Decoder(_Token)


def render_list(store: ObjectStore, request: ApiRequest) -> JsonObject:
    """Return a list as the real server answers it. Raises Refusal (400, 410)."""
    resource, query = request.resource, request.query
    selection = read_selection(resource, query)
    cut = _read_cut(store, query)
    namespace = request.namespace
    if cut.revision == store.revision:
        held: Sequence[JsonObject] = store.list(resource, namespace)
    else:
        held = store.list_at(resource, namespace, cut.revision)
    if cut.start:
        held = [obj for obj in held if _key(obj, namespace) >= cut.start]
    taken = held if selection.is_empty else [obj for obj in held if selection.takes(obj)]
    metadata: JsonObject = {"resourceVersion": str(cut.revision)}
    if 0 < cut.limit < len(taken):
        rest = len(taken) - cut.limit
        taken = taken[: cut.limit]
        start = _key(taken[-1], namespace) + "\0"
        metadata["continue"] = _write_token(cut.revision, start)
        if selection.is_empty:
            metadata["remainingItemCount"] = rest
    if is_custom := resource.group in _CUSTOM:
        metadata.setdefault("continue", "")
    return {
        "kind": f"{resource.kind}List",
        "apiVersion": api_version_of(resource),
        "metadata": metadata,
        "items": [obj if is_custom else _item(obj) for obj in taken],
    }


def parse_version(text: str) -> int:
    """Return a resourceVersion of a query as a number, 0 for none. Raises NotModelled."""
    expect(not text or (text.isascii() and text.isdigit()), "resourceVersion", text)
    return int(text or "0")


def check_reached(store: ObjectStore, revision: int) -> None:
    """Raise NotModelled where the server has not come to a version yet."""
    expect(revision <= store.revision, "resourceVersion", revision)


def _read_cut(store: ObjectStore, query: Mapping[str, str]) -> _Cut:
    _check_options(query)
    limit = _parse_limit(query.get("limit", ""))
    wanted, match = query.get("resourceVersion", ""), query.get("resourceVersionMatch", "")
    if token := query.get("continue", ""):
        return _read_token(store, token, wanted, limit)
    version = parse_version(wanted)
    check_reached(store, version)
    # A limit makes an old version exact; at version 0 the watch cache answers, which knows none.
    if match == EXACT or (not match and limit and version):
        if version < store.compacted:
            raise refuse_list()
        return _Cut(revision=version, limit=limit)
    return _Cut(revision=store.revision, limit=0 if wanted == "0" else limit)


def _check_options(query: Mapping[str, str]) -> None:
    match, version = query.get("resourceVersionMatch", ""), query.get("resourceVersion", "")
    expect_one_of(_MATCHES, "resourceVersionMatch", match)
    is_possible = not match or (version and not query.get("continue"))
    expect(bool(is_possible) and not (match == EXACT and version == "0"), "a list", query)
    if "sendInitialEvents" in query:
        not_modelled("sendInitialEvents of a list")


def _parse_limit(text: str) -> int:
    expect(not text or text.isdigit(), "limit", text)
    return int(text or "0")


def _read_token(store: ObjectStore, text: str, wanted: str, limit: int) -> _Cut:
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        token = _TOKEN.decode(raw)
    except (binascii.Error, ValueError, msgspec.MsgspecError) as error:
        # What exactly is wrong is said in words of Go's decoders: no client reads it.
        why = f"invalid continue token: continue key is not valid: {error}"
        raise bad_request(why) from None
    expect(token.v == _TOKEN_VERSION and bool(token.rv and token.start), "continue", text)
    expect_one_of(("", "0"), "resourceVersion of a next page", wanted)
    if token.rv == _NEWEST:
        return _Cut(revision=store.revision, start=token.start, limit=limit)
    if token.rv < store.compacted:
        raise ContinueExpired(_write_token(_NEWEST, token.start))
    check_reached(store, token.rv)
    return _Cut(revision=token.rv, start=token.start, limit=limit)


def _write_token(revision: int, start: str) -> str:
    raw = msgspec.json.encode(_Token(v=_TOKEN_VERSION, rv=revision, start=start))
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _key(obj: JsonObject, namespace: str) -> str:
    """Return the key of an object below the key of the list."""
    return name_of(obj) if namespace else f"{namespace_of(obj)}/{name_of(obj)}"


def _item(obj: JsonObject) -> JsonObject:
    """Return an object as items of a list are written: without what the list says for all."""
    return {key: value for key, value in obj.items() if key not in ("kind", "apiVersion")}
