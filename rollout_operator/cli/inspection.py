"""Shared parts of `status`, `wait` and `explain`: flags, and how they observe namespaces."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Final

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from rollout_operator.aio.clock import LoopClock
from rollout_operator.aio.tasks import gather_all
from rollout_operator.cli.access import ACCESS_FLAGS, choose_access, open_client
from rollout_operator.config.flags import get_flag
from rollout_operator.config.grammar import TEXT, Flag, ParsedArguments, refuse_leftovers
from rollout_operator.kube.client.client import Client
from rollout_operator.model.description import Description, GroupDescription
from rollout_operator.model.errors import InvalidInput
from rollout_operator.operator.diagnosis.inspect import Inspection, Inspector, list_namespaces
from rollout_operator.planning.wording import join_names
from rollout_operator.telemetry import logs

GROUP: Final = Flag(
    name="group", kind=TEXT, default="", help="Only this rollout group; all groups."
)
SERVICE: Final = Flag(
    name="service",
    kind=TEXT,
    default="rollout-operator:8001",
    help="Service and port by which what the operator sees is read, through the API server;"
    " of one in another namespace, NAMESPACE/NAME:PORT. Empty: it is not read.",
)
# How a MultiAZRollout is named, as `mazr/NAME` or `mazr NAME`.
POLICY_WORDS: Final = ("multiazrollout", "multiazrollouts", "mazr")
# How a Rollout of releases is named.
RELEASE_WORDS: Final = ("rollout", "rollouts")
INSPECTION_FLAGS: Final[tuple[Flag[Any], ...]] = (GROUP, *ACCESS_FLAGS)


@dataclass(slots=True)
class ClusterInspector:
    """Observes the namespaces and groups that the arguments of a command choose."""

    client: Client
    namespace: str
    """Empty for all that have groups."""
    service: str = ""
    group: str = ""
    _inspectors: dict[str, Inspector] = field(default_factory=dict)

    async def inspect(self, *, is_fresh: bool = True) -> Sequence[Inspection]:
        """Return one inspection for each namespace. Raises ApiError and InvalidInput."""
        names: Sequence[str] = [self.namespace]
        if not self.namespace:
            names = await list_namespaces(self.client, is_fresh=is_fresh)
        inspections = await gather_all(
            self.inspector(name).inspect(is_fresh=is_fresh) for name in names
        )
        if not self.group:
            return inspections
        groups = [
            group.name for inspection in inspections for group in inspection.description.groups
        ]
        if self.group not in groups:
            raise InvalidInput(
                f"there is no rollout group {self.group}{suggest(self.group, groups)}"
            )
        return [choose_group(inspection, self.group) for inspection in inspections]

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
    arguments: ParsedArguments, *, service: str = "", is_everywhere: bool = False
) -> AsyncIterator[ClusterInspector]:
    """Connect to the cluster that the words choose; `service` is the operator's, if any.

    Raises ConfigError.
    """
    access = choose_access(arguments)
    async with open_client(access) as client:
        namespace = "" if is_everywhere else access.namespace
        yield ClusterInspector(client, namespace, service, arguments.value(GROUP))


def refuse_arguments(arguments: ParsedArguments) -> None:
    """Raise UsageError for a word that is no flag: mostly it is the name of a group."""
    refuse_leftovers(arguments, f"; a group is named by -{GROUP.name}")


def suggest(name: str, names: Sequence[str]) -> str:
    """Return the end of a message about a name that does not exist."""
    close = get_close_matches(name, names, n=1)
    if close:
        return f"; did you mean {close[0]}?"
    return f"; there are {join_names(sorted(names))}" if names else "; there is none"


def miss_policy(description: Description, name: str) -> InvalidInput:
    """Return the error for a MultiAZRollout that is missing, or may not be shown."""
    hint = suggest(name, [policy.name for policy in description.list_policies()])
    where = description.namespace
    return InvalidInput(f"no multiazrollout {name} is seen in namespace {where}{hint}")


def choose_group(seen: Inspection, name: str) -> Inspection:
    """Return an inspection of one group only."""
    own = None if seen.own is None else _only(seen.own, name)
    groups = {key: group for key, group in seen.groups.items() if key == name}
    return replace(seen, description=_only(seen.description, name), own=own, groups=groups)


def _only(description: Description, name: str) -> Description:
    def is_chosen(group: GroupDescription) -> bool:
        return group.name == name

    return msgspec.structs.replace(
        description,
        groups=tuple(filter(is_chosen, description.groups)),
        budgets=(),
        policies=UNSET,
        releases=UNSET,
        schedules=UNSET,
        health_checks=UNSET,
    )
