"""The commands of stories of cards: what is described, and what terminals, pipes and `curl` show.

`group`, `policy`, `release`, `schedule`, `check`, `budget` and `operator` describe one more of that
kind, as `tests.web.status.descriptions` makes them, with fields that differ: `policy phase=Idle`.
Values are YAML; NOW, LATER and HOSTILE stand for what they are there.
"""

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

import msgspec
import yaml
from msgspec.structs import replace

from rollout_operator.cli.status import list_changes, map_facts
from rollout_operator.model.description import Description, PodState, ZoneDescription
from rollout_operator.planning.cards import Card
from rollout_operator.planning.text import (
    PLAIN_TEXT,
    StatusLayout,
    draw_card,
    draw_status,
    render_age,
    render_description,
    render_line,
)
from tests.stories import Stage
from tests.web.status import descriptions
from tests.web.status.descriptions import HOSTILE, MINUTE, NOW
from tests.web.status.elements import read_page

_KINDS: Final[dict[str, tuple[str, Callable[[], Any]]]] = {
    "group": ("groups", lambda: descriptions.group(zones=())),
    "policy": ("policies", descriptions.policy),
    "release": ("releases", descriptions.release),
    "schedule": ("schedules", descriptions.release_schedule),
    "check": ("health_checks", descriptions.health_check),
    "budget": ("budgets", descriptions.budget),
}
_STATES: Final = {
    "#": (PodState.READY, True),
    "o": (PodState.READY, False),
    "~": (PodState.STARTING, True),
    "!": (PodState.NOT_READY, False),
    "x": (PodState.GOING, False),
    ".": (PodState.MISSING, False),
    "?": (PodState.UNREADABLE, False),
}
_WORDS: Final = {
    "NOW": f"'{NOW.isoformat()}'",
    "LATER": f"'{(NOW + MINUTE).isoformat()}'",
    "BEFORE": f"'{(NOW - MINUTE).isoformat()}'",
    "HOSTILE": json.dumps(HOSTILE),
}
_ENDLESS: Final = 10_000
_LEGEND: Final = "hollow: older revision"


class CardStage(Stage):
    """A namespace as it is described."""

    def __init__(self) -> None:
        self.described = Description(namespace="prod", now=NOW)
        self._seen: dict[str, str] = {}
        for word in _KINDS:
            setattr(self, f"do_{word}", lambda *changes, word=word: self._add(word, changes))

    async def _add(self, word: str, changes: tuple[str, ...]) -> None:
        name, build = _KINDS[word]
        known = getattr(self.described, name) or ()
        new = _change(build(), changes)
        self.described = replace(self.described, **{name: (*known, new)})

    async def do_zone(self, name: str, marks: str, *changes: str) -> None:
        """The last group has one more zone, of whose pods each has a mark."""
        *others, group = self.described.groups
        zones = (*group.zones, _change(_build_zone(name, marks), changes))
        counts = {
            field: sum(getattr(zone, field) for zone in zones)
            for field in ("desired", "ready", "updated")
        }
        changed = replace(group, zones=zones, **counts)
        self.described = replace(self.described, groups=(*others, changed))

    async def do_describe(self, *changes: str) -> None:
        """Fields of the description itself differ."""
        self.described = _change(self.described, changes)

    async def do_none(self, word: str) -> None:
        """None of a kind is described any more."""
        self.described = replace(self.described, **{_KINDS[word][0]: ()})

    async def do_status(self, width: str, *words: str) -> str:
        """Show what `status` draws: `wide`, `terse`, and remarks on what was not read."""
        layout = StatusLayout(width=int(width), is_wide="wide" in words, is_terse="terse" in words)
        remarks = [word for word in words if word not in ("wide", "terse")]
        drawn = draw_status(self.described, remarks, layout)
        lines = [render_line(line, _ENDLESS, is_coloured=False).rstrip() for line in drawn]
        assert max(map(len, lines)) <= layout.width, lines
        return _join(lines)

    async def do_text(self) -> str:
        """Show what `curl` gets."""
        assert PLAIN_TEXT.is_wide
        return _join([*render_description(self.described)])

    async def do_page(self) -> str:
        """Show what a browser reads, without head and foot, after checks that hold for any page."""
        lines = (await read_page(self.described)).lines
        return _join(lines[lines.index(_LEGEND) + 1 : -2])

    async def do_age(self, *seconds: str) -> str:
        """Show spans of so many seconds, which are short."""
        return " ".join(render_age(timedelta(seconds=int(one))) for one in seconds)

    async def do_changes(self) -> str:
        """Show what `status -w` writes into a pipe."""
        before, self._seen = self._seen, dict(map_facts(self.described))
        return _join([*list_changes(before, self._seen)])


def read_card(card: Card) -> list[str]:
    """Return the lines of a card that `curl` gets."""
    lines = draw_card(card, NOW, PLAIN_TEXT)
    return [render_line(line, PLAIN_TEXT.width, is_coloured=False).rstrip() for line in lines]


def _join(lines: list[str]) -> str:
    assert all(line.isprintable() for line in lines)
    return "\n".join(lines)


def _change(made: Any, changes: tuple[str, ...]) -> Any:
    if not changes:
        return made
    fields = dict(change.split("=", 1) for change in changes)
    values = {key: _read(value) for key, value in fields.items()}
    known = {each.name: getattr(made, each.name) for each in msgspec.structs.fields(made)}
    given = {key: value for key, value in known.items() if value is not msgspec.UNSET}
    return msgspec.convert({**msgspec.to_builtins(given), **values}, type(made), strict=False)


def _read(text: str) -> Any:
    """Return a value; what begins as a list, a mapping or a quoted text is YAML."""
    for word, value in _WORDS.items():
        text = text.replace(word, value)
    return yaml.safe_load(text) if text[:1] in {"[", "{", '"', "'"} else text


def _build_zone(name: str, marks: str) -> ZoneDescription:
    name = _read(name)
    states = [_STATES[mark] for mark in marks]
    made = descriptions.zone(name, states=tuple(state for state, _ in states), why="it crashes")
    pods = tuple(
        replace(pod, is_updated=is_updated, since=NOW - timedelta(seconds=90))
        for pod, (_, is_updated) in zip(made.pods, states, strict=True)
    )
    return replace(
        made,
        pods=pods,
        updated=sum(is_updated for _, is_updated in states),
        outdated=marks.count("o"),
        current_revision=f"{name}-1",
        update_revision=f"{name}-2",
    )
