"""The executor deletes what two reads agree on, and remembers what it did (D-15, D-17)."""

from collections import deque
from datetime import timedelta

import pytest

from rollout_operator.controllers.observe import LIVE_READ_LASTS
from rollout_operator.model.names import (
    ApiError,
    Conflict,
    Denied,
    Refused,
    Throttled,
    TooManyRequests,
    UnknownOutcome,
)
from rollout_operator.model.objects import Deletion
from rollout_operator.model.outcome import Code
from tests.controllers.bench import Bench, bench, meta_of, rollable, two_zones
from tests.controllers.fake_client import Json, pod_json, set_json

NO_ANSWER = UnknownOutcome("no answer")


def fail_delete(made: Bench, pod: str, *errors: ApiError) -> None:
    """Make the next deletes of a pod fail."""
    made.client.fail_delete[pod] = deque(errors)


@pytest.mark.parametrize(
    ("refused", "deleted"),
    [
        pytest.param(set(), ["b-0", "b-1"], id="T-01 #6: as many as the limit allows"),
        pytest.param({"b-1"}, ["b-0", "b-2"], id="T-01 #7 with D-15: b-1 refused, b-2 goes"),
        pytest.param({"b-0"}, ["b-1", "b-2"], id="T-01 #8 with D-15: b-0 refused, b-2 goes too"),
        pytest.param({"b-0", "b-1", "b-2"}, [], id="T-01 #9: all refused, nothing goes"),
    ],
)
async def test_a_refused_pod_does_not_hide_the_next(refused: set[str], deleted: list[str]) -> None:
    """D-15, W-08."""
    made = rollable("2")
    for name in refused:
        fail_delete(made, name, Refused("not now", status=403))
    report = await made.step()
    assert made.client.deleted == deleted
    assert {reason.code for reason in report.reasons} <= {Code.DELETE_REFUSED}
    assert {reason.text.split()[0] for reason in report.reasons} == refused
    assert (report.deleted, report.error) == (len(deleted), None)


@pytest.mark.parametrize(
    ("limit", "down"),
    [
        pytest.param("1", (0, 1), id="D-14, SI-04: either of two that broke by themselves"),
        pytest.param("2", (0,), id="SI-03: what is down is of no use to healthy pods"),
    ],
)
async def test_a_refused_broken_pod_does_not_hide_the_next(
    limit: str, down: tuple[int, ...]
) -> None:
    """D-15."""
    sets, pods = two_zones(limit=limit)
    made = bench(sets, [*pods[:3], *(pod_json("b", n, ready=n not in down) for n in range(3))])
    fail_delete(made, "b-0", Refused("not now", status=403))
    report = await made.step()
    assert made.client.deleted == ["b-1"]
    assert [reason.code for reason in report.reasons] == [Code.DELETE_REFUSED]


@pytest.mark.parametrize("wide", ["cache", "store"])
async def test_the_narrower_of_both_reads_counts(wide: str) -> None:
    """SI-03: the limit is being changed; one read shows 1, the other one 2."""
    made = rollable("2" if wide == "cache" else "1")
    limit = "1" if wide == "cache" else "2"
    made.client.put("statefulsets", set_json("b", max_unavailable=limit))
    await made.step()
    assert made.client.deleted == ["b-0"]


async def test_an_own_delete_counts_until_the_cache_shows_it() -> None:
    """D-17, FP-01, W-33: the cache still shows all pods; nothing more may go."""
    sets, pods = two_zones(limit="1")
    made = bench(sets, pods)
    await made.step()
    assert made.client.deleted == ["b-0"]
    made.client.put("pods", pod_json("b", 0))  # the store lags as well: only memory can show it
    await made.step()
    assert made.client.deleted == ["b-0"]
    assert made.in_flight() == [Deletion.ACCEPTED]
    made.show(sets, [one for one in pods if one is not pods[3]])
    assert not made.in_flight()
    assert len(made.deletes) == 0


@pytest.mark.parametrize(
    ("plural", "live", "deleted"),
    [
        pytest.param(
            "pods", pod_json("a", 1, revision="new", ready=False), [],
            id="FP-02, FP-04: another zone has lost a pod",
        ),
        pytest.param(
            "statefulsets", set_json("b", max_unavailable="2", generation=2), [],
            id="FP-03: the newest generation is not observed yet",
        ),
        pytest.param(
            "statefulsets", set_json("a", labels={"rollout-group": "other"}), [],
            id="SI-02: whether a zone that moved away is whole, is not known",
        ),
        pytest.param(
            "pods", pod_json("b", 0, revision="new"), ["b-1", "b-2"],
            id="SI-07, FP-07: the pod of that name was replaced; others go",
        ),
    ],
)  # fmt: skip
async def test_what_the_store_shows_otherwise_than_the_cache(
    plural: str, live: Json, deleted: list[str]
) -> None:
    made = rollable("2")
    made.client.put(plural, live)
    report = await made.step()
    assert made.client.deleted == deleted
    assert report.is_contradicted == (not deleted)
    assert [reason.code for reason in report.reasons] == (
        [] if deleted else [Code.SNAPSHOT_CHANGED]
    )


@pytest.mark.parametrize("is_gone", [False, True], ids=["has changed", "is gone"])
async def test_si04_a_pod_that_changes_between_read_and_delete_ends_the_round(
    is_gone: bool,
) -> None:
    """SI-04, SI-07: what was known of the zone is old; no other pod of it may go on that."""
    made = rollable()

    def change_late(call: str) -> None:
        if call == "delete pods/b-0" and is_gone:
            del made.client.objects["pods", "b-0"]
        elif call == "delete pods/b-0":
            pod = pod_json("b", 0)
            made.client.put("pods", {**pod, "metadata": {**meta_of(pod), "resourceVersion": "2"}})

    made.client.before = change_late
    report = await made.step()
    assert made.client.deleted == []
    assert [reason.code for reason in report.reasons] == [Code.SNAPSHOT_CHANGED]
    assert report.is_contradicted


async def test_fp04_nothing_goes_when_the_caches_see_another_zone_short_during_the_read() -> None:
    """FP-04, SI-02: the read was answered before zone a lost a pod, the event came before us."""
    made = rollable("2")
    sets, pods = two_zones()

    def lose_one(call: str) -> None:
        if call.startswith("list pods"):
            made.show(sets, [pods[0], pod_json("a", 1, revision="new", ready=False), *pods[2:]])

    made.client.before = lose_one
    report = await made.step()
    assert made.client.deleted == []
    assert [reason.code for reason in report.reasons] == [Code.SNAPSHOT_CHANGED]
    assert report.is_contradicted


async def test_d52_pods_that_come_back_while_a_read_waits_share_it() -> None:
    """D-52, D-65: the read waits for a token; two more pods may go by the time it is answered."""
    sets, pods = two_zones(limit="1")
    wider = [sets[0], set_json("b", max_unavailable="3")]
    made = bench(sets, pods)

    def make_room(call: str) -> None:
        if call.startswith("list statefulsets"):
            made.client.put("statefulsets", wider[1])
            made.show(wider, pods)

    made.client.before = make_room
    assert (await made.step()).deleted == 3
    assert made.client.deleted == ["b-0", "b-1", "b-2"]
    assert len([call for call in made.client.calls if call.startswith("list pods")]) == 1


@pytest.mark.parametrize("call", ["list statefulsets", "delete"])
async def test_si09_the_read_expires_after_five_seconds(call: str) -> None:
    """SI-09: neither a slow answer nor a slow delete lets the next delete rest on an old read."""
    made = rollable("2")
    six = timedelta(seconds=6)
    made.client.before = lambda seen: made.clock.jump(six) if seen.startswith(call) else None
    report = await made.step()
    assert made.client.deleted == (["b-0"] if call == "delete" else [])
    assert report.is_cut_short


async def test_si09_a_delete_that_our_own_limiter_delays_is_read_for_again() -> None:
    """It is no failure, and the pod is not taken for one on its way out."""
    made = rollable("2")
    fail_delete(made, "b-0", Throttled("the next token is due in 9 s"))
    report = await made.step()
    assert report.error is None
    assert report.is_cut_short
    assert made.in_flight() == []


@pytest.mark.parametrize("is_rolled", [False, True], ids=["deletes", "a revision"])
async def test_si09_a_read_lasts_from_when_it_is_sent_on(is_rolled: bool) -> None:
    """D-65: waiting for a token of our own limiter makes no read older."""
    made = rolled() if is_rolled else rollable("2")

    async def wait(plural: str) -> None:
        made.clock.jump(timedelta(seconds=20))

    made.client.turn = wait
    assert not (await made.step()).is_cut_short
    assert made.client.deleted == ([] if is_rolled else ["b-0", "b-1"])
    assert len(made.client.status_writes) == is_rolled


async def test_nothing_new_is_deleted_once_the_process_is_stopping() -> None:
    """PROC-05: the pod that is being deleted is the last."""
    made = rollable("2")
    made.client.before = lambda call: made.stop() if call.startswith("delete") else None
    await made.step()
    assert made.client.deleted == ["b-0"]


async def test_pods_that_were_refused_come_last_the_next_time() -> None:
    """D-15: a read that expires must not be used up by the same refused pods each time."""
    made = rollable()
    fail_delete(made, "b-0", *[Refused("not now", status=403)] * 2)
    await made.step()
    assert made.client.deleted == ["b-1"]
    made.client.put("pods", pod_json("b", 1, revision="new"))
    made.show_store()
    made.client.calls.clear()
    await made.step()
    assert made.client.deleted == ["b-1", "b-2"]
    assert "delete pods/b-0" not in made.client.calls


async def test_si18_a_delete_without_an_answer_is_kept_as_unknown() -> None:
    """SI-18, FP-14: no second pod goes, though the first may still be there."""
    made = rollable()
    fail_delete(made, "b-0", NO_ANSWER, TooManyRequests("later"))
    report = await made.step()
    assert isinstance(report.error, UnknownOutcome)
    assert made.in_flight() == [Deletion.UNKNOWN]
    await made.read_back()
    assert made.in_flight() == [Deletion.UNKNOWN], "may still commit"
    await made.step()
    assert made.in_flight() == [Deletion.UNKNOWN], "whatever becomes of a second request"
    await made.step()
    assert made.client.deleted == ["b-0"], "the same pod is tried again, and no other"


@pytest.mark.parametrize(
    ("is_gone", "seconds", "in_flight"),
    [
        pytest.param(True, 0, [Deletion.ACCEPTED], id="it was carried out"),
        pytest.param(False, 91, [], id="it cannot commit any more"),
    ],
)
async def test_reading_back_finds_what_became_of_a_delete(
    is_gone: bool, seconds: int, in_flight: list[Deletion]
) -> None:
    made = rollable()
    fail_delete(made, "b-0", NO_ANSWER)
    await made.step()
    if is_gone:
        del made.client.objects["pods", "b-0"]
    made.clock.jump(timedelta(seconds=seconds))
    await made.read_back()
    assert made.in_flight() == in_flight


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(TooManyRequests("later", retry_after=timedelta(seconds=3)), id="429"),
        pytest.param(Denied("cannot delete pods", status=403), id="403 by RBAC"),
    ],
)
async def test_errors_that_concern_all_pods_stop_the_zone(error: ApiError) -> None:
    made = rollable("2")
    fail_delete(made, "b-0", error)
    report = await made.step()
    assert made.client.deleted == []
    assert report.error is error
    assert not made.in_flight(), "it was turned away: nothing is under way"


def rolled(pods: int = 3) -> Bench:
    """Return the shell on a zone that is rolled out, and its status does not say so."""
    return bench([set_json("a")], [pod_json("a", n, revision="new") for n in range(pods)])


async def test_t01_17_the_revision_is_recorded_by_a_put_of_the_whole_object() -> None:
    """T-01 row 17, RBAC-03, ROLL-39. Once: also where the cache still shows the old status."""
    made = rolled()
    await made.step()
    await made.step()
    (body,) = made.client.status_writes
    status = body["status"]
    assert isinstance(status, dict)
    assert status["currentRevision"] == "new"
    assert status["collisionCount"] == 0, "fields we do not know are kept"
    assert body["spec"] == set_json("a")["spec"]


async def test_roll39_the_revision_is_not_recorded_on_a_read_that_took_long() -> None:
    """A pod may have been evicted since, and the status not know it yet."""
    made = rolled()
    late = LIVE_READ_LASTS + timedelta(seconds=1)
    made.client.before = lambda call: made.clock.jump(late) if call.startswith("get") else None
    assert (await made.step()).is_cut_short
    assert made.client.status_writes == []


@pytest.mark.parametrize(
    "live",
    [
        pytest.param(set_json("a", update="newest"), id="the template has moved on"),
        pytest.param(set_json("a", replicas=4), id="scaled up: the new pods are not known"),
        pytest.param(set_json("a", replicas=2), id="scaled down"),
        pytest.param(set_json("a", ready=2), id="a pod has crashed since"),
        pytest.param(set_json("a", generation=2), id="the status is behind"),
    ],
)
async def test_roll39_the_revision_is_not_recorded_of_a_set_that_changed(live: Json) -> None:
    """As while the record of another zone took its time."""
    made = rolled()
    made.client.put("statefulsets", live)
    report = await made.step()
    assert made.client.status_writes == []
    assert [reason.code for reason in report.reasons] == [Code.SNAPSHOT_CHANGED]


async def test_roll39_the_revision_is_not_recorded_where_a_pod_went_while_it_waited() -> None:
    made = rolled()

    async def lose_a_pod(plural: str) -> None:
        made.show([set_json("a")], [pod_json("a", n, revision="new") for n in range(2)])

    made.client.turn = lose_a_pod
    report = await made.step()
    assert (made.client.status_writes, made.client.calls) == ([], [])
    assert [reason.code for reason in report.reasons] == [Code.SNAPSHOT_CHANGED]


async def test_an_error_of_one_zone_does_not_stop_the_next() -> None:
    """D-18, W-42: zone a's status cannot be written, zone b is rolled all the same."""
    sets, pods = two_zones()
    made = bench([set_json("a", current="old"), sets[1]], pods)

    def break_status(call: str) -> None:
        if call.endswith("/status"):
            raise Conflict("the object has changed", status=409)

    made.client.before = break_status
    first, second = await made.steps()
    assert made.client.deleted == ["b-0", "b-1"]
    assert isinstance(first.error, Conflict)
    assert second.error is None
