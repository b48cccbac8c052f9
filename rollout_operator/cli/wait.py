"""`rollout-operator wait`: wait for a rollout, and report by exit code how it ended.

What is waited for are the rollout groups of a namespace and the MultiAZRollouts that an operator
obeys, or one object that is named. When each has come is said in `awaited`.

The objects that `wait` waits for: groups, MultiAZRollouts and Rollouts.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from rollout_operator.aio.clock import Clock, LoopClock
from rollout_operator.cli.access import (
    GROUP,
    INSPECTION_FLAGS,
    NOTHING,
    Named,
    be_quiet,
    describe_miss,
    open_inspector,
    read_named,
)
from rollout_operator.cli.status import list_changes, render_group_line
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
from rollout_operator.model.names import ExitCode, GroupName, TooManyRequests, Unreachable
from rollout_operator.model.outcome import Code
from rollout_operator.model.releases import BakeStatus
from rollout_operator.model.units import format_duration
from rollout_operator.operator.inspect import Inspection, is_settled
from rollout_operator.planning.describe_groups import list_worst_first
from rollout_operator.planning.describe_policies import describe_driven, describe_idle
from rollout_operator.planning.text import render_release
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


class WaitProgress(NamedTuple):
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
    def progress(self) -> WaitProgress:
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
    def progress(self) -> WaitProgress:
        """Return how far it is."""
        wanted = tuple((zone.name, zone.update_revision, zone.desired) for zone in self.group.zones)
        return WaitProgress(wanted, self.group.ready + self.group.updated)

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
    def progress(self) -> WaitProgress:
        """Return no number."""
        return WaitProgress((), 0)

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


FOR: Final = Flag(
    name="for",
    kind=TEXT,
    default=Goal.ROLLED_OUT,
    help="rolled-out: all pods are ready at the update revision; whole: all pods are ready.",
)
TAG: Final = Flag(
    name="tag", kind=TEXT, default="", help="Of a Rollout: this version; the newest without it."
)
TIMEOUT: Final = Flag(
    name="timeout",
    kind=DURATION,
    default=timedelta(minutes=10),
    help="How long to wait; 0 looks once.",
)
STALLED_AFTER: Final = Flag(
    name="stalled-after",
    kind=DURATION,
    default=timedelta(minutes=10),
    help="How long a group may make no progress because of pods that do not become ready, such as"
    " those that crash, before only a person can help; 0 waits on.",
)
WAIT_FLAGS: Final[tuple[Flag[Any], ...]] = (FOR, TAG, TIMEOUT, STALLED_AFTER, *INSPECTION_FLAGS)
EVERY: Final = timedelta(seconds=1)
# A zone is unpaused, or an object mended, in the next step of the same script.
HELD_FOR: Final = timedelta(seconds=10)
# A container that crashes is up, and its pod perhaps ready, for a moment after each restart.
CALM: Final = timedelta(minutes=2)

_HEAD: Final = """\
Usage: rollout-operator wait [-for=rolled-out|whole] [-timeout=10m] [flags]
       rollout-operator wait [-for=rolled-out|whole] NAME|group/NAME|mazr/NAME [flags]
       rollout-operator wait rollout/NAME [-tag=TAG] [-timeout=10m] [flags]

Waits until all rollout groups of a namespace and its MultiAZRollouts are rolled out, or those
that are named. It prints why they are not whenever that changes. What it finds is read from the
objects: a status that is older than its spec does not count. MultiAZRollouts need the right to
list multiazrollouts.

Of a Rollout of kuberik.com, which only waits where it is named, the newest version has to be
deployed and through its bake, or that of -tag. It needs the right to list rollouts, and that
to list imagepolicies to wait for a version that no operator has seen yet.

"""
_FOOT: Final = """
Exit codes:
  0 it has come, 1 the objects cannot be read, 2 the command line is wrong, 3 the time is over,
  4 a group or MultiAZRollout stands still until a person changes something.
"""

Inspect = Callable[[], Awaitable[Inspection]]


def run(arguments: Sequence[str]) -> int:
    """Wait; return the exit code. Raises HelpRequested and OperatorError."""
    parsed = parse_mixed(WAIT_FLAGS, arguments)
    named = read_named(parsed.leftovers, group=parsed.value(GROUP), tag=parsed.value(TAG))
    refuse_other_choices(parsed, FOR, Goal)
    if named.release and parsed.value(FOR) != Goal.ROLLED_OUT:
        raise UsageError(f"-for={parsed.value(FOR)} is of pods, and a Rollout has none")
    for flag in (TIMEOUT, STALLED_AFTER):
        if parsed.value(flag) < timedelta(0):
            raise UsageError(f"-{flag.name} must not be negative")
    be_quiet()
    return asyncio.run(_run(parsed, named))


def render_usage() -> str:
    """Return the help text."""
    return f"{_HEAD}Flags:\n{''.join(render_entries(WAIT_FLAGS))}{_FOOT}"


async def _run(arguments: ParsedArguments, named: Named) -> ExitCode:
    async with open_inspector(arguments) as inspector:

        async def inspect() -> Inspection:
            return (await inspector.inspect())[0]

        waiter = RolloutWait(
            inspect=inspect, goal=Goal(arguments.value(FOR)), timeout=arguments.value(TIMEOUT),
            clock=LoopClock(), write_line=_write_line, named=named,
            stalled_after=arguments.value(STALLED_AFTER),
        )  # fmt: skip
        return await waiter.run()


def _write_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


class _Stall(NamedTuple):
    since: timedelta
    seen: timedelta
    """When a pod was stuck last."""
    why: str


@dataclass(slots=True, kw_only=True)
class RolloutWait:
    """One run of `wait`, printed line by line."""

    inspect: Inspect
    goal: Goal
    timeout: timedelta
    clock: Clock
    write_line: Callable[[str], None]
    named: Named = NOTHING
    """The only object that is waited for."""
    stalled_after: timedelta = STALLED_AFTER.default
    """How long nothing may become better while pods are stuck; zero: for ever."""
    _shown: Mapping[str, str] = field(default_factory=dict)
    _unread: str = ""
    _held_since: Mapping[str, timedelta] = field(default_factory=dict)
    """By the object that is waited for."""
    _farthest: dict[str, WaitProgress] = field(default_factory=dict)
    """By the object: a pod that becomes ready and crashes again is no progress."""
    _stalls: dict[str, "_Stall"] = field(default_factory=dict)

    async def run(self) -> ExitCode:
        """Inspect until all have reached the goal, cannot by themselves, or the time is over."""
        deadline = self.clock.elapsed() + self.timeout
        seen = await self._list_awaited()
        while True:
            end = self.judge(seen, deadline)
            if end is not None:
                return end
            left = deadline - self.clock.elapsed()
            await self.clock.sleep(min(EVERY, left))
            seen = await self._inspect_again(seen)

    async def _list_awaited(self) -> Sequence[Awaited]:
        """Return the objects to wait for. Raises InvalidInput where there are none."""
        seen = await self.inspect()
        if awaited := list_awaited(seen, self.named):
            return awaited
        raise describe_miss([seen.description], self.named)

    async def _inspect_again(self, last: Sequence[Awaited]) -> Sequence[Awaited]:
        try:
            return await self._list_awaited()
        except (Unreachable, TooManyRequests) as error:
            # An API server that is replaced is back before the time is over.
            if f"{error}" != self._unread:
                self._unread = f"{error}"
                self.write_line(f"not read: {error}")
            return last

    def judge(self, awaited: Sequence[Awaited], deadline: timedelta) -> ExitCode | None:
        """Return how the wait ends by the state of this moment, None where it goes on."""
        now = self.clock.elapsed()
        self._say({wanted.title: wanted.line for wanted in awaited})
        if all(wanted.has_reached(self.goal) for wanted in awaited):
            return ExitCode.DONE
        held = [wanted.title for wanted in awaited if wanted.is_held]
        self._held_since = {title: self._held_since.get(title, now) for title in held}
        for title, since in self._held_since.items():
            if now - since >= HELD_FOR:
                self.write_line(f"a person has to change something for {title}")
                return ExitCode.NEEDS_A_PERSON
        for wanted in awaited:
            stall = self._follow_stall(wanted, now)
            if stall is not None and timedelta(0) < self.stalled_after <= now - stall.since:
                without = f"no progress for {format_duration(now - stall.since)}"
                self.write_line(f"{wanted.title} makes {without}: {stall.why}")
                self.write_line(f"a person has to change something for {wanted.title}")
                return ExitCode.NEEDS_A_PERSON
        if now >= deadline:
            goal = "deployed" if self.named.release else self.goal
            self.write_line(f"not {goal} within {format_duration(self.timeout)}")
            return ExitCode.TIMED_OUT
        return None

    def _follow_stall(self, wanted: Awaited, now: timedelta) -> "_Stall | None":
        """Return since when an object makes no progress because of stuck pods, if it does not."""
        title, progress = wanted.title, wanted.progress
        best, stall = self._farthest.get(title, progress), self._stalls.get(title)
        is_better = progress.wanted != best.wanted or progress.pods > best.pods
        if is_better or title not in self._farthest:
            self._farthest[title] = progress
        if stall is not None and (is_better or now - stall.seen > CALM):
            stall = None
        if wanted.stuck:
            since = now if stall is None else stall.since
            stall = _Stall(since=since, seen=now, why=wanted.stuck)
        if stall is None:
            self._stalls.pop(title, None)
        else:
            self._stalls[title] = stall
        return stall

    def _say(self, facts: Mapping[str, str]) -> None:
        """Print the news: of a hundred groups one line, where one of them moves."""
        for line in list_changes(self._shown, facts):
            self.write_line(line)
        self._shown = facts
