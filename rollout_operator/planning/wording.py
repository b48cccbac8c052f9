"""How texts of reasons list, count and cut things, and how a plan becomes sentences."""

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from importlib.resources import files
from typing import Final, assert_never

import msgspec

from rollout_operator.model.outcome import Action, Plan, RecordRevision, ReplacePods

# Names listed in one sentence; the rest is counted.
NAMES_SHOWN: Final = 3
_SENTENCES_PER_ACTION: Final = 10
# Reasons may quote annotations, which may hold 256 KiB.
MAX_LINE: Final = 1000
# Controls a terminal or the direction of text. The encoder escapes what lies below the space.
_HOSTILE_IN_JSON: Final = re.compile("[\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")


def explain(plan: Plan) -> tuple[str, ...]:
    """Return what is done, why the rest waits, and what is odd, a sentence each."""
    return (*explain_actions(plan), *(reason.text for reason in (*plan.waits, *plan.problems)))


def explain_actions(plan: Plan) -> tuple[str, ...]:
    return tuple(text for action in plan.actions for text in _explain_action(action))


def join_names(names: Sequence[str], *, shown: int = NAMES_SHOWN) -> str:
    """Return `a`, `a and b`, `a, b and c` or `a, b, c and 4 more`; empty for no names."""
    return join_some(names[:shown], total=len(names))


def join_some(names: Sequence[str], *, total: int) -> str:
    """Like `join_names`, for `total` names of which these are known."""
    hidden = total - len(names)
    parts = [*names, f"{hidden} more"] if hidden > 0 else [*names]
    return " and ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else "".join(parts)


def count(number: int, noun: str) -> str:
    """Return `1 pod`, `2 pods`, `0 pods`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def verb(number: int, singular: str, plural: str) -> str:
    return singular if number == 1 else plural


def render_time(time: datetime) -> str:
    """Return a time such as `2026-01-02T03:04:05Z`."""
    return time.isoformat(timespec="seconds").replace("+00:00", "Z")


def camel_case(code: str) -> str:
    """Return a reason of Kubernetes: `ZoneNotReady` for `zone_not_ready`."""
    return "".join(word.capitalize() for word in code.split("_"))


def cut(text: str) -> str:
    return text if len(text) <= MAX_LINE else f"{text[:MAX_LINE]}…"


def one_line(text: str) -> str:
    """Cut the text, and escape what is not printable."""
    return printable(cut(text))


def printable(text: str) -> str:
    """Escape what is not printable: it may control a terminal."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def read_table(name: str) -> Iterator[list[str]]:
    """Yield the cells of each line of a table that is shipped with the package."""
    for line in files(__package__).joinpath(name).read_text("utf-8").splitlines():
        if len(cells := [cell.strip() for cell in line.split("|")]) > 1:
            yield cells


def format_json(content: object) -> str:
    """Return indented JSON, with escapes for what may control a terminal."""
    text = msgspec.json.format(msgspec.json.encode(content)).decode()
    return _HOSTILE_IN_JSON.sub(lambda character: f"\\u{ord(character[0]):04x}", text)


def _explain_action(action: Action) -> tuple[str, ...]:
    match action:
        case ReplacePods(going=going):
            texts = [pod.reason.text for pod in going]
            hidden = len(texts) - _SENTENCES_PER_ACTION
            more = (f"and {hidden} more",) if hidden > 0 else ()
            return (*texts[:_SENTENCES_PER_ACTION], *more)
        case RecordRevision(reason=reason):
            return (reason.text,)
        case _:
            assert_never(action)
