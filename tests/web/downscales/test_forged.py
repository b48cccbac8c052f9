"""Reviews of downscales that are none of the API server's: D-68, SEC-09, SI-10, SI-13, SI-21.

A review says who, from how many to how many: all else is what the store says of the set.
"""

import random
from typing import Final

import msgspec
import pytest

from rollout_operator.guards.downscales import ReservationState
from rollout_operator.model.decode.review import decode_review
from rollout_operator.model.names import NO_DOWNSCALE, PREPARE_DOWNSCALE, PREPARE_PATH, DecodeError
from rollout_operator.model.outcome import Code
from tests.controllers.fake_client import Json
from tests.forgeries import (
    Lie,
    change_group,
    change_path,
    change_port,
    change_service,
    forge,
    list_leaves,
    move_ordinals,
    name_a_target,
)
from tests.virtual_time import in_virtual_time
from tests.web.downscale_world import (
    LIMIT,
    PREPARED,
    WHERE,
    World,
    come_to_rest,
    part,
    pods_of,
    prepared_alone,
    three_zones,
    zone,
)

pytestmark = pytest.mark.thorough

PATH: Final = WHERE[PREPARE_PATH]


def _genuine(world: World, *, subresource: str = "") -> Json:
    """Return the review of a downscale from 5 to 3 as the API server writes it."""
    held = world.client.objects["statefulsets", "zone-a"]
    old = {"apiVersion": "apps/v1", "kind": "StatefulSet", **held}
    if subresource:
        meta = {key: part(held, "metadata")[key] for key in ("name", "uid", "resourceVersion")}
        old = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": meta}
        old["spec"] = {"replicas": 5}
    names = {"group": "apps", "version": "v1", "resource": "statefulsets"}
    request = {
        "uid": "u-1", "resource": names, "requestResource": names, "name": "zone-a",
        "kind": {"group": "apps", "version": "v1", "kind": "StatefulSet"},
        "namespace": "test", "operation": "UPDATE", "userInfo": {"username": "hpa"},
        "object": {**old, "spec": {**part(old, "spec"), "replicas": 3}}, "oldObject": old,
        "dryRun": False, "options": {"kind": "UpdateOptions"},
    }  # fmt: skip
    if subresource:
        request["subResource"] = subresource
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


async def _request(world: World, body: bytes) -> Code | None:
    try:
        review = decode_review(body)
    except DecodeError:
        return None
    until = world.clock.elapsed() + LIMIT
    return (await world.memory.hook.review(review, until)).reason.code


def _lie(world: World, lie: Lie, subresource: str = "") -> bytes:
    review = _genuine(world, subresource=subresource)
    lie(part(review, "request"), random.Random(1))
    return msgspec.json.encode(review)


@pytest.mark.parametrize("subresource", ["", "scale"])
@pytest.mark.parametrize("lie", [name_a_target, change_path, change_port, change_service])
@in_virtual_time
async def test_sec09_a_set_without_the_label_is_none_to_be_prepared(
    lie: Lie, subresource: str
) -> None:
    """D-68: no call, no record, no reservation; no zone of the group has to wait."""
    world = prepared_alone(zone("zone-a", labels={}, annotations={}))
    assert await _request(world, _lie(world, lie, subresource)) is Code.NOT_GUARDED
    assert world.calls.calls == []
    assert world.recorded() == []
    assert world.memory.downscales.list_sets() == []
    assert (await world.send_request("zone-b", 4)).is_allowed


@pytest.mark.parametrize("lie", [change_path, change_port, change_service])
@in_virtual_time
async def test_sec09_pods_are_called_where_the_store_says(lie: Lie) -> None:
    """SI-10, SI-21: and what follows in earnest repeats what pods were really called for."""
    world = three_zones()
    async with world.controlling():
        assert await _request(world, _lie(world, lie)) is Code.PODS_PREPARED
        assert world.calls.paths("POST") == {PATH}
        assert (await world.send_request("zone-a", 3)).is_allowed
        await world.pass_time(60)
        assert world.calls.paths("DELETE") == {PATH}
        await come_to_rest(world)


@pytest.mark.parametrize("lie", [move_ordinals, change_group])
@in_virtual_time
async def test_sec09_what_the_store_denies_is_not_done(lie: Lie) -> None:
    """SI-13: other ordinals, another group, from the same number of replicas."""
    world = three_zones()
    code = await _request(world, _lie(world, lie))
    assert code in {Code.CHANGED_MEANWHILE, Code.PREPARE_MISCONFIGURED}
    assert world.calls.calls == []
    assert world.memory.downscales.list_sets() == []


@in_virtual_time
async def test_sec09_a_set_that_must_not_lose_pods_is_not_prepared() -> None:
    """NODOWN-04: a review that hides the label has no pod called either."""
    labels = {**PREPARED, NO_DOWNSCALE: "true"}
    world = prepared_alone(zone("zone-a", labels=labels))
    assert await _request(world, _lie(world, name_a_target)) is Code.NO_DOWNSCALE
    assert world.calls.calls == []


@in_virtual_time
async def test_d68_the_label_that_the_same_request_adds_does_not_count_yet() -> None:
    """PREP-04, W-12: the object before it decides; a label of the same request does nothing."""
    world = prepared_alone(zone("zone-a", labels={}))
    review = _genuine(world)
    new = part(part(review, "request"), "object")
    new["metadata"] = {**part(new, "metadata"), "labels": {**PREPARED, "rollout-group": "ingester"}}
    assert await _request(world, msgspec.json.encode(review)) is Code.NOT_GUARDED
    assert world.calls.calls == []


@pytest.mark.parametrize("labels", [{}, {PREPARE_DOWNSCALE: "false"}])
@in_virtual_time
async def test_d68_the_label_that_the_same_request_takes_off_still_counts(labels: Json) -> None:
    """PREP-04, SI-10: and the path that it changes, too: pods are called as it was before."""
    world = three_zones()
    review = _genuine(world)
    new = part(part(review, "request"), "object")
    annotations = {**WHERE, PREPARE_PATH: "another"}
    new["metadata"] = {**part(new, "metadata"), "labels": labels, "annotations": annotations}
    assert await _request(world, msgspec.json.encode(review)) is Code.PODS_PREPARED
    assert world.calls.names("POST") == ["zone-a-4", "zone-a-3"]
    assert world.calls.paths("POST") == {PATH}


@pytest.mark.parametrize("seed", range(24))
@in_virtual_time
async def test_sec09_whatever_a_review_says_pods_are_called_where_their_set_says(seed: int) -> None:
    """SEC-09, SI-21, LI-05: lies in any field; in the end each called pod is un-prepared."""
    rng = random.Random(seed)
    labels = rng.choice((PREPARED, PREPARED, {}))
    world = prepared_alone(zone("zone-a", labels=labels), pods_of("zone-a"))
    review = msgspec.json.encode(_genuine(world, subresource=rng.choice(("", "scale"))))
    async with world.controlling():
        for _ in range(4):
            await _request(world, forge(review, rng))
            await world.pass_time(rng.choice((0, 1, 20)))
        called = [call for call in world.calls.calls if call.method == "POST"]
        assert world.calls.paths("POST") <= {PATH}
        assert labels == PREPARED or not [one for one in called if "zone-a" in one.pod]
        await world.pass_time(100)
        assert world.calls.prepared() == set()
        assert world.memory.downscales.count(ReservationState.OPEN) == 0


def test_sec09_every_field_of_a_review_is_lied_about() -> None:
    """No field is taken for true only because no test forged it."""
    review = _genuine(three_zones())
    body, leaves = msgspec.json.encode(review), set(list_leaves(part(review, "request")))
    untouched, rng = set(leaves), random.Random(1)
    for _ in range(20_000):
        if not untouched:
            break
        forged = part(msgspec.json.decode(forge(body, rng)), "request")
        untouched -= {one for one in untouched if _read(forged, one) != _read(review, one, 1)}
    assert untouched == set()


def _read(tree: Json, path: tuple[str, ...], skipped: int = 0) -> object:
    found: object = tree["request"] if skipped else tree
    for step in path:
        found = found.get(step) if isinstance(found, dict) else None
    return found
