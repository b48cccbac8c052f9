"""`rollout-operator wait`: wait for a rollout, and tell a script by exit code how it ended.

What is waited for are the rollout groups of a namespace and the MultiAZRollouts that an operator
obeys, or one of either. A MultiAZRollout is judged as a group of what it owns.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final

from rollout_operator.aio.clock import Clock, LoopClock
from rollout_operator.cli.inspection import (
    GROUP,
    INSPECTION_FLAGS,
    POLICY_WORDS,
    be_quiet,
    miss_policy,
    open_inspector,
)
from rollout_operator.cli.text.status_changes import list_changes, render_group_line
from rollout_operator.config.grammar import (
    DURATION,
    TEXT,
    Flag,
    ParsedArguments,
    UsageError,
    parse_mixed,
    refuse_other_choices,
)
from rollout_operator.config.usage import render_entries
from rollout_operator.model.description import GroupDescription, Phase
from rollout_operator.model.errors import InvalidInput, TooManyRequests, Unreachable
from rollout_operator.model.exit_codes import ExitCode
from rollout_operator.model.names import GroupName
from rollout_operator.model.units import format_duration
from rollout_operator.operator.diagnosis.inspect import Inspection, is_settled
from rollout_operator.planning.description.phase import list_worst_first
from rollout_operator.planning.description.policies import describe_driven, describe_idle


class Goal(StrEnum):
    """What is waited for."""

    ROLLED_OUT = "rolled-out"
    """All pods are ready at the update revision, and nothing is due."""
    WHOLE = "whole"
    """All pods are ready, whatever their revision."""


FOR: Final = Flag(
    name="for",
    kind=TEXT,
    default=Goal.ROLLED_OUT,
    help="rolled-out: all pods are ready at the update revision; whole: all pods are ready.",
)
TIMEOUT: Final = Flag(
    name="timeout",
    kind=DURATION,
    default=timedelta(minutes=10),
    help="How long to wait; 0 looks once.",
)
WAIT_FLAGS: Final[tuple[Flag[Any], ...]] = (FOR, TIMEOUT, *INSPECTION_FLAGS)
EVERY: Final = timedelta(seconds=1)
# A zone is unpaused, or an object mended, in the next step of the same script.
HELD_FOR: Final = timedelta(seconds=10)
_POLICY: Final = "MultiAZRollout"

_HEAD: Final = """\
Usage: rollout-operator wait [-for=rolled-out|whole] [-group=NAME] [-timeout=10m] [flags]
       rollout-operator wait [-for=rolled-out|whole] multiazrollout/NAME [-timeout=10m] [flags]

Waits until all rollout groups of a namespace and its MultiAZRollouts are rolled out, or the one
that is named. It prints why they are not whenever that changes. What it finds is read from the
objects: a status that is older than its spec does not count. MultiAZRollouts need the right to
list multiazrollouts.

"""
_FOOT: Final = """
Exit codes:
  0 it has come, 1 the objects cannot be read, 2 the command line is wrong, 3 the time is over,
  4 a group stands still until a person changes something.
"""

Inspect = Callable[[], Awaitable[Inspection]]


def run(arguments: Sequence[str]) -> int:
    """Wait; return the exit code. Raises HelpRequested and OperatorError."""
    parsed = parse_mixed(WAIT_FLAGS, arguments)
    policy = read_policy(parsed.leftovers)
    if policy and parsed.value(GROUP):
        raise UsageError(f"name a group by -{GROUP.name} or a MultiAZRollout, not both")
    refuse_other_choices(parsed, FOR, Goal)
    if parsed.value(TIMEOUT) < timedelta(0):
        raise UsageError("-timeout must not be negative")
    be_quiet()
    return asyncio.run(_run(parsed, policy))


def render_usage() -> str:
    """Return the help text."""
    return f"{_HEAD}Flags:\n{''.join(render_entries(WAIT_FLAGS))}{_FOOT}"


def read_policy(words: Sequence[str]) -> str:
    """Return the MultiAZRollout that is named, empty where none is. Raises UsageError."""
    if not words:
        return ""
    kind, _, name = "/".join(words).partition("/")
    if kind.lower() not in POLICY_WORDS or not name or "/" in name:
        raise UsageError(
            f"unexpected word: {words[0]}; a group is named by -{GROUP.name}, a MultiAZRollout by"
            " mazr/NAME"
        )
    return name


async def _run(arguments: ParsedArguments, policy: str) -> ExitCode:
    async with open_inspector(arguments) as inspector:

        async def inspect() -> Inspection:
            return (await inspector.inspect())[0]

        waiter = RolloutWait(
            inspect=inspect, goal=Goal(arguments.value(FOR)), timeout=arguments.value(TIMEOUT),
            clock=LoopClock(), write_line=_write_line, policy=policy,
        )  # fmt: skip
        return await waiter.run()


def _write_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


@dataclass(frozen=True, slots=True)
class Awaited:
    """A group that is waited for, or a MultiAZRollout that is described as one."""

    what: str
    group: GroupDescription
    is_settled: bool = True
    """Whether the status of each of its StatefulSets shows the newest spec."""

    @property
    def title(self) -> str:
        """Return what it is called."""
        return f"{self.what} {self.group.name}"

    def has_reached(self, goal: Goal) -> bool:
        """Return whether it is what is waited for, as of now."""
        if not self.is_settled:
            return False
        if goal is Goal.ROLLED_OUT:
            return self.group.phase is Phase.ROLLED_OUT
        zones = self.group.zones
        return bool(zones) and all(zone.ready >= zone.desired for zone in zones)


def list_awaited(seen: Inspection, policy: str = "") -> Sequence[Awaited]:
    """Return the groups of an inspection and the policies that are obeyed, or that policy alone."""
    policies = list(_list_policies(seen, policy))
    if policy:
        return policies
    groups = [
        Awaited("group", group, is_settled(seen.groups[GroupName(group.name)]))
        for group in list_worst_first(seen.description.groups)
    ]
    return [*groups, *policies]


def _list_policies(seen: Inspection, only: str) -> Iterator[Awaited]:
    driven, now = {each.key: each for each in seen.driven}, seen.description.now
    for policy in seen.description.list_policies():
        own = driven.get(policy.title)
        # One that no operator has looked at is nothing that goes on.
        if policy.name != only if only else own is None and not policy.conditions:
            continue
        if own is None:
            yield Awaited(_POLICY, describe_idle(policy, now))
        else:
            group = describe_driven(own.group, own.plan, now)
            yield Awaited(_POLICY, group, is_settled(own.group))


@dataclass(slots=True, kw_only=True)
class RolloutWait:
    """One wait, told line by line."""

    inspect: Inspect
    goal: Goal
    timeout: timedelta
    clock: Clock
    write_line: Callable[[str], None]
    policy: str = ""
    """The MultiAZRollout that is waited for alone."""
    _shown: Mapping[str, str] = field(default_factory=dict)
    _unread: str = ""
    _held_since: Mapping[str, timedelta] = field(default_factory=dict)
    """By what is waited for."""

    async def run(self) -> ExitCode:
        """Look until it has come, or never will by itself, or the time is over."""
        deadline = self.clock.elapsed() + self.timeout
        seen = await self._list_awaited()
        while True:
            end = self._judge(seen, deadline)
            if end is not None:
                return end
            left = deadline - self.clock.elapsed()
            await self.clock.sleep(min(EVERY, left))
            seen = await self._inspect_again(seen)

    async def _list_awaited(self) -> Sequence[Awaited]:
        """Raise InvalidInput where there is none: that all of none are done says nothing."""
        seen = await self.inspect()
        if awaited := list_awaited(seen, self.policy):
            return awaited
        if self.policy:
            raise miss_policy(seen.description, self.policy)
        where = seen.description.namespace
        raise InvalidInput(f"there is no rollout group in namespace {where}")

    async def _inspect_again(self, last: Sequence[Awaited]) -> Sequence[Awaited]:
        try:
            return await self._list_awaited()
        except (Unreachable, TooManyRequests) as error:
            # An API server that is replaced is back before the time is over.
            if f"{error}" != self._unread:
                self._unread = f"{error}"
                self.write_line(f"not read: {error}")
            return last

    def _judge(self, awaited: Sequence[Awaited], deadline: timedelta) -> ExitCode | None:
        now = self.clock.elapsed()
        self._say({wait.title: render_group_line(wait.group, wait.what) for wait in awaited})
        if all(wait.has_reached(self.goal) for wait in awaited):
            return ExitCode.DONE
        held = [wait.title for wait in awaited if wait.group.phase is Phase.HELD]
        self._held_since = {title: self._held_since.get(title, now) for title in held}
        for title, since in self._held_since.items():
            if now - since >= HELD_FOR:
                self.write_line(f"a person has to change something for {title}")
                return ExitCode.NEEDS_A_PERSON
        if now >= deadline:
            self.write_line(f"not {self.goal} within {format_duration(self.timeout)}")
            return ExitCode.TIMED_OUT
        return None

    def _say(self, facts: Mapping[str, str]) -> None:
        """Tell what is news: of a hundred groups one line, where one of them moves."""
        for line in list_changes(self._shown, facts):
            self.write_line(line)
        self._shown = facts
