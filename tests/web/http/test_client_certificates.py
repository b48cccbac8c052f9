"""Which clients may call where client certificates are requested: SEC-03, over real TLS.

The context is that of the operator's own serving, with the client CA of an API server.
"""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest
from msgspec.structs import replace

from rollout_operator.pki.certificates import issue_ca, issue_leaf
from rollout_operator.pki.material import Pair
from rollout_operator.pki.serving import server_context
from rollout_operator.planning.certificate import LEAF_NAME
from rollout_operator.web.webhooks import ServerOptions
from tests.pki.certificates import HOST, WANTED, client_context
from tests.web.served import ALLOWED, ServedWebhooks, body_of, post, serving

NOW: Final = datetime.now(UTC)
HOUR: Final = timedelta(hours=1)


class Guarded:
    """A server that wants certificates of a CA, and its clients, all of one name."""

    def __init__(self, served: ServedWebhooks) -> None:
        self.served, self.own, self.clients = served, issue_ca(WANTED, NOW), issue_ca(WANTED, NOW)
        self.pair = issue_leaf(self.own, WANTED, NOW)
        self.good = issue_leaf(self.clients, WANTED, NOW)
        served.server_context = server_context(self.pair, self.clients.cert)

    async def send_request(self, shown: Pair | None) -> bytes:
        """Send a request together with the end of the handshake; return what comes back."""
        inward, outward = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = client_context(self.own.cert, shown)
        tls = context.wrap_bio(inward, outward, server_hostname=HOST)
        line = await self.served.dial()
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                line.writer.write(outward.read())
                inward.write(await line.reader.read(1 << 16))
        tls.write(post(body_of()))
        line.writer.write(outward.read())
        answer = b""
        while ALLOWED not in answer:
            try:
                part = await line.reader.read(1 << 16)
            except ConnectionError:
                break
            if not part:
                break
            inward.write(part)
            try:
                answer += tls.read(1 << 16)
            except ssl.SSLError:  # no whole record yet, or a refusal
                continue
        return answer


@asynccontextmanager
async def guarded(client_name: str) -> AsyncIterator[Guarded]:
    async with serving(options=ServerOptions(client_name=client_name)) as served:
        yield Guarded(served)


@pytest.mark.parametrize(
    ("wanted", "is_answered"),
    [
        pytest.param(LEAF_NAME, True, id="the right one"),
        pytest.param("", True, id="any name"),
        pytest.param(WANTED.organisation, False, id="only the organisation has the name"),
        pytest.param("kubelet", False, id="another name"),
        pytest.param(LEAF_NAME[:-1], False, id="a longer name"),
        pytest.param(f"{LEAF_NAME}x", False, id="a shorter name"),
        pytest.param(LEAF_NAME.upper(), False, id="not the name in capitals"),
    ],
)
async def test_sec03_which_names_are_answered(
    wanted: str, is_answered: bool, lines: list[str]
) -> None:
    """A wrong name must be found in the log."""
    async with guarded(wanted) as server:
        answer = await server.send_request(server.good)
        assert answer.endswith(ALLOWED) if is_answered else answer == b""
        assert len(server.served.hook.reviewed) == is_answered
    reported = [line for line in lines if "client of another name" in line]
    assert ["level=info" in line for line in reported] == [True] * (not is_answered)


@pytest.mark.parametrize("wanted", [LEAF_NAME, ""], ids=["by name", "of any name"])
async def test_sec03_others_are_cut_before_anything_is_read_of_their_request(wanted: str) -> None:
    """SEC-03: which has come with the handshake."""
    async with guarded(wanted) as server:
        brief = replace(WANTED, expiration=HOUR)
        shown = [
            None,
            issue_leaf(issue_ca(WANTED, NOW), WANTED, NOW),
            server.pair,
            issue_leaf(server.clients, brief, NOW - 2 * HOUR),
        ]
        assert {await server.send_request(one) for one in shown} == {b""}
        assert server.served.hook.reviewed == []
        assert server.served.series("request_duration_seconds_count") == []
        assert (await server.send_request(server.good)).endswith(ALLOWED), "the server goes on"
