"""The executor deletes what two looks agree on, and remembers what it did (D-15, D-17)."""

from collections import deque
from datetime import timedelta

import pytest

from rollout_operator.controllers.live_reads import LOOK_LASTS
from rollout_operator.model.errors import (
    ApiError,
    Conflict,
    Denied,
    Refused,
    Throttled,
    TooManyRequests,
    UnknownOutcome,
)
from rollout_operator.model.group import Deletion
from rollout_operator.model.outcome import Code
from tests.controllers.bench import bench, meta_of, two_zones
from tests.controllers.fake_client import Json, pod_json, set_json


async def test_t01_6_deletes_as_many_as_the_limit_allows() -> None:
    """T-01 row 6: b-0 and b-1 go."""
    made = bench(*two_zones())
    report = await made.step()
    assert made.client.deleted == ["b-0", "b-1"]
    assert report.deleted == 2
    assert report.error is None


@pytest.mark.parametrize(
    ("refused", "deleted"),
    [
        pytest.param({"b-1"}, ["b-0", "b-2"], id="T-01 #7 with D-15: b-1 refused, b-2 goes"),
        pytest.param({"b-0"}, ["b-1", "b-2"], id="T-01 #8 with D-15: b-0 refused, b-2 goes too"),
        pytest.param({"b-0", "b-1", "b-2"}, [], id="T-01 #9: all refused, nothing goes"),
    ],
)
async def test_a_refused_pod_does_not_hide_the_next(refused: set[str], deleted: list[str]) -> None:
    """D-15, W-08."""
    made = bench(*two_zones())
    for name in refused:
        made.client.fail_delete[name] = deque([Refused("not now", status=403)])
    report = await made.step()
    assert made.client.deleted == deleted
    assert {note.code for note in report.notes} == {Code.DELETE_REFUSED}
    assert {note.text.split()[0] for note in report.notes} == refused
    assert report.error is None


async def test_a_refused_broken_pod_does_not_hide_the_next() -> None:
    """D-15, D-14, SI-04: two pods broke by themselves, one of them may go, either of them."""
    sets, pods = two_zones(limit="1")
    made = bench(sets, [*pods[:3], *(pod_json("b", n, ready=n == 2) for n in range(3))])
    made.client.fail_delete["b-0"] = deque([Refused("not now", status=403)])
    report = await made.step()
    assert made.client.deleted == ["b-1"]
    assert [note.code for note in report.notes] == [Code.DELETE_REFUSED]


async def test_what_a_refused_broken_pod_leaves_is_of_no_use_to_healthy_ones() -> None:
    """SI-03: it is as much down as before."""
    sets, pods = two_zones(limit="2")
    made = bench(sets, [*pods[:3], *(pod_json("b", n, ready=n != 0) for n in range(3))])
    made.client.fail_delete["b-0"] = deque([Refused("not now", status=403)])
    await made.step()
    assert made.client.deleted == ["b-1"]


@pytest.mark.parametrize("wide", ["cache", "store"])
async def test_the_narrower_of_both_looks_counts(wide: str) -> None:
    """SI-03: the limit is being changed; one look shows 1, the other one 2."""
    sets, pods = two_zones(limit="2" if wide == "cache" else "1")
    made = bench(sets, pods)
    limit = "1" if wide == "cache" else "2"
    made.client.put("statefulsets", set_json("b", max_unavailable=limit))
    await made.step()
    assert made.client.deleted == ["b-0"]


async def test_an_own_delete_counts_until_the_cache_shows_it() -> None:
    """D-17, FP-01, W-33: the cache still shows all pods; nothing more may go."""
    made = bench(*two_zones(limit="1"))
    await made.step()
    assert made.client.deleted == ["b-0"]
    made.client.put("pods", pod_json("b", 0))  # the store lags as well: only memory can tell
    await made.step()
    assert made.client.deleted == ["b-0"]
    assert made.pending() == [Deletion.ACCEPTED]


async def test_memory_ends_when_the_cache_shows_the_pod_gone() -> None:
    sets, pods = two_zones(limit="1")
    made = bench(sets, pods)
    await made.step()
    made.show(sets, [one for one in pods if one is not pods[3]])
    assert not made.pending()
    assert len(made.deletes) == 0


async def test_nothing_goes_when_the_store_shows_another_zone_short() -> None:
    """FP-02, FP-04: the cache is behind; the live look sees that zone a has lost a pod."""
    made = bench(*two_zones())
    made.client.put("pods", pod_json("a", 1, revision="new", ready=False))
    report = await made.step()
    assert made.client.deleted == []
    assert [note.code for note in report.notes] == [Code.VIEW_CHANGED]


async def test_nothing_goes_when_the_template_moved_in_the_store() -> None:
    """FP-03: the newest generation is not observed yet."""
    made = bench(*two_zones())
    made.client.put("statefulsets", set_json("b", max_unavailable="2", generation=2, observed=1))
    await made.step()
    assert made.client.deleted == []


async def test_a_pod_that_was_replaced_meanwhile_is_not_touched() -> None:
    """SI-07, FP-07: the pod of that name is already at the update revision; the next one goes."""
    made = bench(*two_zones(limit="1"))
    made.client.put("pods", pod_json("b", 0, revision="new"))
    await made.step()
    assert made.client.deleted == ["b-1"]


@pytest.mark.parametrize(
    ("late", "outcome"),
    [
        pytest.param({**pod_json("b", 0)}, Code.VIEW_CHANGED, id="the pod has changed"),
        pytest.param(None, Code.VIEW_CHANGED, id="someone else has deleted it"),
    ],
)
async def test_si04_a_pod_that_changes_between_look_and_delete_ends_the_look(
    late: Json | None, outcome: Code
) -> None:
    """SI-04, SI-07: what was known of the zone is old; no other pod of it may go on that."""
    made = bench(*two_zones(limit="1"))

    def change_late(call: str) -> None:
        if call != "delete pods/b-0":
            return
        if late is None:
            del made.client.objects["pods", "b-0"]
        else:
            made.client.put("pods", {**late, "metadata": {**meta_of(late), "resourceVersion": "2"}})

    made.client.before = change_late
    report = await made.step()
    assert made.client.deleted == []
    assert [note.code for note in report.notes] == [outcome]
    assert report.is_contradicted


@pytest.mark.parametrize("call", ["list statefulsets", "delete"])
async def test_si09_the_look_expires_after_five_seconds(call: str) -> None:
    """SI-09: neither a slow answer nor a slow delete lets the next delete rest on an old look."""
    made = bench(*two_zones())

    def be_slow(seen: str) -> None:
        if seen.startswith(call):
            made.clock.jump(timedelta(seconds=6))

    made.client.before = be_slow
    report = await made.step()
    assert made.client.deleted == (["b-0"] if call == "delete" else [])
    assert report.is_cut_short


async def test_si09_a_delete_that_our_own_limiter_delays_is_looked_at_again() -> None:
    """It is no failure, and the pod is not taken for one on its way out."""
    made = bench(*two_zones())
    made.client.fail_delete["b-0"] = deque([Throttled("the next token is due in 9 s")])
    report = await made.step()
    assert report.error is None
    assert report.is_cut_short
    assert made.pending() == []


async def test_nothing_new_is_deleted_once_the_process_is_stopping() -> None:
    """PROC-05: the pod that is being deleted is the last."""
    made = bench(*two_zones())
    made.client.before = lambda call: made.stop() if call.startswith("delete") else None
    await made.step()
    assert made.client.deleted == ["b-0"]


async def test_a_zone_that_the_live_look_does_not_show_stops_the_group() -> None:
    """SI-02: b's label has moved; whether it is whole, nobody has looked."""
    sets, pods = two_zones()
    made = bench(sets, pods)
    made.client.put("statefulsets", set_json("a", labels={"rollout-group": "other"}))
    report = await made.step()
    assert made.client.deleted == []
    assert report.is_contradicted


async def test_pods_that_were_refused_come_last_the_next_time() -> None:
    """D-15: a look that expires must not be used up by the same refused pods each time."""
    made = bench(*two_zones(limit="1"))
    made.client.fail_delete["b-0"] = deque([Refused("not now", status=403)] * 2)
    await made.step()
    assert made.client.deleted == ["b-1"]
    made.client.put("pods", pod_json("b", 1, revision="new"))
    made.show(
        [set_json("a", current="new"), set_json("b", max_unavailable="1")],
        [pod_json("a", n, revision="new") for n in range(3)]
        + [pod_json("b", 0), pod_json("b", 1, revision="new"), pod_json("b", 2)],
    )
    made.client.calls.clear()
    await made.step()
    assert made.client.deleted == ["b-1", "b-2"]
    assert "delete pods/b-0" not in made.client.calls


async def test_a_delete_without_an_answer_is_kept_as_unknown() -> None:
    """SI-18, FP-14: no second pod goes, though the first may still be there."""
    made = bench(*two_zones(limit="1"))
    made.client.fail_delete["b-0"] = deque([UnknownOutcome("no answer")])
    report = await made.step()
    assert isinstance(report.error, UnknownOutcome)
    assert made.pending() == [Deletion.UNKNOWN]
    await made.read_back()
    assert made.pending() == [Deletion.UNKNOWN], "may still commit"
    await made.step()
    assert made.client.deleted == ["b-0"], "the same pod is tried again, and no other"


async def test_read_back_finds_the_delete_carried_out() -> None:
    made = bench(*two_zones(limit="1"))
    made.client.fail_delete["b-0"] = deque([UnknownOutcome("no answer")])
    await made.step()
    del made.client.objects["pods", "b-0"]
    await made.read_back()
    assert made.pending() == [Deletion.ACCEPTED]


async def test_read_back_gives_up_when_the_delete_can_not_commit_any_more() -> None:
    made = bench(*two_zones(limit="1"))
    made.client.fail_delete["b-0"] = deque([UnknownOutcome("no answer")])
    await made.step()
    made.clock.jump(timedelta(seconds=91))
    await made.read_back()
    assert not made.pending()


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(TooManyRequests("later", retry_after=timedelta(seconds=3)), id="429"),
        pytest.param(Denied("cannot delete pods", status=403), id="403 by RBAC"),
    ],
)
async def test_errors_that_concern_all_pods_stop_the_zone(error: ApiError) -> None:
    made = bench(*two_zones())
    made.client.fail_delete["b-0"] = deque([error])
    report = await made.step()
    assert made.client.deleted == []
    assert report.error is error
    assert not made.pending(), "it was turned away: nothing is under way"


async def test_a_retry_that_is_turned_away_keeps_the_first_request_in_mind() -> None:
    """SI-18: the first request may still be committed, whatever becomes of the second."""
    made = bench(*two_zones(limit="1"))
    made.client.fail_delete["b-0"] = deque([UnknownOutcome("no answer"), TooManyRequests("later")])
    await made.step()
    await made.step()
    assert made.pending() == [Deletion.UNKNOWN]


async def test_t01_17_the_revision_is_recorded_by_a_put_of_the_whole_object() -> None:
    """T-01 row 17, RBAC-03, ROLL-39."""
    made = bench([set_json("a")], [pod_json("a", n, revision="new") for n in range(3)])
    await made.step()
    (body,) = made.client.status_writes
    status = body["status"]
    assert isinstance(status, dict)
    assert status["currentRevision"] == "new"
    assert status["collisionCount"] == 0, "fields we do not know are kept"
    assert body["spec"] == set_json("a")["spec"]


async def test_the_revision_is_not_recorded_twice() -> None:
    made = bench([set_json("a")], [pod_json("a", n, revision="new") for n in range(3)])
    await made.step()
    await made.step()  # the cache still shows the old status
    assert len(made.client.status_writes) == 1


async def test_the_revision_is_not_recorded_on_a_read_that_took_long() -> None:
    """ROLL-39: a pod may have been evicted since, and the status not know it yet."""
    made = bench([set_json("a")], [pod_json("a", n, revision="new") for n in range(3)])

    async def dawdle(call: str) -> None:
        if call.startswith("get"):
            await made.clock.advance(LOOK_LASTS + timedelta(seconds=1))

    made.client.pause = dawdle
    report = await made.step()
    assert made.client.status_writes == []
    assert report.is_cut_short


async def test_the_revision_is_not_recorded_once_the_template_has_moved_on() -> None:
    made = bench([set_json("a")], [pod_json("a", n, revision="new") for n in range(3)])
    made.client.put("statefulsets", set_json("a", update="newest"))
    report = await made.step()
    assert made.client.status_writes == []
    assert [note.code for note in report.notes] == [Code.VIEW_CHANGED]


@pytest.mark.parametrize("replicas", [4, 2])
async def test_roll39_the_revision_is_not_recorded_of_a_set_that_was_scaled_since(
    replicas: int,
) -> None:
    """The cache does not show the new pods, nor whether they are ready."""
    made = bench([set_json("a")], [pod_json("a", n, revision="new") for n in range(3)])
    made.client.put("statefulsets", set_json("a", replicas=replicas))
    report = await made.step()
    assert made.client.status_writes == []
    assert [note.code for note in report.notes] == [Code.VIEW_CHANGED]


async def test_roll39_the_revision_is_not_recorded_of_a_set_with_pods_down() -> None:
    """A pod has crashed since the look, as while the record of another zone took its time."""
    made = bench([set_json("a")], [pod_json("a", n, revision="new") for n in range(3)])
    made.client.put("statefulsets", set_json("a", ready=2))
    report = await made.step()
    assert made.client.status_writes == []
    assert [note.code for note in report.notes] == [Code.VIEW_CHANGED]


async def test_an_error_of_one_zone_does_not_stop_the_next() -> None:
    """D-18, W-42: zone a's status cannot be written, zone b is rolled all the same."""
    sets, pods = two_zones()
    sets[0] = set_json("a", current="old")
    made = bench(sets, pods)

    def break_status(call: str) -> None:
        if call.endswith("/status"):
            raise Conflict("the object has changed", status=409)

    made.client.before = break_status
    first, second = await made.steps()
    assert made.client.deleted == ["b-0", "b-1"]
    assert isinstance(first.error, Conflict)
    assert second.error is None


async def test_si09_the_look_lasts_from_when_it_is_sent_on() -> None:
    """D-65: waiting for a token of our own limiter makes no look older."""
    made = bench(*two_zones())

    async def wait(plural: str) -> None:
        made.clock.jump(timedelta(seconds=20))

    made.client.turn = wait
    report = await made.step()
    assert made.client.deleted == ["b-0", "b-1"]
    assert not report.is_cut_short


async def test_the_revision_is_recorded_though_its_turn_came_late() -> None:
    """What the caches show by then decides, and the read is no older than its turn."""
    made = bench([set_json("a")], [pod_json("a", n, revision="new") for n in range(3)])

    async def wait(plural: str) -> None:
        made.clock.jump(timedelta(seconds=20))

    made.client.turn = wait
    assert not (await made.step()).is_cut_short
    assert len(made.client.status_writes) == 1


async def test_roll39_the_revision_is_not_recorded_where_a_pod_went_while_it_waited() -> None:
    made = bench([set_json("a")], [pod_json("a", n, revision="new") for n in range(3)])

    async def lose_a_pod(plural: str) -> None:
        made.show([set_json("a")], [pod_json("a", n, revision="new") for n in range(2)])

    made.client.turn = lose_a_pod
    report = await made.step()
    assert made.client.status_writes == []
    assert made.client.calls == []
    assert [note.code for note in report.notes] == [Code.VIEW_CHANGED]
