"""What a fake API server knows of objects by name: a Secret that is kept, pods and sets as listed.

Also counts what is asked for. Lists and watches are `server`'s. A patched pod is sent back as it
was: nobody reads the answer, and a watch that told of it would measure something else.
"""

import itertools
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec
from aiohttp import web

from benchmarks.objects import LIST_VERSION

Json = dict[str, Any]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Find = Callable[[str, str], bytes | None]
"""Plural and name → the object."""

COUNTS_PATH: Final = "/bench/requests"
_TERM: Final = re.compile(r"(?P<key>[^\s=,]+)(?:=(?P<value>[^,]*)| in \((?P<values>[^)]*)\))")


class Replicas:
    """How often what was asked: `GET pods/store-0` counts as `get pods`, a list as `list pods`."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    @web.middleware
    async def count(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Count one request, as a middleware."""
        plural = request.match_info.get("plural", "")
        if plural:
            self._counts[f"{name_verb(request)} {plural}"] += 1
        return await handler(request)

    async def answer(self, _: web.Request) -> web.Response:
        """Tell the counts."""
        return _json(msgspec.json.encode(self._counts))


def name_verb(request: web.Request) -> str:
    """Return what audit logs call it."""
    if request.method == "GET" and not request.match_info.get("name"):
        return "watch" if request.query.get("watch") else "list"
    return {"POST": "create", "PUT": "update"}.get(request.method, request.method.lower())


class Single:
    """Answers requests for one object."""

    def __init__(self, find: Find) -> None:
        self._find = find
        self._secrets: dict[str, Json] = {}
        self._versions = itertools.count(1)

    def add_routes(self, router: web.UrlDispatcher, root: str) -> None:
        """Answer below `root`, a collection's path with the placeholder for its plural."""
        router.add_get(f"{root}/{{name}}", self._get)
        router.add_patch(f"{root}/{{name}}", self._get)
        router.add_patch(f"{root}/{{name}}/status", self._patch_status)
        router.add_put(f"{root}/{{name}}", self._put)
        router.add_post(root, self._put)

    async def _get(self, request: web.Request) -> web.Response:
        plural, name = request.match_info["plural"], request.match_info["name"]
        if plural == "secrets" and name in self._secrets:
            return _json(msgspec.json.encode(self._secrets[name]))
        found = self._find(plural, name)
        return _not_found(plural, name) if found is None else _json(found)

    async def _patch_status(self, request: web.Request) -> web.Response:
        """Answer with the status as it was asked for, of a newer version; nothing is kept."""
        plural, name = request.match_info["plural"], request.match_info["name"]
        found = self._find(plural, name)
        if found is None:
            return _not_found(plural, name)
        body: Json = msgspec.json.decode(found)
        patch: Json = msgspec.json.decode(await request.read())
        body["status"] = {key: value for key, value in patch["status"].items() if value is not None}
        body["metadata"]["resourceVersion"] = f"{LIST_VERSION + next(self._versions)}"
        return _json(msgspec.json.encode(body))

    async def _put(self, request: web.Request) -> web.Response:
        plural = request.match_info["plural"]
        body: Json = msgspec.json.decode(await request.read())
        name = body["metadata"]["name"]
        if plural != "secrets":
            return _not_found(plural, name)
        body["metadata"] |= {"uid": f"secret-{name}", "resourceVersion": f"{next(self._versions)}"}
        self._secrets[name] = body
        return _json(msgspec.json.encode(body))


def selects(selector: str, labels: Mapping[str, str]) -> bool:
    """Tell whether a selector of equalities and sets takes an object; an empty one takes all."""
    for term in _TERM.finditer(selector):
        values = (term["value"],) if term["values"] is None else term["values"].split(",")
        if labels.get(term["key"]) not in values:
            return False
    return True


def _json(body: bytes) -> web.Response:
    return web.Response(body=body, content_type="application/json")


def _not_found(plural: str, name: str) -> web.Response:
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": f'{plural} "{name}" not found',
        "reason": "NotFound",
        "code": 404,
    }
    return web.Response(
        status=404, body=msgspec.json.encode(status), content_type="application/json"
    )
