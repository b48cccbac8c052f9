"""How long pods take in a simulation, and how those of the input go on."""

from datetime import timedelta

import pytest

from rollout_operator.lab.model.fields import child
from rollout_operator.lab.nodes.behaviour import StartKind
from rollout_operator.lab.simulate.dump import choose_objects
from rollout_operator.lab.simulate.flags import SimulateSettings
from rollout_operator.lab.simulate.times import (
    CHANGE_MARK,
    FOR_EVER,
    ReadyTime,
    choose_behaviour,
    learn_ready_times,
    list_stuck,
)
from rollout_operator.lab.zones import ZoneSpec
from tests.lab.simulate.dumps import Json, grow, pick

SECONDS = timedelta(seconds=1)
STARTED = "2026-01-02T03:00:00Z"


def _time(pod: Json, ready: str, restarts: int = 0) -> None:
    status = pod["status"]
    status["startTime"] = STARTED
    for condition in status["conditions"]:
        if condition["type"] == "Ready":
            condition["lastTransitionTime"] = ready
    status["containerStatuses"][0]["restartCount"] = restarts


def _learn(objects: list[Json], given: timedelta = timedelta(0)) -> dict[str, ReadyTime]:
    return learn_ready_times(
        choose_objects(objects, ""), SimulateSettings(file="-", ready_after=given)
    )


def test_the_median_of_those_who_tell_counts() -> None:
    """One that became ready again after a day, and one that was restarted, mislead nobody."""
    objects = grow(ZoneSpec(name="zone-a", replicas=5))
    for ordinal, ready in enumerate(("03:00:40", "03:00:42", "03:00:50", "23:00:00")):
        _time(pick(objects, f"zone-a-{ordinal}"), f"2026-01-02T{ready}Z")
    _time(pick(objects, "zone-a-4"), "2026-01-02T03:00:01Z", restarts=1)

    assert _learn(objects) == {"ingester": ReadyTime(46 * SECONDS, 4)}


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


def test_where_nobody_tells_it_is_half_a_minute() -> None:
    objects = grow(ZoneSpec(name="zone-a", replicas=1), failed=["zone-a-0"])

    assert _learn(objects) == {"ingester": ReadyTime(30 * SECONDS, 0)}


def test_a_new_pod_takes_the_whole_time() -> None:
    dump = choose_objects(grow(), "")
    choose = choose_behaviour(dump, {"ingester": ReadyTime(40 * SECONDS, 9)}, 7 * SECONDS)

    chosen = choose(dump.pods[0].obj)

    assert chosen.starts_after + chosen.ready_after == 40 * SECONDS
    assert (chosen.kind, chosen.terminates_after) == (StartKind.NORMAL, 7 * SECONDS)


def test_a_pod_that_is_not_ready_stays_so() -> None:
    dump = choose_objects(grow(failed=["zone-b-1"]), "")
    choose = choose_behaviour(dump, {"ingester": ReadyTime(40 * SECONDS, 9)}, 7 * SECONDS)

    (stuck,) = list_stuck(dump)
    chosen = choose(stuck.obj)

    assert stuck.view.name == "zone-b-1"
    assert (chosen.kind, chosen.starts_after) == (StartKind.NEVER_READY, FOR_EVER)
    new = {**stuck.obj, "metadata": {**child(stuck.obj, "metadata"), "uid": "new"}}
    assert choose(new).kind is StartKind.NORMAL, "its successor is another one"


def test_a_pod_on_its_way_out_is_not_stuck() -> None:
    objects = grow()
    pick(objects, "zone-a-0")["metadata"]["deletionTimestamp"] = STARTED

    assert list_stuck(choose_objects(objects, "")) == ()


@pytest.mark.parametrize(
    ("mark", "kind"), [("1", StartKind.NORMAL), ("crashes-1", StartKind.CRASH_LOOP)]
)
def test_pods_of_a_bad_template_crash(mark: str, kind: StartKind) -> None:
    dump = choose_objects(grow(), "")
    choose = choose_behaviour(dump, {"ingester": ReadyTime(40 * SECONDS, 9)}, 7 * SECONDS)
    pod = pick(grow(), "zone-a-0")
    pod["metadata"]["annotations"] = {CHANGE_MARK: mark}

    assert choose(pod).kind is kind
