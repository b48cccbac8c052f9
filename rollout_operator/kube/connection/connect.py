"""Find the API server and how to identify ourselves to it: in a cluster, or by a kubeconfig.

The operator's flags name both address and file, or neither, which `config` checks. In a cluster no
path has to be writable; certificates and keys that are embedded in a kubeconfig stand in temporary
files for a moment. What a kubeconfig says is decided in `kubeconfig`, login programs run in
`login`.
"""

import os
import ssl
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Final

import msgspec
from msgspec.structs import replace

from rollout_operator.aio.clock import Clock
from rollout_operator.kube.connection.credential import Credential, token_file
from rollout_operator.kube.connection.kubeconfig import (
    KubeconfigChoice,
    Pem,
    UserCredentials,
    read_kubeconfig,
)
from rollout_operator.kube.connection.lean import (
    LibraryConfiguration,
    config_exception,
    load_incluster,
    new_configuration,
)
from rollout_operator.kube.connection.login import run_login
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
    choice = access.kubeconfig
    if choice is None and access.config_file:
        choice = KubeconfigChoice(files=(Path(access.config_file),), server=access.api_url)
    if choice is not None:
        transport = await _by_kubeconfig(choice, access, clock)
    else:
        configuration = new_configuration()
        credential = _in_cluster(configuration, access, clock)
        transport = open_transport(
            configuration, credential, access.namespace, clock, access.environ
        )
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
    if not token.exists():
        raise ConfigError(
            f"token file {token}: there is none: automountServiceAccountToken is false in the"
            " ServiceAccount, and the pod does not set it to true"
        )
    credential = token_file(token, clock)
    ca = access.service_account / "ca.crt"
    try:
        load_incluster(configuration, token, ca, access.environ)
    except (config_exception(), OSError, ValueError) as error:
        raise ConfigError(f"service account: {ca}: {_one_line(error)}") from error
    return credential


async def _by_kubeconfig(choice: KubeconfigChoice, access: Access, clock: Clock) -> Transport:
    kubeconfig = read_kubeconfig(choice)
    if kubeconfig.is_insecure:
        log.warn(
            "Not verifying the certificate of the API server, as the kubeconfig says",
            file=choice.names,
        )
    configuration = new_configuration()
    configuration.host = kubeconfig.server
    configuration.verify_ssl = not kubeconfig.is_insecure
    configuration.tls_server_name = kubeconfig.server_name or None
    configuration.proxy = kubeconfig.proxy or None
    user = await _log_in(kubeconfig.user)

    async def load() -> str:
        again = await _log_in(read_kubeconfig(choice).user)
        if not again.authorization:
            raise ConfigError(f"{kubeconfig.label}: there is no token any more")
        return again.authorization

    credential = None
    if user.token_file is not None:
        credential = token_file(user.token_file, clock, otherwise=user.authorization)
    elif user.authorization:
        credential = Credential(user.authorization, load, clock)
    # OpenSSL reads files only, and has read them once the transport is open.
    with ExitStack() as files:
        try:
            configuration.ssl_ca_cert = files.enter_context(_file_with(kubeconfig.authority))
            configuration.cert_file = files.enter_context(_file_with(user.certificate))
            configuration.key_file = files.enter_context(_file_with(user.key))
        except OSError as error:
            raise ConfigError(f"{kubeconfig.label}: no temporary file: {error}") from error
        if configuration.cert_file:
            _check_pair(user.where, configuration.cert_file, configuration.key_file)
        return open_transport(
            configuration, credential, access.namespace, clock, access.environ, user.headers
        )


async def _log_in(user: UserCredentials) -> UserCredentials:
    """Return the credentials with those of the login program, if there is one."""
    if user.program is None:
        return user
    made = await run_login(user.program)
    return replace(
        user,
        authorization=f"Bearer {made.token}" if made.token else "",
        certificate=made.client_certificate_data.encode() or None,
        key=made.client_key_data.encode() or None,
    )


@contextmanager
def _file_with(pem: Pem | None) -> Iterator[str | None]:
    """Give the name of a file with the content, inside the block."""
    if not isinstance(pem, bytes):
        yield None if pem is None else str(pem)
        return
    with NamedTemporaryFile(prefix="rollout-operator-") as file:
        file.write(pem)
        file.flush()
        yield file.name


def _check_pair(where: str, certificate: str, key: str | None) -> None:
    """Raise ConfigError for a certificate and a key of which no use can be made."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(certificate, key)
    except ssl.SSLError as error:
        why = "one of them cannot be read"
        if error.reason == "KEY_VALUES_MISMATCH":
            why = "the key is not that of the certificate"
        raise ConfigError(f"{where}: client certificate and key: {why}") from error


def _one_line(error: Exception) -> str:
    return " ".join(f"{error}".split()) or type(error).__name__
