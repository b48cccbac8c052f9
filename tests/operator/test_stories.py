"""The whole operator on a simulated cluster: texts of commands beside this file."""

from pathlib import Path

import pytest

from tests.goldens import Golden
from tests.operator.event_stage import EventStage
from tests.operator.stage import OperatorStage
from tests.stories import Story, read_stories
from tests.virtual_time import in_virtual_time

pytestmark = pytest.mark.thorough


@pytest.mark.parametrize("story", read_stories(*Path(__file__).parent.glob("*.txt")))
def test_story(
    story: Story, golden: Golden, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    about = story.path.stem
    stage = (
        EventStage(monkeypatch)
        if about == "events"
        else OperatorStage(
            lines, has_webhooks=about == "scaling", is_quick=about in ("scaling", "marks")
        )
    )
    found: list[str] = []

    @in_virtual_time
    async def run() -> None:
        found.extend(await stage.play(story.commands))

    run()
    story.check(found, golden)
