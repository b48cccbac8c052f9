"""A TLS server of the tests that answers reviews: a later webhook, or a stand-in for the operator.

Kubernetes knows no quota of replicas; what refuses a downscale after our approval is played by
this, registered for the same rules.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import assert_never

import msgspec
from aiohttp import web

from tests.world.api import Json
from tests.world.pki import Pki
from tests.world.review_server import ReviewServer


@dataclass(frozen=True, slots=True, kw_only=True)
class Allow:
    """Say yes."""

    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Deny:
    """Say no."""

    message: str = "refused by a later webhook"
    code: int = 403


@dataclass(frozen=True, slots=True)
class Silence:
    """Say nothing until the API server gives up."""


Verdict = Allow | Deny | Silence


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One review that came in."""

    path: str
    request: Json

    @property
    def replicas(self) -> tuple[int, int]:
        """Return the counts before and after."""
        old, new = self.request["oldObject"]["spec"], self.request["object"]["spec"]
        return old.get("replicas", 0), new.get("replicas", 0)


class Reviewer(ReviewServer):
    """Answers reviews with `verdict`, which may be changed at any time. Use with `async with`.

    `by_path` says otherwise for some paths.
    """

    def __init__(self, pki: Pki, verdict: Verdict | None = None) -> None:
        super().__init__(pki)
        self.verdict: Verdict = verdict or Allow()
        self.by_path: dict[str, Verdict] = {}
        self.seen: list[Seen] = []

    async def answer(self, request: web.Request) -> web.Response:
        """Note a review and answer it."""
        review: Json = msgspec.json.decode(await request.read())
        self.seen.append(Seen(path=request.path, request=review["request"]))
        verdict = self.by_path.get(request.path, self.verdict)
        response: Mapping[str, object]
        match verdict:
            case Allow(warnings=warnings):
                response = {"allowed": True, "warnings": warnings}
            case Deny(message=message, code=code):
                response = {"allowed": False, "status": {"message": message, "code": code}}
            case Silence():
                return await self.stay_silent()
            case _:
                assert_never(verdict)
        body = {
            "apiVersion": review["apiVersion"],
            "kind": review["kind"],
            "response": {"uid": review["request"]["uid"], **response},
        }
        return web.Response(body=msgspec.json.encode(body), content_type="application/json")
