"""How a command finds its cluster and namespace: as kubectl does.

`-kubeconfig`, else the files of KUBECONFIG, else `~/.kube/config`, else the service account of the
pod that it runs in; of a kubeconfig `-context`, else the current one. `-namespace`, else that of
the context or of the pod, else `default`.

Shared parts of `status`, `wait` and `explain`: flags, and how they observe namespaces.
"""

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from rollout_operator.aio.clock import LoopClock
from rollout_operator.aio.tasks import gather_all
from rollout_operator.config.checks import is_namespace_name
from rollout_operator.config.flags import get_flag
from rollout_operator.config.grammar import TEXT, Flag, ParsedArguments, UsageError
from rollout_operator.kube.api import Timeouts
from rollout_operator.kube.client import Client
from rollout_operator.kube.connection import SERVICE_ACCOUNT, Access, connect
from rollout_operator.kube.kubeconfig import KubeconfigChoice, read_kubeconfig
from rollout_operator.kube.rate_limit import RateLimiter
from rollout_operator.model.description import (
    Description,
    GroupDescription,
    PolicyDescription,
    ReleaseDescription,
)
from rollout_operator.model.names import ConfigError, InvalidInput
from rollout_operator.model.units import quote
from rollout_operator.operator.inspect import Inspection, Inspector, list_namespaces
from rollout_operator.planning.wording import join_names
from rollout_operator.telemetry import logs
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


GROUP: Final = Flag(
    name="group", kind=TEXT, default="", help="Only this rollout group, as group/NAME."
)
SERVICE: Final = Flag(
    name="service",
    kind=TEXT,
    default="",
    help="Service and port by which what the operator sees is read, through the API server:"
    " NAME:PORT, or NAMESPACE/NAME:PORT of one in another namespace. Without the flag it is"
    " searched for; empty: it is not read.",
)
# How a rollout group is named, as `group/NAME` or `group NAME`.
GROUP_WORDS: Final = ("group", "groups")
# How a MultiAZRollout is named, as `mazr/NAME` or `mazr NAME`.
POLICY_WORDS: Final = ("multiazrollout", "multiazrollouts", "mazr")
# How a Rollout of releases is named.
RELEASE_WORDS: Final = ("rollout", "rollouts")
INSPECTION_FLAGS: Final[tuple[Flag[Any], ...]] = (GROUP, *ACCESS_FLAGS)


Located = TypeVar("Located", GroupDescription, PolicyDescription, ReleaseDescription)


class Named(NamedTuple):
    """The objects that are wanted; all empty: all of a namespace."""

    policy: str = ""
    release: str = ""
    """A Rollout."""
    tag: str = ""
    """The version of that Rollout that has to be through; empty for the newest."""
    group: str = ""
    name: str = ""
    """Of whichever of the three kinds has it."""

    @property
    def is_given(self) -> bool:
        """Return whether an object is named."""
        return bool(self.policy or self.release or self.group or self.name)


NOTHING: Final = Named()


def read_named(words: Sequence[str], *, group: str = "", tag: str = "") -> Named:
    """Return the object that words name as `NAME`, `KIND/NAME` or `KIND NAME`.

    `group` and `tag` are the flags of that name. Raises UsageError.
    """
    if words and group:
        raise UsageError(f"name a group by -{GROUP.name} or another object, not both")
    named = Named(group=group)
    if words:
        kind, slash, name = "/".join(words).partition("/")
        kinds = {
            **{word: Named(group=name) for word in GROUP_WORDS},
            **{word: Named(policy=name) for word in POLICY_WORDS},
            **{word: Named(release=name, tag=tag) for word in RELEASE_WORDS},
        }
        found = kinds.get(kind.lower()) if slash else Named(name=kind)
        if found is None or not found.is_given or "/" in name:
            raise UsageError(
                f"unexpected word: {words[0]}; an object is named by NAME, a group by group/NAME,"
                " a MultiAZRollout by mazr/NAME, a Rollout by rollout/NAME"
            )
        named = found
    if tag and not named.release:
        raise UsageError("-tag is of a Rollout: name it by rollout/NAME")
    return named


@dataclass(slots=True)
class ClusterInspector:
    """Observes the namespaces and groups that the arguments of a command choose."""

    client: Client
    namespace: str
    """Empty for all that have groups."""
    service: str | None = ""
    """None: it is searched for."""
    named: Named = NOTHING
    _inspectors: dict[str, Inspector] = field(default_factory=dict)

    async def inspect(self, *, is_fresh: bool = True) -> Sequence[Inspection]:
        """Return one inspection for each namespace. Raises ApiError and InvalidInput."""
        names: Sequence[str] = [self.namespace]
        if not self.namespace:
            names = await list_namespaces(self.client, is_fresh=is_fresh)
        inspections = await gather_all(
            self.inspector(name).inspect(is_fresh=is_fresh) for name in names
        )
        if not self.named.is_given:
            return inspections
        chosen = [choose_named(inspection, self.named) for inspection in inspections]
        found = [one for one in chosen if _has_any(one.best)]
        if not found:
            raise describe_miss([inspection.best for inspection in inspections], self.named)
        return found

    def inspector(self, namespace: str) -> Inspector:
        """Return the inspector of one namespace."""
        if namespace not in self._inspectors:
            lease = get_flag("leader-election.lease-name").default
            self._inspectors[namespace] = Inspector(
                self.client, namespace, LoopClock(), service=self.service, lease=lease
            )
        return self._inspectors[namespace]


def be_quiet() -> None:
    """Log nothing: the description says what the operator would log of a namespace."""
    logs.configure(level="error", write=lambda line: None)


@asynccontextmanager
async def open_inspector(
    arguments: ParsedArguments,
    *,
    service: str | None = "",
    is_everywhere: bool = False,
    named: Named = NOTHING,
) -> AsyncIterator[ClusterInspector]:
    """Connect to the cluster that the words choose; `service` is the operator's, None to search.

    Raises ConfigError.
    """
    access = choose_access(arguments)
    async with open_client(access) as client:
        namespace = "" if is_everywhere else access.namespace
        yield ClusterInspector(client, namespace, service, named)


def suggest(name: str, names: Sequence[str]) -> str:
    """Return the end of a message about a name that does not exist."""
    close = get_close_matches(name, names, n=1)
    if close:
        return f"; did you mean {close[0]}?"
    return f"; there are {join_names(sorted(names))}" if names else "; there is none"


def describe_miss(seen: Sequence[Description], named: Named) -> InvalidInput:
    """Return the error for an object that is missing, or may not be shown."""
    where = f"namespace {seen[0].namespace}" if len(seen) == 1 else "any namespace"
    groups = [group.name for description in seen for group in description.groups]
    policies = [policy.name for description in seen for policy in description.list_policies()]
    releases = [release.name for description in seen for release in description.list_releases()]
    if named.policy:
        hint = suggest(named.policy, policies)
        return InvalidInput(f"no multiazrollout {named.policy} is seen in {where}{hint}")
    if named.release:
        hint = suggest(named.release, releases)
        return InvalidInput(f"no rollout {named.release} is seen in {where}{hint}")
    if named.group:
        hint = suggest(named.group, groups)
        return InvalidInput(f"there is no rollout group {named.group} in {where}{hint}")
    if named.name:
        kinds = f"rollout group, MultiAZRollout or Rollout {named.name}"
        hint = suggest(named.name, [*groups, *policies, *releases])
        return InvalidInput(f"there is no {kinds} in {where}{hint}")
    return InvalidInput(f"there is no rollout group in {where}")


def choose_named(seen: Inspection, named: Named) -> Inspection:
    """Return an inspection of the named objects only."""
    own = None if seen.own is None else _only(seen.own, named)
    wanted = {named.group, named.name}
    groups = {key: group for key, group in seen.groups.items() if key in wanted}
    return replace(seen, description=_only(seen.description, named), own=own, groups=groups)


def _only(description: Description, named: Named) -> Description:
    def choose(located: Sequence[Located], *names: str) -> tuple[Located, ...]:
        return tuple(one for one in located if one.name in names)

    return msgspec.structs.replace(
        description,
        groups=choose(description.groups, named.group, named.name),
        budgets=(),
        policies=choose(description.list_policies(), named.policy, named.name) or UNSET,
        releases=choose(description.list_releases(), named.release, named.name) or UNSET,
        schedules=UNSET,
        health_checks=UNSET,
    )


def _has_any(description: Description) -> bool:
    return bool(description.groups or description.list_policies() or description.list_releases())
