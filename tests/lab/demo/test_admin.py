"""The pages of a demo that serves: those of the operator, for this machine alone."""

import asyncio

import pytest
from rollout_lab.demo.command import HOST, make_admin

from rollout_operator.aio.clock import LoopClock
from rollout_operator.controllers.context import Telemetry
from rollout_operator.web.admin import AdminServer


def admin(port: int = 0) -> AdminServer:
    return make_admin(port, "demo", Telemetry.begin(LoopClock()))


async def get(port: int, path: str, host: str = "127.0.0.1") -> str:
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(f"GET {path} HTTP/1.0\r\nHost: x\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer.decode()


async def test_the_pages_of_the_operator_are_served_to_no_other_client() -> None:
    """Every other address of this machine refuses: 127.0.0.2 stands for them."""
    server = admin()
    await server.start(HOST)
    try:
        assert "operator: starting" in await get(server.port, "/ready")
        assert "rollout_operator_" in await get(server.port, "/metrics")
        assert "0 rollout groups" in await get(server.port, "/")
        with pytest.raises(ConnectionRefusedError):
            await get(server.port, "/ready", host="127.0.0.2")
    finally:
        await server.stop()
