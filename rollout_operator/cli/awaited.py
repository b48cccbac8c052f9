"""The objects that `wait` waits for: groups, MultiAZRollouts and Rollouts."""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

import msgspec

from rollout_operator.cli.inspection import GROUP, POLICY_WORDS, RELEASE_WORDS, miss_policy, suggest
from rollout_operator.cli.text.status_changes import render_group_line
from rollout_operator.config.grammar import UsageError
from rollout_operator.model.described.releases import ReleaseDescription, ReleasePhase
from rollout_operator.model.description import Description, GroupDescription, Phase
from rollout_operator.model.errors import InvalidInput
from rollout_operator.model.names import GroupName
from rollout_operator.model.outcome import Code
from rollout_operator.model.releases.status import BakeStatus
from rollout_operator.operator.diagnosis.inspect import Inspection, is_settled
from rollout_operator.planning.description.phase import list_worst_first
from rollout_operator.planning.description.policies import describe_driven, describe_idle
from rollout_operator.planning.description.release_text import render_release
from rollout_operator.planning.wording import one_line

_POLICY: Final = "MultiAZRollout"


class Goal(StrEnum):
    """The state that is waited for."""

    ROLLED_OUT = "rolled-out"
    """All pods are ready at the update revision, and nothing is due."""
    WHOLE = "whole"
    """All pods are ready, whatever their revision."""


class Named(NamedTuple):
    """The only object that is waited for; all empty for the groups and policies of a namespace."""

    policy: str = ""
    release: str = ""
    """A Rollout."""
    tag: str = ""
    """The version of that Rollout that has to be through; empty for the newest."""

    @property
    def is_given(self) -> bool:
        """Return whether an object is named."""
        return bool(self.policy or self.release)


NOTHING: Final = Named()


def read_named(words: Sequence[str], tag: str = "") -> Named:
    """Return the object that the words name. Raises UsageError."""
    kind, _, name = "/".join(words).partition("/")
    if words and kind.lower() in POLICY_WORDS and name and "/" not in name and not tag:
        return Named(policy=name)
    if words and kind.lower() in RELEASE_WORDS and name and "/" not in name:
        return Named(release=name, tag=tag)
    if tag:
        raise UsageError("-tag is of a Rollout: name it by rollout/NAME")
    if words:
        raise UsageError(
            f"unexpected word: {words[0]}; a group is named by -{GROUP.name}, a MultiAZRollout by"
            " mazr/NAME, a Rollout by rollout/NAME"
        )
    return Named()


class Awaited(Protocol):
    """One object that is waited for."""

    @property
    def title(self) -> str:
        """Return its name, as people read it."""
        ...

    @property
    def line(self) -> str:
        """Return its state in one line."""
        ...

    @property
    def is_held(self) -> bool:
        """Return whether only a person lets it go on."""
        ...

    def has_reached(self, goal: Goal) -> bool:
        """Return whether it has reached the goal now."""
        ...


class AwaitedGroup(msgspec.Struct, frozen=True):
    """A group that is waited for, or a MultiAZRollout that is described as a group."""

    what: str
    group: GroupDescription
    is_settled: bool = True
    """Whether the status of each of its StatefulSets shows the newest spec."""

    @property
    def title(self) -> str:
        """Return its name, as people read it."""
        return f"{self.what} {self.group.name}"

    @property
    def line(self) -> str:
        """Return its state in one line."""
        return render_group_line(self.group, self.what)

    @property
    def is_held(self) -> bool:
        """Return whether only a person lets it go on."""
        return self.group.phase is Phase.HELD

    def has_reached(self, goal: Goal) -> bool:
        """Return whether it has reached the goal now."""
        if not self.is_settled:
            return False
        if goal is Goal.ROLLED_OUT:
            return self.group.phase is Phase.ROLLED_OUT
        zones = self.group.zones
        return bool(zones) and all(zone.ready >= zone.desired for zone in zones)


class AwaitedRelease(msgspec.Struct, frozen=True):
    """A Rollout that is waited for."""

    release: ReleaseDescription
    tag: str

    @property
    def title(self) -> str:
        """Return its name, as people read it."""
        return f"Rollout {self.release.name}"

    @property
    def line(self) -> str:
        """Return its state in one line."""
        return one_line(render_release(self.release))

    @property
    def is_held(self) -> bool:
        """Return whether only a person lets it go on."""
        return self.release.phase in {ReleasePhase.HELD, ReleasePhase.FAILED}

    def has_reached(self, goal: Goal) -> bool:
        """Return whether the version is through; without a version, the newest and all requests."""
        if self.tag:
            entry = next((entry for entry in self.release.history if entry.tag == self.tag), None)
            return entry is not None and entry.status == BakeStatus.SUCCEEDED
        is_last = not self.release.next and not self.release.is_retry_requested
        return self.release.phase is ReleasePhase.DEPLOYED and is_last


def list_awaited(seen: Inspection, named: Named = NOTHING) -> Sequence[Awaited]:
    """Return the groups of an inspection and the policies that are obeyed, or the named object."""
    if named.release:
        releases = seen.description.list_releases()
        return [
            AwaitedRelease(release, named.tag)
            for release in releases
            if release.name == named.release
        ]
    policies = list(_list_policies(seen, named.policy))
    if named.policy:
        return policies
    groups = [
        AwaitedGroup("group", group, is_settled(seen.groups[GroupName(group.name)]))
        for group in list_worst_first(seen.description.groups)
    ]
    return [*groups, *policies]


def _list_policies(seen: Inspection, only: str) -> Iterator[AwaitedGroup]:
    driven, now = {sets.key: sets for sets in seen.driven}, seen.description.now
    for policy in seen.description.list_policies():
        own = driven.get(policy.title)
        is_disobeyed = policy.code is Code.POLICY_NOT_OBEYED
        # A policy that an operator may not have seen yet is not underway.
        is_new = own is None and not policy.conditions and not is_disobeyed
        if policy.name != only if only else is_new:
            continue
        if own is None or is_disobeyed:
            yield AwaitedGroup(_POLICY, describe_idle(policy, now))
        else:
            group = describe_driven(own.group, own.plan, now)
            yield AwaitedGroup(_POLICY, group, is_settled(own.group))


def describe_miss(seen: Description, named: Named) -> InvalidInput:
    """Return the error for an object that is missing, or may not be shown."""
    if not named.is_given:
        return InvalidInput(f"there is no rollout group in namespace {seen.namespace}")
    if named.policy:
        return miss_policy(seen, named.policy)
    hint = suggest(named.release, [release.name for release in seen.list_releases()])
    return InvalidInput(f"no rollout {named.release} is seen in namespace {seen.namespace}{hint}")
