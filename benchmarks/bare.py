"""A bare TLS server as a process of its own: what the same libraries can do at the very least.

It reads a body and answers with fixed bytes, over the same loop and the same settings of TLS as the
operator: nothing that is ours can be cheaper than that. Started by `hooks.open_bare`.
"""

import asyncio
import ssl
import sys
from pathlib import Path

import msgspec
import uvloop
from aiohttp import web

from rollout_operator.pki.material import Pair
from rollout_operator.pki.serving import server_context


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """What the server serves."""

    port: int
    cert: str
    key: str
    answer: bytes


async def serve(spec: Spec) -> None:
    """Serve until cancelled."""

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        await request.read()
        return web.Response(body=spec.answer, content_type="application/json")

    await asyncio.get_running_loop().create_server(
        web.Server(answer, access_log=None), "127.0.0.1", spec.port, ssl=_make_context(spec)
    )
    await asyncio.Event().wait()


def _make_context(spec: Spec) -> ssl.SSLContext:
    cert, key = (Path(each).read_bytes() for each in (spec.cert, spec.key))
    return server_context(Pair(cert=cert, key=key))


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(msgspec.json.decode(sys.argv[1], type=Spec)))
