"""A TLS server on loopback that answers the reviews of all sequences, by path."""

import base64

import msgspec
from aiohttp import web

from tests.contract.reviews import answer_review
from tests.contract.sides import Decide, Silence
from tests.world.hooks import ReviewServer
from tests.world.plane import ControlPlane


class HookServer(ReviewServer):
    """Answers the reviews of all sequences, by path. Use with `async with`."""

    def __init__(self, plane: ControlPlane) -> None:
        super().__init__(plane.pki)
        self.decisions: dict[str, Decide] = {}
        self.bundle = base64.b64encode(plane.pki.ca.read_bytes()).decode()

    async def answer(self, request: web.Request) -> web.Response:
        body = await request.read()
        verdict = await self.decisions[request.path](msgspec.json.decode(body)["request"])
        match verdict:
            case Silence():
                return await self.stay_silent()
            case _:
                answered = answer_review(body, verdict)
                return web.Response(body=answered, content_type="application/json")
