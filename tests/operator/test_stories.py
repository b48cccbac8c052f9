"""The whole operator on a simulated cluster, and its Events: texts of commands beside this file."""

from pathlib import Path
from typing import Final

import pytest

from tests.goldens import Golden
from tests.operator.event_stage import EventStage
from tests.operator.stage import OperatorStage
from tests.stories import Stage, Story, read_stories
from tests.virtual_time import in_virtual_time

HERE: Final = Path(__file__).parent
EVENTS: Final = HERE / "events.txt"
TEXTS: Final = {*HERE.glob("*.txt")} - {EVENTS, HERE / "flags.txt"}


@pytest.mark.parametrize("story", read_stories(EVENTS))
def test_events(
    story: Story, golden: Golden, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _play(story, golden, EventStage(lines, monkeypatch))


@pytest.mark.thorough
@pytest.mark.parametrize("story", read_stories(*TEXTS))
def test_story(story: Story, golden: Golden, lines: list[str]) -> None:
    about = story.path.stem
    stage = OperatorStage(
        lines, has_webhooks=about == "scaling", is_quick=about in ("scaling", "marks")
    )
    _play(story, golden, stage)


def _play(story: Story, golden: Golden, stage: Stage) -> None:
    found: list[str] = []

    @in_virtual_time
    async def run() -> None:
        found.extend(await stage.play(story.commands))

    run()
    story.check(found, golden)
