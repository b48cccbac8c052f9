"""The figures at the end of a story are those of its history."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count

import pytest

from rollout_operator.kube.api import PODS, STATEFULSETS, JsonObject, Resource
from rollout_operator.lab.demo.drawing import COLUMNS, render_line
from rollout_operator.lab.demo.objects import OPERATOR, PERSON, evict, scale
from rollout_operator.lab.demo.totals import (
    Restart,
    Totals,
    add_up,
    draw_totals,
    measure_floor,
)
from rollout_operator.lab.model.history import Called, Commit, PodCalled, Record

BEGIN = timedelta(seconds=10)
ENDING = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


@dataclass(slots=True)
class Tale:
    """A history of zones a and b with two pods each, all ready, told by hand."""

    records: list[Record] = field(default_factory=list)
    pods: dict[str, JsonObject] = field(default_factory=dict)
    revisions: Iterator[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        for zone in "ab":
            spec: JsonObject = {"replicas": 2}
            self._commit(
                0.0, STATEFULSETS, zone, None, {"metadata": {"name": zone}, "spec": spec}, PERSON
            )
            for ordinal in range(2):
                self.come_up(0.0, f"{zone}-{ordinal}")

    def come_up(self, at: float, name: str) -> None:
        self._put(at, name, pod(name), "kubelet")

    def break_down(self, at: float, name: str) -> None:
        self._put(at, name, pod(name, is_ready=False), "kubelet")

    def delete(self, at: float, name: str, actor: str = OPERATOR) -> None:
        metadata = {**pod_metadata(name), **ENDING}
        self._put(at, name, {**self.pods[name], "metadata": metadata}, actor)

    def go(self, at: float, name: str) -> None:
        before = self.pods.pop(name)
        self._commit(at, PODS, name, before, None, "kubelet")

    def restart(self, at: float, name: str, until: float) -> None:
        self.delete(at, name)
        self.go(at + 0.1, name)
        self.come_up(until, name)

    def _put(self, at: float, name: str, new: JsonObject, actor: str) -> None:
        self._commit(at, PODS, name, self.pods.get(name), new, actor)
        self.pods[name] = new

    def _commit(
        self,
        at: float,
        resource: Resource,
        name: str,
        before: JsonObject | None,
        after: JsonObject | None,
        actor: str,
    ) -> None:
        self.records.append(
            Commit(
                at=timedelta(seconds=at),
                revision=next(self.revisions),
                actor=actor,
                resource=resource,
                namespace="demo",
                name=name,
                before=before,
                after=after,
            )
        )


def pod_metadata(name: str) -> JsonObject:
    owner = {"controller": True, "kind": "StatefulSet", "name": name[:1], "uid": name[:1]}
    return {"name": name, "ownerReferences": [owner]}


def pod(name: str, *, is_ready: bool = True) -> JsonObject:
    conditions = [{"type": "Ready", "status": str(is_ready)}]
    return {
        "metadata": pod_metadata(name),
        "status": {"phase": "Running", "conditions": conditions},
    }


def test_a_rollout_is_counted_from_its_begin() -> None:
    tale = Tale()
    tale.restart(10.5, "a-0", until=12.0)
    tale.restart(12.5, "b-0", until=14.5)

    assert add_up(tale.records, BEGIN, limit=1) == Totals(
        limit=1,
        took=4.5,
        restarts=(Restart("a", 0.5, 2.0), Restart("b", 2.5, 4.5)),
        deletes=2,
        zones_taken=1,
        pods_down=1,
    )


def test_a_pod_that_never_came_up_counts_once() -> None:
    """A bad revision: the first delete brings nothing, the second one ends it."""
    tale = Tale()
    tale.delete(10.5, "a-0")
    tale.go(10.6, "a-0")
    tale.break_down(11.0, "a-0")
    tale.restart(20.0, "a-0", until=21.0)

    found = add_up(tale.records, BEGIN, limit=1)
    assert found.restarts == (Restart("a", 0.5, 11.0),)
    assert found.deletes == 2
    assert drawn(found)[0].startswith("1 pod (2 deletes) replaced in 11.0 s;")


def test_what_others_delete_is_no_replacement() -> None:
    tale = Tale()
    tale.delete(10.5, "a-0", actor=PERSON)
    tale.go(10.6, "a-0")
    tale.come_up(11.0, "a-0")

    found = add_up(tale.records, BEGIN, limit=1)
    assert (found.restarts, found.zones_taken, found.pods_down) == ((), 0, 1)


def test_zones_of_which_pods_are_taken_together_are_counted() -> None:
    """SI-01, seen from outside."""
    tale = Tale()
    tale.delete(10.5, "a-0")
    tale.delete(10.6, "b-0")

    found = add_up(tale.records, BEGIN, limit=1)
    assert found.zones_taken == 2
    assert not found.is_kept


def test_a_zone_that_breaks_by_itself_is_not_taken() -> None:
    tale = Tale()
    tale.delete(10.5, "a-0")
    tale.break_down(10.6, "b-0")
    tale.break_down(10.7, "b-1")

    found = add_up(tale.records, BEGIN, limit=1)
    assert (found.zones_taken, found.pods_down) == (1, 2)
    assert found.is_kept


def test_what_was_down_before_the_begin_does_not_count() -> None:
    tale = Tale()
    tale.restart(5.0, "a-0", until=6.0)
    tale.restart(5.0, "b-0", until=6.0)

    found = add_up(tale.records, BEGIN, limit=1)
    assert (found.zones_taken, found.pods_down) == (0, 0)


def test_requests_of_people_and_to_pods_are_counted() -> None:
    at = BEGIN + timedelta(seconds=1)
    calls = [
        Called(
            at=at,
            begun=at,
            number=1,
            actor=actor,
            request=scale("a", 1),
            status=status,
            message="no way",
        )
        for actor, status in ((PERSON, 403), (PERSON, 200), ("kubelet", 409))
    ]
    asked = [
        PodCalled(
            at=at, begun=at, actor=OPERATOR, method=method, pod="a-1", uid="u", path="/x",
            status=200, acted=True,
        )
        for method in ("POST", "DELETE")
    ]  # fmt: skip

    found = add_up([*calls, *asked], BEGIN, limit=1)
    assert (found.refusals, found.asked) == (("no way",), 1)


@pytest.mark.parametrize(("limit", "floor"), [(1, 6.0), (2, 4.0), (9, 3.0)])
def test_the_floor_is_what_the_restarts_alone_take(limit: int, floor: float) -> None:
    restarts = [
        Restart("a", 0.0, 1.0),
        Restart("a", 0.0, 1.0),
        Restart("a", 0.0, 2.0),
        Restart("b", 5.0, 6.0),
        Restart("b", 5.0, 6.0),
    ]

    assert measure_floor(restarts, limit) == pytest.approx(floor)


def drawn(totals: Totals) -> list[str]:
    return [render_line(line, 200, is_coloured=False) for line in draw_totals(totals)]


def test_the_totals_are_sentences() -> None:
    lines = drawn(
        Totals(limit=2, took=15.24, restarts=(Restart("a", 0, 14),) * 3, zones_taken=1, pods_down=2)
    )

    assert lines == [
        "3 pods replaced in 15.2 s; their restarts alone take 28.0 s",
        "at most 2 pods of a zone down at a time (2 allowed)",
        "the operator never took pods of two zones at a time",
    ]
    assert max(map(len, lines)) <= COLUMNS


def test_a_promise_that_was_broken_is_told() -> None:
    restarts = (Restart("a", 0, 14),)

    assert drawn(Totals(limit=1, restarts=restarts, zones_taken=2))[-1] == (
        "the operator took pods of 2 zones at a time"
    )


def test_refusals_of_the_same_words_are_told_once() -> None:
    """Who drains a node asks every other second."""
    refusals = ("a", "b", "a", "c", "d", "e", "e")

    assert drawn(Totals(limit=1, evicted=2, refusals=refusals)) == [
        "2 pods evicted",
        "7 requests refused",
        *("a", "b", "c"),
        "... (2 more)",
    ]


def test_evictions_that_were_granted_are_counted() -> None:
    at = BEGIN + timedelta(seconds=1)
    calls = [
        Called(at=at, begun=at, number=1, actor=PERSON, request=request, status=status)
        for request, status in ((evict("a-0"), 201), (evict("a-1"), 429), (scale("a", 1), 200))
    ]

    found = add_up(calls, BEGIN, limit=1)
    assert (found.evicted, len(found.refusals)) == (1, 1)


@pytest.mark.parametrize(
    ("totals", "lines"),
    [
        (Totals(limit=1, refusals=("no",)), ["1 request refused", "no"]),
        (
            Totals(limit=1, refusals=("no " * 40, "yes"), asked=1),
            [
                "2 requests refused",
                " ".join(["no"] * 26),
                " ".join(["no"] * 14),
                "yes",
                "1 pod asked to prepare",
            ],
        ),
        (Totals(limit=1), ["nothing was replaced"]),
    ],
)
def test_a_story_without_replacements_has_other_figures(totals: Totals, lines: list[str]) -> None:
    assert drawn(totals) == lines
