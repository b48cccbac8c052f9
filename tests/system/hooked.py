"""An operator with its webhooks in a world, and what it keeps in its Secret and says over TLS.

`guarded` is for downscales that are prepared, `budgeted` for evictions.
"""

import asyncio
import base64
import ssl
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

import msgspec
from rollout_lab.zones import ZoneSpec

from tests.world.api import SECRETS, Json
from tests.world.hooks import Hooks, Registration
from tests.world.manifests import SECRET
from tests.world.operatorproc import TLS_FLAG, OperatorProcess
from tests.world.world import World

HOST: Final = "localhost"
# The certificate must be for the name by which the API server calls in tests.
TLS_FLAGS: Final = (TLS_FLAG, f"-server-tls.self-signed-cert.dns-name={HOST}")
PROBE: Final = ZoneSpec(name="probe", group=None, replicas=1)
HANDSHAKE_LIMIT: Final = timedelta(seconds=10)
# Longer than any limit of the webhook server for bad clients.
EXCHANGE_LIMIT: Final = timedelta(seconds=30)


class Hooked(msgspec.Struct, frozen=True, kw_only=True):
    """An operator, and the configurations by which the API server calls it."""

    operator: OperatorProcess
    hooks: Hooks


async def hook_up(
    world: World,
    *zones: ZoneSpec,
    flags: tuple[str, ...] = (),
    is_through_proxy: bool = False,
    registration: Mapping[str, object] | None = None,
) -> Hooked:
    """Create zones, start an operator, and return once the API server calls its webhooks.

    The first of the zones serves for proof, without any it is `PROBE`.
    """
    await world.grant_webhooks()
    probe, *_ = await world.create(*(zones or (PROBE,)))
    operator = await world.operator(*TLS_FLAGS, *flags, is_through_proxy=is_through_proxy)
    wanted = Registration(port=operator.tls_port, **(registration or {}))  # type: ignore[arg-type]
    hooks = await world.register(wanted)
    await hooks.wait_injected()
    await hooks.wait_called(probe)
    return Hooked(operator=operator, hooks=hooks)


async def fetch_secret(world: World) -> dict[str, bytes]:
    """Return the data of the operator's Secret. Raises ApiError."""
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


async def send_bytes(port: int, context: ssl.SSLContext | None, *parts: bytes) -> bytes:
    """Send bytes over TLS, or in the clear without a context, and return all that came back.

    Ends when the other side closes. Raises TimeoutError where it does not.
    """
    async with asyncio.timeout(EXCHANGE_LIMIT.total_seconds()):
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=context, server_hostname=None if context is None else HOST
        )
        came = bytearray()
        try:
            for part in parts:
                writer.write(part)
                await writer.drain()
            while chunk := await reader.read(1 << 16):
                came += chunk
        except (ConnectionError, ssl.SSLError):
            pass  # cut off: what came before counts
        finally:
            writer.transport.abort()
        return bytes(came)
