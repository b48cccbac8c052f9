"""The port of `METRICS_PORT` where something else has it."""

import socket

import pytest

from rollout_operator.config import environment
from rollout_operator.config.checks import read_config
from rollout_operator.config.environment import read_environment
from rollout_operator.model.errors import ConfigError
from rollout_operator.operator.main import listen_also
from tests.web.admin_world import serving


async def test_maz_63_the_default_may_be_taken_and_what_is_requested_may_not(
    monkeypatch: pytest.MonkeyPatch, lines: list[str]
) -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(environment, "DEFAULT_PORT", port)
        given = {"WATCH_NAMESPACE": "prod"}
        async with serving() as admin:
            await listen_also(admin.server, read_config((), read_environment(given)))
            (warning,) = lines
            assert "level=warn" in warning
            assert f"METRICS_PORT: port {port} is in use" in warning
            assert await admin.get("/livez") == (200, "alive\n")
            chosen = read_environment({**given, "METRICS_PORT": f"{port}"})
            with pytest.raises(ConfigError, match=f"^METRICS_PORT: port {port} is in use$"):
                await listen_also(admin.server, read_config((), chosen))
