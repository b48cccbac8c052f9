"""What the caches hear while a live look is under way counts as well as the look."""

from rollout_operator.model.outcome import Code
from tests.controllers.bench import bench, two_zones
from tests.controllers.fake_client import pod_json, set_json


async def test_fp04_nothing_goes_when_the_caches_see_another_zone_short_during_the_look() -> None:
    """FP-04, SI-02: the look was answered before zone a lost a pod, the event came before us."""
    made = bench(*two_zones())
    sets, pods = two_zones()

    def lose_one(call: str) -> None:
        if call.startswith("list pods"):
            made.show(sets, [pods[0], pod_json("a", 1, revision="new", ready=False), *pods[2:]])

    made.client.before = lose_one
    report = await made.step()
    assert made.client.deleted == []
    assert [note.code for note in report.notes] == [Code.VIEW_CHANGED]
    assert report.is_contradicted


async def test_d52_pods_that_come_back_while_a_look_waits_share_it() -> None:
    """D-52, D-65: the look waits for a token; two more pods may go by the time it is answered."""
    sets, pods = two_zones(limit="1")
    wider = [sets[0], set_json("b", max_unavailable="3")]
    made = bench(sets, pods)

    def make_room(call: str) -> None:
        if call.startswith("list statefulsets"):
            made.client.put("statefulsets", wider[1])
            made.show(wider, pods)

    made.client.before = make_room
    report = await made.step()
    assert made.client.deleted == ["b-0", "b-1", "b-2"]
    assert report.deleted == 3
    assert len([call for call in made.client.calls if call.startswith("list pods")]) == 1
