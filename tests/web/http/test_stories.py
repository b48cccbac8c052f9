"""The webhook server on real sockets: texts of commands beside this file."""

from pathlib import Path

import pytest
import uvloop
from opentelemetry.trace import format_trace_id

from tests.goldens import Golden
from tests.recorded_spans import recorded
from tests.stories import Story, check_stories, read_stories
from tests.web.http.stage import WireStage
from tests.web.served import ServedWebhooks, body_of, post

pytestmark = pytest.mark.usefixtures("no_stack_trace")

CONNECTIONS = read_stories(Path(__file__).with_name("listener.txt"))

test_story = check_stories(__file__, bodies=WireStage, webhooks=WireStage)
test_story_of_connections = pytest.mark.thorough(check_stories(__file__, listener=WireStage))


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
