"""Deletes of a rollout: each promise by histories that break it, and by some that nearly do."""

from typing import Any

import pytest

from rollout_operator.kube.api import NODES, PODS, STATEFULSETS
from tests.judge.book import read_book
from tests.judge.builder import OPERATOR, PATHS, PERSON, PREPARED, HistoryBuilder, s
from tests.judge.builder_objects import preconditions
from tests.judge.deletes import get_sent
from tests.judge.histories import Events, as_events, cases, list_broken
from tests.judge.invariants_budgets import list_grants, list_overlaps
from tests.judge.promises import Promises
from tests.judge.state import REMEMBERED
from tests.judge.verdict import judge_book


def judge(events: Events, **zones: Any) -> list[str]:
    """Return what events in three zones break that are to be rolled out."""
    history = HistoryBuilder().zones(**zones)
    events(history)
    return list(list_broken(history))


def set_changed(at: float, name: str, **parts: Any) -> Events:
    """Change a set, and delete a pod of zone-a at 10 s."""
    return lambda t: t.zone(at, name, **parts).delete(10, "a-0")


def pod_changed(at: float, name: str, **parts: Any) -> Events:
    """Change a pod, and delete one of zone-a at 10 s."""
    return lambda t: t.pod(at, name, **parts).delete(10, "a-0")


def set_gone(at: float) -> Events:
    """Have zone-a go, and delete a pod of it at 10 s."""
    return lambda t: t.write(at, STATEFULSETS, "a", None).delete(10, "a-0")


def zone_returns(at: float) -> Events:
    """Scale zone-b down and up again, and delete a pod of zone-a six seconds later."""
    return lambda t: (
        t.zone(1, "b", replicas=2).gone(2, "b-2").zone(at, "b", replicas=3).delete(at + 6, "a-0")
    )


def two_at_once(t: HistoryBuilder) -> HistoryBuilder:
    return t.delete(10, "a-0").delete(10.5, "a-1")


def never_up(t: HistoryBuilder) -> HistoryBuilder:
    """Have a bad revision come to two zones."""
    for name in ("a-0", "b-0"):
        t.replace(2, name, ready=False, revision="bad")
    return t


def crashed_meanwhile(sent_at: float, *, crashing: bool = True) -> Events:
    """Delete a pod of zone-b while the delete of one of zone-a is still to arrive."""

    def events(t: HistoryBuilder) -> None:
        t.live_read(sent_at - 0.1).fault(sent_at, "slow", "call 3: delete pods/zone-a-0: 0:00:05")
        t.pod(12, "b-1", ready=not crashing, crashing=crashing).delete(12.2, "b-1")
        t.delete(sent_at + 5, "a-0", is_read=False)

    return events


def never_up_again(t: HistoryBuilder) -> None:
    t.delete(10, "a-0").replace(12, "a-0", ready=False, revision="bad").delete(20, "a-0")


DELETES = cases(
    {
        "SI-01 two zones at once -> SI-01": lambda t: t.delete(10, "a-0").delete(11, "b-0"),
        "SI-01 the next zone once the pod is ready": lambda t: (
            t.delete(10, "a-0").replace(11, "a-0").delete(11.4, "b-0")
        ),
        "SI-01 the next zone once the pod is not wanted": lambda t: (
            t.delete(10, "a-2").zone(11, "a", replicas=2).delete(11.4, "b-0")
        ),
        "SI-02 another zone has been short for 6 s -> SI-02": pod_changed(4, "b-1", ready=False),
        "SI-02 another zone has been short for 4 s": pod_changed(6, "b-1", ready=False),
        "SI-02 D-67 one that was there lately -> SI-02": zone_returns(4),
        "D-67 one that was there long ago": zone_returns(2 + REMEMBERED.total_seconds()),
        "D-88 SI-01 SI-02 those that never came up go in two zones": lambda t: (
            never_up(t).delete(10, "a-0").delete(11, "b-0")
        ),
        "D-88 and healthy ones do not -> SI-02 SI-03": lambda t: never_up(t).delete(10, "a-1"),
        "D-88 one that crashes again and again": lambda t: (
            t.pod(4, "b-1", ready=False).pod(4, "a-0", crashing=True).delete(10, "a-0")
        ),
        "D-88 SI-01 a healthy one, requested before it, goes late": crashed_meanwhile(10),
        "D-88 SI-01 one that was requested after it -> SI-01 SI-02": crashed_meanwhile(12.5),
        "D-88 SI-01 what disturbs, meanwhile -> SI-01": crashed_meanwhile(10, crashing=False),
        "D-88 one that has been up, and may be again -> SI-02": lambda t: (
            t.pod(4, "b-1", ready=False).pod(4, "a-0", ready=False).delete(10, "a-0")
        ),
        "SI-03 one was missing before -> SI-03": pod_changed(4, "a-1", ready=False),
        "SI-04 one that fell by itself is one more -> SI-04": lambda t: (
            t.delete(10, "a-0").pod(10.2, "a-1", ready=False).delete(20, "a-1")
        ),
        "SI-04 LI-10 the same one again, not up since": never_up_again,
        "SI-04 one more than the limit -> SI-03 SI-04": two_at_once,
        "SI-07 no uid -> SI-07": lambda t: t.delete(10, "a-0", body=preconditions("")),
        "SI-07 no version -> SI-07": lambda t: t.delete(10, "a-0", body=preconditions("u", "")),
        "SI-07 it is updated already -> SI-07": pod_changed(5, "a-0", revision="new"),
        "SI-07 paused 6 s ago -> SI-07": set_changed(4, "a", paused="true"),
        "SI-07 paused 4 s ago": set_changed(6, "a", paused="true"),
        "SI-08 strategy of another zone -> SI-08": set_changed(5, "c", strategy="RollingUpdate"),
        "SI-08 status of another zone -> SI-08": set_changed(9, "b", generation=2),
        "SI-06 a pod of another owner -> SI-06": lambda t: t.pod(
            5, "a-9", owner="another-set"
        ).delete(10, "a-9"),
        "SI-06 of no group -> SI-06": set_changed(2, "a", group=None),
        "SI-06 of no group for 4 s": set_changed(6, "a", group=None),
        "SI-06 of a set that has gone for 4 s": set_gone(6),
        "SI-06 of a set that has gone for 6 s -> SI-06": set_gone(4),
        "SI-07 ended, and no delete -> SI-07": lambda t: t.gone(10, "a-0", actor=OPERATOR),
        "SI-07 a whole collection -> SI-07": lambda t: t.live_read(10).call(10.1, "delete", PODS),
        "SI-06 SI-24 in a foreign namespace -> SI-06 SI-24": lambda t: t.live_read(10).call(
            10.1,
            "delete",
            PODS,
            "x",
            namespace="kube-system",
            body=preconditions("u"),
            status=403,
        ),
        "SI-24 all namespaces -> SI-24": lambda t: t.call(1, "list", PODS, namespace=""),
        "SI-24 nodes -> SI-24": lambda t: t.call(1, "list", NODES),
        "SI-24 which kinds there are": lambda t: t.call(1, "discover", NODES),
        "SI-04 one more than the limit, on one read -> SI-03 SI-04": lambda t: (
            t.live_read(9.9).delete(10, "a-0", is_read=False).delete(10.5, "a-1", is_read=False)
        ),
    }
)
"""SI-01 to SI-04, SI-06 to SI-08, SI-24: what breaks them does, and what nearly does not."""


@pytest.mark.parametrize(("replicas", "broken"), [(5, []), (3, ["SI-03", "SI-04"])])
def test_a_share_of_the_replicas_is_a_limit(replicas: int, broken: list[str]) -> None:
    """SI-04: of five pods 40 % are two; of three, one."""
    assert judge(lambda t: two_at_once(t.zone(0, "a", limit="40%")), replicas=replicas) == broken


def test_a_violation_says_when_and_what() -> None:
    """The reader learns the time, the pod and what stood against it."""
    history = HistoryBuilder().zones().pod(4, "b-1", ready=False).delete(10, "a-0")
    (found,) = judge_book(history.history).violations

    text = "SI-02 at 10.0 s: delete of zone-a-0: zone-b-1 has been unavailable for 6.0 s"
    assert (found.at, f"{found}") == (s(10), text)


def on_live_read(at: float, **how: Any) -> Events:
    """Delete a pod on a read at this time."""
    return lambda t: t.live_read(at, **how).delete(10, "a-0", is_read=False)


def held(kind: str, span: str, deleted_at: float, read_at: float = 9.9) -> Events:
    """Send a delete at 10 s that a fault holds up."""
    return lambda t: (
        t.live_read(read_at)
        .fault(10, kind, f"call 3: delete pods/zone-a-0: {span}")
        .delete(deleted_at, "a-0", is_read=False)
    )


def live_read_that_failed(t: HistoryBuilder) -> None:
    t.call(9.9, "list", PODS).call(9.9, "list", STATEFULSETS, status=500)
    t.delete(10, "a-0", is_read=False)


def live_read_of_a_former_process(t: HistoryBuilder) -> None:
    t.lived(1, "started").live_read(2).lived(3, "crashed").lived(150, "started")
    t.delete(151, "a-0", is_read=False)


def lost_answer(t: HistoryBuilder, *, is_read: bool) -> None:
    t.zone(0, "a", limit="3").live_read(9.9)
    t.fault(9.95, "lost", "call 3: delete pods/zone-a-0: timeout")
    t.delete(10, "a-0", is_read=False).delete(10.5, "a-1", is_read=is_read)


def slow_and_overtaken(t: HistoryBuilder) -> None:
    t.live_read(9.9).fault(10, "slow", "call 3: delete pods/zone-a-0: 0:00:20")
    t.pod(12, "b-1", ready=False).zone(13, "a", update_revision="old")
    t.delete(30, "a-0", is_read=False)


LIVE_READS = cases(
    {
        "SI-09 no read -> SI-09": lambda t: t.delete(10, "a-0", is_read=False),
        "SI-09 a read 6 s old -> SI-09": on_live_read(4),
        "SI-09 a read 4.8 s old": on_live_read(5.2),
        "SI-09 a read of what the API server has cached -> SI-09": on_live_read(
            9.9, query={"resourceVersion": "0"}
        ),
        "SI-09 a read that failed -> SI-09": live_read_that_failed,
        "SI-09 the read of another process -> SI-09": on_live_read(9.9, actor="operator-2"),
        "SI-09 a read of another group -> SI-09": on_live_read(
            9.9, query={"labelSelector": "rollout-group=store"}
        ),
        "SI-09 the read of a former process -> SI-09": live_read_of_a_former_process,
        "SI-09 a late one on an old read -> SI-09": held("late", "late: 0:00:10", 50.01, 1),
        "SI-09 a planned fault says no span": held("slow", "slow", 10.9, 4.6),
        "SI-18 no look after a lost answer -> SI-18": lambda t: lost_answer(t, is_read=False),
        "SI-18 a look after a lost answer": lambda t: lost_answer(t, is_read=True),
        "2.1 what happened after the read of a late one": slow_and_overtaken,
        "2.1 what happened before the read of a late one -> SI-02": lambda t: held(
            "slow", "0:00:20", 30
        )(t.pod(4, "b-1", ready=False)),
        "SI-09 a read 9.9 s old, by a clock of half the speed": lambda t: (
            t.fault(0, "clock_rate").live_read(0.1).delete(10, "a-0", is_read=False)
        ),
        "SI-09 a read 11 s old, by such a clock -> SI-09": lambda t: (
            t.fault(0, "clock_rate").live_read(0.1).delete(11.1, "a-0", is_read=False)
        ),
    }
)
"""SI-09, SI-18: the group was read live, by the same process, in the five seconds before."""


def test_the_answer_of_an_earlier_write_that_is_slow_holds_no_later_one_up() -> None:
    """SI-09: a write counts as sent when it arrived where the fault struck another."""
    t = HistoryBuilder().zones().fault(10, "slow", "call 3: patch statefulsets/zone-a: 0:00:00.130")
    t.call(10.01, "patch", STATEFULSETS, "a").call(10.2, "patch", STATEFULSETS, "a")
    book = read_book(t.history, Promises())
    assert [get_sent(book, one) for one in book.own_calls] == [s(10.01), s(10.2)]


def test_a_late_write_that_arrives_is_not_the_next_one_that_is_late() -> None:
    """SI-09: each counts as sent when its own fault held it up."""
    t = HistoryBuilder().zones()
    t.fault(10, "late", "call 1: patch statefulsets/zone-a: late: 0:00:00.100")
    t.fault(40.09, "late", "call 2: patch statefulsets/zone-a: late: 0:00:00.500")
    t.call(40.11, "patch", STATEFULSETS, "a").call(70.6, "patch", STATEFULSETS, "a")
    book = read_book(t.history, Promises())
    assert [get_sent(book, one) for one in book.own_calls] == [s(10), s(40.09)]


def test_the_deletes_of_the_dead_need_reservations() -> None:
    """SI-17 is not promised without a budget: what only it would prevent is listed apart."""
    t = HistoryBuilder().zones().lived(1, "started").live_read(2)
    t.fault(2.1, "late", "call 3: delete pods/zone-a-0: 0:00:20")
    t.lived(3, "crashed").lived(4, "started").delete(5, "b-0").lived(6, "crashed")
    t.delete(7, "a-0", is_read=False)

    verdict = judge_book(t.history)

    assert verdict.violations == ()
    assert [one.invariant for one in verdict.unpromised] == ["SI-17"]
    assert "(else SI-01)" in verdict.unpromised[0].text
    assert list_broken(t, Promises(reserves=True)) == ["SI-17"]


def grant(t: HistoryBuilder, *, dry_run: bool = False) -> HistoryBuilder:
    """Have zone-a go down: a read at 18.5 s, a call at 19, the answer at 19.5, the write at 20."""
    t.live_read(18.5).prepare(19, "a-2").review(19.5, "a", begun=s(18.2), dry_run=dry_run)
    return t.send_request(20) if dry_run else t.persist(20)


def beside_a_grant(at: float, pod: str = "b-0", **how: Any) -> Events:
    """Have a pod deleted at a time while zone-a goes down."""
    return lambda t: grant(t).call(at, "delete", PODS, pod, **how)


def by_another_process(t: HistoryBuilder) -> None:
    grant(t).lived(19.1, "crashed").lived(19.15, "started").call(19.2, "delete", PODS, "b-0")


@as_events
def beside_a_new_image(t: HistoryBuilder, at: float) -> None:
    """Have a pod deleted after zone-a went down, while an image for it is under review still."""
    grant(t).call(at, "delete", PODS, "b-0")
    image = t.number + 1
    t.review(22.5, "a", image, begun=s(18.1)).zone(23, "a", actor=PERSON, call=image)
    t.send_request(23, body={"spec": {"template": {}}}, begun=18.0)


OVERLAPS = cases(
    {
        "SI-02 D-25 a downscale is being granted -> SI-02": beside_a_grant(19.2),
        "D-25 in its own zone": beside_a_grant(19.2, "a-0"),
        "D-25 while it is of another group, and back later": lambda t: (
            beside_a_grant(19.2)(t.zone(10, "a", group="store"))
            and t.zone(60, "a", group="ingester")
        ),
        "D-25 after the write, which all processes see": beside_a_grant(20.5),
        "D-25 before it, with another write under review -> SI-02": beside_a_new_image(19.2),
        "D-25 after it, with another write under review": beside_a_new_image(20.5),
        "D-25 by a process that knows nothing of it yet": by_another_process,
        "SI-02 FP-21 an eviction -> SI-02": lambda t: grant(t).evict(19.2, "b-0"),
        "FP-21 under no budget": lambda t: grant(t).evict(19.2, "b-0", marked=False),
    }
)


def guarded() -> HistoryBuilder:
    return (
        HistoryBuilder()
        .hooks(0, "prepare-downscale", "no-downscale")
        .zones(labels=PREPARED, annotations=PATHS)
    )


@pytest.mark.parametrize(("events", "broken"), OVERLAPS)
def test_a_rollout_waits_for_a_downscale(events: Events, broken: list[str]) -> None:
    t = guarded()
    events(t)
    assert [one.invariant for one in list_overlaps(read_book(t.history, Promises()))] == broken


def test_a_grant_lasts_from_its_last_live_read_to_the_end_of_its_request() -> None:
    t = grant(guarded().call(18.4, "list", STATEFULSETS))

    (found,) = list_grants(read_book(t.history, Promises()))
    assert (found.zone, found.read_at, found.ended_at) == ("zone-a", s(18.5), s(20))


def rolled(t: HistoryBuilder) -> HistoryBuilder:
    """Have all pods of a zone at the update revision, as another's work."""
    for ordinal in range(3):
        t.pod(1, f"a-{ordinal}", uid=f"new-{ordinal}", revision="new")
    return t


def record(t: HistoryBuilder, at: float, **parts: Any) -> None:
    """Have the operator record the update revision, or what `parts` say."""
    how = {"current_revision": "new", "actor": OPERATOR, **parts}
    t.zone(at, "a", call=t.number + 1, **how)
    t.call(at, "update", STATEFULSETS, "a", subresource="status")


def short_since(t: HistoryBuilder, at: float) -> HistoryBuilder:
    return rolled(t).pod(at, "a-1", uid="new-1", revision="new", ready=False)


def lost_event(t: HistoryBuilder) -> HistoryBuilder:
    return t.fault(4, "drop_event", "event 7 of pods: MODIFIED zone-a-1")


REVISIONS = cases(
    {
        "all pods are ready at it": lambda t: record(rolled(t), 10),
        "a pod is at the revision before -> ROLL-39": lambda t: record(
            rolled(t).pod(2, "a-1", uid="old-1"), 10
        ),
        "a pod has not been ready for 6 s -> ROLL-39": lambda t: record(short_since(t, 4), 10),
        "nothing says that a pod is not ready": lambda t: record(
            short_since(lost_event(t.zone(0.5, "a", ready=3)), 4), 10
        ),
        "the set says so -> ROLL-39": lambda t: record(
            short_since(lost_event(t), 4).zone(4.5, "a", ready=2), 10
        ),
        "a pod is not there yet -> ROLL-39": lambda t: record(
            rolled(t).zone(4, "a", replicas=4), 10
        ),
        "it is to have another one by now -> ROLL-39": lambda t: record(
            rolled(t).zone(9.9, "a", update_revision="newer"), 10
        ),
        "the event of another pod was lost -> ROLL-39": lambda t: record(
            short_since(t.zone(0.5, "a", ready=3).fault(4, "drop_event", "event 7: zone-a-2"), 4),
            10,
        ),
    }
)
"""ROLL-39: not while a pod of the zone is missing, not ready, or at another revision."""


@pytest.mark.parametrize(("events", "broken"), [*DELETES, *LIVE_READS, *REVISIONS])
def test_deletes_and_records_are_judged(events: Events, broken: list[str]) -> None:
    """Each history breaks what its name says; of which promises it is, stands below its table."""
    assert judge(events) == broken
