"""Large bodies: texts of commands beside this file."""

import json
from pathlib import Path

import pytest

from rollout_operator.web.webhooks import Bodies
from tests.goldens import Golden
from tests.stories import Story, read_stories
from tests.virtual_time import VirtualClock, in_virtual_time
from tests.web.http.room_stage import LIMIT, Hand, RoomStage, Upload
from tests.web.served import body_of

pytestmark = pytest.mark.thorough


@pytest.mark.parametrize("story", read_stories(Path(__file__).with_name("room.txt")))
@in_virtual_time
async def test_story(story: Story, golden: Golden) -> None:
    story.check(await RoomStage().play(story.commands), golden)


@in_virtual_time
async def test_a_review_in_parts_is_the_same_review() -> None:
    """What is copied into memory of its own comes out as it went in."""
    annotations = {f"note-{number}": "x" * 100 for number in range(3000)}
    body = body_of(object={**json.loads(body_of())["request"]["object"], "notes": annotations})
    bodies = Bodies(VirtualClock(), Hand())
    review = await bodies.read(Upload(body, 1 << 23).as_request(), LIMIT)
    assert review == await bodies.read(Upload(body_of(), 1 << 23).as_request(), LIMIT)
