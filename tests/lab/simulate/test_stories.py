"""Simulations, their inputs, flags and changes: texts of commands beside this file."""

import re
import sys
from collections.abc import Coroutine
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec.structs import replace
from rollout_lab.simulate.changes import FORMS, Cordon, Names, check_names, parse_change, set_times
from rollout_lab.simulate.figures import add_up
from rollout_lab.simulate.flags import FLAGS, read_settings, render_simulate_usage

from rollout_operator.config.grammar import UsageError
from rollout_operator.model.names import InvalidInput
from tests.goldens import Golden
from tests.judge.stage import HistoryBuilder
from tests.lab.simulate.stage import SimulateStage
from tests.stories import Stage, Story, read_stories

HERE: Final = Path(__file__).parent
NAMES: Final = Names(
    groups={"ingester": ("zone-a", "zone-b"), "store": ("store-a",)},
    pods=frozenset({"zone-a-0", "zone-b-0", "store-a-0"}),
    gates={"ingester-health": ("zone-a", "zone-b")},
    nodes={"node-1": frozenset({"zone-a"}), "node-2": frozenset({"zone-a", "store-a"})},
)


class WordsStage(Stage):
    """What is read of a command line: flags, changes, and the names in them."""

    async def do_flags(self, *words: str) -> str:
        """Show the settings that are not as they are by default."""
        default = read_settings(["-f", "x"])
        found = read_settings(words)
        return ", ".join(
            f"{name}={getattr(found, name)!r}"
            for name in found.__dataclass_fields__
            if getattr(found, name) != getattr(default, name) and name != "arguments"
        )

    async def do_change(self, *words: str) -> str:
        """Show what is understood of a change."""
        change = parse_change(" ".join(words))
        at = "" if change.at is None else f" at {change.at.total_seconds():g}s"
        return f"{change.deed!r}{at}"

    async def do_at(self, *changes: str) -> str:
        """Show the seconds in which changes come."""
        return " ".join(
            f"{at.total_seconds():g}" for at, _ in set_times(map(parse_change, changes))
        )

    async def do_names(self, *changes: str) -> str:
        """Show of which nodes changes are about, if all their names are there."""
        return self._check(NAMES, changes)

    async def do_nodeless(self, *changes: str) -> str:
        return self._check(replace(NAMES, nodes={}), changes)

    def _check(self, names: Names, texts: tuple[str, ...]) -> str:
        changes = [parse_change(text) for text in texts]
        check_names(changes, names)
        cordons = [one.deed for one in changes if isinstance(one.deed, Cordon)]
        return "; ".join([" ".join(names.list_nodes(one)) for one in cordons]) or "known"

    async def do_zones(self, *names: str) -> str:
        return " ".join(NAMES.expand(names))

    async def act(self, command: str) -> str:
        try:
            return await super().act(command)
        except (InvalidInput, UsageError) as refused:
            return str(refused)


@pytest.mark.thorough
@pytest.mark.parametrize("story", read_stories(*HERE.glob("*.txt")))
def test_story(story: Story, golden: Golden) -> None:
    stage = WordsStage() if story.path.stem == "words" else SimulateStage()
    story.check(finish(stage.play(story.commands)), golden)


def finish(waits: Coroutine[Any, Any, list[str]]) -> list[str]:
    """Return what comes of commands that never wait: a simulation has a loop of its own."""
    try:
        waits.send(None)
    except StopIteration as done:
        found: list[str] = done.value
        return found
    raise AssertionError("a command waits")


def test_every_form_is_understood_as_it_stands_and_help_names_all() -> None:
    usage = render_simulate_usage()
    assert all(f"\n  -{flag.name}" in usage for flag in FLAGS)
    assert max(map(len, usage.splitlines())) <= 100
    words = {"ZONE": "zone-a", "POD": "zone-a-0", "NODE": "n", "N": "2", "IMAGE": "v2"}
    words |= {"POLICY": "db", "FIELD": "paused", "VALUE": "true"}
    words |= {"passing|failing|unknown": "unknown"}
    for form in FORMS:
        assert f"  {form.shown}\n" in usage
        plain = re.sub(r"\[ZONE=\]|\[\w+ \.\.\.\]", "", form.shown)
        said = " ".join(words.get(word, word) for word in plain.split())
        assert parse_change(said).text == said


def test_figures_of_twice_the_pods_take_twice_the_work() -> None:
    assert _count_calls(100) < 2.5 * _count_calls(50)


def _count_calls(pods: int) -> int:
    """Return how many calls the figures of a zone take whose pods go and come back in turn."""
    words = HistoryBuilder().zones(pods, "a")
    for name in [f"a-{ordinal}" for ordinal in range(pods)]:
        words.gone(1, name).zone(2, "a").pod(2, name)
    records = words.history.records
    calls = 0

    def count_call(frame: object, event: str, arg: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count_call)
    try:
        add_up(records, {"ingester": ["zone-a"]}, timedelta(seconds=100))
    finally:
        sys.setprofile(None)
    return calls
