"""Credentials that change while we run, and what login programs print (DEP-11, SEC-14, D-76)."""

import json
import stat
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from rollout_operator.kube.kubeconfig import (
    RELOAD_GAP,
    REREAD_EVERY,
    Credential,
    LoginProgram,
    ProgramCredentials,
    run_login,
    token_file,
)
from rollout_operator.model.names import ConfigError
from tests import stories
from tests.fakes_clock import FakeClock
from tests.stories import check_stories, check_tables

V1: Final = "client.authentication.k8s.io/v1"
SPANS: Final = {"reread": REREAD_EVERY, "gap": RELOAD_GAP}


class CredentialStage(stories.Steps):
    """A credential of a file, which holds `first`, or of a program."""

    def __init__(self, tmp_path: Path) -> None:
        self.file = tmp_path / "token"
        self.file.write_text("first\n")
        self.clock = FakeClock()
        self.runs = 0
        self.credential = token_file(self.file, self.clock)

    async def do_program(self, *prints: str) -> None:
        """Have a program, which prints a value or fails."""

        async def load() -> str:
            self.runs += 1
            if not prints:
                raise ConfigError("no")
            return f"Bearer {prints[0]}"

        self.credential = Credential("Bearer first", load, self.clock)

    async def do_file(self, *text: str) -> None:
        """Write the file, or remove it."""
        self.file.unlink(missing_ok=True)
        if text:
            self.file.write_bytes(text[0].encode("latin-1").decode("unicode_escape").encode())

    async def do_open(self) -> str:
        """Open the file anew."""
        try:
            return token_file(self.file, self.clock).value
        except ConfigError as error:
            return f"{error}".replace(f"{self.file}", "FILE")

    async def do_get(self) -> str:
        return await self.credential.show_current()

    async def do_refused(self, value: str, times: str = "1") -> str:
        """Have the API server refuse a value; show which is used then."""
        for _ in range(int(times)):
            await self.credential.replace_refused(f"Bearer {value}")
        return self.credential.value

    async def do_pass(self, span: str, less: str = "0") -> None:
        """Let a span of the product pass, or so many seconds less."""
        self.clock.jump(SPANS[span] - timedelta(seconds=float(less)))

    async def do_runs(self) -> str:
        return f"{self.runs} runs"

    async def do_wait(self, seconds: float) -> None:
        self.clock.jump(timedelta(seconds=seconds))


test_story = check_stories(__file__, credential=CredentialStage)


# Login programs: what they are told, what is taken of them, and how they fail


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


async def show_login(command: str, tmp_path: Path) -> str:
    """`status {...}` prints a status, `prints` a whole text, `alone` needs a person."""
    verb, _, rest = command.partition(" ")
    if verb == "status":
        status, _, version = rest.partition(" of ")
        rest = printing(json.loads(status), **({"apiVersion": version} if version else {}))
    elif verb == "prints":
        text = rest.replace("V1", V1).encode().decode("unicode_escape")
        rest = f"cat <<'END'\n{text}\nEND"
    program = make(tmp_path, f"touch {tmp_path}/ran\n{rest}")
    if verb == "alone":
        program = msgspec.structs.replace(program, interactive_mode="Always")
    if verb == "gone":
        program = msgspec.structs.replace(program, command=f"{tmp_path}/gone")
    try:
        made = await run_login(program)
        parts = (made.token, made.client_certificate_data, made.client_key_data)
        found = " ".join(filter(None, parts))
    except ConfigError as error:
        found = f"{error}".replace(f'"{program.command}"', "IT").removeprefix("w.exec.")
    assert (tmp_path / "ran").exists() is (verb not in ("alone", "gone"))
    return found


test_login = check_tables(__file__, login=show_login)
