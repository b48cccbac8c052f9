"""Who is answered on the port for other replicas, over real TLS: DEP-92, D-71."""

import asyncio
import ssl
from datetime import UTC, datetime
from pathlib import Path

import pytest

from rollout_operator.pki.certificates import KeyMaterial, Pair, issue_leaf
from rollout_operator.planning.certificate import Wanted
from tests.pki.certificates import HOST, WANTED, client_context
from tests.web.peers_world import PATH, Leader, fresh, leading, serving_of
from tests.web.webhook_world import ALLOWED, Line, body_of, post

CLUSTER = "X-Cluster: prod"
OURS = fresh()


def of(material: KeyMaterial, *names: str) -> Pair:
    """Return a certificate of that CA for other names."""
    wanted = Wanted(
        names=names, organisation="", expiration=WANTED.expiration, ca_life=WANTED.ca_life
    )
    return issue_leaf(Pair(cert=material.ca, key=material.ca_key), wanted, datetime.now(UTC))


@pytest.mark.parametrize(
    ("shown", "is_answered"),
    [
        pytest.param(OURS.served, True, id="that of the Secret"),
        pytest.param(None, False, id="none"),
        pytest.param(fresh().served, False, id="one for our name, of another CA"),
        pytest.param(of(OURS, "other.prod.svc"), False, id="one of our CA for another name"),
    ],
)
async def test_dep92_only_replicas_are_answered(
    tmp_path: Path, shown: Pair | None, is_answered: bool
) -> None:
    """DEP-92: others are cut before anything is read of what they send."""
    async with leading(serving_of(OURS)) as leader:
        client = client_context(OURS.ca)
        if shown is not None:
            both = tmp_path / "client.pem"
            both.write_bytes(shown.cert + shown.key)
            client.load_cert_chain(both)
        came = await send_request(
            leader, client, post(body_of(), CLUSTER, "Connection: close", path=PATH)
        )
        assert came.endswith(ALLOWED) == is_answered
        assert len(leader.hook.reviewed) == is_answered


@pytest.mark.parametrize("path", ["/admission/no-downscale", "/admission/zpdb-validation", "/"])
async def test_dep92_nothing_else_is_served_there(tmp_path: Path, path: str) -> None:
    both = tmp_path / "client.pem"
    both.write_bytes(OURS.cert + OURS.key)
    client = client_context(OURS.ca)
    client.load_cert_chain(both)
    async with leading(serving_of(OURS)) as leader:
        came = await send_request(
            leader, client, post(body_of(), CLUSTER, "Connection: close", path=path)
        )
        assert came.startswith(b"HTTP/1.1 404 ")
        assert leader.hook.reviewed == []


async def send_request(leader: Leader, client: ssl.SSLContext, request: bytes) -> bytes:
    """Return all that comes back."""
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", leader.port, ssl=client, server_hostname=HOST
    )
    line = Line(reader, writer)
    try:
        writer.write(request)
        return await line.rest()
    finally:
        await line.close()
