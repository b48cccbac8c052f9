"""What `WATCH_NAMESPACE`, `LOG_LEVEL`, `OPERATOR_NAME` and `METRICS_PORT` mean (MAZ-60..64)."""

from collections.abc import Sequence
from typing import Final

import pytest

from rollout_operator.config.checks import read_config
from rollout_operator.config.flags import Config, read_environment
from rollout_operator.model.names import ConfigError

OWN: Final = {"POD_NAMESPACE": "ops"}
TLS: Final = ["-server-tls.enabled=true", "-server-tls.port=8080"]


def configure(words: Sequence[str] = (), /, mounted: str = "", **variables: str) -> Config:
    return read_config(words, read_environment(OWN | variables, mounted))


def refuse(**variables: str) -> str:
    with pytest.raises(ConfigError) as caught:
        configure(**variables)
    assert caught.value.exit_code == 1
    return str(caught.value)


def test_without_any_variable_the_flags_alone_count() -> None:
    """MAZ-60, MAZ-63: nothing changes for those who know nothing of them."""
    words = ["-kubernetes.namespace=prod"]

    config = configure(words)

    assert (config.namespace, config.namespaces) == ("prod", ("prod",))
    assert (config.log_level, config.lease, config.extra_port) == ("debug", "rollout-operator", 0)
    assert not config.watches_several
    with pytest.raises(ConfigError, match="namespace has not been specified"):
        configure()


@pytest.mark.parametrize(
    ("text", "names"),
    [
        pytest.param("a, b,,a", ("a", "b"), id="MT-66"),
        pytest.param(" a ", ("a",), id="MT-66 one"),
        pytest.param("", (), id="MAZ-60 all"),
        pytest.param(" , ", (), id="MAZ-60 blanks"),
    ],
)
def test_namespaces_are_read(text: str, names: tuple[str, ...]) -> None:
    config = configure(WATCH_NAMESPACE=text)

    assert config.namespaces == names
    assert config.watches_all == (not names)
    assert config.watches_several == (len(names) != 1)


@pytest.mark.parametrize("name", ["Bad_Name", "a.b", "-a", "a" * 64, "a b"])
def test_a_bad_namespace_ends_the_start(name: str) -> None:
    """MT-67."""
    assert refuse(WATCH_NAMESPACE=f"a,{name}") == (
        f'WATCH_NAMESPACE: "{name}" is not a name of a namespace'
    )


def test_the_flag_beats_the_variable() -> None:
    """MAZ-60, MAZ-64."""
    words = ["-kubernetes.namespace=prod", "-log.level=error", "-leader-election.lease-name=x"]

    config = configure(words, WATCH_NAMESPACE="a,b", LOG_LEVEL="warn", OPERATOR_NAME="y")

    assert (config.namespace, config.namespaces) == ("prod", ("prod",))
    assert (config.log_level, config.lease, config.operator_name) == ("error", "x", "y")
    assert not config.watches_several


@pytest.mark.parametrize(
    ("pod", "mounted", "own"),
    [("ops", "mounted", "ops"), ("", "mounted\n", "mounted"), ("", "", "a")],
)
def test_lease_and_secret_live_where_the_operator_does(pod: str, mounted: str, own: str) -> None:
    """MAZ-80: in its own namespace, else in the first that is watched."""
    assert configure(mounted=mounted, POD_NAMESPACE=pod, WATCH_NAMESPACE="a,b").namespace == own


def test_the_place_of_the_lease_must_be_known() -> None:
    """MAZ-60: with all namespaces none of them is the first."""
    assert "POD_NAMESPACE does not say" in refuse(WATCH_NAMESPACE="", POD_NAMESPACE="")


@pytest.mark.parametrize(
    ("text", "level", "warnings"),
    [
        pytest.param("WARN", "warn", 0, id="MT-69"),
        pytest.param("loud", "info", 1, id="MT-69 unknown"),
        pytest.param("", "info", 0, id="MAZ-61"),
    ],
)
def test_the_level_is_read(text: str, level: str, warnings: int) -> None:
    config = configure(WATCH_NAMESPACE="a", LOG_LEVEL=text)

    assert config.log_level == level
    assert len(config.environment.warnings) == warnings
    assert all("LOG_LEVEL" in line and text in line for line in config.environment.warnings)


def test_the_name_is_that_of_events_and_lease() -> None:
    """MT-71, MAZ-62."""
    config = configure(WATCH_NAMESPACE="a", OPERATOR_NAME="x")

    assert (config.operator_name, config.lease) == ("x", "x")
    assert refuse(OPERATOR_NAME="My Operator").startswith('OPERATOR_NAME: "My Operator" is not')


@pytest.mark.parametrize(
    ("text", "flags", "port", "is_chosen"),
    [
        pytest.param("8080", [], 8080, True, id="MT-70 own port"),
        pytest.param("8001", [], 0, True, id="MT-70 same port"),
        pytest.param("9000", ["-server.port=9000"], 0, True, id="MAZ-63 same as flag"),
        pytest.param("", [], 8080, False, id="MAZ-63 default"),
        pytest.param("", TLS, 0, False, id="MAZ-63 default, and the webhooks have it"),
        pytest.param("", TLS[1:], 8080, False, id="MAZ-63 default, and there are no webhooks"),
    ],
)
def test_the_port_is_read(text: str, flags: list[str], port: int, is_chosen: bool) -> None:
    config = configure(flags, WATCH_NAMESPACE="a", METRICS_PORT=text)

    assert (config.extra_port, config.environment.is_port_chosen) == (port, is_chosen)


@pytest.mark.parametrize("text", ["80", "0", "-1", "65536", "8080.0", "http", "٨٠٨٠"])
def test_a_bad_port_ends_the_start(text: str) -> None:
    """MT-70."""
    assert refuse(METRICS_PORT=text) == f'METRICS_PORT: "{text}" is not a port from 1024 to 65535'


@pytest.mark.parametrize("port", ["8080", "8444"])
def test_a_port_of_the_webhooks_is_no_second_one(port: str) -> None:
    """MAZ-63: the webhooks would find it in use, and say so of their own flag."""
    with pytest.raises(ConfigError, match=f"METRICS_PORT: port {port} is one of the webhooks"):
        configure(TLS, METRICS_PORT=port)
