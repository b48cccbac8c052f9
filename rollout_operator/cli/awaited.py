"""The objects that `wait` waits for: groups, MultiAZRollouts and Rollouts."""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

import msgspec

from rollout_operator.cli.inspection import NOTHING, Named
from rollout_operator.cli.text.status_changes import render_group_line
from rollout_operator.model.described.releases import ReleaseDescription, ReleasePhase
from rollout_operator.model.description import GroupDescription, Phase, PodState
from rollout_operator.model.names import GroupName
from rollout_operator.model.outcome import Code
from rollout_operator.model.releases.status import BakeStatus
from rollout_operator.operator.diagnosis.inspect import Inspection, is_settled
from rollout_operator.planning.description.phase import list_worst_first
from rollout_operator.planning.description.policies import describe_driven, describe_idle
from rollout_operator.planning.description.release_text import render_release
from rollout_operator.planning.wording import join_names, one_line

_POLICY: Final = "MultiAZRollout"
# What starts, or goes, does so by itself.
_STUCK: Final = frozenset({PodState.NOT_READY, PodState.MISSING, PodState.UNREADABLE})


class Goal(StrEnum):
    """The state that is waited for."""

    ROLLED_OUT = "rolled-out"
    """All pods are ready at the update revision, and nothing is due."""
    WHOLE = "whole"
    """All pods are ready, whatever their revision."""


class Progress(NamedTuple):
    """How far an object is."""

    wanted: tuple[object, ...]
    """Where that changes, the number begins anew."""
    pods: int
    """How many are ready, and how many updated, in one number."""


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

    @property
    def stuck(self) -> str:
        """Return which pods neither become ready nor go, and why; empty where none is stuck."""
        ...

    @property
    def progress(self) -> Progress:
        """Return how far it is."""
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

    @property
    def stuck(self) -> str:
        """Return which pods neither become ready nor go; a policy has a deadline of its own."""
        if self.what == _POLICY or self.group.policy:
            return ""
        down = [
            f"{pod.name}: {pod.why}"
            for zone in self.group.zones
            for pod in zone.pods
            if pod.state in _STUCK
        ]
        return join_names(down)

    @property
    def progress(self) -> Progress:
        """Return how far it is."""
        wanted = tuple((zone.name, zone.update_revision, zone.desired) for zone in self.group.zones)
        return Progress(wanted, self.group.ready + self.group.updated)

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

    @property
    def stuck(self) -> str:
        """Return nothing: a release has deadlines of its own."""
        return ""

    @property
    def progress(self) -> Progress:
        """Return no number."""
        return Progress((), 0)

    def has_reached(self, goal: Goal) -> bool:
        """Return whether the version is through; without a version, the newest and all requests."""
        if self.tag:
            entry = next((entry for entry in self.release.history if entry.tag == self.tag), None)
            return entry is not None and entry.status == BakeStatus.SUCCEEDED
        is_last = not self.release.next and not self.release.is_retry_requested
        return self.release.phase is ReleasePhase.DEPLOYED and is_last


def list_awaited(seen: Inspection, named: Named = NOTHING) -> Sequence[Awaited]:
    """Return the groups of an inspection and the policies that are obeyed, or what is named."""
    groups = [
        AwaitedGroup("group", group, is_settled(seen.groups[GroupName(group.name)]))
        for group in list_worst_first(seen.description.groups)
        if not named.is_given or group.name in {named.group, named.name}
    ]
    only = named.policy or named.name
    policies = list(_list_policies(seen, only)) if only or not named.is_given else []
    if groups or policies or not named.is_given:
        return [*groups, *policies]
    return [
        AwaitedRelease(release, named.tag)
        for release in seen.description.list_releases()
        if release.name in {named.release, named.name}
    ]


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
