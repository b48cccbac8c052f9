"""The status page: what holds each group, as text.

The sentences are those of `planning.wording`. Text, not HTML: nothing in it can be mark-up,
and what could steer a terminal is escaped.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from rollout_operator import __version__
from rollout_operator.planning.wording import explain
from rollout_operator.telemetry.health import Health
from rollout_operator.telemetry.registry import GroupState, GroupStates

# Reasons may quote annotations, which may hold 256 KiB.
MAX_LINE: Final = 1000


def render_status(health: Health, group_states: GroupStates) -> str:
    """Return the page."""
    return "".join(f"{one_line(line)}\n" for line in _list_lines(health, group_states))


def one_line(text: str) -> str:
    """Return `text` cut to a readable length, with escapes for what is not printable."""
    cut = text if len(text) <= MAX_LINE else f"{text[:MAX_LINE]}…"
    if cut.isprintable():
        return cut
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in cut)


def _list_lines(health: Health, group_states: GroupStates) -> Iterator[str]:
    yield f"rollout-operator {__version__}"
    missing = health.list_missing()
    yield "ready" if not missing else "not ready"
    yield from (f"  {line}" for line in missing)
    entries = group_states.entries()
    yield f"{len(entries)} rollout group{'' if len(entries) == 1 else 's'}"
    for entry in entries:
        yield ""
        yield from _list_group(entry)


def _list_group(entry: GroupState) -> Iterator[str]:
    yield f'group "{entry.plan.group}"{" (failed)" if entry.plan.failed else ""}'
    yield f"  looked at {_second(entry.looked)}, in this state since {_second(entry.since)}"
    yield from (f"  {sentence}" for sentence in explain(entry.plan))


def _second(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")
