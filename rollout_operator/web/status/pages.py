"""The routes of the status page, and which clients share what.

Nothing is described while no client sends a request. All requests within a second get renderings of
one description, and each rendering is made once.
"""

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Final

from aiohttp import hdrs, web

from rollout_operator.aio.clock import Clock
from rollout_operator.aio.shared import Shared, join_pieces
from rollout_operator.model.description import Description
from rollout_operator.planning.description.text import render_description
from rollout_operator.web.status.document import list_document, render_schema
from rollout_operator.web.status.events import EventStreams
from rollout_operator.web.status.markup import gather
from rollout_operator.web.status.page import list_page, make_policy
from rollout_operator.web.status.reasons import render_plain_reasons, render_reasons
from rollout_operator.web.status.sections import Fragment, SectionRenderer

Describe = Callable[[], Awaitable[Description]]

# Where grafana/rollout-operator has its page. Relative: a proxy may have put a path before ours.
_ELSEWHERE: Final = {"/ui": "status", "/ui/status": "../status"}
_HTML: Final = "text/html"
_JSON: Final = "application/json"


class StatusPages:
    """The pages of one server."""

    def __init__(self, describe: Describe, clock: Clock) -> None:
        """`describe` is called at most once a second, and only for a request."""
        self._clock = clock
        self._describe = describe
        self._sections = SectionRenderer()
        self._renderings = Shared(self._begin, clock)
        self._streams = EventStreams(self._get_fragment)

    def show(self, describe: Describe) -> None:
        """Show another description from now on."""
        self._describe = describe
        self._renderings = Shared(self._begin, self._clock)

    def close(self) -> None:
        """End the streams of events."""
        self._streams.close()

    def add_routes(self, router: web.UrlDispatcher) -> None:
        """Answer on the paths of the status page."""
        for path in ("/", "/status"):
            router.add_get(path, self._answer_status)
        for path, target in _ELSEWHERE.items():
            router.add_get(path, partial(_lead_to, target))
        router.add_get("/status.json", self._answer_document)
        router.add_get("/status.schema.json", _answer_schema)
        router.add_get("/status/events", self._streams.answer)
        router.add_get("/reasons", _answer_reasons)

    async def _begin(self) -> "_Renderings":
        return _Renderings(await self._describe(), self._sections, self._clock)

    async def _get_fragment(self) -> Fragment:
        return await (await self._renderings.get()).fragment.get()

    async def _answer_status(self, request: web.Request) -> web.Response:
        renderings = await self._renderings.get()
        if wants_html(request):
            return _make_page(await renderings.page.get())
        return _make_text(await renderings.text.get())

    async def _answer_document(self, request: web.Request) -> web.Response:
        body = await (await self._renderings.get()).document.get()
        return web.Response(body=body, content_type=_JSON)


class _Renderings:
    """One description, and its renderings as far as they were requested."""

    def __init__(self, description: Description, sections: SectionRenderer, clock: Clock) -> None:
        self._description = description
        self.fragment = Shared(partial(sections.render, description), clock)
        self.page = Shared(self._make_page, clock)
        self.text = Shared(partial(join_pieces, self._list_text), clock)
        list_all = partial(list_document, description)
        self.document = Shared(partial(join_pieces, list_all), clock)

    async def _make_page(self) -> bytes:
        description, sections = self._description, (await self.fragment.get()).sections
        return await join_pieces(
            lambda: list_page(description.namespace, description.now, sections.values())
        )

    def _list_text(self) -> Iterator[bytes]:
        return gather(f"{line}\n" for line in render_description(self._description))


def wants_html(request: web.Request) -> bool:
    """Return whether the client is a browser: it names HTML, and `*/*` is for all others."""
    for choice in request.headers.get(hdrs.ACCEPT, "").split(","):
        kind, *parameters = (part.strip().lower() for part in choice.split(";"))
        if kind == _HTML and "q=0" not in parameters:
            return True
    return False


async def _lead_to(target: str, request: web.Request) -> web.Response:
    return web.Response(status=302, headers={hdrs.LOCATION: target})


async def _answer_schema(request: web.Request) -> web.Response:
    return web.Response(body=render_schema(), content_type=_JSON)


async def _answer_reasons(request: web.Request) -> web.Response:
    if wants_html(request):
        return _make_page(render_reasons())
    return _make_text(render_plain_reasons().encode())


def _make_page(body: bytes) -> web.Response:
    response = web.Response(body=body, content_type=_HTML, charset="utf-8")
    response.headers[hdrs.VARY] = hdrs.ACCEPT
    response.headers["Content-Security-Policy"] = make_policy()
    response.headers["Referrer-Policy"] = "no-referrer"
    response.headers["Cross-Origin-Resource-Policy"] = "same-origin"
    return response


def _make_text(body: bytes) -> web.Response:
    response = web.Response(body=body, content_type="text/plain", charset="utf-8")
    response.headers[hdrs.VARY] = hdrs.ACCEPT
    return response
