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
from tests.stories import check_tables
from tests.web.served import serving_admin

# What only releases or health checks need, by the beginnings of names.
OF_SLICES: Final = (
    "rollout_operator.gates",
    "rollout_operator.outbound",
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
print([one for one in sys.modules if one.startswith({OF_SLICES!r})])
"""
RULES: Final = {
    OURS: "ours",
    KUBERIK: "kuberik's",
    ReleaseCompat(compares_versions=False): "ours but the order",
}
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


def show_choice(words: str) -> str:
    config = read_config(["-kubernetes.namespace=prod", *words.split()])
    rules = get_compat(config.release_compat, config.release_order)
    shown = [
        f"passed on at {config.forwarding_port}" if config.forwarding_port else "passed on nowhere",
        "releases" * config.drives_releases,
        RULES.get(rules, str(rules)),
    ]
    return ", ".join(filter(None, shown))


test_what_flags_choose = check_tables(__file__, flags=show_choice)


async def test_maz_63_the_default_may_be_taken_and_what_is_requested_may_not(
    monkeypatch: pytest.MonkeyPatch, lines: list[str]
) -> None:
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(environment, "DEFAULT_PORT", port)
        given = {"WATCH_NAMESPACE": "prod"}
        async with serving_admin() as admin:
            await listen_also(admin.server, read_config((), read_environment(given)))
            (warning,) = lines
            assert "level=warn" in warning
            assert f"METRICS_PORT: port {port} is in use" in warning
            assert await admin.get("/livez") == (200, "alive\n")
            chosen = read_environment({**given, "METRICS_PORT": f"{port}"})
            with pytest.raises(ConfigError, match=f"^METRICS_PORT: port {port} is in use$"):
                await listen_also(admin.server, read_config((), chosen))


def test_nothing_of_a_slice_is_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


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
