"""What is used of a kubeconfig: one context with its cluster and user, out of one or more files.

Several files are merged as kubectl does: the first file that names something wins, and paths start
at the file that they stand in. Certificates, keys and programs are checked before the library uses
them, because its own errors name neither file nor field; no value is shown, since some are secret.
"""

import base64
import binascii
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Final

import msgspec

from rollout_operator.model.errors import ConfigError
from rollout_operator.model.units import Confidential, quote

# The library ignores them: we would act with other rights than the file says.
_NOT_SUPPORTED: Final = ("as", "as-uid", "as-groups", "as-user-extra")
# Some people have hundreds of contexts.
_MOST_NAMES: Final = 5

_PEM: Final = b"-----BEGIN "


class KubeconfigChoice(msgspec.Struct, frozen=True, kw_only=True):
    """Which files make a kubeconfig, and what of it is used."""

    files: tuple[Path, ...]
    origin: str = "-kubernetes.config-file"
    """The flag that names them, or what they are: each message about them begins with it."""
    context: str = ""
    """Empty: the current one."""
    server: str = ""
    """URL in the place of the cluster's server; empty: its own."""

    @property
    def names(self) -> str:
        """Return the files as KUBECONFIG lists them."""
        return os.pathsep.join(map(str, self.files))


class Kubeconfig(Confidential, msgspec.Struct, frozen=True, kw_only=True):
    """One context of a kubeconfig, with its cluster and user and nothing else."""

    label: str
    """Origin and files, the start of each message about it."""
    content: Mapping[str, object]
    """In the file's own form."""
    base: Path
    """Where relative paths start."""
    token_file: Path | None
    namespace: str
    """That of the context; empty where it names none."""


class _Entry(Confidential, msgspec.Struct, frozen=True):
    value: Mapping[str, object]
    base: Path
    """Folder of the file that it stands in."""


class _Merged(Confidential, msgspec.Struct, frozen=True):
    label: str
    files: Sequence[tuple[Path, Mapping[str, object]]]

    def choose_context(self, wanted: str) -> str:
        """Return the wanted name, else that of the current context."""
        current = (content.get("current-context") for _, content in self.files)
        name = wanted or next((name for name in current if isinstance(name, str) and name), "")
        if not name:
            raise ConfigError(f"{self.label}: current-context is not set")
        return name

    def get_entry(self, plural: str, name: str) -> _Entry:
        """Return the entry of that name in the list `plural`."""
        field = plural.removesuffix("s")
        for file, entry in self._list(plural):
            value = entry.get(field)
            if entry.get("name") == name and isinstance(value, dict):
                return _Entry(value, file.resolve().parent)
        names = [str(entry.get("name", "")) for _, entry in self._list(plural)]
        hint = "" if name in names else _suggest(name, names)
        raise ConfigError(f"{self.label}: {plural}[name={name}].{field} is not there{hint}")

    def _list(self, plural: str) -> Iterator[tuple[Path, Mapping[str, object]]]:
        for file, content in self.files:
            entries = content.get(plural)
            for entry in entries if isinstance(entries, list) else ():
                if isinstance(entry, dict):
                    yield file, entry


def read_kubeconfig(choice: KubeconfigChoice) -> Kubeconfig:
    """Return the chosen context with what it names. Raises ConfigError naming file and field."""
    label = f"{choice.origin} {choice.names}"
    files = [(file, _parse(file, f"{choice.origin} {file}")) for file in choice.files]
    merged = _Merged(label, files)
    name = merged.choose_context(choice.context)
    context = merged.get_entry("contexts", name)
    cluster_name, user_name = _text(context.value, "cluster"), _text(context.value, "user")
    cluster = _read_cluster(merged, cluster_name, choice.server)
    user = merged.get_entry("users", user_name) if user_name else _Entry({}, context.base)
    for key in _NOT_SUPPORTED:
        if user.value.get(key):
            raise ConfigError(f"{label}: users[name={user_name}].user.{key} is not supported")
    check_user(f"{label}: users[name={user_name}].user", user.value, user.base)
    path = _text(user.value, "tokenFile")
    # The file wins over a token beside it, as everywhere else; the library has it the other way
    # round and would read the file only once.
    hidden = {"token", "tokenFile"} if path else set()
    shown = {key: value for key, value in user.value.items() if key not in hidden}
    return Kubeconfig(
        label=label,
        content=_minimal(cluster, shown),
        base=user.base,
        token_file=user.base / path if path else None,
        namespace=_text(context.value, "namespace"),
    )


def _read_cluster(merged: _Merged, name: str, server: str) -> Mapping[str, object]:
    entry = merged.get_entry("clusters", name)
    url = server or _text(entry.value, "server")
    cluster = {**entry.value, "server": url}
    if not url:
        raise ConfigError(f"{merged.label}: clusters[name={name}].cluster.server is not set")
    if not server:
        check_server(f"{merged.label}: clusters[name={name}].cluster.server", url)
    check_cluster(f"{merged.label}: clusters[name={name}].cluster", cluster, entry.base)
    authority = _text(cluster, "certificate-authority")
    if authority:
        # The user may stand in another file, and with it the folder that the library knows.
        cluster["certificate-authority"] = str(entry.base / authority)
    return cluster


def _minimal(cluster: Mapping[str, object], user: Mapping[str, object]) -> dict[str, object]:
    name = "used"
    return {
        "current-context": name,
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": user}],
    }


def _parse(file: Path, label: str) -> Mapping[str, object]:
    import yaml  # a process in a cluster never needs it

    try:
        content = yaml.safe_load(file.read_bytes())
    except OSError as error:
        raise ConfigError(f"{label}: {error.strerror or error}") from error
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        # The error quotes the file, which may hold a token: only its place is shown.
        mark = getattr(error, "problem_mark", None)
        place = f" at line {mark.line + 1}" if mark is not None else ""
        raise ConfigError(f"{label}: it is not YAML{place}") from None
    if not isinstance(content, dict):
        what = "it is empty" if content is None else "it is not a kubeconfig: no mapping of fields"
        raise ConfigError(f"{label}: {what}")
    return content


def _suggest(name: str, names: Sequence[str]) -> str:
    """Return the end of a message about a name that no entry has."""
    close = get_close_matches(name, names, n=1)
    if close:
        return f"; did you mean {close[0]}?"
    shown = ", ".join(names[:_MOST_NAMES])
    more = ", ..." if len(names) > _MOST_NAMES else ""
    return f"; there is only {shown}{more}" if names else ""


def _text(value: Mapping[str, object], field: str) -> str:
    text = value.get(field)
    return text if isinstance(text, str) else ""


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
