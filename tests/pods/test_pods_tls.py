"""Pods called over HTTPS: whose certificate is accepted, and what a refusal says (D-27)."""

import asyncio
import ssl
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from rollout_operator.aio.clock import LoopClock
from rollout_operator.model.objects import Endpoint
from rollout_operator.pki.certificates import issue_ca, issue_leaf
from rollout_operator.pki.serving import server_context
from rollout_operator.planning.certificate import Wanted
from rollout_operator.pods import HttpSender, PodClient
from rollout_operator.telemetry.metrics import Metrics
from tests.pods.pod_servers import PodServers, status

NAME = "zone-a-4.zone-a.prod.svc.cluster.local"
GOOD = b'{"timestamp": 1700000000}'
DAY = timedelta(days=1)


class Authority:
    """A CA, what it signs, and who trusts it."""

    def __init__(self, *names: str, age: timedelta = timedelta(0)) -> None:
        wanted = Wanted(names=names, organisation="", expiration=30 * DAY, ca_life=90 * DAY)
        born = datetime.now(UTC) - age
        ca = issue_ca(wanted, born)
        self.serving = server_context(issue_leaf(ca, wanted, born))
        self.requested: list[str | None] = []
        self.serving.sni_callback = lambda _, name, __: self.requested.append(name)
        self.trust = ssl.create_default_context(cadata=ca.cert.decode())


async def send_request(endpoint: Endpoint, trust: ssl.SSLContext | None) -> str:
    """Return what a pod has said, or the problem."""
    client = PodClient(
        HttpSender("prod", trust=trust),
        timeout=timedelta(seconds=20),
        metrics=Metrics(),
        clock=LoopClock(),
    )
    (word,) = (await client.fetch_answers([endpoint])).values()
    await client.close()
    return word.problem or f"{word.since}"


def secure(pods: PodServers) -> Endpoint:
    return replace(pods.endpoint(4), scheme="https")


@pytest.mark.parametrize("names", [[NAME], ["*.zone-a.prod.svc.cluster.local"], ["other", NAME]])
async def test_a_pod_is_known_by_its_name(names: Sequence[str]) -> None:
    """The connection goes to the address of the pod, the certificate is judged by its DNS name."""
    authority = Authority(*names)
    async with PodServers(status(200, body=GOOD), tls=authority.serving) as pods:
        assert await send_request(secure(pods), authority.trust) == "2023-11-14 22:13:20+00:00"
    assert authority.requested == [NAME]
    assert f"Host: {NAME}.:{pods.port}\r\n".encode() in pods.seen[0].head


@pytest.mark.parametrize(
    ("authority", "is_known", "problem"),
    [
        pytest.param(
            Authority("zone-a-5.zone-a.prod.svc.cluster.local"),
            True,
            f"Hostname mismatch, certificate is not valid for '{NAME}'.",
            id="another pod",
        ),
        pytest.param(
            Authority(NAME), False, "self-signed certificate in certificate chain", id="system CAs"
        ),
        pytest.param(Authority(NAME, age=40 * DAY), True, "certificate has expired", id="too old"),
    ],
)
async def test_no_other_certificate_is_accepted(
    authority: Authority, is_known: bool, problem: str
) -> None:
    async with PodServers(status(200, body=GOOD), tls=authority.serving) as pods:
        reply = await send_request(secure(pods), authority.trust if is_known else None)
    assert reply.startswith("POST zone-a-4: certificate not accepted: ")
    # The words are OpenSSL's, and differ a little between its releases.
    assert problem.removesuffix(".") in reply or not is_known
    assert pods.seen == []


async def test_a_pod_without_tls_is_sent_nothing() -> None:
    """Servers answer a greeting that they do not understand with words, as here."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(5)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
        await writer.drain()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with PodServers(status(200)) as pods, asyncio.timeout(10):
        port = server.sockets[0].getsockname()[1]
        reply = await send_request(replace(secure(pods), ip="127.0.0.1", port=port), None)
    server.close()
    await server.wait_closed()
    assert reply == "POST zone-a-4: no TLS connection"


async def test_a_pod_with_tls_is_not_called_without() -> None:
    authority = Authority(NAME)
    async with PodServers(status(200, body=GOOD), tls=authority.serving) as pods:
        reply = await send_request(pods.endpoint(4), authority.trust)
    assert "POST zone-a-4: " in reply
    assert pods.seen == []
