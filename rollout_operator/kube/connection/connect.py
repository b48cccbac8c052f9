"""Find the API server and how to identify ourselves to it: in a cluster, or by a kubeconfig.

The operator's flags name both address and file, or neither, which `config` checks. In a cluster no
path has to be writable; a kubeconfig with embedded certificates makes the library write them to
temporary files. What of a kubeconfig is used is decided in `kubeconfig`; its certificates, programs
and token services are the library's part.
"""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import aiohttp
import msgspec
from msgspec.structs import replace

from rollout_operator.aio.clock import Clock
from rollout_operator.kube.connection.credential import LOAD_LIMIT, Credential, token_file
from rollout_operator.kube.connection.kubeconfig import (
    Kubeconfig,
    KubeconfigChoice,
    read_kubeconfig,
)
from rollout_operator.kube.connection.lean import (
    LibraryConfiguration,
    config_exception,
    load_incluster,
    load_kubeconfig,
    new_configuration,
)
from rollout_operator.kube.connection.transport import Transport, open_transport, render_agent
from rollout_operator.model.errors import ConfigError
from rollout_operator.model.names import FIELD_MANAGER
from rollout_operator.telemetry.logs import log

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")

# The token of a pod is bound to the very ServiceAccount that it was made for.
_IN_POD: Final = "restart the pod where its ServiceAccount was deleted and created again"
_BY_KUBECONFIG: Final = "log in again, or mend the user of the kubeconfig"

_SERVICE: Final = ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT")


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """Where the API server is; with no file at all it is that of the cluster we run in."""

    namespace: str
    """Ours: sent with each request as the name of our cluster."""
    name: str = FIELD_MANAGER
    """The name by which the API server knows our writes."""
    api_url: str = ""
    config_file: str = ""
    """With `api_url` in the place of its server."""
    kubeconfig: KubeconfigChoice | None = None
    """Instead of these two: the kubeconfig that a command found."""
    service_account: Path = SERVICE_ACCOUNT
    """Folder with the files that the kubelet gives each pod: `token` and `ca.crt`."""
    environ: Mapping[str, str] = msgspec.field(default_factory=lambda: os.environ)


async def connect(access: Access, clock: Clock) -> Transport:
    """Return a transport to the API server; nothing is sent to the server yet.

    Raises ConfigError, in one line naming the flag, file or variable that is wrong.
    """
    configuration = new_configuration()
    choice = access.kubeconfig
    if choice is None and access.config_file:
        choice = KubeconfigChoice(files=(Path(access.config_file),), server=access.api_url)
    if choice is not None:
        credential = await _by_kubeconfig(configuration, choice, clock)
    else:
        credential = _in_cluster(configuration, access, clock)
    transport = open_transport(configuration, credential, access.namespace, clock, access.environ)
    transport.api.default_headers["User-Agent"] = render_agent(access.name)
    return replace(transport, log_in=_IN_POD if choice is None else _BY_KUBECONFIG)


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
    configuration: LibraryConfiguration, choice: KubeconfigChoice, clock: Clock
) -> Credential | None:
    kubeconfig = read_kubeconfig(choice)
    await _load(configuration, kubeconfig)
    if not configuration.verify_ssl:
        log.warn(
            "Not verifying the certificate of the API server, as the kubeconfig says",
            file=choice.names,
        )
    if kubeconfig.token_file is not None:
        return token_file(kubeconfig.token_file, clock)
    value = configuration.api_key.get("BearerToken")
    if value is None:
        return None

    async def load() -> str:
        again = new_configuration()
        await _load(again, read_kubeconfig(choice))
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
        # Errors that the library lets through where a value is malformed, e.g. that of a program.
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


def _one_line(error: Exception) -> str:
    return " ".join(f"{error}".split()) or type(error).__name__
