"""`rollout-operator wait`: wait for rollout groups, and tell a script by exit code how it ended."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final

from rollout_operator.aio.clock import Clock, LoopClock
from rollout_operator.cli.inspection import (
    INSPECTION_FLAGS,
    be_quiet,
    open_inspector,
    refuse_arguments,
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
from rollout_operator.model.units import format_duration
from rollout_operator.operator.diagnosis.inspect import Inspection
from rollout_operator.planning.description.phase import list_worst_first


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

_HEAD: Final = """\
Usage: rollout-operator wait [-for=rolled-out|whole] [-group=NAME] [-timeout=10m] [flags]

Waits until all rollout groups of a namespace, or the one of -group, are rolled out. It prints why
they are not whenever that changes. What it finds is read from the objects: a status that is older
than its spec does not count.

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
    refuse_arguments(parsed)
    refuse_other_choices(parsed, FOR, Goal)
    if parsed.value(TIMEOUT) < timedelta(0):
        raise UsageError("-timeout must not be negative")
    be_quiet()
    return asyncio.run(_run(parsed))


def render_usage() -> str:
    """Return the help text."""
    return f"{_HEAD}Flags:\n{''.join(render_entries(WAIT_FLAGS))}{_FOOT}"


async def _run(arguments: ParsedArguments) -> ExitCode:
    async with open_inspector(arguments) as inspector:

        async def inspect() -> Inspection:
            return (await inspector.inspect())[0]

        waiter = GroupWait(
            inspect=inspect, goal=Goal(arguments.value(FOR)), timeout=arguments.value(TIMEOUT),
            clock=LoopClock(), write_line=_write_line,
        )  # fmt: skip
        return await waiter.run()


def _write_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def is_reached(seen: Inspection, goal: Goal) -> bool:
    """Return whether all groups of an inspection are what is waited for, as of now."""
    return seen.is_settled and all(_has_reached(group, goal) for group in seen.description.groups)


def _has_reached(group: GroupDescription, goal: Goal) -> bool:
    if goal is Goal.ROLLED_OUT:
        return group.phase is Phase.ROLLED_OUT
    return all(zone.ready >= zone.desired for zone in group.zones)


@dataclass(slots=True, kw_only=True)
class GroupWait:
    """One wait, told line by line."""

    inspect: Inspect
    goal: Goal
    timeout: timedelta
    clock: Clock
    write_line: Callable[[str], None]
    _shown: Mapping[str, str] = field(default_factory=dict)
    _unread: str = ""
    _held_since: Mapping[str, timedelta] = field(default_factory=dict)
    """By group."""

    async def run(self) -> ExitCode:
        """Look until it has come, or never will by itself, or the time is over."""
        deadline = self.clock.elapsed() + self.timeout
        seen = await self._inspect_groups()
        while True:
            end = self._judge(seen, deadline)
            if end is not None:
                return end
            left = deadline - self.clock.elapsed()
            await self.clock.sleep(min(EVERY, left))
            seen = await self._inspect_again(seen)

    async def _inspect_groups(self) -> Inspection:
        """Raise InvalidInput where there is none: that all of none are done says nothing."""
        seen = await self.inspect()
        if not seen.description.groups:
            where = seen.description.namespace
            raise InvalidInput(f"there is no rollout group in namespace {where}")
        return seen

    async def _inspect_again(self, last: Inspection) -> Inspection:
        try:
            return await self._inspect_groups()
        except (Unreachable, TooManyRequests) as error:
            # An API server that is replaced is back before the time is over.
            if f"{error}" != self._unread:
                self._unread = f"{error}"
                self.write_line(f"not read: {error}")
            return last

    def _judge(self, seen: Inspection, deadline: timedelta) -> ExitCode | None:
        groups, now = list_worst_first(seen.description.groups), self.clock.elapsed()
        self._say({f"group {group.name}": render_group_line(group) for group in groups})
        if is_reached(seen, self.goal):
            return ExitCode.DONE
        held = [group.name for group in groups if group.phase is Phase.HELD]
        self._held_since = {name: self._held_since.get(name, now) for name in held}
        for name, since in self._held_since.items():
            if now - since >= HELD_FOR:
                self.write_line(f"a person has to change something for group {name}")
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
