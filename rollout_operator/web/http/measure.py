"""Request metrics: every answer is sent, counted and timed here.

The answer is sent inside the middleware, so that the time includes the client's reading, and a
client that does not read is cut off after a time limit.
"""

import asyncio
from datetime import timedelta

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware

from rollout_operator.telemetry.metrics import Metrics
from rollout_operator.web.http.routes import get_route, name_method, name_websocket


def measure(metrics: Metrics, *, write_limit: timedelta) -> Middleware:
    """Return the outermost middleware; answers not taken within `write_limit` end the connection.

    Answers raised as web.HTTPException are sent like others.
    """

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        method = name_method(request)
        route = get_route(request)
        loop = asyncio.get_running_loop()
        begin = loop.time()
        status = 500  # what the server answers where the handler raises
        metrics.http_inflight.labels(method, route).inc()
        try:
            response = await _answer(request, handler)
            status = response.status
            await _send(request, response, write_limit)
            metrics.http_response_bytes.labels(method, route).observe(_size(request, response))
            return response
        finally:
            metrics.http_inflight.labels(method, route).dec()
            metrics.http_request_bytes.labels(method, route).observe(request.content.total_bytes)
            metrics.http_request_duration.labels(
                method, route, str(status), name_websocket(request)
            ).observe(loop.time() - begin)

    return middleware


async def _answer(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPException as answer:
        # Without the class of the exception: aiohttp deprecates returning it.
        response = web.Response(status=answer.status, text=f"{answer.reason.lower()}\n")
        if isinstance(answer, web.HTTPMethodNotAllowed):
            response.headers[hdrs.ALLOW] = answer.headers[hdrs.ALLOW]
        return response


async def _send(request: web.Request, response: web.StreamResponse, limit: timedelta) -> None:
    transport = request.transport
    if transport is None:
        return  # the client has gone; the server will notice
    # Sending then waits until the kernel has taken all: nothing is left to hold for a slow reader.
    transport.set_write_buffer_limits(high=0)
    try:
        async with asyncio.timeout(limit.total_seconds()):
            await response.prepare(request)
            await response.write_eof()
    except TimeoutError:
        transport.abort()
    except ConnectionError:
        return  # the client has gone; the server sees the same and cleans up


def _size(request: web.Request, response: web.StreamResponse) -> int:
    return 0 if request.method == hdrs.METH_HEAD else response.content_length or 0
