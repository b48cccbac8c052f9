"""How a command finds its cluster, namespace and objects: as kubectl does.

`-kubeconfig`, else the files of KUBECONFIG, else `~/.kube/config`, else the service account of the
pod; of a kubeconfig `-context`, else the current context. `-namespace`, else that of the context or
of the pod, else `default`.
"""

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from msgspec import UNSET
from msgspec.structs import replace

from rollout_operator.aio.clock import Clock, LoopClock
from rollout_operator.aio.tasks import gather_all
from rollout_operator.config.checks import is_namespace_name
from rollout_operator.config.flags import get_flag
from rollout_operator.config.grammar import TEXT, Flag, ParsedArguments, UsageError
from rollout_operator.kube.api import ApiClient, Timeouts
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
from rollout_operator.operator.inspect import (
    Inspection,
    Inspector,
    check_namespace,
    list_namespaces,
)
from rollout_operator.planning.wording import join_names
from rollout_operator.telemetry import logs
from rollout_operator.telemetry.metrics import Metrics

KUBECONFIG: Final = Flag(
    name="kubeconfig",
    kind=TEXT,
    default="",
    help="Path of a kubeconfig (default: the files in KUBECONFIG, else ~/.kube/config, else the"
    " service account of the pod).",
)
CONTEXT: Final = Flag(
    name="context",
    kind=TEXT,
    default="",
    help="Context of the kubeconfig (default: the current context).",
)
NAMESPACE: Final = Flag(
    name="namespace",
    kind=TEXT,
    default="",
    alias="n",
    help="Namespace to look at, also -n (default: the namespace of the context).",
)
ACCESS_FLAGS: Final[tuple[Flag[Any], ...]] = (KUBECONFIG, CONTEXT, NAMESPACE)
GROUP: Final = Flag(
    name="group",
    kind=TEXT,
    default="",
    help="Limit to this rollout group, as group/NAME (default: all).",
)
SERVICE: Final = Flag(
    name="service",
    kind=TEXT,
    default="",
    help="Service and port of the operator's status, which is read through the API server:"
    " NAME:PORT, or NAMESPACE/NAME:PORT in another namespace; empty does not read it (default:"
    " search for the Service).",
)
INSPECTION_FLAGS: Final[tuple[Flag[Any], ...]] = (GROUP, *ACCESS_FLAGS, SERVICE)
# How an object is named: `group/NAME` or `group NAME`.
GROUP_WORDS: Final = ("group", "groups")
POLICY_WORDS: Final = ("multiazrollout", "multiazrollouts", "mazr")
_RELEASE_WORDS: Final = ("rollout", "rollouts")

# A person waits for the answer.
_CALL_LIMIT: Final = timedelta(seconds=15)
_LAST_RESORT: Final = "default"
_Located = TypeVar("_Located", GroupDescription, PolicyDescription, ReleaseDescription)


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
    context, listed = arguments.value(CONTEXT), environ.get("KUBECONFIG", "")
    choice, namespace = None, ""
    if files:
        choice = KubeconfigChoice(files=files, origin="kubeconfig", context=context)
        kubeconfig = read_kubeconfig(choice)
        namespace = kubeconfig.namespace
        if namespace and not is_namespace_name(namespace):
            named = f"namespace of the context: {quote(namespace)}"
            raise ConfigError(f"{kubeconfig.label}: {named} is not a name of a namespace")
    elif context or not environ.get("KUBERNETES_SERVICE_HOST"):
        hint = "give -kubeconfig, or set KUBECONFIG, or write ~/.kube/config"
        if listed:
            hint = f"KUBECONFIG names {quote(listed)}, where there is no file"
        raise ConfigError(f"there is no kubeconfig: {hint}")
    else:
        with suppress(OSError):
            namespace = (service_account / "namespace").read_text().strip()
    given = arguments.value(NAMESPACE)
    if given and not is_namespace_name(given):
        raise UsageError(f"-namespace: {quote(given)} is not a name of a namespace")
    return Access(
        namespace=given or namespace or _LAST_RESORT,
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
    return tuple(path for path in paths if _exists(path))


def _exists(path: Path) -> bool:
    """Return whether a file exists; if it may not be read, that is an error later."""
    try:
        path.stat()
    except PermissionError:
        return True
    except OSError:
        return False
    return True


class Named(NamedTuple):
    """The object that a command is about; all empty: all objects of the namespace."""

    policy: str = ""
    release: str = ""
    """A Rollout."""
    tag: str = ""
    """The version of that Rollout to wait for; empty: the newest."""
    group: str = ""
    name: str = ""
    """An object of any of the three kinds."""

    @property
    def is_given(self) -> bool:
        """Return whether an object is named at all."""
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
            **{word: Named(release=name, tag=tag) for word in _RELEASE_WORDS},
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
    """Reads the namespaces and objects that the arguments of a command choose."""

    client: ApiClient
    namespace: str
    """Empty: all namespaces that have groups."""
    service: str | None
    """Empty: none; None: search for it."""
    named: Named = NOTHING
    clock: Clock = field(default_factory=LoopClock)
    _inspectors: dict[str, Inspector] = field(default_factory=dict)

    async def inspect(self, *, is_fresh: bool = True) -> Sequence[Inspection]:
        """Return an inspection of each namespace. Raises ApiError and InvalidInput."""
        names: Sequence[str] = [self.namespace]
        if not self.namespace:
            names = await list_namespaces(self.client, is_fresh=is_fresh)
        self._inspectors = {name: self._inspector(name) for name in names}
        inspections = await gather_all(
            inspector.inspect(is_fresh=is_fresh) for inspector in self._inspectors.values()
        )
        if self.namespace and not any(_has_any(inspection.best) for inspection in inspections):
            await check_namespace(self.client, self.namespace)
        if not self.named.is_given:
            return inspections
        chosen = [choose_named(inspection, self.named) for inspection in inspections]
        found = [one for one in chosen if _has_any(one.best)]
        if not found:
            raise describe_miss([inspection.best for inspection in inspections], self.named)
        return found

    def _inspector(self, namespace: str) -> Inspector:
        if inspector := self._inspectors.get(namespace):
            return inspector
        lease = get_flag("leader-election.lease-name").default
        return Inspector(self.client, namespace, self.clock, service=self.service, lease=lease)


def be_quiet() -> None:
    """Log nothing: what the operator would log about a namespace is in its description."""
    logs.configure(level="error", write=lambda line: None)


@asynccontextmanager
async def open_inspector(
    arguments: ParsedArguments,
    *,
    is_everywhere: bool = False,
    named: Named = NOTHING,
    asks_operator: bool = True,
) -> AsyncIterator[ClusterInspector]:
    """Connect to the cluster and the operator that the arguments choose. Raises ConfigError."""
    access = choose_access(arguments)
    service = arguments.value(SERVICE) if arguments.has(SERVICE) else None
    if not asks_operator:
        service = ""
    async with open_client(access) as client:
        namespace = "" if is_everywhere else access.namespace
        yield ClusterInspector(client, namespace, service, named)


def describe_miss(seen: Sequence[Description], named: Named) -> InvalidInput:
    """Return the error for an object that is missing, or may not be shown."""
    where = f"namespace {seen[0].namespace}" if len(seen) == 1 else "any namespace"
    groups = [group.name for description in seen for group in description.groups]
    policies = [policy.name for description in seen for policy in description.list_policies()]
    releases = [release.name for description in seen for release in description.list_releases()]
    if named.policy:
        return not_found("multiazrollout", named.policy, where, policies)
    if named.release:
        return not_found("rollout", named.release, where, releases)
    if named.group:
        return not_found("rollout group", named.group, where, groups)
    if named.name:
        kinds = "rollout group, MultiAZRollout or Rollout"
        return not_found(kinds, named.name, where, [*groups, *policies, *releases])
    return InvalidInput(f"no rollout group found in {where}")


def not_found(kind: str, name: str, where: str, names: Sequence[str]) -> InvalidInput:
    """Return the error for an object that is missing; `names` are those there are."""
    close = get_close_matches(name, names, n=1)
    hint = f"; there are {join_names(sorted(names))}" if names else " (there are none)"
    if close:
        hint = f"; did you mean {close[0]}?"
    return InvalidInput(f"{kind} {name} not found in {where}{hint}")


def choose_named(seen: Inspection, named: Named) -> Inspection:
    """Return an inspection of the named object only."""
    own = None if seen.own is None else _only(seen.own, named)
    wanted = {named.group, named.name}
    groups = {key: group for key, group in seen.groups.items() if key in wanted}
    return replace(seen, description=_only(seen.description, named), own=own, groups=groups)


def _only(description: Description, named: Named) -> Description:
    def choose(located: Sequence[_Located], *names: str) -> tuple[_Located, ...]:
        return tuple(one for one in located if one.name in names)

    return replace(
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
