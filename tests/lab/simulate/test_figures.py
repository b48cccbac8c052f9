"""What a simulation comes to, from histories that are written by hand."""

import sys
from collections.abc import Iterable
from datetime import timedelta

import pytest
from msgspec.structs import replace
from rollout_lab.model.history import Called, Commit, Record
from rollout_lab.model.request import ApiRequest, Verb
from rollout_lab.simulate.figures import Figures, add_up
from rollout_lab.simulate.people import PERSON
from rollout_lab.simulate.world import OPERATOR, RESTORER

from rollout_operator.kube.api import PODS, STATEFULSETS, Resource
from rollout_operator.model.names import DISRUPTION_RECORD
from tests.lab.simulate.dumps import Json, grow, pick

GROUPS = {"ingester": ("zone-a", "zone-b", "zone-c")}
END = timedelta(seconds=100)


def _commit(
    at: float, resource: Resource, obj: Json, *, gone: bool = False, actor: str = "kubelet"
) -> Commit:
    return Commit(
        at=timedelta(seconds=at),
        revision=1,
        actor=actor,
        resource=resource,
        namespace="prod",
        name=obj["metadata"]["name"],
        before=obj,
        after=None if gone else obj,
    )


def _restored() -> list[Commit]:
    return [
        _commit(0, STATEFULSETS if one["kind"] == "StatefulSet" else PODS, one, actor=RESTORER)
        for one in grow()
    ]


def _gone(at: float, name: str) -> Commit:
    return _commit(at, PODS, pick(grow(), name), gone=True)


def _back(at: float, name: str) -> Commit:
    return _commit(at, PODS, pick(grow(), name))


def _granted(at: float, name: str) -> Commit:
    """A pod goes that has been evicted with a grant of the operator."""
    pod = pick(grow(), name)
    pod["metadata"].setdefault("annotations", {})[DISRUPTION_RECORD] = "{}"
    return _commit(at, PODS, pod, gone=True)


def _called(actor: str, verb: Verb, *, status: int = 200, at: float = 1, name: str = "x") -> Called:
    then = timedelta(seconds=at)
    request = ApiRequest(verb=verb, resource=PODS, namespace="prod", name=name, user=actor)
    return Called(
        at=then, begun=then, number=1, actor=actor, request=request, status=status, message="no"
    )


def _add_up(*records: Record, before: Iterable[Record] | None = None) -> Figures:
    return add_up([*(_restored() if before is None else before), *records], GROUPS, END)


def test_only_deletes_of_the_operator_and_refusals_of_people_count() -> None:
    figures = _add_up(
        _called(OPERATOR, "delete", name="zone-a-1"),
        _called(OPERATOR, "delete", name="zone-a-0"),
        _called(OPERATOR, "delete", status=409, name="zone-a-2"),
        _called(OPERATOR, "patch", name="zone-b-0"),
        _called(PERSON, "delete", name="zone-b-1"),
        _called(OPERATOR, "delete", name="zone-c-0", at=101),
        _called(PERSON, "patch", status=400),
        _called(PERSON, "patch"),
    )

    assert figures.deletes == ("zone-a-1", "zone-a-0")
    assert figures.refusals == ("no",)


@pytest.mark.parametrize(
    ("moves", "most_down", "overlaps"),
    [
        pytest.param(
            ["1 -a-0", "2 +a-0", "3 -a-1", "4 -a-2", "5 +a-1"],
            {"zone-a": 2, "zone-b": 0, "zone-c": 0},
            [],
            id="the most at a time",
        ),
        pytest.param(
            ["1 -a-0", "2 -b-0", "5 +b-0", "10 -b-1", "11 +a-0"],
            {"zone-a": 1, "zone-b": 1, "zone-c": 0},
            [(("zone-a", "zone-b"), 2, 4, False)],
            id="two zones together, from 2 s to 5 s, and from 10 s to 11 s",
        ),
        pytest.param(
            ["1 -a-0", "90 -c-0"],
            {"zone-a": 1, "zone-b": 0, "zone-c": 1},
            [(("zone-a", "zone-c"), 90, 10, True)],
            id="still down in the end: until then",
        ),
    ],
)
def test_how_many_pods_are_down_and_zones_together(
    moves: list[str],
    most_down: dict[str, int],
    overlaps: list[tuple[tuple[str, ...], int, int, bool]],
) -> None:
    records = []
    for move in moves:
        at, _, pod = move.partition(" ")
        records.append((_gone if pod[0] == "-" else _back)(float(at), f"zone-{pod[1:]}"))

    figures = _add_up(*records)

    assert figures.most_down == most_down
    assert figures.down_before == {"zone-a": 0, "zone-b": 0, "zone-c": 0}
    assert [
        (one.zones, one.begin.total_seconds(), one.span.total_seconds(), one.is_open)
        for one in figures.overlaps
    ] == overlaps


@pytest.mark.parametrize(
    ("moves", "crossed"),
    [
        pytest.param([_gone(1, "zone-a-0")], [], id="one of one"),
        pytest.param(
            [_gone(1, "zone-a-0"), _gone(2, "zone-a-1"), _gone(3, "zone-a-1")],
            ["zone-a-1 is number 2 down of zone-a, of 1 allowed"],
            id="a second one of a zone, named once",
        ),
        pytest.param(
            [_gone(1, "zone-a-0"), _gone(2, "zone-c-1")],
            ["zone-c-1 goes down beside pods of zone-a"],
            id="two zones",
        ),
        pytest.param(
            [_gone(1, "zone-a-0"), _back(2, "zone-a-0"), _gone(3, "zone-c-1")], [], id="in turn"
        ),
        pytest.param(
            [_gone(1, "zone-a-0"), replace(_gone(2, "zone-a-1"), actor=OPERATOR)],
            [],
            id="the operator",
        ),
        pytest.param(
            [_gone(1, "zone-a-0"), _granted(2, "zone-a-1")], [], id="a budget has room for it"
        ),
    ],
)
def test_what_goes_down_past_a_bound(moves: list[Record], crossed: list[str]) -> None:
    assert [one.text for one in _add_up(*moves).crossings] == crossed


def _evict(at: float, name: str, status: int) -> Called:
    called = _called(PERSON, "create", status=status, at=at, name=name)
    return replace(called, request=replace(called.request, subresource="eviction"))


def test_how_long_evictions_wait() -> None:
    """From when each was requested first; one whose pod has gone waits no more."""
    figures = _add_up(
        _evict(10, "zone-a-0", 429),
        _evict(15, "zone-a-0", 201),
        _evict(20, "zone-a-1", 201),
        _evict(25, "zone-b-0", 429),
        _evict(25, "zone-c-0", 429),
        _evict(30, "zone-c-0", 404),
    )

    assert [(one.pod, one.waited.total_seconds(), one.is_open) for one in figures.evictions] == [
        ("zone-a-0", 5, False),
        ("zone-a-1", 0, False),
        ("zone-b-0", 75, True),
    ]


def test_pods_that_are_down_before_anything_happens() -> None:
    before = [one for one in _restored() if one.name not in ("zone-b-0", "zone-b-1")]

    figures = _add_up(before=before)

    assert figures.down_before == figures.most_down == {"zone-a": 0, "zone-b": 2, "zone-c": 0}


def test_a_pod_that_is_there_and_not_ready_is_down() -> None:
    pod = pick(grow(), "zone-a-0")
    pod["status"]["conditions"] = []

    assert _add_up(_commit(1, PODS, pod)).most_down["zone-a"] == 1


def test_pods_beyond_the_number_that_is_wanted_do_not_count() -> None:
    sts = pick(grow(), "zone-a")
    sts["spec"]["replicas"] = 2

    figures = _add_up(_commit(1, STATEFULSETS, sts), _gone(2, "zone-a-2"))

    assert figures.most_down["zone-a"] == 0


def test_zones_of_two_groups_are_none_of_one() -> None:
    records = [*_restored(), _gone(1, "zone-a-0"), _gone(2, "zone-b-0")]

    assert add_up(records, {"one": ["zone-a"], "two": ["zone-b", "zone-c"]}, END).overlaps == ()


def _count_calls(pods: int) -> int:
    """Return how many calls the figures of a zone take whose pods go and come back in turn."""
    sts, pod = pick(grow(), "zone-a"), pick(grow(), "zone-a-0")
    sts = {**sts, "spec": {**sts["spec"], "replicas": pods}}
    named = [{**pod, "metadata": {**pod["metadata"], "name": f"zone-a-{n}"}} for n in range(pods)]
    records: list[Record] = [_commit(0, STATEFULSETS, sts, actor=RESTORER)]
    records += [_commit(0, PODS, one, actor=RESTORER) for one in named]
    for one in named:
        records += [_commit(1, PODS, one, gone=True), _commit(2, STATEFULSETS, sts)]
        records += [_commit(2, PODS, one)]
    calls = 0

    def count_call(frame: object, event: str, arg: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count_call)
    try:
        add_up(records, GROUPS, END)
    finally:
        sys.setprofile(None)
    return calls


def test_figures_of_twice_the_pods_take_twice_the_work() -> None:
    assert _count_calls(100) < 2.5 * _count_calls(50)
