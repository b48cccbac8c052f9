"""Reviews of evictions and of budgets, posted to an operator as an API server posts them."""

import asyncio
import json
import ssl
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Final

import aiohttp
import msgspec

from tests.system.hooked import fetch_secret, trusting
from tests.world.api import Json
from tests.world.budgets import POLICY
from tests.world.operatorproc import OperatorProcess
from tests.world.world import World

EVICTION_PATH: Final = "/admission/pod-eviction"
BUDGET_PATH: Final = "/admission/zpdb-validation"
CALL_LIMIT: Final = timedelta(seconds=15)
REQUESTED: Final = timedelta(seconds=10)


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict as it came over the wire."""

    is_allowed: bool
    code: int = 0
    message: str = ""
    warnings: tuple[str, ...] = ()


def eviction_review(namespace: str, pod: str, /, **request: object) -> Json:
    """Return the review of an eviction; fields of its request by keyword."""
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": str(uuid.uuid4()),
            "kind": {"group": "policy", "version": "v1", "kind": "Eviction"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "subResource": "eviction",
            "operation": "CREATE",
            "namespace": namespace,
            "name": pod,
            "userInfo": {"username": "drainer"},
            "object": {
                "apiVersion": POLICY,
                "kind": "Eviction",
                "metadata": {"name": pod, "namespace": namespace},
            },
            "oldObject": None,
            "dryRun": False,
            **request,
        },
    }


class Caller:
    """Posts reviews to one operator over connections that stay open."""

    def __init__(
        self, operator: OperatorProcess, session: aiohttp.ClientSession, limit: timedelta
    ) -> None:
        self.operator = operator
        self._timeout = f"{limit.total_seconds():g}s"
        self._session = session

    async def post(self, path: str, review: object) -> tuple[int, bytes]:
        """Return status and body. Raises aiohttp.ClientError and TimeoutError."""
        async with self._session.post(
            f"https://localhost:{self.operator.tls_port}{path}?timeout={self._timeout}",
            data=json.dumps(review),
            headers={"Content-Type": "application/json"},
        ) as answer:
            return answer.status, await answer.read()

    async def send_request(self, path: str, review: Json) -> Answered:
        """Return the verdict on a review."""
        status, body = await self.post(path, review)
        assert status == 200, body
        response = json.loads(body)["response"]
        assert response["uid"] == review["request"]["uid"]
        reply = response.get("status") or {}
        return Answered(
            is_allowed=response["allowed"],
            code=reply.get("code", 0),
            message=reply.get("message", ""),
            warnings=tuple(response.get("warnings") or ()),
        )

    async def evict(self, namespace: str, pod: str, after: float = 0) -> Answered:
        """Review an eviction `after` so many seconds."""
        await asyncio.sleep(after)
        return await self.send_request(EVICTION_PATH, eviction_review(namespace, pod))


@asynccontextmanager
async def calling(
    world: World, operator: OperatorProcess, limit: timedelta = REQUESTED
) -> AsyncIterator[Caller]:
    """Yield a caller that trusts the operator's own CA, and requests answers within `limit`."""
    context: ssl.SSLContext = trusting((await fetch_secret(world))["ca"])
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=context),
        timeout=aiohttp.ClientTimeout(total=CALL_LIMIT.total_seconds()),
    ) as session:
        yield Caller(operator, session, limit)
