"""Login programs (D-76): what they are told, what is taken of them, and how they fail."""

import json
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rollout_operator.kube.kubeconfig import LoginProgram, ProgramCredentials, run_login
from rollout_operator.model.names import ConfigError

V1 = "client.authentication.k8s.io/v1"


def make(tmp_path: Path, script: str, **fields: Any) -> LoginProgram:
    file = tmp_path / "login"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(stat.S_IRWXU)
    return LoginProgram(where="w.exec", command=str(file), api_version=V1, **fields)


def printing(status: object, **fields: str) -> str:
    content = {"apiVersion": V1, "kind": "ExecCredential", "status": status, **fields}
    return f"cat <<'END'\n{json.dumps(content)}\nEND"


async def test_it_gets_arguments_variables_and_the_cluster_and_no_input(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its standard error is read by a person; without a terminal it has no input."""
    told: Mapping[str, Any] = {"server": "https://one", "config": {"audience": "x"}}
    script = f"""
        echo "$KUBERNETES_EXEC_INFO" > {tmp_path}/info
        echo "$1 $A $HOME" > {tmp_path}/got
        cat > {tmp_path}/input
        echo 'open a browser' >&2
        {printing({"token": "made", "expirationTimestamp": "2026-01-01T00:00:00Z"})}"""
    program = make(
        tmp_path, script, arguments=("one",), environ={"A": "b", "HOME": "h"}, cluster=told
    )

    assert await run_login(program) == ProgramCredentials(token="made")

    assert json.loads((tmp_path / "info").read_text()) == {
        "apiVersion": V1,
        "kind": "ExecCredential",
        "spec": {"interactive": False, "cluster": told},
    }
    assert (tmp_path / "got").read_text() == "one b h\n"
    assert (tmp_path / "input").read_text() == ""
    assert capfd.readouterr().err == "open a browser\n"


async def test_it_may_print_yaml_and_both_kinds_of_credentials(tmp_path: Path) -> None:
    text = f"apiVersion: {V1}\nkind: ExecCredential\nstatus:\n  token: t\n"
    text += "  clientCertificateData: c\n  clientKeyData: k\n"
    made = await run_login(make(tmp_path, f"cat <<'END'\n{text}END"))
    assert (made.token, made.client_certificate_data, made.client_key_data) == ("t", "c", "k")


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("exit 3", ".command: {it} failed with exit code 3"),
        ("kill -9 $$", ".command: {it} was ended by signal 9"),
        ("echo '{{secret'", ".command: what {it} printed is not JSON"),
        ("", ".command: what {it} printed: Expected `object`, got `null`"),
        (
            printing({"token": "t"}, apiVersion="secret/v0"),
            '.command: what {it} printed is "ExecCredential of secret/v0", not ExecCredential of '
            + V1,
        ),
        (printing(None), ".command: what {it} printed has neither a token nor a certificate"),
        (
            printing({"token": 7}),
            ".command: what {it} printed: Expected `str`, got `int` - at `$.status.token`",
        ),
        (
            printing({"token": "a b"}),
            ".command: what {it} printed: status.token: it holds no token: 3 bytes",
        ),
        (
            printing({"clientKeyData": "k"}),
            ".command: what {it} printed has a certificate or a key, not both",
        ),
    ],
)
async def test_how_it_fails(tmp_path: Path, script: str, problem: str) -> None:
    program = make(tmp_path, script)
    with pytest.raises(ConfigError) as caught:
        await run_login(program)
    assert str(caught.value) == "w.exec" + problem.format(it=f'"{program.command}"')


async def test_a_program_that_needs_a_person_is_not_run_without_a_terminal(tmp_path: Path) -> None:
    program = make(tmp_path, f"touch {tmp_path}/ran", interactive_mode="Always")
    with pytest.raises(ConfigError, match=r"interactiveMode: it is Always, and standard input"):
        await run_login(program)
    assert not (tmp_path / "ran").exists()


async def test_what_cannot_be_run_is_named(tmp_path: Path) -> None:
    program = msgspec.structs.replace(make(tmp_path, ""), command=f"{tmp_path}/gone")
    with pytest.raises(ConfigError, match=r"^w\.exec\.command: .*: No such file or directory$"):
        await run_login(program)
