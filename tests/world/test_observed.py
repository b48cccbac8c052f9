"""What is observed of a real control plane becomes a history, and is judged more strictly."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from rollout_operator.kube.api import PODS, STATEFULSETS
from tests.judge.builder import PATHS, PERSON, PREPARED, WAIT, HistoryBuilder, s
from tests.judge.builder_objects import preconditions
from tests.judge.histories import Events, cases
from tests.judge.promises import Promises
from tests.judge.test_budgets import BY_PARTITION, EVICTIONS, PARTITIONS, second
from tests.judge.test_downscales import PREPARATIONS, WAITS
from tests.judge.test_rollouts import DELETES
from tests.judge.verdict import list_observed_downscales, list_observed_violations
from tests.world.forged import WALL, observe
from tests.world.observed import match_evictions, read_history

STRICT = Promises(is_observed=True, time_error=timedelta(seconds=1.5))
# Of these only what is not seen from outside counts.
UNSEEN = (
    "ended, and no delete",
    "compare-and-swap",
    "older pod of that name",
    "another client wrote it",
)


def judge(t: HistoryBuilder, promises: Promises = STRICT) -> list[str]:
    found = list_observed_violations(read_history(observe(t)), promises)
    return [one.invariant for one in found]


def judge_downscales(t: HistoryBuilder) -> list[str]:
    found = list_observed_downscales(read_history(observe(t)), STRICT)
    return [one.invariant for one in found]


def rows(*tables: Iterable[object]) -> list[Any]:
    """Return the cases of tables that break something, in the eyes of an observer outside."""
    found: list[Any] = [row for table in tables for row in table]
    return [row for row in found if row.values[1] and not any(one in row.id for one in UNSEEN)]


@pytest.mark.parametrize(("events", "broken"), rows(DELETES))
def test_deletes_are_judged_as_in_the_simulation(events: Events, broken: list[str]) -> None:
    t = HistoryBuilder().zones()
    events(t)
    assert {*judge(t)} >= {*broken} - {"SI-24"}


@pytest.mark.parametrize(
    ("events", "broken", "spec"),
    [(*row.values, {}) for row in rows(EVICTIONS)]
    + [(*row.values, PARTITIONS) for row in rows(BY_PARTITION)],
)
def test_evictions_are_judged_as_in_the_simulation(
    events: Events, broken: list[str], spec: dict[str, Any]
) -> None:
    t = HistoryBuilder().zones().budget(0, **spec)
    events(t)
    assert {*judge(t)} >= {*broken}


@pytest.mark.parametrize(("events", "broken"), rows(PREPARATIONS, WAITS))
def test_downscales_are_judged_as_in_the_simulation(events: Events, broken: list[str]) -> None:
    t = HistoryBuilder().zones(labels=PREPARED, annotations=PATHS)
    events(t)
    assert {*judge_downscales(t)} >= {*broken} - {"SI-12", "SI-21"}


def roll_properly(t: HistoryBuilder) -> None:
    t.budget(0)
    for number, name in enumerate(f"{zone}-{ordinal}" for zone in "abc" for ordinal in range(3)):
        at = 10 + 10 * number
        t.delete(at, name, record=True).replace(at + 5, name)


def drained(t: HistoryBuilder) -> None:
    for number, name in enumerate(("a-0", "a-1", "b-0", "c-2")):
        t.evict(10 + 3 * number, name).replace(11 + 3 * number, name)


def evicted_twice(t: HistoryBuilder, at: float) -> None:
    """Evict one of a partition when its copy was ready for a part of the 10 s that are wanted."""
    t.budget(0, **PARTITIONS, crossZoneEvictionDelay="10s").evict(10, "a-0").replace(11, "a-0")
    t.evict(at, "b-0")


FROM_OUTSIDE = cases(
    {
        "a rollout, one pod after the other": roll_properly,
        "a drain, one pod after the other": lambda t: drained(t.budget(0)),
        "what others delete is not judged": lambda t: t.delete(10, "a-0", actor=PERSON).delete(
            10, "b-0", actor=PERSON
        ),
        "evictions under no budget are not judged": lambda t: t.evict(10, "a-0").evict(11, "b-0"),
        "a pod that is gone at once is marked and removed in two writes": lambda t: t.delete(
            10, "a-0"
        ).gone(10, "a-0"),
        "D-67 a new ordinal counts from outside -> SI-02": lambda t: t.zone(
            4, "b", replicas=4
        ).delete(10, "a-0"),
        "a set that is deleted a moment before -> SI-06": lambda t: t.write(
            9.9, STATEFULSETS, "a", None
        ).delete(10, "a-0"),
        "two budgets forbid deletes, too -> SI-03": lambda t: second(t.budget(0)).delete(
            10, "a-0", record=True
        ),
        "an eviction of a pod that is no zone's -> SI-06": lambda t: (
            t.budget(0).pod(1, "stray-0", owner="").evict(10, "stray-0")
        ),
        "no preconditions, and refused -> SI-07": lambda t: t.call(
            10, "delete", PODS, "a-0", status=409
        ),
        "no preconditions are seen where the role forbids": lambda t: t.call(
            10, "delete", PODS, "a-0", body=preconditions("u", ""), status=403
        ),
        "an eviction in another zone counts -> SI-01": lambda t: (
            t.budget(0).evict(10, "b-0").unbudget(10.5).delete(12, "a-0")
        ),
        "ready for 8.4 s of 10 -> SI-05": lambda t: evicted_twice(t, 19.6),
        "ready for 8.6 s of 10: times are seen late": lambda t: evicted_twice(t, 19.8),
    }
)


@pytest.mark.parametrize(("events", "broken"), FROM_OUTSIDE)
def test_what_is_seen_from_outside(events: Events, broken: list[str]) -> None:
    """Nothing is excused, and a moment ago counts, but for what a request cannot speak about."""
    t = HistoryBuilder().zones()
    events(t)
    assert judge(t) == broken


def test_records_are_not_required_where_they_may_not_be_written() -> None:
    """SI-17."""
    t = HistoryBuilder().zones().budget(0).evict(10, "a-0", marked=False)

    assert judge(t) == ["SI-17"]
    assert judge(t, replace(STRICT, are_recorded=False)) == []


DOWNSCALES = cases(
    {
        "D-24 prepared for an earlier request for the same": lambda t: (
            t.send_request(4, status=409).prepare(3, "a-2").persist(20)
        ),
        "D-24 prepared for an earlier request for another count -> SI-10": lambda t: (
            t.send_request(4, status=409, body={"spec": {"replicas": 1}})
            .prepare(3, "a-2")
            .persist(20)
        ),
        "D-24 prepared before any request -> SI-10": lambda t: t.prepare(3, "a-2").persist(20),
        "prepared for a request that is not known": lambda t: t.prepare(3, "a-2").zone(
            20, "a", replicas=2
        ),
        "the answer was never finished -> SI-10": lambda t: t.prepare(19, "a-2", status=0).persist(
            20
        ),
        "un-prepared by an old call without an answer -> SI-10": lambda t: t.prepare(
            20, "a-2", begun=s(17), method="DELETE", status=0
        ).scale(20),
        "it reaches a pod on its way out": lambda t: (
            t.scale(20).gone(21, "a-2").pod(21, "a-2").prepare(22, "a-2", method="DELETE")
        ),
        "two zones half a second too early, as it is seen late": lambda t: (
            t.zone(1, "a", labels={WAIT: "2m"}).scale(20).scale(139.6, "b")
        ),
        "a wait that has come a moment ago counts -> SI-11": lambda t: (
            t.scale(20).zone(38, "c", labels={WAIT: "2m"}).scale(40, "b")
        ),
    }
)


@pytest.mark.parametrize(("events", "broken"), DOWNSCALES)
def test_downscales_seen_from_outside(events: Events, broken: list[str]) -> None:
    """SI-10, SI-11."""
    t = HistoryBuilder().zones(labels=PREPARED, annotations=PATHS)
    events(t)
    assert judge_downscales(t) == broken


@pytest.mark.parametrize("changes", [{"code": 429}, {"uri": "/?dryRun=All"}, {"name": "zone-a-1"}])
def test_what_was_refused_has_no_write(changes: dict[str, Any]) -> None:
    seen = observe(HistoryBuilder().zones().evict(10, "a-0").evict(30, "b-0"))
    evicted = match_evictions(seen.changes, seen.evictions, WALL)
    others = [replace(one, **changes) for one in seen.evictions[:1]]

    assert [one.name for one in evicted.values()] == ["zone-a-0", "zone-b-0"]
    assert match_evictions(seen.changes, others, WALL) == {}


def test_the_next_pod_of_a_name_was_not_evicted() -> None:
    """SI-06: what goes with its StatefulSet right after an eviction is nobody's eviction."""
    t = HistoryBuilder().zones().budget(0).evict(10, "a-0").replace(10.1, "a-0")
    seen = observe(t.terminate(10.35, "a-0", PERSON))
    (revision,) = match_evictions(seen.changes, seen.evictions, WALL)
    (change,) = [one for one in seen.changes if one.commit.revision == revision]
    assert change.at == s(10)
