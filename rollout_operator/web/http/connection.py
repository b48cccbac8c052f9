"""A connection of an HTTP server that does not wait for ever.

aiohttp bounds only the idle time between requests, which is minutes. Here the first whole request
must come within a time limit as well. Clients that read slowly are cut in `measure`.
"""

import asyncio
import logging
from datetime import timedelta
from typing import Final

from aiohttp import hdrs, web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler

# Time-outs that users know: idle connections of Prometheus and of the API server stay open.
IDLE_LIMIT: Final = timedelta(minutes=3)
READ_LIMIT: Final = timedelta(seconds=10)
WRITE_LIMIT: Final = timedelta(seconds=10)
# A request line or a header longer than this is refused with 400.
LINE_LIMIT: Final = 8190
# After an answer that did not read the body, the rest of the body is read for this long.
LINGER_LIMIT: Final = timedelta(seconds=1)
# In place of aiohttp's header, which names versions.
SERVER: Final = "rollout-operator"
# Twice as much of a body is held while nobody reads it.
BUFFER: Final = 1 << 15


class Connection(web.RequestHandler):
    """One client's connection; it is cut where no request has come within `read_limit`."""

    __slots__ = ("_read_limit", "_silence")

    def __init__(self, server: web.Server, *, read_limit: timedelta = READ_LIMIT) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            logger=_logger,
            access_log=None,  # type: ignore[arg-type]  # None turns it off, as `web.run_app` says
            keepalive_timeout=IDLE_LIMIT.total_seconds(),
            lingering_time=LINGER_LIMIT.total_seconds(),
            max_line_size=LINE_LIMIT,
            max_field_size=LINE_LIMIT,
            auto_decompress=False,
            read_bufsize=BUFFER,
        )
        self._read_limit = read_limit
        self._silence: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        loop = asyncio.get_running_loop()
        self._silence = loop.call_later(self._read_limit.total_seconds(), self.force_close)

    def connection_lost(self, exc: BaseException | None) -> None:
        self.note_request()
        super().connection_lost(exc)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what is no HTTP, without aiohttp's text: that quotes what was sent, bodies too."""
        brief = "malformed request\n" if isinstance(exc, HttpProcessingError) else message
        response = super().handle_error(request, status, exc, brief)
        response.headers[hdrs.SERVER] = SERVER
        return response

    def note_request(self) -> None:
        """Take note that a whole request head has come."""
        if self._silence is not None:
            self._silence.cancel()
            self._silence = None


@web.middleware
async def note_request(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Tell the connection that it is not silent; must come before every other middleware."""
    if isinstance(request.protocol, Connection):
        request.protocol.note_request()
    return await handler(request)


def _is_ours(record: logging.LogRecord) -> bool:
    # What strangers send is no error of ours: without this each garbage request would write a
    # stack trace. They get their 400.
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


_logger: Final = logging.getLogger(__name__)
_logger.addFilter(_is_ours)
