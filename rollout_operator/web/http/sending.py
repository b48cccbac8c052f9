"""Send what may be large in pieces, each only when the last piece is on its way.

One body is for many clients. Handed over whole, the part that a slow client has not taken yet is a
copy of its own, with the headers before it: five hundred of them held gigabytes of one status page.
In pieces each client holds two at most, and all share the body itself.
"""

import asyncio
from typing import Final

from aiohttp import hdrs, web

# Once aiohttp holds more than this, it waits for the transport.
PIECE: Final = 1 << 16


async def write_pieces(response: web.StreamResponse, data: bytes, end: int) -> None:
    """Write what comes before `end` to a response that has begun. Raises ConnectionError."""
    pieces = memoryview(data)
    for start in range(0, end, PIECE):
        await response.write(pieces[start : min(start + PIECE, end)])
        # The kernel may take megabytes at once, of each of hundreds: others have a turn between.
        await asyncio.sleep(0)


async def send_all(request: web.Request, response: web.StreamResponse) -> None:
    """Send a whole response; when this returns all of it is on its way. Raises ConnectionError."""
    await response.prepare(request)
    body = response.body if isinstance(response, web.Response) else None
    if not isinstance(body, bytes) or len(body) <= PIECE or request.method == hdrs.METH_HEAD:
        await response.write_eof()
        return
    last = (len(body) - 1) // PIECE * PIECE
    await write_pieces(response, body, last)
    # Not that of `Response`, which would write the body once more.
    await web.StreamResponse.write_eof(response, body[last:])
