"""Lies in any field of a review of a downscale: SEC-09, SI-21, LI-05; others are in forged.txt."""

import random

import msgspec
import pytest

from rollout_operator.guards.downscales import ReservationState
from rollout_operator.model.decode.review import decode_review
from rollout_operator.model.names import DecodeError
from tests.controllers.fake_client import Json
from tests.forgeries import forge, list_leaves
from tests.virtual_time import in_virtual_time
from tests.web.downscales.stage import PLACE, DownscaleStage

pytestmark = pytest.mark.thorough


@pytest.mark.parametrize("seed", range(24))
@in_virtual_time
async def test_sec09_whatever_a_review_says_pods_are_called_where_their_set_says(seed: int) -> None:
    """SEC-09, SI-21, LI-05: lies in any field; in the end each called pod is un-prepared."""
    rng = random.Random(seed)
    stage, is_prepared = DownscaleStage([]), rng.random() < 2 / 3
    if not is_prepared:
        await stage.act("label a prepare-downscale -")
    body = msgspec.json.encode(stage.make_tree(rng.choice(("", "scale"))))
    async with stage.stack:
        await stage.act("start")
        for _ in range(4):
            try:
                review = decode_review(forge(body, rng))
            except DecodeError:
                continue
            await stage.judge(review)
            await stage.do_wait(rng.choice((0, 1, 20)))
        called = [call for call in stage.pods.calls if call.method == "POST"]
        assert {call.place.partition(":")[2] for call in called} <= {PLACE}
        assert is_prepared or not [one for one in called if "zone-a" in one.pod]
        await stage.act("100s")
        assert stage.pods.prepared() == set()
        assert stage.process.downscales.count(ReservationState.OPEN) == 0


@in_virtual_time
async def test_sec09_every_field_of_a_review_is_lied_about() -> None:
    """No field is taken for true only because no test forged it."""
    review = DownscaleStage([]).make_tree()
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
