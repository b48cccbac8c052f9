"""Run the login program of a kubeconfig: what it is told, and the credentials that it prints.

As client-go's `exec` plugin: the program writes to our standard error, where a person reads what
it wants of them, and reads our standard input where that is a terminal and the kubeconfig allows
it. Nothing that it prints is shown in an error.
"""

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from rollout_operator.kube.connection.credential import LOAD_LIMIT, render_bearer
from rollout_operator.model.errors import ConfigError
from rollout_operator.model.units import Confidential, quote

NEVER: Final = "Never"
IF_AVAILABLE: Final = "IfAvailable"
ALWAYS: Final = "Always"
MODES: Final = (NEVER, IF_AVAILABLE, ALWAYS)

_KIND: Final = "ExecCredential"


class LoginProgram(Confidential, msgspec.Struct, frozen=True, kw_only=True):
    """The program that a kubeconfig names in `users[].user.exec`."""

    where: str
    """The files and the path to it, the start of each message about it."""
    command: str
    """Where the program is."""
    arguments: tuple[str, ...] = ()
    environ: Mapping[str, str] = {}
    """Added to ours."""
    api_version: str
    interactive_mode: str = IF_AVAILABLE
    cluster: Mapping[str, Any] | None = None
    """What it is told of the cluster; None: nothing."""


class ProgramCredentials(Confidential, msgspec.Struct, frozen=True, rename="camel"):
    """What the program printed: a token, a certificate with its key, or both."""

    token: str = ""
    client_certificate_data: str = ""
    """PEM, as the next field."""
    client_key_data: str = ""


class _Printed(Confidential, msgspec.Struct):
    apiVersion: str = ""
    kind: str = ""
    status: ProgramCredentials | None = None


async def run_login(program: LoginProgram) -> ProgramCredentials:
    """Return the credentials; a person may be asked for something meanwhile. Raises ConfigError."""
    is_interactive = _is_interactive(program)
    # A person needs minutes where no time is too long; nobody answers a question without one.
    limit = None if is_interactive else LOAD_LIMIT.total_seconds()
    try:
        async with asyncio.timeout(limit):
            printed, code = await _run(program, is_interactive=is_interactive)
    except TimeoutError as error:
        raise ConfigError(f"{program.where}: no credential within {limit:.0f}s") from error
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or f"{error}"
        raise ConfigError(f"{program.where}.command: {quote(program.command)}: {why}") from error
    if code:
        how = f"failed with exit code {code}" if code > 0 else f"was ended by signal {-code}"
        raise ConfigError(f"{program.where}.command: {quote(program.command)} {how}")
    return _read(program, printed)


def _is_interactive(program: LoginProgram) -> bool:
    # Without standard input Python has none of its own.
    is_terminal = sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty()
    if program.interactive_mode == ALWAYS and not is_terminal:
        raise ConfigError(
            f"{program.where}.interactiveMode: it is {ALWAYS}, and standard input is not a terminal"
        )
    return is_terminal and program.interactive_mode != NEVER


async def _run(program: LoginProgram, *, is_interactive: bool) -> tuple[bytes, int]:
    """Return the standard output and the exit code."""
    spec: dict[str, Any] = {"interactive": is_interactive}
    if program.cluster is not None:
        spec["cluster"] = program.cluster
    info = {"kind": _KIND, "apiVersion": program.api_version, "spec": spec}
    process = await asyncio.create_subprocess_exec(
        program.command,
        *program.arguments,
        env={**os.environ, **program.environ, "KUBERNETES_EXEC_INFO": json.dumps(info)},
        stdin=None if is_interactive else asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        printed, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    return printed, process.returncode or 0


def _read(program: LoginProgram, printed: bytes) -> ProgramCredentials:
    import yaml  # a process in a cluster never needs it

    where = f"{program.where}.command: what {quote(program.command)} printed"
    try:
        try:
            content = json.loads(printed)
        except ValueError:
            content = yaml.safe_load(printed)  # which client-go takes as well
        answer = msgspec.convert(content, _Printed)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError):
        raise ConfigError(f"{where} is not JSON") from None
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}: {error}") from None
    if (answer.apiVersion, answer.kind) != (program.api_version, _KIND):
        shown = quote(f"{answer.kind} of {answer.apiVersion}")
        raise ConfigError(f"{where} is {shown}, not {_KIND} of {program.api_version}")
    given = answer.status or ProgramCredentials()
    if bool(given.client_certificate_data) != bool(given.client_key_data):
        raise ConfigError(f"{where} has a certificate or a key, not both")
    if not given.token and not given.client_key_data:
        raise ConfigError(f"{where} has neither a token nor a certificate")
    if given.token:
        render_bearer(f"{where}: status.token", given.token.encode())
    return given
