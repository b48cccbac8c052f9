"""What a process is and does by environment and flags, before it is put together."""

import socket
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from rollout_operator.config import flags as environment
from rollout_operator.config.checks import read_config
from rollout_operator.config.flags import read_environment
from rollout_operator.model.names import ConfigError
from rollout_operator.operator.main import choose_identity, listen_also
from rollout_operator.operator.releases import get_compat
from rollout_operator.operator.webhooks import make_serving
from rollout_operator.releases.model.releases import KUBERIK, OURS, ReleaseCompat
from tests.web.admin_world import serving

# What only releases need, by the beginnings of names.
OF_RELEASES: Final = (
    "rollout_operator.oci",
    "rollout_operator.operator.releases",
    "rollout_operator.releases.controller",
    "rollout_operator.releases.planning.releases",
    "rollout_operator.releases.model.releases",
    "rollout_operator.releases.model.decode",
)
PROGRAM: Final = f"""
import sys
import rollout_operator.operator.main
import rollout_operator.operator.fleet
import rollout_operator.cli.run
print([one for one in sys.modules if one.startswith({OF_RELEASES!r})])
"""
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


def test_nothing_of_releases_is_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("flags", "is_on"),
    [([], False), (["-releases.enabled"], True), (["-releases.enabled", "-mode=shadow"], False)],
)
def test_releases_are_switched_on_by_a_flag(flags: list[str], is_on: bool) -> None:
    """A shadow writes nothing."""
    assert read_config(["-kubernetes.namespace=prod", *flags]).drives_releases is is_on


@pytest.mark.parametrize(
    ("words", "compat"),
    [
        pytest.param([], OURS, id="ours"),
        pytest.param(["-releases.compat=kuberik"], KUBERIK, id="all of kuberik's"),
        pytest.param(
            ["-releases.order=announced"],
            ReleaseCompat(compares_versions=False),
            id="RELB-03 kuberik's order alone",
        ),
    ],
)
def test_which_rules_flags_choose(words: list[str], compat: ReleaseCompat) -> None:
    """RELB-03, RELB-17, RELB-24, RELB-31."""
    config = read_config(["-kubernetes.namespace=prod", *words])
    assert get_compat(config.release_compat, config.release_order) == compat


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "client ca: not a certificate in PEM"),
        (b"garbage", "client ca: not a certificate in PEM"),
        (b"\xff\xfe", "client ca: not a certificate in PEM"),
        (None, "No such file or directory"),
    ],
)
def test_sec03_a_file_without_client_cas_is_reported_by_flag_and_path(
    tmp_path: Path, content: bytes | None, why: str
) -> None:
    """Before any Secret is read: a slip here must not cost a good certificate."""
    path = tmp_path / "clients.pem"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError) as raised:
        make_serving(str(path))
    assert f"{raised.value}".startswith(f"-server-tls.client-ca-file: {path}: {why}")
    make_serving("")  # Without the flag any client is served.
