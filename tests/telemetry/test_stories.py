"""Series, health and the log: texts of commands beside this file."""

from pathlib import Path

import pytest

from tests.goldens import Golden
from tests.stories import Story, read_stories
from tests.telemetry.metrics_stage import MetricsStage
from tests.telemetry.release_stage import ReleaseStage
from tests.telemetry.small_stages import HealthStage, LogStage

HERE = Path(__file__).parent


@pytest.mark.parametrize("story", read_stories(HERE / "groups.txt", HERE / "metrics.txt"))
async def test_story(story: Story, golden: Golden) -> None:
    story.check(await MetricsStage().play(story.commands), golden)


@pytest.mark.parametrize("story", read_stories(HERE / "releases.txt"))
async def test_releases(story: Story, golden: Golden) -> None:
    story.check(await ReleaseStage().play(story.commands), golden)


@pytest.mark.parametrize("story", read_stories(HERE / "health.txt"))
async def test_health(story: Story, golden: Golden, lines: list[str]) -> None:
    story.check(await HealthStage(lines).play(story.commands), golden)


@pytest.mark.parametrize("story", read_stories(HERE / "log.txt"))
async def test_log(story: Story, golden: Golden) -> None:
    story.check(await LogStage().play(story.commands), golden)
