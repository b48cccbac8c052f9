"""The flags as help text, by groups with type and default, and as `docs/flags.md` lists them."""

import textwrap
from collections.abc import Iterable, Iterator
from typing import Any, Final

from rollout_operator.config.flags import FLAGS
from rollout_operator.config.grammar import BOOL, Flag

_WIDTH: Final = 92
_INDENT: Final = " " * 6

_HEAD: Final = """\
Replaces the pods of StatefulSets that use the OnDelete strategy, one zone of a rollout group at a
time and only while all pods of the other zones are ready.

Flags take one dash or two; -name=value and -name value are the same, but a bool takes its value
only through '='. A duration is a number with unit, such as 300ms, 1.5h or 1h30m. The last of
several counts.
"""

_FOOT: Final = """\
Signals:
  SIGTERM and SIGINT stop the operator after the work at hand; a second one stops it at once.

Exit codes:
  0 after a clean stop, 1 if it cannot start or a part of it fails, 2 if the command line is wrong.
  Commands may also end with 3 if their time is over, and with 4 if a person has to act.
"""


def render_flags() -> str:
    """Return the purpose of the operator and all its flags, no line longer than 100 columns."""
    parts = [_HEAD]
    for group in dict.fromkeys(flag.group for flag in FLAGS):
        flags = (flag for flag in FLAGS if flag.group == group)
        parts.append(f"{group}:\n{''.join(render_entries(flags))}")
    return "\n".join([*parts, _FOOT])


def render_entries(flags: Iterable[Flag[Any]]) -> Iterator[str]:
    """Yield the lines of each flag, no line longer than 100 columns."""
    for flag in flags:
        default = flag.kind.show(flag.default)
        text = f"{flag.help} (default {default})" if default else flag.help
        # As for Go: a bool is shown without type, because it takes no separate value.
        word = "" if flag.kind is BOOL else f" {flag.kind.word}"
        body = textwrap.fill(
            text,
            _WIDTH,
            initial_indent=_INDENT,
            subsequent_indent=_INDENT,
            break_on_hyphens=False,
            break_long_words=False,
        )
        yield f"  -{flag.name}{word}\n{body}\n"


def render_flag_table() -> str:
    """Return all flags as a Markdown table, one line each, for `docs/flags.md`."""
    lines = ["| Flag | Default | Meaning |", "| --- | --- | --- |"]
    for flag in FLAGS:
        default = flag.kind.show(flag.default)
        shown = f"`{default}`" if default else "empty"
        lines.append(f"| `-{flag.name}` {flag.kind.word} | {shown} | {flag.help} |")
    return "\n".join(lines) + "\n"
