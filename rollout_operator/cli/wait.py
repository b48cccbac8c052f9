"""`rollout-operator wait`: wait for a rollout, and report by exit code how it ended.

It waits for the rollout groups of a namespace and the MultiAZRollouts that an operator obeys, or
for one object that is named.
"""

import asyncio
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final, NamedTuple, TextIO

import msgspec

from rollout_operator.cli.access import (
    GROUP,
    INSPECTION_FLAGS,
    NOTHING,
    ClusterInspector,
    Named,
    be_quiet,
    describe_miss,
    open_inspector,
    read_named,
)
from rollout_operator.cli.status import list_changes
from rollout_operator.config.checks import render_entries
from rollout_operator.config.grammar import (
    DURATION,
    TEXT,
    Flag,
    ParsedArguments,
    UsageError,
    parse_mixed,
    refuse_other_choices,
)
from rollout_operator.model.description import (
    GroupDescription,
    Phase,
    PodState,
    ReleaseDescription,
    ReleasePhase,
)
from rollout_operator.model.names import Denied, ExitCode, GroupName, TooManyRequests, Unreachable
from rollout_operator.model.outcome import Code
from rollout_operator.model.units import format_duration
from rollout_operator.operator.inspect import Inspection, is_settled
from rollout_operator.planning.cards import (
    EMPTY_NAME,
    GROUP_KIND,
    POLICY_KIND,
    build_group,
    build_release,
    render_card,
)
from rollout_operator.planning.describe_groups import list_worst_first
from rollout_operator.planning.describe_policies import describe_driven, describe_idle
from rollout_operator.planning.wording import join_names
from rollout_operator.releases.model.releases import BakeStatus


class Goal(StrEnum):
    """The state that is waited for."""

    ROLLED_OUT = "rolled-out"
    """All pods are ready at the update revision, and nothing is due."""
    WHOLE = "whole"
    """All pods are ready, whatever their revision."""


_FOR: Final = Flag(
    name="for",
    kind=TEXT,
    default=Goal.ROLLED_OUT,
    help="rolled-out: all pods are ready at the update revision; whole: all pods are ready.",
)
TAG: Final = Flag(
    name="tag",
    kind=TEXT,
    default="",
    help="Version of the Rollout to wait for (default: the newest).",
)
_TIMEOUT: Final = Flag(
    name="timeout",
    kind=DURATION,
    default=timedelta(minutes=10),
    help="How long to wait; 0 checks once.",
)
_STALLED_AFTER: Final = Flag(
    name="stalled-after",
    kind=DURATION,
    default=timedelta(minutes=10),
    help="Give up when a group makes no progress for this long because its pods do not become"
    " ready, for example because they crash; 0 never gives up.",
)
WAIT_FLAGS: Final[tuple[Flag[Any], ...]] = (_FOR, TAG, _TIMEOUT, _STALLED_AFTER, *INSPECTION_FLAGS)
_EVERY: Final = timedelta(seconds=1)
# The next step of the same script may unpause the zone, or fix the object.
HELD_FOR: Final = timedelta(seconds=10)
# A container that crashes is up, and its pod perhaps ready, for a moment after each restart.
_CALM: Final = timedelta(minutes=2)
# Pods that start or terminate need only time.
_STUCK: Final = frozenset({PodState.NOT_READY, PodState.MISSING, PodState.UNREADABLE})

_HEAD: Final = """\
Usage: rollout-operator wait [-for=rolled-out|whole] [-timeout=10m] [flags]
       rollout-operator wait [-for=rolled-out|whole] NAME|group/NAME|mazr/NAME [flags]
       rollout-operator wait rollout/NAME [-tag=TAG] [-timeout=10m] [flags]

Waits until all rollout groups and MultiAZRollouts of a namespace, or the one that is named, are
rolled out, and prints the reason why they are not each time it changes. It reads the objects
themselves: a status that is older than its spec does not count. MultiAZRollouts need the right to
list multiazrollouts.

A Rollout of kuberik.com is waited for only by name, until its newest version, or that of -tag, is
deployed and through its bake. This needs the right to list rollouts, and to wait for a version
that no operator has seen yet, the right to list imagepolicies.

"""
_FOOT: Final = """
Exit codes:
  0 done, 1 the objects cannot be read, 2 the command line is wrong, 3 timed out, 4 a group or
  MultiAZRollout stands still until a person changes something.
"""


class WaitProgress(NamedTuple):
    """How far an object is."""

    wanted: tuple[object, ...]
    """When this changes, progress starts anew."""
    pods: int
    """The number of ready pods plus that of updated pods."""


class Awaited(msgspec.Struct, frozen=True, kw_only=True):
    """An object to wait for, as it is now."""

    title: str
    line: str
    """Its state in one line."""
    is_reached: bool = False
    """Whether it has reached the goal."""
    is_held: bool = False
    """Whether it stands still until a person changes something."""
    stuck: str = ""
    """The pods that neither become ready nor are deleted, and why; empty for none."""
    progress: WaitProgress = WaitProgress((), 0)


def run(arguments: Sequence[str]) -> int:
    """Wait; return the exit code. Raises HelpRequested and OperatorError."""
    parsed = parse_mixed(WAIT_FLAGS, arguments)
    named = read_named(parsed.leftovers, group=parsed.value(GROUP), tag=parsed.value(TAG))
    refuse_other_choices(parsed, _FOR, Goal)
    if named.release and parsed.value(_FOR) != Goal.ROLLED_OUT:
        raise UsageError(f"-for={parsed.value(_FOR)} is about pods, and a Rollout has none")
    for flag in (_TIMEOUT, _STALLED_AFTER):
        if parsed.value(flag) < timedelta(0):
            raise UsageError(f"-{flag.name} must not be negative")
    be_quiet()
    return asyncio.run(_run(parsed, named))


def render_usage() -> str:
    """Return the help text."""
    return f"{_HEAD}Flags:\n{''.join(render_entries(WAIT_FLAGS))}{_FOOT}"


async def _run(arguments: ParsedArguments, named: Named) -> ExitCode:
    async with open_inspector(arguments, asks_operator=not named.release) as inspector:
        return await RolloutWait(inspector, sys.stdout, arguments, named).run()


class _Stall(NamedTuple):
    since: timedelta
    last_seen: timedelta
    """When a pod was stuck last."""
    why: str


@dataclass(slots=True)
class RolloutWait:
    """One run of `wait`, printed line by line."""

    inspector: ClusterInspector
    stream: TextIO
    arguments: ParsedArguments
    named: Named = NOTHING
    """The only object to wait for."""
    _shown: Mapping[str, str] = field(default_factory=dict)
    _unread: str = ""
    _denied_since: timedelta | None = None
    _remarks: Sequence[str] = ()
    """What could not be read, or that no operator acts: the time may be over for that."""
    _held_since: Mapping[str, timedelta] = field(default_factory=dict)
    """By title, as the next two."""
    _farthest: dict[str, WaitProgress] = field(default_factory=dict)
    """A pod that becomes ready and crashes again is no progress."""
    _stalls: dict[str, _Stall] = field(default_factory=dict)

    async def run(self) -> ExitCode:
        """Inspect until all objects have reached the goal, one needs a person, or time is up."""
        deadline = self.inspector.clock.elapsed() + self.arguments.value(_TIMEOUT)
        seen = await self._list_awaited()
        while True:
            end = self.judge(seen, deadline)
            if end is not None:
                return end
            left = deadline - self.inspector.clock.elapsed()
            await self.inspector.clock.sleep(min(_EVERY, left))
            seen = await self._inspect_again(seen)

    async def _list_awaited(self) -> Sequence[Awaited]:
        """Return the objects to wait for. Raises InvalidInput where there are none."""
        [seen] = await self.inspector.inspect()
        self._remarks = seen.remarks
        if awaited := _list_awaited(seen, Goal(self.arguments.value(_FOR)), self.named):
            return awaited
        raise describe_miss([seen.description], self.named)

    async def _inspect_again(self, last: Sequence[Awaited]) -> Sequence[Awaited]:
        try:
            awaited = await self._list_awaited()
        except (Denied, Unreachable, TooManyRequests) as error:
            # An API server that restarts is back in time, and forbids everything for a moment.
            now = self.inspector.clock.elapsed()
            since = now if self._denied_since is None else self._denied_since
            self._denied_since = since if isinstance(error, Denied) else None
            if self._denied_since is not None and now - since >= HELD_FOR:
                raise
            self._held_since = {}  # meanwhile a person may have changed it
            if f"{error}" != self._unread:
                self._unread = f"{error}"
                self._write(f"not read: {error}")
            return last
        self._denied_since = None
        return awaited

    def _write(self, line: str) -> None:
        self.stream.write(f"{line}\n")
        self.stream.flush()

    def judge(self, awaited: Sequence[Awaited], deadline: timedelta) -> ExitCode | None:
        """Return how the wait ends, None where it goes on."""
        now = self.inspector.clock.elapsed()
        lines = {wanted.title: wanted.line for wanted in awaited}
        for line in list_changes(self._shown, lines):
            self._write(line)
        self._shown = lines
        if all(wanted.is_reached for wanted in awaited):
            return ExitCode.DONE
        held = [wanted.title for wanted in awaited if wanted.is_held]
        self._held_since = {title: self._held_since.get(title, now) for title in held}
        for title, since in self._held_since.items():
            if now - since >= HELD_FOR:
                self._write(f"a person has to change something for {title}")
                return ExitCode.NEEDS_A_PERSON
        stalled_after = self.arguments.value(_STALLED_AFTER)
        for wanted in awaited:
            stall = self._follow_stall(wanted, now)
            if stall is not None and timedelta(0) < stalled_after <= now - stall.since:
                without = f"no progress for {format_duration(now - stall.since)}"
                self._write(f"{wanted.title} makes {without}: {stall.why}")
                self._write(f"a person has to change something for {wanted.title}")
                return ExitCode.NEEDS_A_PERSON
        if now >= deadline:
            for remark in self._remarks:
                self._write(remark)
            goal = "deployed" if self.named.release else self.arguments.value(_FOR)
            self._write(f"not {goal} within {format_duration(self.arguments.value(_TIMEOUT))}")
            return ExitCode.TIMED_OUT
        return None

    def _follow_stall(self, wanted: Awaited, now: timedelta) -> _Stall | None:
        """Return since when stuck pods keep an object from making progress, None if none do."""
        title, progress = wanted.title, wanted.progress
        best, stall = self._farthest.get(title, progress), self._stalls.get(title)
        is_better = progress.wanted != best.wanted or progress.pods > best.pods
        if is_better or title not in self._farthest:
            self._farthest[title] = progress
        if stall is not None and (is_better or now - stall.last_seen > _CALM):
            stall = None
        if wanted.stuck:
            since = now if stall is None else stall.since
            stall = _Stall(since=since, last_seen=now, why=wanted.stuck)
        if stall is None:
            self._stalls.pop(title, None)
        else:
            self._stalls[title] = stall
        return stall


def _list_awaited(seen: Inspection, goal: Goal, named: Named) -> Sequence[Awaited]:
    """Return the groups of an inspection and the policies that are obeyed, or what is named."""
    groups = [
        _await_group(group, goal, is_settled=is_settled(seen.groups[GroupName(group.name)]))
        for group in list_worst_first(seen.description.groups)
        if not named.is_given or group.name in {named.group, named.name}
    ]
    only = named.policy or named.name
    policies = list(_list_policies(seen, goal, only)) if only or not named.is_given else []
    if groups or policies or not named.is_given:
        return [*groups, *policies]
    return [
        await_release(release, named.tag)
        for release in seen.description.list_releases()
        if release.name in {named.release, named.name}
    ]


def _list_policies(seen: Inspection, goal: Goal, only: str) -> Iterator[Awaited]:
    driven, now = {sets.key: sets for sets in seen.driven}, seen.description.now
    for policy in seen.description.list_policies():
        own = driven.get(policy.title)
        is_disobeyed = policy.code is Code.POLICY_NOT_OBEYED
        # A policy that an operator may not have seen yet is not underway.
        is_new = own is None and not policy.conditions and not is_disobeyed
        if policy.name != only if only else is_new:
            continue
        if own is None or is_disobeyed:
            yield _await_group(describe_idle(policy, now), goal, POLICY_KIND)
        else:
            group = describe_driven(own.group, own.plan, now)
            yield _await_group(group, goal, POLICY_KIND, is_settled=is_settled(own.group))


def _await_group(
    group: GroupDescription, goal: Goal, kind: str = GROUP_KIND, *, is_settled: bool = True
) -> Awaited:
    """Return a group, or a MultiAZRollout that is described as a group.

    `is_settled`: the status of each StatefulSet shows the newest spec.
    """
    zones = group.zones
    down = [f"{pod.name}: {pod.why}" for zone in zones for pod in zone.pods if pod.state in _STUCK]
    # A policy has a progress deadline of its own.
    has_deadline = kind == POLICY_KIND or bool(group.policy)
    is_whole = bool(zones) and all(zone.ready >= zone.desired for zone in zones)
    is_reached = is_whole if goal is Goal.WHOLE else group.phase is Phase.ROLLED_OUT
    wanted = tuple((zone.name, zone.update_revision, zone.desired) for zone in zones)
    return Awaited(
        title=f"{kind} {group.name or EMPTY_NAME}",
        line=render_card(build_group(group, kind)),
        is_reached=is_settled and is_reached,
        is_held=group.phase is Phase.HELD,
        stuck="" if has_deadline else join_names(down),
        progress=WaitProgress(wanted, group.ready + group.updated),
    )


def await_release(release: ReleaseDescription, tag: str = "") -> Awaited:
    """Return a Rollout: `tag` is to be through its bake, or without one the newest version."""
    if tag:
        entry = next((entry for entry in release.history if entry.tag == tag), None)
        # Where it is to come again, what it came to before does not count.
        is_over = entry is not None and entry.status == BakeStatus.SUCCEEDED
        is_reached = is_over and release.next != tag
    else:
        is_last = not release.next and not release.is_retry_requested
        is_reached = release.phase is ReleasePhase.DEPLOYED and is_last
    return Awaited(
        title=f"Rollout {release.name}",
        line=render_card(build_release(release)),
        is_reached=is_reached,
        is_held=release.phase in {ReleasePhase.HELD, ReleasePhase.FAILED},
    )
