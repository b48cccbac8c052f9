"""What a process is among the replicas, and its second port, by environment and flags."""

import socket

import pytest

from rollout_operator.config import flags as environment
from rollout_operator.config.checks import read_config
from rollout_operator.config.flags import read_environment
from rollout_operator.model.names import ConfigError
from rollout_operator.operator.main import choose_identity, listen_also
from tests.web.admin_world import serving

POD = {"POD_NAME": "rollout-operator-7c5-x2k", "POD_IP": "10.0.0.1"}


def test_dep92_a_pod_is_reached_at_its_address() -> None:
    """DEP-92, D-70."""
    found = choose_identity(POD, 8444)
    assert (found.name, found.is_pod, found.address) == (POD["POD_NAME"], True, "10.0.0.1:8444")


def test_d83_a_flag_names_the_pod_before_the_variable() -> None:
    found = choose_identity(POD, 0, "operator-0")
    assert (found.name, found.is_pod) == ("operator-0", True)


@pytest.mark.parametrize("ip", ["", "pod", "0.0.0.0/0"])
def test_dep92_without_an_address_it_is_not_reached(ip: str) -> None:
    assert choose_identity({**POD, "POD_IP": ip}, 8444).address == ""


def test_each_process_of_a_machine_has_a_life_of_its_own() -> None:
    """D-70."""
    one, other = choose_identity({}, 0), choose_identity({}, 0)
    assert one.name == other.name
    assert not one.is_pod
    assert one.holder != other.holder


@pytest.mark.parametrize(
    ("words", "port"),
    [
        pytest.param(("-server-tls.enabled",), 8444, id="by default"),
        pytest.param(("-server-tls.enabled", "-server-tls.peer-port=9"), 9, id="another port"),
        pytest.param(("-server-tls.enabled", "-server-tls.peer-port=0"), 0, id="turned off"),
        pytest.param((), 0, id="no webhooks"),
        pytest.param(
            ("-server-tls.enabled", "-leader-election.enabled=false"), 0, id="no election"
        ),
        pytest.param(
            (
                "-server-tls.enabled",
                "-server-tls.self-signed-cert.enabled=false",
                "-server-tls.cert-file=cert",
                "-server-tls.key-file=key",
                "-webhooks.update-ca-bundle=false",
            ),
            0,
            id="a certificate from files, whose CA is not ours",
        ),
    ],
)
def test_dep92_where_reviews_are_passed_on(words: tuple[str, ...], port: int) -> None:
    """DEP-92, DEP-91."""
    config = read_config(["-kubernetes.namespace=prod", *words])
    assert config.forwarding_port == port


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
