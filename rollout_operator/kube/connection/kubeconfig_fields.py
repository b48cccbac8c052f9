"""Which field of a kubeconfig is wrong: certificates, keys, and the program that gives a token.

Checked before the library uses them, because its own errors name neither file nor field. Values
are not shown: some of them are secret.
"""

import base64
import binascii
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from rollout_operator.model.errors import ConfigError
from rollout_operator.model.units import quote

_PEM: Final = b"-----BEGIN "


def check_server(where: str, server: str) -> None:
    """Raise ConfigError for a server that is no URL; `where` is the file and the path in it."""
    if not server.lower().startswith(("https://", "http://")):
        raise ConfigError(f"{where}: {quote(server)} is no URL: it begins with https://")


def check_cluster(where: str, cluster: Mapping[str, object], base: Path) -> None:
    """Raise ConfigError for a CA that is not there; `where` is the file and the path in it."""
    _check_pem(where, cluster, "certificate-authority", base)


def check_user(where: str, user: Mapping[str, object], base: Path) -> None:
    """Raise ConfigError for a certificate, key or program that is not there."""
    _check_pem(where, user, "client-certificate", base)
    _check_pem(where, user, "client-key", base)
    if user.get("exec") is not None:
        _check_program(f"{where}.exec", user["exec"])


def _check_pem(where: str, fields: Mapping[str, object], field: str, base: Path) -> None:
    """Check what the library takes: the data, or else the file."""
    data, path = fields.get(f"{field}-data"), fields.get(field)
    if data:
        _check_data(f"{where}.{field}-data", data)
    elif isinstance(path, str) and path and not (base / path).is_file():
        raise ConfigError(f"{where}.{field}: there is no file {base / path}")


def _check_data(where: str, data: object) -> None:
    try:
        text = base64.b64decode("".join(str(data).split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise ConfigError(f"{where} is not base64") from error
    if _PEM not in text:
        raise ConfigError(f"{where} is not PEM in base64: no line begins with {_PEM.decode()}")


def _check_program(where: str, program: object) -> None:
    if not isinstance(program, dict):
        raise ConfigError(f"{where} is not an object")
    command = program.get("command")
    if not isinstance(command, str) or not command:
        raise ConfigError(f"{where}.command is not set")
    if shutil.which(command, path=_find_path(program.get("env"))) is None:
        hint = program.get("installHint")
        advice = f": {' '.join(hint.split())}" if isinstance(hint, str) else ""
        raise ConfigError(f"{where}.command: there is no program {quote(command)}{advice}")


def _find_path(env: object) -> str | None:
    """Return where the program is searched for, if the kubeconfig says so."""
    for entry in env if isinstance(env, list) else ():
        if isinstance(entry, dict) and entry.get("name") == "PATH":
            return str(entry.get("value"))
    return None
