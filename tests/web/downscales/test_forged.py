"""Lies in any field of a review of a downscale: SEC-09, SI-21, LI-05; others are in forged.txt."""

import random
from typing import Final

import msgspec
import pytest

from rollout_operator.guards.downscales import ReservationState
from rollout_operator.model.decode.review import decode_review
from rollout_operator.model.names import PREPARE_DOWNSCALE, PREPARE_PATH, DecodeError
from tests.controllers.fake_client import Json
from tests.forgeries import forge, list_leaves
from tests.virtual_time import in_virtual_time
from tests.web.downscale_world import LIMIT, WHERE, three_zones
from tests.web.downscales.stage import make_review

pytestmark = pytest.mark.thorough

PATH: Final = WHERE[PREPARE_PATH]


@pytest.mark.parametrize("seed", range(24))
@in_virtual_time
async def test_sec09_whatever_a_review_says_pods_are_called_where_their_set_says(seed: int) -> None:
    """SEC-09, SI-21, LI-05: lies in any field; in the end each called pod is un-prepared."""
    rng = random.Random(seed)
    world, is_prepared = three_zones(), rng.random() < 2 / 3
    if not is_prepared:
        world.write_metadata("labels", "zone-a", PREPARE_DOWNSCALE, None)
        world.sync()
    body = msgspec.json.encode(make_review(world, rng.choice(("", "scale"))))
    async with world.controlling():
        for _ in range(4):
            try:
                review = decode_review(forge(body, rng))
            except DecodeError:
                continue
            await world.hook.review(review, world.clock.elapsed() + LIMIT)
            await world.pass_time(rng.choice((0, 1, 20)))
        called = [call for call in world.calls.calls if call.method == "POST"]
        assert {call.path for call in called} <= {PATH}
        assert is_prepared or not [one for one in called if "zone-a" in one.pod]
        await world.pass_time(100)
        assert world.calls.prepared() == set()
        assert world.context.downscales.count(ReservationState.OPEN) == 0


@in_virtual_time
async def test_sec09_every_field_of_a_review_is_lied_about() -> None:
    """No field is taken for true only because no test forged it."""
    review = make_review(three_zones())
    body, leaves = msgspec.json.encode(review), set(list_leaves(review["request"]))
    untouched, rng = set(leaves), random.Random(1)
    for _ in range(20_000):
        if not untouched:
            break
        forged = msgspec.json.decode(forge(body, rng))["request"]
        untouched -= {one for one in untouched if _read(forged, one) != _read(review, one, 1)}
    assert untouched == set()


def _read(tree: Json, path: tuple[str, ...], skipped: int = 0) -> object:
    found: object = tree["request"] if skipped else tree
    for step in path:
        found = found.get(step) if isinstance(found, dict) else None
    return found
