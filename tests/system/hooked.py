"""An operator with its webhooks in a world, and what it keeps in its Secret and says over TLS.

`guarded` is for downscales that are prepared; here no pod needs to answer.
"""

import asyncio
import base64
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import yaml

from rollout_operator.lab.zones import ZoneSpec
from tests.rendered import MANIFESTS
from tests.system.guarded import TLS_FLAGS
from tests.world.api import SECRETS, Json
from tests.world.hooks import Hooks, Registration
from tests.world.manifests import SECRET, apply_manifests
from tests.world.operatorproc import OperatorProcess
from tests.world.scene import World

HOST: Final = "localhost"
PROBE: Final = ZoneSpec(name="probe", group=None, replicas=1)
WAIT_LIMIT: Final = timedelta(seconds=60)
POLL: Final = timedelta(milliseconds=50)
HANDSHAKE_LIMIT: Final = timedelta(seconds=10)
# Longer than any limit of the webhook server for who asks badly.
EXCHANGE_LIMIT: Final = timedelta(seconds=30)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooked:
    """An operator, and the configurations by which the API server calls it."""

    operator: OperatorProcess
    hooks: Hooks


async def hook_up(
    world: World,
    *flags: str,
    is_through_proxy: bool = False,
    registration: Mapping[str, object] | None = None,
) -> Hooked:
    """Start an operator and return once the API server calls its webhooks.

    The rights must be granted. For proof there is one more StatefulSet, `PROBE`.
    """
    await world.create(PROBE)
    operator = await world.operator(*TLS_FLAGS, *flags, is_through_proxy=is_through_proxy)
    wanted = Registration(port=operator.tls_port, **(registration or {}))  # type: ignore[arg-type]
    hooks = await world.register(wanted)
    await hooks.wait_injected()
    await hooks.wait_called(PROBE.name)
    return Hooked(operator=operator, hooks=hooks)


async def grant_deployments(world: World) -> None:
    """Grant what the component `no-downscale-deployments` does."""
    folder = MANIFESTS / "components" / "no-downscale-deployments"
    role, binding = (
        yaml.safe_load((folder / name).read_text()) for name in ("role.yaml", "rolebinding.yaml")
    )
    binding["subjects"][0]["namespace"] = world.namespace
    await apply_manifests(world.api, world.namespace, [role, binding])


async def fetch_secret(world: World) -> dict[str, bytes]:
    """Return the data of the operator's Secret. Raises ApiError."""
    found = await world.api.get(SECRETS, world.namespace, SECRET)
    return {key: base64.b64decode(value) for key, value in (found.get("data") or {}).items()}


def secret_body(
    data: Mapping[str, bytes], *, labels: Mapping[str, str] | None = None, **fields: object
) -> Json:
    """Return the operator's Secret with this data; `fields` are others of the object."""
    encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
    metadata = {"name": SECRET, "labels": dict(labels or {})}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": encoded, **fields}


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


async def wait_true(
    what: str, holds: Callable[[], Awaitable[bool]], limit: timedelta = WAIT_LIMIT
) -> None:
    """Ask until something holds. Raises TimeoutError that names it."""
    try:
        async with asyncio.timeout(limit.total_seconds()):
            while not await holds():  # noqa: ASYNC110 (an answer, no event)
                await asyncio.sleep(POLL.total_seconds())
    except TimeoutError as late:
        raise TimeoutError(f"after {limit}: not {what}") from late


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
