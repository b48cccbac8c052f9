"""Large bodies: texts of commands beside this file."""

import json

import pytest

from rollout_operator.web.webhooks import Bodies
from tests.stories import check_stories
from tests.virtual_time import VirtualClock, in_virtual_time
from tests.web.http.room_stage import LIMIT, Hand, RoomStage, Upload
from tests.web.served import body_of

pytestmark = pytest.mark.thorough


test_story = in_virtual_time(check_stories(__file__, room=RoomStage))


@in_virtual_time
async def test_a_review_in_parts_is_the_same_review() -> None:
    """What is copied into memory of its own comes out as it went in."""
    annotations = {f"note-{number}": "x" * 100 for number in range(3000)}
    body = body_of(object={**json.loads(body_of())["request"]["object"], "notes": annotations})
    bodies = Bodies(VirtualClock(), Hand())
    review = await bodies.read(Upload(body, 1 << 23).as_request(), LIMIT)
    assert review == await bodies.read(Upload(body_of(), 1 << 23).as_request(), LIMIT)
