"""Series and log of groups, zones, policies and webhooks: texts of commands beside this file."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rollout_operator.telemetry import logs
from tests.goldens import Golden
from tests.stories import Story, read_stories
from tests.telemetry.metrics_stage import MetricsStage

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def _log() -> Iterator[None]:
    yield
    logs.configure()


@pytest.mark.parametrize("story", read_stories(HERE / "groups.txt", HERE / "metrics.txt"))
async def test_story(story: Story, golden: Golden) -> None:
    story.check(await MetricsStage().play(story.commands), golden)
