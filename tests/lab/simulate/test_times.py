"""How long pods take in a simulation, and how those of the input go on."""

from datetime import datetime, timedelta

import pytest
from rollout_lab.model.fields import child, timestamp
from rollout_lab.nodes.behaviour import StartKind
from rollout_lab.simulate.dump import Dump, choose_objects
from rollout_lab.simulate.flags import SimulateSettings
from rollout_lab.simulate.times import (
    CHANGE_MARK,
    FOR_EVER,
    PodTimes,
    ReadyTime,
    choose_behaviour,
    choose_times,
    learn_ready_times,
)
from rollout_lab.zones import ZoneSpec

from rollout_operator.model.names import InvalidInput
from tests.lab.simulate.dumps import Json, grow, pick
from tests.virtual_time import EPOCH

SECONDS = timedelta(seconds=1)
STARTED = "2026-01-02T03:00:00Z"


def _time(pod: Json, ready: str, restarts: int = 0) -> None:
    status = pod["status"]
    status["startTime"] = STARTED
    for condition in status["conditions"]:
        if condition["type"] == "Ready":
            condition["lastTransitionTime"] = ready
    status["containerStatuses"][0]["restartCount"] = restarts


def _learn(objects: list[Json]) -> dict[str, ReadyTime]:
    return learn_ready_times(
        choose_objects(objects, ""), SimulateSettings(files=("-",), ready_after=timedelta(0))
    )


def _times(
    dump: Dump, *stuck: str, ready: timedelta = 40 * SECONDS, now: datetime = EPOCH
) -> PodTimes:
    settings = SimulateSettings(
        files=("-",), ready_after=ready, terminates_after=7 * SECONDS, stuck=stuck
    )
    return choose_times(dump, settings, now)


def test_the_median_of_those_given_counts() -> None:
    """A pod that became ready again after a day, and a restarted pod, mislead no process."""
    objects = grow(ZoneSpec(name="zone-a", replicas=5))
    for ordinal, ready in enumerate(("03:00:40", "03:00:42", "03:00:50", "23:00:00")):
        _time(pick(objects, f"zone-a-{ordinal}"), f"2026-01-02T{ready}Z")
    _time(pick(objects, "zone-a-4"), "2026-01-02T03:00:01Z", restarts=1)

    assert _learn(objects) == {"ingester": ReadyTime(46 * SECONDS, 4)}


@pytest.mark.parametrize(
    ("seconds", "span"),
    [((1, 2, 2), 5 / 3), ((1, 1, 2, 2), 1.5), ((2, 2, 2), 2), ((1, 2, 2, 2, 30), 1.75)],
    ids=["two of three later", "half", "all alike", "one that took long misleads no forecast"],
)
def test_stamps_of_whole_seconds_say_less_than_a_second_together(
    seconds: tuple[int, ...], span: float
) -> None:
    """Pods that all take 1.6 s show 1 s and 2 s: a forecast of many of them would be far off."""
    objects = grow(ZoneSpec(name="zone-a", replicas=5))[: 1 + len(seconds)]
    for ordinal, took in enumerate(seconds):
        _time(pick(objects, f"zone-a-{ordinal}"), f"2026-01-02T03:00:{took:02}Z")

    learnt = _learn(objects)["ingester"]

    assert learnt.span.total_seconds() == pytest.approx(span, abs=1e-6)
    assert learnt.pods == len(seconds)


def test_groups_learn_each_from_its_own() -> None:
    objects = grow(
        ZoneSpec(name="zone-a", replicas=1), ZoneSpec(name="s", group="store", replicas=1)
    )
    _time(pick(objects, "zone-a-0"), "2026-01-02T03:00:40Z")
    _time(pick(objects, "s-0"), "2026-01-02T03:02:00Z")

    assert _learn(objects) == {
        "ingester": ReadyTime(40 * SECONDS, 1),
        "store": ReadyTime(120 * SECONDS, 1),
    }


@pytest.mark.parametrize(
    ("ready", "span"),
    [
        (STARTED, SECONDS),
        ("2026-01-02T02:59:00Z", SECONDS),
        ("2026-01-02T04:00:40.5+01:00", 40.5 * SECONDS),
    ],
    ids=["within the same second", "before it started", "of another zone"],
)
def test_odd_times(ready: str, span: timedelta) -> None:
    objects = grow(ZoneSpec(name="zone-a", replicas=1))
    _time(pick(objects, "zone-a-0"), ready)

    assert _learn(objects)["ingester"].span == span


def test_without_a_setting_it_is_half_a_minute() -> None:
    objects = grow(ZoneSpec(name="zone-a", replicas=1), failed=["zone-a-0"])

    assert _learn(objects) == {"ingester": ReadyTime(30 * SECONDS, 0)}


def test_a_new_pod_takes_the_whole_time() -> None:
    dump = choose_objects(grow(), "")
    choose = choose_behaviour(dump, _times(dump))

    chosen = choose(dump.pods[0].obj)

    assert chosen.starts_after + chosen.ready_after == 40 * SECONDS
    assert (chosen.kind, chosen.terminates_after) == (StartKind.NORMAL, 7 * SECONDS)


def test_a_pod_that_is_not_ready_stays_so() -> None:
    dump = choose_objects(grow(failed=["zone-b-1"]), "")
    choose = choose_behaviour(dump, _times(dump))

    (stuck,) = _times(dump).stuck
    chosen = choose(stuck.obj)

    assert stuck.decoded.name == "zone-b-1"
    assert (chosen.kind, chosen.starts_after) == (StartKind.NEVER_READY, FOR_EVER)
    new = {**stuck.obj, "metadata": {**child(stuck.obj, "metadata"), "uid": "new"}}
    assert choose(new).kind is StartKind.NORMAL, "its successor is another one"


STARTING: Json = {
    "phase": "Running",
    "conditions": [{"type": "Ready", "status": "False"}],
    "containerStatuses": [
        {"name": "app", "ready": False, "restartCount": 0, "state": {"running": {}}}
    ],
}


def _start(objects: list[Json], name: str, age: int, **status: object) -> Dump:
    """Return a dump that was read so many seconds after a pod was created, which is starting."""
    pod = pick(objects, name)
    pod["metadata"]["creationTimestamp"] = timestamp(EPOCH - age * SECONDS)
    pod["status"] = {**STARTING, **status}
    return choose_objects(objects, "")


@pytest.mark.parametrize(("age", "left"), [(0, 40), (15, 25.5), (60, 0.5), (120, 0.5)])
def test_a_pod_that_is_starting_becomes_ready_when_others_did(age: int, left: float) -> None:
    dump = _start(grow(), "zone-b-1", age)
    times = _times(dump)

    ((pod, found),) = times.list_left(dump)

    assert (pod.decoded.name, found, times.stuck) == ("zone-b-1", left * SECONDS, ())
    chosen = choose_behaviour(dump, times)(pod.obj)
    assert (chosen.kind, chosen.ready_after) == (StartKind.NORMAL, left * SECONDS)


WAITS: Json = {"name": "app", "state": {"waiting": {"reason": "ImagePullBackOff"}}}
CREATED: Json = {"name": "app", "state": {"waiting": {"reason": "ContainerCreating"}}}
AGAIN: Json = {**STARTING["containerStatuses"][0], "restartCount": 1}


@pytest.mark.parametrize(
    ("age", "status", "is_stuck"),
    [
        pytest.param(121, {}, True, id="three times as old as others were"),
        pytest.param(5, {"containerStatuses": [WAITS]}, True, id="it waits for an image"),
        pytest.param(5, {"containerStatuses": [AGAIN]}, True, id="it has crashed"),
        pytest.param(5, {"phase": "Failed"}, True, id="it has failed"),
        pytest.param(
            5, {"phase": "Pending", "containerStatuses": [CREATED]}, False, id="it is being created"
        ),
        pytest.param(5, {"phase": "Pending", "containerStatuses": []}, False, id="it has no node"),
    ],
)
def test_a_pod_in_trouble_or_late_is_stuck(age: int, status: Json, is_stuck: bool) -> None:
    dump = _start(grow(), "zone-b-1", age, **status)

    assert [one.decoded.name for one in _times(dump).stuck] == ["zone-b-1"] * is_stuck


@pytest.mark.parametrize(("age", "is_stuck"), [(30, False), (31, True)])
def test_no_pod_is_late_in_its_first_half_minute(age: int, is_stuck: bool) -> None:
    dump = _start(grow(), "zone-b-1", age)

    assert bool(_times(dump, ready=SECONDS).stuck) is is_stuck


def test_a_person_knows_better_what_is_stuck() -> None:
    dump = _start(grow(), "zone-b-1", 5)

    assert [one.decoded.name for one in _times(dump, "zone-b-1").stuck] == ["zone-b-1"]
    assert _times(_start(grow(), "zone-b-1", 300), ready=101 * SECONDS).stuck == ()
    with pytest.raises(InvalidInput, match='-stuck=zone-b-2: no pod "zone-b-2" that is not ready'):
        _times(dump, "zone-b-2")


@pytest.mark.parametrize(("ago", "left"), [(3, 4.5), (60, 0.5)])
def test_a_terminating_pod_goes_on_terminating(ago: int, left: float) -> None:
    objects = grow()
    pick(objects, "zone-a-0")["metadata"] |= {
        "deletionTimestamp": timestamp(EPOCH + (30 - ago) * SECONDS),
        "deletionGracePeriodSeconds": 30,
    }
    dump = choose_objects(objects, "")
    times = _times(dump)

    assert times.stuck == ()
    assert choose_behaviour(dump, times)(dump.pods[0].obj).terminates_after == left * SECONDS
    held = choose_behaviour(dump, _times(dump, "zone-a-0"))
    assert held(dump.pods[0].obj).terminates_after == FOR_EVER


def test_a_grace_that_begins_before_all_times_is_an_age() -> None:
    objects = grow()
    pick(objects, "zone-a-0")["metadata"] |= {
        "deletionTimestamp": "0001-01-01T00:00:10Z",
        "deletionGracePeriodSeconds": 30,
    }
    dump = choose_objects(objects, "")

    assert [left for _, left in _times(dump).list_left(dump)] == [SECONDS / 2]


def test_without_the_time_of_a_start_that_of_the_creation_counts() -> None:
    objects = grow(ZoneSpec(name="zone-a", replicas=1))
    pod = pick(objects, "zone-a-0")
    _time(pod, "2026-01-02T03:00:40Z")
    del pod["status"]["startTime"]
    pod["metadata"]["creationTimestamp"] = STARTED

    assert _learn(objects) == {"ingester": ReadyTime(40 * SECONDS, 1)}


@pytest.mark.parametrize(
    ("mark", "kind"), [("1", StartKind.NORMAL), ("crashes-1", StartKind.CRASH_LOOP)]
)
def test_pods_of_a_bad_template_crash(mark: str, kind: StartKind) -> None:
    dump = choose_objects(grow(), "")
    choose = choose_behaviour(dump, _times(dump))
    pod = pick(grow(), "zone-a-0")
    pod["metadata"]["annotations"] = {CHANGE_MARK: mark}

    assert choose(pod).kind is kind
