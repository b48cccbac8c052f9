"""The webhook server on real sockets: texts of commands beside this file."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import uvloop
from opentelemetry.trace import format_trace_id

from tests.goldens import Golden
from tests.recorded_spans import recorded
from tests.stories import Story, read_stories
from tests.web.http.stage import WireStage
from tests.web.served import ServedWebhooks, body_of, post

HERE = Path(__file__).parent
STORIES = read_stories(HERE / "bodies.txt", HERE / "webhooks.txt")
CONNECTIONS = read_stories(HERE / "listener.txt")


@pytest.fixture
def stage(lines: list[str], caplog: pytest.LogCaptureFixture) -> Iterator[WireStage]:
    """Yield a server, and see that no stack trace was logged beside our own lines."""
    yield WireStage(lines)
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


@pytest.mark.parametrize("story", STORIES)
async def test_story(story: Story, golden: Golden, stage: WireStage) -> None:
    story.check(await stage.play(story.commands), golden)


@pytest.mark.thorough
@pytest.mark.parametrize("story", CONNECTIONS)
async def test_story_of_connections(story: Story, golden: Golden, stage: WireStage) -> None:
    story.check(await stage.play(story.commands), golden)


@pytest.mark.parametrize("story", [one for one in CONNECTIONS if "uvloop" in str(one.id)])
def test_story_on_the_loop_of_production(story: Story, golden: Golden) -> None:
    story.check(uvloop.run(WireStage([]).play(story.commands)), golden)


async def test_dep71_the_duration_of_a_review_names_its_trace(webhooks: ServedWebhooks) -> None:
    """DEP-71: and that of the next request on the same connection does not."""
    with recorded() as traces:
        line = await webhooks.connect()
        await line.send_request(post(body_of()))
        await line.send_request(post(b"{}", path="/other"))
        await line.close()
    context = traces.find("review").context
    assert context is not None
    text = b"".join(webhooks.metrics.render_openmetrics()).decode()
    (example,) = [one for one in text.splitlines() if " # {" in one]
    assert 'route="admission_no_downscale"' in example
    assert f'trace_id="{format_trace_id(context.trace_id)}"' in example
