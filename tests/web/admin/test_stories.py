"""The admin server on real sockets: texts of commands beside this file."""

from pathlib import Path

import pytest

from tests.goldens import Golden
from tests.stories import Story, read_stories
from tests.web.admin.stage import AdminStage


@pytest.mark.parametrize("story", read_stories(*Path(__file__).parent.glob("*.txt")))
async def test_story(
    story: Story, golden: Golden, lines: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    story.check(await AdminStage(lines).play(story.commands), golden)
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []
