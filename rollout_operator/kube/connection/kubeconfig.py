"""Read a kubeconfig: say in one line what is wrong with it, keep only what its context uses.

Certificates, programs and token services are left to the library, see `connect`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rollout_operator.model.errors import ConfigError

# The library ignores them: we would act with other rights than the file asks for.
_NOT_SUPPORTED: Final = ("as", "as-uid", "as-groups", "as-user-extra")


@dataclass(frozen=True, slots=True)
class Kubeconfig:
    """One context of a kubeconfig, with its cluster and user and nothing else."""

    label: str
    """Flag and file, the start of each message about it."""
    content: Mapping[str, object]
    """In the file's own form, with the server replaced."""
    base: Path
    """Where relative paths start."""
    token_file: Path | None


def read_kubeconfig(file: Path, server: str) -> Kubeconfig:
    """Return the current context of `file` with `server` in the place of its cluster's server.

    Raises ConfigError naming the flag, the file and the field.
    """
    label = f"-kubernetes.config-file {file}"
    content = _parse(file, label)
    name = content.get("current-context")
    if not isinstance(name, str) or not name:
        raise ConfigError(f"{label}: current-context is not set")
    context = _named(content, "contexts", "context", name, label)
    cluster = dict(_named(content, "clusters", "cluster", _ref(context, "cluster"), label))
    user_name = _ref(context, "user")
    user = dict(_named(content, "users", "user", user_name, label)) if user_name else {}
    for field in _NOT_SUPPORTED:
        if user.get(field):
            raise ConfigError(f"{label}: users[name={user_name}].user.{field} is not supported")
    cluster["server"] = server
    base = file.resolve().parent
    path = user.get("tokenFile")
    token_file = base / path if isinstance(path, str) and path else None
    if token_file is not None:
        # The file wins over a token beside it, as everywhere else; the library has it the other
        # way round and would read the file only once.
        user = {key: value for key, value in user.items() if key not in {"token", "tokenFile"}}
    return Kubeconfig(label, _minimal(cluster, user), base, token_file)


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
        # The error quotes the file, which may hold a token: only its place is told.
        mark = getattr(error, "problem_mark", None)
        place = f" at line {mark.line + 1}" if mark is not None else ""
        raise ConfigError(f"{label}: it is not YAML{place}") from None
    if not isinstance(content, dict):
        raise ConfigError(f"{label}: it is not a kubeconfig, but {type(content).__name__}")
    return content


def _ref(context: Mapping[str, object], field: str) -> str:
    name = context.get(field)
    return name if isinstance(name, str) else ""


def _named(
    content: Mapping[str, object], plural: str, field: str, name: str, label: str
) -> Mapping[str, object]:
    """Return the value under `field` of the entry of that name in one of the lists."""
    entries = content.get(plural)
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and entry.get("name") == name:
            value = entry.get(field)
            if isinstance(value, dict):
                return value
    raise ConfigError(f"{label}: {plural}[name={name}].{field} is not there")
