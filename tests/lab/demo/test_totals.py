"""The figures at the end of a story are those of its history."""

from datetime import timedelta

import pytest
from msgspec.structs import replace
from rollout_lab.demo.objects import OPERATOR, PERSON, scale
from rollout_lab.demo.totals import (
    Restart,
    Totals,
    add_up,
    draw_totals,
    measure_floor,
    measure_polled,
)
from rollout_lab.model.history import Called, Commit, PodCalled, Record

from rollout_operator.cli.render import render_line
from rollout_operator.kube.api import PODS, STATEFULSETS, JsonObject

BEGIN = timedelta(seconds=10)


def play(*moves: str) -> list[Record]:
    """Return the history of zones a and b with two pods each, all ready, and of such moves.

    `10.5 delete a-0` is the operator's; others are `lose` (a person's delete), `go`, `up`, `fail`.
    """
    records: list[Record] = []
    pods: dict[str, JsonObject] = {}

    def commit(at: float, name: str, new: JsonObject | None, actor: str) -> None:
        is_set = "-" not in name
        records.append(
            Commit(
                at=timedelta(seconds=at),
                revision=len(records),
                actor=actor,
                resource=STATEFULSETS if is_set else PODS,
                namespace="demo",
                name=name,
                before=pods.pop(name, None),
                after=new,
            )
        )
        if new is not None:
            pods[name] = new

    for zone in "ab":
        commit(0.0, zone, {"metadata": {"name": zone}, "spec": {"replicas": 2}}, PERSON)
    for move in (*(f"0 up {zone}-{ordinal}" for zone in "ab" for ordinal in range(2)), *moves):
        at, verb, name = move.split()
        now = float(at)
        match verb:
            case "go":
                commit(now, name, None, "kubelet")
            case "up" | "fail":
                commit(now, name, pod(name, is_ready=verb == "up"), "kubelet")
            case _:
                ending = {**pod_metadata(name), "deletionTimestamp": "2026-01-01T00:00:00Z"}
                actor = OPERATOR if verb == "delete" else PERSON
                commit(now, name, {**pods[name], "metadata": ending}, actor)
    return records


def pod_metadata(name: str) -> JsonObject:
    owner = {"controller": True, "kind": "StatefulSet", "name": name[:1], "uid": name[:1]}
    return {"name": name, "ownerReferences": [owner]}


def pod(name: str, *, is_ready: bool = True) -> JsonObject:
    conditions = [{"type": "Ready", "status": str(is_ready)}]
    return {
        "metadata": pod_metadata(name),
        "status": {"phase": "Running", "conditions": conditions},
    }


@pytest.mark.parametrize(
    ("moves", "totals"),
    [
        pytest.param(
            [
                *("10.5 delete a-0", "10.6 go a-0", "12 up a-0"),
                *("12.5 delete b-0", "12.6 go b-0", "14.5 up b-0"),
            ],
            Totals(
                limit=1,
                took=4.5,
                restarts=(Restart("a", 0.5, 2.0), Restart("b", 2.5, 4.5)),
                deletes=2,
                zones_taken=1,
                pods_down=1,
            ),
            id="a rollout, from its begin",
        ),
        pytest.param(
            [
                *("10.5 delete a-0", "10.6 go a-0", "11 fail a-0"),
                *("20 delete a-0", "20.1 go a-0", "21 up a-0"),
            ],
            Totals(
                limit=1,
                took=11.0,
                restarts=(Restart("a", 0.5, 11.0),),
                deletes=2,
                zones_taken=1,
                pods_down=1,
            ),
            id="a pod that never came up counts once: the second delete ends it",
        ),
        pytest.param(
            ["10.5 lose a-0", "10.6 go a-0", "11 up a-0"],
            Totals(limit=1, zones_taken=0, pods_down=1),
            id="what others delete is no replacement",
        ),
        pytest.param(
            ["10.5 delete a-0", "10.6 delete b-0"],
            Totals(limit=1, deletes=2, zones_taken=2, pods_down=1),
            id="SI-01 zones of which pods are taken together",
        ),
        pytest.param(
            ["10.5 delete a-0", "10.6 fail b-0", "10.7 fail b-1"],
            Totals(limit=1, deletes=1, zones_taken=1, pods_down=2),
            id="a zone that breaks by itself is not taken",
        ),
    ],
)
def test_a_story_is_added_up(moves: list[str], totals: Totals) -> None:
    assert add_up(play(*moves), BEGIN, limit=1) == totals


def test_what_was_down_before_the_begin_does_not_count() -> None:
    moves = ("5 delete a-0", "5 delete b-0", "5.1 go a-0", "5.1 go b-0", "6 up a-0", "6 up b-0")
    found = add_up(play(*moves), BEGIN, limit=1)
    assert found == Totals(limit=1)


def test_requests_of_people_and_to_pods_are_counted() -> None:
    at = BEGIN + timedelta(seconds=1)
    eviction = replace(scale("a-0", 1), resource=PODS, subresource="eviction")
    calls = [
        Called(
            at=at, begun=at, number=1, actor=actor, request=request, status=status, message="no way"
        )
        for actor, request, status in (
            (PERSON, scale("a", 1), 403),
            (PERSON, scale("a", 1), 200),
            ("kubelet", scale("a", 1), 409),
            (PERSON, eviction, 201),
            (PERSON, eviction, 429),
        )
    ]
    requested = [
        PodCalled(
            at=at, begun=at, actor=OPERATOR, method=method, pod="a-1", uid="u", path="/x",
            status=200, acted=True,
        )
        for method in ("POST", "POST", "DELETE")
    ]  # fmt: skip

    found = add_up([*calls, *requested], BEGIN, limit=1)
    assert (found.refusals, found.called, found.evicted) == (("no way",) * 2, 1, 1)


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


@pytest.mark.parametrize(("limit", "polled"), [(1, 21.0), (2, 13.0), (9, 8.0)])
def test_a_slow_poll_ends_with_the_last_pod_as_well(limit: int, polled: float) -> None:
    """What is seen late delays what comes after it; after the last pod nothing comes."""
    restarts = [
        *(Restart("a", 0.0, 4.0),) * 3,
        *(Restart("b", 20.0, 23.0), Restart("b", 20.0, 21.0)),
    ]

    assert measure_polled(restarts, limit) == pytest.approx(polled)


def drawn(totals: Totals) -> list[str]:
    return [render_line(line, 200, is_coloured=False) for line in draw_totals(totals)]


@pytest.mark.parametrize(
    ("totals", "lines"),
    [
        (Totals(limit=1, refusals=("no",)), ["1 request refused", "no"]),
        (
            Totals(limit=1, refusals=("no " * 40, "yes"), called=1),
            ["1 pod called to prepare", "2 requests refused", "no " * 40, "... (1 more)"],
        ),
        (Totals(limit=1), ["nothing was replaced"]),
        (
            Totals(limit=1, evicted=2, refusals=("a", "b", "a", "c", "d", "e", "e")),
            ["2 pods evicted", "7 requests refused", "a", "... (4 more)"],
        ),
        (
            Totals(
                limit=2,
                took=15.24,
                restarts=(Restart("a", 0, 14),) * 3,
                deletes=4,
                zones_taken=1,
                pods_down=2,
            ),
            [
                "3 pods (4 deletes) replaced in 15.2 s; their restarts alone take 28.0 s",
                "an operator that looks every 5 s needs 29.0 s or more",
                "at most 2 pods of a zone down at a time (2 allowed)",
                "the operator never took pods of two zones at a time",
            ],
        ),
    ],
)
def test_the_totals_are_sentences(totals: Totals, lines: list[str]) -> None:
    """Refusals of the same words are reported once: a drain tries every other second."""
    assert drawn(totals) == lines


def test_a_promise_that_was_broken_is_reported() -> None:
    totals = Totals(limit=1, restarts=(Restart("a", 0, 14),), zones_taken=2)

    assert not totals.is_kept
    assert drawn(totals)[-1] == "the operator took pods of 2 zones at a time"
