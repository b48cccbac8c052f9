"""Find the API server and how to identify ourselves to it: in a cluster, or by a kubeconfig.

Both flags, or neither: `config` checks that. In a cluster no path has to be writable; a kubeconfig
with embedded certificates makes the library write them to temporary files. Of a kubeconfig only
what its context uses is kept; its certificates, programs and token services are the library's part.
"""

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import aiohttp

from rollout_operator.aio.clock import Clock
from rollout_operator.kube.connection.credential import LOAD_LIMIT, Credential, token_file
from rollout_operator.kube.connection.lean import (
    LibraryConfiguration,
    config_exception,
    load_incluster,
    load_kubeconfig,
    new_configuration,
)
from rollout_operator.kube.connection.transport import Transport, open_transport
from rollout_operator.model.errors import ConfigError
from rollout_operator.telemetry.logs import log

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")

_SERVICE: Final = ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT")
# The library ignores them: we would act with other rights than the file asks for.
_NOT_SUPPORTED: Final = ("as", "as-uid", "as-groups", "as-user-extra")


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Where the API server is; with both fields empty it is that of the cluster we run in."""

    namespace: str
    """Ours: sent with each request as the name of our cluster."""
    api_url: str = ""
    config_file: str = ""
    service_account: Path = SERVICE_ACCOUNT
    """Folder with the files that the kubelet gives each pod: `token` and `ca.crt`."""
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)


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


async def connect(access: Access, clock: Clock) -> Transport:
    """Return a transport to the API server; nothing is sent to the server yet.

    Raises ConfigError, in one line naming the flag, file or variable that is wrong.
    """
    configuration = new_configuration()
    if access.config_file:
        credential = await _by_kubeconfig(configuration, access, clock)
    else:
        credential = _in_cluster(configuration, access, clock)
    return open_transport(configuration, credential, access.namespace, clock, access.environ)


def _in_cluster(configuration: LibraryConfiguration, access: Access, clock: Clock) -> Credential:
    for name in _SERVICE:
        if not access.environ.get(name):
            raise ConfigError(
                f"not in a cluster: environment variable {name} is not set; outside of a cluster"
                " set both -kubernetes.api-url and -kubernetes.config-file"
            )
    token = access.service_account / "token"
    credential = token_file(token, clock)
    ca = access.service_account / "ca.crt"
    try:
        load_incluster(configuration, token, ca, access.environ)
    except (config_exception(), OSError, ValueError) as error:
        raise ConfigError(f"service account: {ca}: {_one_line(error)}") from error
    return credential


async def _by_kubeconfig(
    configuration: LibraryConfiguration, access: Access, clock: Clock
) -> Credential | None:
    file = Path(access.config_file)
    kubeconfig = read_kubeconfig(file, access.api_url)
    await _load(configuration, kubeconfig)
    if not configuration.verify_ssl:
        log.warn(
            "Not verifying the certificate of the API server, as the kubeconfig says",
            file=str(file),
        )
    if kubeconfig.token_file is not None:
        return token_file(kubeconfig.token_file, clock)
    value = configuration.api_key.get("BearerToken")
    if value is None:
        return None

    async def load() -> str:
        again = new_configuration()
        await _load(again, read_kubeconfig(file, access.api_url))
        if "BearerToken" not in again.api_key:
            raise ConfigError(f"{kubeconfig.label}: there is no token any more")
        return again.api_key["BearerToken"]

    return Credential(value, load, clock)


async def _load(configuration: LibraryConfiguration, kubeconfig: Kubeconfig) -> None:
    """Let the library read certificates and credentials; a program named there is run."""
    unusable = (
        config_exception(),
        OSError,  # files; a program that is not there
        aiohttp.ClientError,  # a token service
        # What the library lets through where a value is not what it expects, e.g. of a program.
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        AssertionError,
    )
    try:
        async with asyncio.timeout(LOAD_LIMIT.total_seconds()):
            await load_kubeconfig(configuration, kubeconfig.content, kubeconfig.base)
    except TimeoutError as error:
        limit = f"{LOAD_LIMIT.total_seconds():.0f}s"
        raise ConfigError(f"{kubeconfig.label}: no credential within {limit}") from error
    except unusable as error:
        raise ConfigError(f"{kubeconfig.label}: {_one_line(error)}") from error


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
    for key in _NOT_SUPPORTED:
        if user.get(key):
            raise ConfigError(f"{label}: users[name={user_name}].user.{key} is not supported")
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


def _one_line(error: Exception) -> str:
    return " ".join(f"{error}".split()) or type(error).__name__
