"""Names of routes and methods, as metrics and rejections show them."""

import re
from typing import Final

from aiohttp import hdrs, web

UNMATCHED: Final = "other"

# Anyone may send any word as method; a label must have few values.
_METHODS: Final = frozenset(
    {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE"}
)
_VARIABLE: Final = re.compile(r"\{[^}]*\}")
_NOT_IN_NAMES: Final = re.compile(r"[^a-z0-9]+")


def name_route(template: str) -> str:
    """Return the name of a path template: `/admission/no-downscale` → `admission_no_downscale`."""
    plain = _VARIABLE.sub("", template).lower()
    return _NOT_IN_NAMES.sub("_", plain).strip("_") or "root"


def get_route(request: web.Request) -> str:
    """Return the name of the route that answers a request, `other` where none does."""
    resource = request.match_info.route.resource
    return UNMATCHED if resource is None else name_route(resource.canonical)


def name_method(request: web.BaseRequest) -> str:
    """Return the method, `other` for an odd one."""
    return request.method if request.method in _METHODS else UNMATCHED


def name_websocket(request: web.BaseRequest) -> str:
    """Return `true` for a WebSocket handshake, else `false`."""
    return "true" if request.headers.get(hdrs.UPGRADE, "").lower() == "websocket" else "false"


def clean_header(value: str) -> str:
    """Return a header's value without the lone surrogates that stand for bytes not UTF-8.

    They cannot be written to a log, a metric or a response.
    """
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
