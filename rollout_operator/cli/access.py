"""How a command finds its cluster and namespace: as kubectl does.

`-kubeconfig`, else the files of KUBECONFIG, else `~/.kube/config`, else the service account of the
pod that it runs in; of a kubeconfig `-context`, else the current one. `-namespace`, else that of
the context or of the pod, else `default`.
"""

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from rollout_operator.aio.clock import LoopClock
from rollout_operator.config.checks import is_namespace_name
from rollout_operator.config.grammar import TEXT, Flag, ParsedArguments, UsageError
from rollout_operator.kube.call import Timeouts
from rollout_operator.kube.client.client import Client
from rollout_operator.kube.client.rate_limit import RateLimiter
from rollout_operator.kube.connection.connect import SERVICE_ACCOUNT, Access, connect
from rollout_operator.kube.connection.kubeconfig import KubeconfigChoice, read_kubeconfig
from rollout_operator.model.errors import ConfigError
from rollout_operator.model.units import quote
from rollout_operator.telemetry.metrics import Metrics

KUBECONFIG: Final = Flag(
    name="kubeconfig",
    kind=TEXT,
    default="",
    help="Path of a kubeconfig. Without it the files that KUBECONFIG names, else ~/.kube/config,"
    " else the service account of the pod.",
)
CONTEXT: Final = Flag(
    name="context", kind=TEXT, default="", help="Context of the kubeconfig; the current one."
)
NAMESPACE: Final = Flag(
    name="namespace",
    kind=TEXT,
    default="",
    alias="n",
    help="Namespace to look at, also -n; that of the context.",
)
ACCESS_FLAGS: Final[tuple[Flag[Any], ...]] = (KUBECONFIG, CONTEXT, NAMESPACE)

# A person waits for it.
_CALL_LIMIT: Final = timedelta(seconds=15)
_LAST_RESORT: Final = "default"


def choose_access(
    arguments: ParsedArguments,
    environ: Mapping[str, str] | None = None,
    service_account: Path = SERVICE_ACCOUNT,
) -> Access:
    """Return the API server and the namespace to use; nothing is sent.

    Raises UsageError for the flags, ConfigError in one line that names the file and the field.
    """
    environ = os.environ if environ is None else environ
    files = _list_files(arguments.value(KUBECONFIG), environ)
    context = arguments.value(CONTEXT)
    if files:
        choice = KubeconfigChoice(files=files, origin="kubeconfig", context=context)
        kubeconfig = read_kubeconfig(choice)
        namespace = kubeconfig.namespace
        if namespace and not is_namespace_name(namespace):
            named = f"namespace of the context: {quote(namespace)}"
            raise ConfigError(f"{kubeconfig.label}: {named} is not a name of a namespace")
    elif context or not environ.get("KUBERNETES_SERVICE_HOST"):
        raise ConfigError(_miss(environ))
    else:
        choice, namespace = None, _read_first(service_account / "namespace")
    return Access(
        namespace=_check(arguments.value(NAMESPACE)) or namespace or _LAST_RESORT,
        kubeconfig=choice,
        service_account=service_account,
        environ=environ,
    )


@asynccontextmanager
async def open_client(access: Access) -> AsyncIterator[Client]:
    """Connect for one command. Entering raises ConfigError; nothing is sent before it is used."""
    transport = await connect(access, LoopClock())
    try:
        timeouts = Timeouts().at_most(_CALL_LIMIT)
        yield Client(transport, RateLimiter(0, 0), Metrics(), timeouts)
    finally:
        await transport.close()


def _list_files(flag: str, environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the files of the kubeconfig. The file that a flag names must exist, as for kubectl."""
    if flag:
        return (Path(flag),)
    listed = environ.get("KUBECONFIG", "")
    home = environ.get("HOME", "")
    paths: Sequence[Path] = [Path(path) for path in listed.split(os.pathsep) if path]
    if not listed and home:
        paths = [Path(home, ".kube", "config")]
    return tuple(path for path in paths if _is_there(path))


def _is_there(path: Path) -> bool:
    """Return whether a file exists; whether it may be read shows later."""
    try:
        path.stat()
    except PermissionError:
        return True
    except OSError:
        return False
    return True


def _miss(environ: Mapping[str, str]) -> str:
    """Return the message that no kubeconfig was found, and what to do."""
    listed = environ.get("KUBECONFIG", "")
    if listed:
        return f"there is no kubeconfig: KUBECONFIG names {quote(listed)}, where there is no file"
    return "there is no kubeconfig: give -kubeconfig, or set KUBECONFIG, or write ~/.kube/config"


def _read_first(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""


def _check(namespace: str) -> str:
    if namespace and not is_namespace_name(namespace):
        raise UsageError(f"-namespace: {quote(namespace)} is not a name of a namespace")
    return namespace
