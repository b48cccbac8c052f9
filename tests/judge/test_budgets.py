"""Evictions and deletes under a budget: histories that break a promise, and that nearly do."""

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import msgspec
import pytest

from rollout_operator.kube.api import PODS, ZONE_BUDGETS, JsonObject
from tests.judge.book import read_book
from tests.judge.budgets import EVICTION_PATH
from tests.judge.builder import NAMESPACE, OPERATOR, PERSON, HistoryBuilder, s
from tests.judge.downscales import FORGED, describe_review
from tests.judge.histories import Events, as_events, cases, list_broken
from tests.judge.invariants_reviews import list_spans
from tests.judge.promises import Promises, Verdict
from tests.judge.verdict import judge_book

TWO: JsonObject = {"maxUnavailable": 2}
PARTITIONS: JsonObject = {"podNamePartitionRegex": "zone-[a-z]-([0-9]+)"}


def judge(events: Events, **spec: Any) -> list[str]:
    """Return what events in three zones under a budget break."""
    history = HistoryBuilder().zones().budget(0, **spec)
    events(history)
    return list(list_broken(history))


def under(spec: JsonObject, events: Events) -> Events:
    """Have events happen under another budget, from the beginning."""
    return lambda t: events(t.budget(0.5, **spec))


def two_zones(t: HistoryBuilder) -> HistoryBuilder:
    return t.evict(10, "a-0").evict(12, "b-0")


def two_of_a_zone(t: HistoryBuilder) -> HistoryBuilder:
    return t.evict(10, "a-0").evict(12, "a-1")


def not_running(t: HistoryBuilder) -> None:
    t.evict(10, "a-0").gone(11, "b-0")
    t.pod(11.1, "b-0", uid="fresh", ready=False, phase="Pending").evict(12, "b-0", marked=False)


def beside_a_short_zone(since: float) -> Events:
    return lambda t: t.pod(since, "b-1", ready=False).evict(10, "a-0")


def in_a_short_zone(t: HistoryBuilder) -> HistoryBuilder:
    return t.pod(4, "a-1", ready=False).evict(10, "a-0")


def of_both(t: HistoryBuilder) -> None:
    t.live_read(9).evict(10, "a-0").mark(10.1, "a-1", engine="rollout").delete(
        10.2, "a-1", is_read=False
    )


def share(percent: int, events: Events) -> Events:
    return lambda t: events(t.unbudget(0.4).budget(0.5, maxUnavailablePercentage=percent))


def flawed_from_the_start(t: HistoryBuilder) -> None:
    t.unbudget(1).budget(2, podNamePartitionRegex="no group").evict(10, "a-0")


def second(t: HistoryBuilder) -> HistoryBuilder:
    """Have another budget select all pods."""
    spec: JsonObject = {"selector": {"matchLabels": {}}}
    return t.write(1, ZONE_BUDGETS, "second", {"metadata": {"name": "second"}, "spec": spec})


def lowered(after: float, kind: str, what: str) -> Events:
    """Have a budget lowered, so long after a fault, and two pods of a zone evicted."""

    def events(t: HistoryBuilder) -> None:
        t.fault(4, kind, f"event 3 of {what}: MODIFIED ingester").budget(
            4 + after, maxUnavailable=1
        )
        t.evict(after + 10, "a-0").evict(after + 12, "a-1")

    return under(TWO, events)


def of_the_dead(t: HistoryBuilder) -> None:
    """The record has shown the next process what was on its way."""
    t.lived(0, "started").live_read(9)
    t.mark(9.05, "a-0", engine="rollout").mark(9.1, "b-0", engine="rollout")
    t.delete(9.2, "b-0", is_read=False).lived(9.25, "crashed").lived(9.26, "started")
    t.fault(9.1, "late", "call 9: delete pods/zone-a-0: late: 0:00:01")
    t.delete(9.5, "a-0", is_read=False)


EVICTIONS = cases(
    {
        "SI-01 evictions in two zones -> SI-01": two_zones,
        "SI-01 whatever the budget -> SI-01": under(TWO, two_zones),
        "SI-01 one zone after the other": lambda t: (
            t.evict(10, "a-0").replace(11, "a-0").evict(12, "b-0")
        ),
        "SI-01 a rollout comes -> SI-01": lambda t: t.evict(10, "c-0").delete(
            12, "a-0", record=True
        ),
        "SI-01 an eviction comes -> SI-01": lambda t: t.delete(10, "a-0", record=True).evict(
            12, "b-0"
        ),
        "FP-31 deleted a second ago": lambda t: two_zones(t.unbudget(9)),
        "ZPDB-54 it does not run yet": not_running,
        "SI-02 for 6 s -> SI-02": beside_a_short_zone(4),
        "SI-02 for 4 s": beside_a_short_zone(6),
        "SI-03 one was missing -> SI-03": in_a_short_zone,
        "SI-03 two may be missing": under(TWO, in_a_short_zone),
        "SI-04 two of one -> SI-04": two_of_a_zone,
        "SI-04 two of two": under(TWO, two_of_a_zone),
        "ZPDB-81 half of three -> SI-04": share(50, two_of_a_zone),
        "SI-04 of both engines -> SI-04": of_both,
        "ZPDB-61 nothing may go -> SI-03": under(
            {"maxUnavailable": 0}, lambda t: t.evict(10, "a-0")
        ),
        "FP-31 lowered": under(TWO, lambda t: two_of_a_zone(t.budget(9, maxUnavailable=1))),
        "W-52 the last valid one stays in force": lambda t: t.budget(
            1, podNamePartitionRegex="("
        ).evict(10, "a-0"),
        "W-52 never valid -> SI-03": flawed_from_the_start,
        "SI-17 an eviction without a record -> SI-17": lambda t: t.evict(10, "a-0", marked=False),
        "SI-17 a delete without a record -> SI-17": lambda t: t.delete(10, "a-0"),
        "SI-17 no compare-and-swap -> SI-15 SI-17": lambda t: t.mark(
            9, "a-0", body={"metadata": {"uid": "u"}}
        ).evict(10, "a-0", marked=False),
        "SI-17 of another pod -> SI-17": lambda t: t.mark(9, "a-0", uid="former").evict(
            10, "a-0", marked=False
        ),
        "SI-17 another client wrote it -> SI-17": lambda t: t.mark(9, "a-0", actor=PERSON).evict(
            10, "a-0", marked=False
        ),
        "SI-17 the role does not allow it": lambda t: t.call(
            9, "patch", PODS, "a-0", status=403, message='"operator-1" cannot patch resource "pods"'
        ).evict(10, "a-0", marked=False),
        "LI-10 one of two that are down": lambda t: (
            t.pod(4, "a-1", ready=False).pod(4, "a-2", ready=False).delete(10, "a-1", record=True)
        ),
        "ROLL-36 two budgets forbid evictions alone": lambda t: second(t).delete(
            10, "a-0", record=True
        ),
        "ZPDB-35 two budgets forbid evictions -> SI-03": lambda t: second(t).evict(10, "a-0"),
        "FP-31 lowered for longer -> SI-04": lowered(1, "drop_event", "pods"),
        "FP-31 lowered, and an event of it was lost": lowered(1, "drop_event", ZONE_BUDGETS.plural),
        "FP-31 lowered in a partition that lasts": lowered(1, "partition", "cut off"),
        "FP-31 lowered after it -> SI-04": lowered(140, "partition", "cut off"),
        "SI-17 a write by compare-and-swap that is no patch -> SI-15 SI-17": lambda t: t.mark(
            9, "a-0", body=[]
        ).evict(10, "a-0", marked=False),
    }
)
"""SI-01 to SI-04, SI-17: what breaks them does, and what nearly does not."""


def back_for(seconds: float) -> Events:
    return lambda t: t.evict(10, "a-0").replace(11, "a-0").evict(11.2 + seconds, "b-0")


def late_for(delay: str, events: Events) -> Events:
    return under({**PARTITIONS, "crossZoneEvictionDelay": delay}, events)


BY_PARTITION = cases(
    {
        "SI-05 the same one twice -> SI-05": two_zones,
        "SI-05 two may be down": under({**PARTITIONS, **TWO}, two_zones),
        "ZPDB-93 others never block": lambda t: (
            t.evict(10, "a-0").evict(12, "b-1").evict(12.5, "a-2")
        ),
        "ZPDB-92 back for 8 s of 10 -> SI-05": late_for("10s", back_for(8)),
        "ZPDB-92 back for 10 s": late_for("10s", back_for(10)),
        "SI-05 a peer is down -> SI-05": lambda t: t.pod(4, "c-0", ready=False).evict(10, "a-0"),
        "ZPDB-91 an absent peer -> SI-05": lambda t: t.zone(1, "c", replicas=2).evict(10, "a-2"),
        "ZPDB-63 no partition -> SI-05": under(
            {"podNamePartitionRegex": "zone-[a-z]-([0-1])"}, lambda t: t.evict(10, "a-2")
        ),
    }
)


@pytest.mark.parametrize(("events", "broken"), BY_PARTITION)
def test_partitions_are_judged(events: Events, broken: list[str]) -> None:
    """SI-05: no partition loses more than its budget, over all other zones."""
    assert judge(events, **PARTITIONS) == broken


def test_the_delete_of_an_eviction_is_found() -> None:
    t = HistoryBuilder().zones().evict(10, "a-0").evict(11, "b-0", dry="query")

    (found,) = read_book(t.history, Promises()).evictions.values()
    assert (found.request.name, found.at) == ("zone-a-0", s(10))


def in_a_dry_run(dry: str, *, marked: bool = True) -> Events:
    return lambda t: t.evict(20, "a-0", dry=dry, marked=marked)


def for_another_pod(t: HistoryBuilder) -> None:
    t.number += 1
    t.review(10, "a-1", t.number, path=EVICTION_PATH).mark(9.9, "a-0")


def forged(at: float = 19.7, path: str = EVICTION_PATH, **request: Any) -> Events:
    """Have a forged review come at a time; a dry run of the same leaves a record just before 20."""
    about = {"metadata": {"name": "zone-a-0"}, "deleteOptions": {}}
    fields = {"namespace": NAMESPACE, "name": "zone-a-0", "dryRun": False, "object": about}
    requested = describe_review(msgspec.json.encode({"request": {**fields, **request}}))
    return lambda t: in_a_dry_run("query")(
        t.fault(at, FORGED, f"at {path}?timeout=5s: {requested}", actor="api-server")
    )


def again(t: HistoryBuilder, at: float) -> HistoryBuilder:
    """Have the operator write a pod as it is."""
    return t.write(at, PODS, "a-0", t.objects[PODS.plural, "zone-a-0"], actor=OPERATOR, call=1)


RECORDS = cases(
    {
        "a dry run by query -> SI-15": in_a_dry_run("query"),
        "a dry run by options -> SI-15": in_a_dry_run("body"),
        "no client has requested it -> SI-15": lambda t: t.mark(10, "a-0"),
        "a client has requested another pod -> SI-15": for_another_pod,
        "SEC-09 forged in earnest": forged(),
        "SEC-09 forged, a dry run by query -> SI-15": forged(dryRun=True),
        "SEC-09 forged of another pod -> SI-15": forged(name="zone-a-1"),
        "SEC-09 forged in another namespace -> SI-15": forged(namespace="another"),
        "SEC-09 forged after it -> SI-15": forged(19.9),
        "SEC-09 forged long before -> SI-15": forged(1),
        "SEC-09 forged at another webhook -> SI-15": forged(path="/admission/prepare-downscale"),
        "SI-17 SI-01 a dead process is no excuse under a budget -> SI-17": of_the_dead,
        "one that stands is no new one": lambda t: again(t.evict(10, "a-0", allowed=False), 60),
    }
)
"""SI-15, W-09: whichever way it says that it is one; what a forgery requests is its own."""


def conclude(events: Events, healed_at: float, **spec: Any) -> Verdict:
    """Return what is to be said of zones at rest, in which all was well from a time on."""
    t = HistoryBuilder().zones(update_revision="old").budget(0, **spec)
    events(t)
    return judge_book(t.history, Promises(healed_at=s(healed_at), ended_at=s(5000), quiet=s(0)))


def marked_for(seconds: float, at: float = 20) -> Events:
    return lambda t: t.mark(at, "a-0", engine="rollout").unmark(at + seconds, "a-0")


def faulty(at: float, kind: str, events: Events) -> Events:
    return lambda t: events(t.fault(at, kind, "event 3 of pods: MODIFIED zone-a-0"))


@as_events
def requesting(t: HistoryBuilder, until: int, since: int = 20, pod: str = "a-0") -> None:
    """Have a person request a pod every five seconds, in vain."""
    for at in range(since, until, 5):
        t.request_eviction(at, pod, status=429)


LASTING = cases(
    {
        "LI-07 for 9 s": marked_for(9),
        "LI-07 for 14 s -> LI-07": marked_for(14),
        "LI-07 from before all was well -> LI-07": marked_for(25, at=5),
        "LI-07 since a fault, for too long -> LI-07": faulty(4, "slow", marked_for(40, at=5)),
        "LI-07 to the end -> LI-07": lambda t: t.mark(10, "a-0", engine="rollout"),
        "LI-07 as long as a call that got no answer": faulty(9, "partition", marked_for(40, at=5)),
        "LI-07 and no longer -> LI-07": faulty(9, "partition", marked_for(60, at=5)),
        "LI-07 later than such a call -> LI-07": faulty(9, "partition", marked_for(40)),
        "LI-07 later than what was lost -> LI-07": faulty(3, "drop_event", marked_for(40)),
        "LI-07 as long as an event may be lost": faulty(9, "drop_event", marked_for(300, at=5)),
        "LI-01 a drain has waited for three minutes": requesting(200),
        "LI-01 it has waited for eight -> LI-01": requesting(500),
        "LI-01 two have waited for four minutes, one after the other": lambda t: (
            requesting(260)(t),
            requesting(500, 260, "b-0")(t),
        ),
    }
)


@pytest.mark.parametrize(("events", "broken"), LASTING)
def test_nothing_lasts_for_long(events: Events, broken: list[str]) -> None:
    """LI-07: a record on an untouched pod. LI-01: a drain; nine pods may go before it."""
    assert [one.invariant for one in conclude(events, 10).violations] == broken


def test_a_drain_has_its_time_from_the_end_of_faults_on() -> None:
    """LI-01."""
    assert conclude(requesting(500), 400).violations == ()


def test_whichever_client_is_refused_is_named() -> None:
    (found,) = conclude(requesting(500), 10).violations

    assert f"zone-a-0 is refused to {PERSON} since" in found.text


def test_a_record_counts_until_the_pod_is_touched() -> None:
    t = HistoryBuilder().zones().evict(10, "a-0").mark(20, "b-0").mark(25, "b-0")

    spans = [(one.pod, end) for one, end in list_spans(read_book(t.history, Promises()))]
    assert spans == [("zone-a-0", s(10)), ("zone-b-0", s(25)), ("zone-b-0", s(25))]


USED = "1 pod not ready in zone-a; budget ingester: max unavailable 1"
HELD = "the next place under budget ingester is for the rollout; zone-c-0 waits"
_UNANSWERED = {"actor": "default/rollout-operator", "status": -1}
LOST = {"allowed": False, "review": {**_UNANSWERED, "message": "context deadline exceeded"}}
UNREACHED = {"allowed": False, "review": {**_UNANSWERED, "message": "connection refused"}}
REFUSED = "Cannot evict pod as it would violate the pod's disruption budget."


@pytest.mark.parametrize(
    ("how", "at"),
    [
        pytest.param({}, [50], id="LI-01 each place is taken"),
        pytest.param({"message": HELD}, [50], id="LI-01 in a turn of the rollout"),
        pytest.param({"maxUnavailable": 2}, [50], id="zones may miss one at a time: of two"),
        pytest.param(PARTITIONS, [], id="zones may miss one of each partition"),
        pytest.param({"evicted": 45}, [60], id="an eviction in between is its turn"),
        pytest.param({"waits": range(20, 40, 5)}, [], id="the client requests nothing more"),
        pytest.param({"message": REFUSED}, [], id="it waits for something else"),
        pytest.param({"message": "max unavailable = 0; budget ingester"}, [], id="there is none"),
        pytest.param({"in_vain": 15}, [], id="LI-01 LI-09 another webhook has refused it"),
        pytest.param({"in_vain": 15, "allowed": False}, [50], id="LI-01 LI-09 both have"),
        pytest.param({"in_vain": 15, **LOST}, [], id="LI-01 LI-09 the answer was lost"),
        pytest.param({"in_vain": 15, **UNREACHED}, [50], id="LI-01 LI-09 it was not requested"),
        pytest.param({"pod": "a-1"}, [], id="it is served by the rollout"),
        pytest.param({"crashed": True}, [], id="LI-10 pods that are down take no place"),
    ],
)
def test_a_rollout_leaves_places_for_a_drain(how: dict[str, Any], at: list[float]) -> None:
    """LI-01: of two places one is for the eviction that waits."""
    assert pass_over(**how) == at


def pass_over(
    *,
    waits: range = range(20, 80, 5),
    message: str = USED,
    pod: str = "c-0",
    evicted: float = 0,
    in_vain: float = 0,
    allowed: bool = True,
    review: Mapping[str, object] = MappingProxyType({}),
    crashed: bool = False,
    **spec: Any,
) -> list[float]:
    """Return when the judge objects, in a rollout of zone-a while an eviction waits."""
    t = HistoryBuilder().zones().budget(0, **spec)

    def roll(at: float, name: str) -> None:
        if crashed:
            t.pod(at - 1, name, ready=False)
        t.delete(at, name, record=True).replace(at + 1, name)

    def grant(at: float) -> None:
        t.request_eviction(at, pod, status=403, message="the quota is used")
        t.review(at + 0.1, pod, t.number, path=EVICTION_PATH, allowed=allowed, **review)

    send_request = partial(t.request_eviction, name=pod, status=429, message=message)
    steps: list[tuple[float, Any]] = [(at, send_request) for at in waits]
    steps += [(40, partial(roll, name="a-0")), (50, partial(roll, name="a-1"))]
    steps += [(60, partial(roll, name="a-2"))]
    if evicted:
        steps.append((evicted, lambda at: t.evict(at, "b-0").replace(at + 1, "b-0")))
    if in_vain:
        steps.append((in_vain, grant))
    for at, step in sorted(steps, key=lambda step: step[0]):
        step(at)
    found = judge_book(t.history, Promises(healed_at=s(10), ended_at=s(100), quiet=s(0)))
    return [one.at.total_seconds() for one in found.violations if "in a row" in one.text]


@pytest.mark.parametrize(("events", "broken"), [*EVICTIONS, *RECORDS])
def test_evictions_and_records_are_judged(events: Events, broken: list[str]) -> None:
    """Each history breaks what its name says; of which promises it is, stands below its table."""
    assert judge(events) == broken
