"""An operator with its webhooks in a world: its Secret, and reviews as an API server posts them."""

import asyncio
import base64
import json
import ssl
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Final

import aiohttp
import msgspec
from rollout_lab.zones import ZoneSpec

from tests.model.review_trees import review_tree
from tests.world.api import SECRETS, Json
from tests.world.budgets import POLICY
from tests.world.hooks import Hooks, Registration
from tests.world.manifests import SECRET
from tests.world.operatorproc import TLS_FLAG, OperatorProcess
from tests.world.world import World

HOST: Final = "localhost"
# The certificate must be for the name by which the API server calls in tests.
TLS_FLAGS: Final = (TLS_FLAG, f"-server-tls.self-signed-cert.dns-name={HOST}")
PROBE: Final = ZoneSpec(name="probe", group=None, replicas=1)
HANDSHAKE_LIMIT: Final = timedelta(seconds=60)


class Hooked(msgspec.Struct, frozen=True, kw_only=True):
    """An operator, and the configurations by which the API server calls it."""

    operator: OperatorProcess
    hooks: Hooks


async def hook_up(
    world: World,
    *zones: ZoneSpec,
    flags: tuple[str, ...] = (),
    registration: Mapping[str, object] | None = None,
) -> Hooked:
    """Create zones, start an operator, and return once the API server calls its webhooks.

    The first of the zones serves for proof, without any it is `PROBE`.
    """
    await world.grant("webhooks")
    probe, *_ = await world.create(*(zones or (PROBE,)))
    operator = await world.operator(*TLS_FLAGS, *flags)
    wanted = Registration(port=operator.tls_port, **(registration or {}))  # type: ignore[arg-type]
    hooks = await world.register(wanted, probe)
    return Hooked(operator=operator, hooks=hooks)


async def fetch_secret(world: World) -> dict[str, bytes]:
    found = await world.get(SECRETS, SECRET)
    return {key: base64.b64decode(value) for key, value in (found.get("data") or {}).items()}


def secret_body(
    data: Mapping[str, bytes], *, labels: Mapping[str, str] | None = None, **fields: object
) -> Json:
    """Return the operator's Secret with this data; `fields` are others of the object."""
    encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
    metadata = {"name": SECRET, "labels": dict(labels or {})}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": encoded, **fields}


async def put_secret(world: World, body: Json) -> None:
    """Let this be the operator's Secret in place of the one that is there."""
    await world.delete(SECRETS, SECRET)
    await world.post(SECRETS, body)


def trusting(bundle: bytes) -> ssl.SSLContext:
    """Return a client that trusts a caBundle and nothing else. Raises ssl.SSLError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=bundle.decode("ascii"))
    return context


async def shake_hands(port: int, context: ssl.SSLContext, host: str = HOST) -> bytes:
    """Return the certificate that is served (DER). Raises ssl.SSLError and OSError."""
    async with asyncio.timeout(HANDSHAKE_LIMIT.total_seconds()):
        _, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=context, server_hostname=host
        )
    certificate = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.transport.abort()
    assert isinstance(certificate, bytes)
    return certificate


EVICTION_PATH: Final = "/admission/pod-eviction"
CALL_LIMIT: Final = timedelta(seconds=15)
REQUESTED: Final = timedelta(seconds=10)


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict as it came over the wire."""

    is_allowed: bool
    code: int = 0
    message: str = ""
    warnings: tuple[str, ...] = ()


def eviction_review(namespace: str, pod: str, /, **request: Any) -> Json:
    """Return the review of an eviction; fields of its request by keyword."""
    return review_tree(
        uid=str(uuid.uuid4()),
        kind={"group": "policy", "version": "v1", "kind": "Eviction"},
        resource={"group": "", "version": "v1", "resource": "pods"},
        subResource="eviction",
        operation="CREATE",
        namespace=namespace,
        name=pod,
        userInfo={"username": "drainer"},
        object={"apiVersion": POLICY, "kind": "Eviction", "metadata": {"name": pod}},
        oldObject=None,
        **request,
    )


class Caller:
    """Posts reviews to one operator over connections that stay open."""

    def __init__(self, operator: OperatorProcess, session: aiohttp.ClientSession) -> None:
        self.operator = operator
        self._session = session

    async def post(self, path: str, review: object) -> tuple[int, bytes]:
        """Return status and body. Raises aiohttp.ClientError and TimeoutError."""
        async with self._session.post(
            f"https://localhost:{self.operator.tls_port}{path}?timeout={REQUESTED.total_seconds():g}s",
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
async def calling(world: World, operator: OperatorProcess) -> AsyncIterator[Caller]:
    """Yield a caller that trusts the operator's own CA."""
    context: ssl.SSLContext = trusting((await fetch_secret(world))["ca"])
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=context),
        timeout=aiohttp.ClientTimeout(total=CALL_LIMIT.total_seconds()),
    ) as session:
        yield Caller(operator, session)
