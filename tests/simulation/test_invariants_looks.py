"""The judge of looks and of late deletes: histories that break a promise, and that nearly do."""

import pytest

from rollout_operator.kube.api import PODS, STATEFULSETS
from tests.judge.promises import Promises
from tests.judge.verdict import find_violations
from tests.simulation.chronicle import Chronicle, preconditions
from tests.simulation.chronicle_deletes import Story, judge


def blind(told: Chronicle) -> None:
    told.delete(10, "zone-a-0", looked=False)


def old_look(told: Chronicle) -> None:
    told.look(4)
    told.delete(10, "zone-a-0", looked=False)


def recent_look(told: Chronicle) -> None:
    told.look(5.2)
    told.delete(10, "zone-a-0", looked=False)


def cached_look(told: Chronicle) -> None:
    told.look(9.9, query={"resourceVersion": "0"})
    told.delete(10, "zone-a-0", looked=False)


def failed_look(told: Chronicle) -> None:
    told.call(9.9, "list", PODS)
    told.call(9.9, "list", STATEFULSETS, status=500)
    told.delete(10, "zone-a-0", looked=False)


def look_of_another_process(told: Chronicle) -> None:
    told.look(9.9, actor="operator-2")
    told.delete(10, "zone-a-0", looked=False)


def look_of_another_group(told: Chronicle) -> None:
    told.look(9.9, query={"labelSelector": "rollout-group=store"})
    told.delete(10, "zone-a-0", looked=False)


def look_of_a_former_life(told: Chronicle) -> None:
    told.lived(1, "started")
    told.look(2)
    told.lived(3, "crashed")
    told.lived(150, "started")
    told.delete(151, "zone-a-0", looked=False)


def slow_delete(told: Chronicle) -> None:
    told.look(9.9)
    told.fault(10, "slow", "call 3: delete pods/zone-a-0: 0:00:20")
    told.delete(30, "zone-a-0", looked=False)


def late_and_sent_again(told: Chronicle) -> None:
    told.look(9.9)
    told.fault(10, "late", "call 3: delete pods/zone-a-0: late: 0:00:10")
    told.delete(40.5, "zone-a-0")
    told.call(50, "delete", PODS, "zone-a-0", body=preconditions("zone-a-0@0"), status=409)


def late_and_first(told: Chronicle) -> None:
    told.look(9.9)
    told.fault(10, "late", "call 3: delete pods/zone-a-0: late: 0:00:00.200000")
    told.delete(40.21, "zone-a-0", looked=False)
    told.replace(41, "zone-a-0", revision="old")
    told.delete(100, "zone-a-0")


def late_on_an_old_look(told: Chronicle) -> None:
    told.look(1)
    told.fault(10, "late", "call 3: delete pods/zone-a-0: late: 0:00:10")
    told.delete(50.01, "zone-a-0", looked=False)


def late_and_moved(told: Chronicle) -> None:
    told.look(9.9, query={"labelSelector": "rollout-group=ingester"})
    told.fault(10, "late", "call 3: delete pods/zone-a-0: late: 0:00:10")
    told.zone(20, "zone-a", group="store")
    told.delete(50.01, "zone-a-0", looked=False)


def slow_clock(told: Chronicle) -> None:
    told.fault(1, "clock_rate", "has a clock that runs at 0.50")
    told.look(1.5)
    told.delete(10, "zone-a-0", looked=False)


@pytest.mark.parametrize(
    ("story", "broken"),
    [
        pytest.param(blind, ["SI-09"], id="no look"),
        pytest.param(old_look, ["SI-09"], id="a look 6 s old"),
        pytest.param(recent_look, [], id="a look 4.8 s old"),
        pytest.param(cached_look, ["SI-09"], id="a look at what the API server has cached"),
        pytest.param(failed_look, ["SI-09"], id="a look that failed"),
        pytest.param(look_of_another_process, ["SI-09"], id="the look of another process"),
        pytest.param(look_of_another_group, ["SI-09"], id="a look at another group"),
        pytest.param(look_of_a_former_life, ["SI-09"], id="the look of an earlier life"),
        pytest.param(slow_delete, [], id="a delete that was made to be slow"),
        pytest.param(late_and_sent_again, [], id="a late one that arrives after its repetition"),
        pytest.param(late_and_first, [], id="a late one of a pod that is deleted again later"),
        pytest.param(late_on_an_old_look, ["SI-09"], id="a late one, sent on an old look"),
        pytest.param(late_and_moved, [], id="a late one of a zone that changes its group"),
        pytest.param(slow_clock, [], id="ten seconds by a clock that runs at half speed"),
    ],
)
def test_each_delete_rests_on_a_live_look(story: Story, broken: list[str]) -> None:
    """SI-09: the group was read live, by the same process, in the five seconds before."""
    assert judge(story) == broken


def lost_then_blind(told: Chronicle) -> None:
    told.zone(0, "zone-a", limit="3")
    told.look(9.9)
    told.fault(9.95, "lost", "call 3: delete pods/zone-a-0: timeout")
    told.delete(10, "zone-a-0", looked=False)
    told.delete(10.5, "zone-a-1", looked=False)


def lost_then_looked(told: Chronicle) -> None:
    told.zone(0, "zone-a", limit="3")
    told.look(9.9)
    told.fault(9.95, "lost", "call 3: delete pods/zone-a-0: timeout")
    told.delete(10, "zone-a-0", looked=False)
    told.delete(10.5, "zone-a-1")


def late_beside_a_lost_one(told: Chronicle) -> None:
    told.look(9.9)
    told.fault(10, "late", "call 3: delete pods/zone-a-0: late: 0:00:01")
    told.look(40.1)
    told.fault(40.2, "lost", "call 6: delete pods/zone-a-0: timeout")
    told.delete(40.2, "zone-a-0", looked=False)
    told.call(41.01, "delete", PODS, "zone-a-0", body=preconditions("zone-a-0@0"), status=409)


def test_what_got_no_answer_is_read_back() -> None:
    """SI-18: no delete on a look that is older than one whose outcome is unknown."""
    assert judge(lost_then_blind) == ["SI-18"]
    assert judge(lost_then_looked) == []
    assert judge(late_beside_a_lost_one) == []


def late_and_dead(told: Chronicle) -> None:
    """A delete arrives after its process has died, and its successor has begun elsewhere."""
    told.lived(1, "started")
    told.look(2)
    told.fault(2.1, "late", "call 3: delete pods/zone-a-0: 0:00:20")
    told.lived(3, "crashed")
    told.lived(4, "started")
    told.delete(5, "zone-b-0")
    told.lived(6, "crashed")
    told.delete(7, "zone-a-0", looked=False)


def test_the_deletes_of_the_dead_need_reservations() -> None:
    """SI-17 is not promised: what only it would prevent is listed apart, until it is."""
    chronicle = Chronicle()
    chronicle.zones()
    late_and_dead(chronicle)

    verdict = find_violations(chronicle.history)
    strict = find_violations(chronicle.history, Promises(reserves=True))

    assert verdict.violations == ()
    assert [one.invariant for one in verdict.unpromised] == ["SI-17"]
    assert "(else SI-01)" in verdict.unpromised[0].text
    assert [one.invariant for one in strict.violations] == ["SI-17"]


def slow_and_overtaken(told: Chronicle) -> None:
    told.look(9.9)
    told.fault(10, "slow", "call 3: delete pods/zone-a-0: 0:00:20")
    told.pod(12, "zone-b-1", ready=False)
    told.zone(13, "zone-a", update_revision="old")
    told.delete(30, "zone-a-0", looked=False)


def slow_and_known(told: Chronicle) -> None:
    told.pod(4, "zone-b-1", ready=False)
    told.look(9.9)
    told.fault(10, "slow", "call 3: delete pods/zone-a-0: 0:00:20")
    told.delete(30, "zone-a-0", looked=False)


def test_what_comes_late_is_judged_by_its_look() -> None:
    """2.1 "known since": nothing counts that happened after the look of a late delete."""
    assert judge(slow_and_overtaken) == []
    assert judge(slow_and_known) == ["SI-02"]
