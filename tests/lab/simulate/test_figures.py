"""What a simulation comes to, from histories that are written by hand."""

from collections.abc import Iterable
from datetime import timedelta

from rollout_operator.kube.api import PODS, STATEFULSETS, Resource
from rollout_operator.lab.model.history import Called, Commit, Record
from rollout_operator.lab.model.request import ApiRequest, Verb
from rollout_operator.lab.simulate.figures import Figures, add_up
from rollout_operator.lab.simulate.people import PERSON
from rollout_operator.lab.simulate.world import OPERATOR, RESTORER
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


def _called(actor: str, verb: Verb, *, status: int = 200, at: float = 1, name: str = "x") -> Called:
    then = timedelta(seconds=at)
    request = ApiRequest(verb=verb, resource=PODS, namespace="prod", name=name, user=actor)
    return Called(
        at=then, begun=then, number=1, actor=actor, request=request, status=status, message="no"
    )


def _add_up(*records: Record, before: Iterable[Record] | None = None) -> Figures:
    return add_up([*(_restored() if before is None else before), *records], GROUPS, END)


def test_only_what_the_operator_has_deleted_counts() -> None:
    figures = _add_up(
        _called(OPERATOR, "delete", name="zone-a-1"),
        _called(OPERATOR, "delete", name="zone-a-0"),
        _called(OPERATOR, "delete", status=409, name="zone-a-2"),
        _called(OPERATOR, "patch", name="zone-b-0"),
        _called(PERSON, "delete", name="zone-b-1"),
        _called(OPERATOR, "delete", name="zone-c-0", at=101),
    )

    assert figures.deletes == ("zone-a-1", "zone-a-0")


def test_only_what_people_are_refused_counts() -> None:
    figures = _add_up(
        _called(PERSON, "patch", status=400),
        _called(PERSON, "patch"),
        _called(OPERATOR, "patch", status=409),
    )

    assert figures.refusals == ("no",)


def test_the_most_pods_that_are_down_at_a_time() -> None:
    figures = _add_up(
        _gone(1, "zone-a-0"),
        _back(2, "zone-a-0"),
        _gone(3, "zone-a-1"),
        _gone(4, "zone-a-2"),
        _back(5, "zone-a-1"),
    )

    assert figures.most_down == {"zone-a": 2, "zone-b": 0, "zone-c": 0}
    assert figures.down_before == {"zone-a": 0, "zone-b": 0, "zone-c": 0}


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


def test_how_long_two_zones_are_down_together() -> None:
    """From 2 s to 5 s, and from 10 s to 11 s; alone, neither counts."""
    figures = _add_up(
        _gone(1, "zone-a-0"),
        _gone(2, "zone-b-0"),
        _back(5, "zone-b-0"),
        _gone(10, "zone-b-1"),
        _back(11, "zone-a-0"),
    )

    (overlap,) = figures.overlaps
    assert overlap.zones == ("zone-a", "zone-b")
    assert (overlap.begin, overlap.span) == (timedelta(seconds=2), timedelta(seconds=4))
    assert not overlap.is_open


def test_those_that_are_still_down_in_the_end_are_so_until_then() -> None:
    figures = _add_up(_gone(1, "zone-a-0"), _gone(90, "zone-c-0"))

    (overlap,) = figures.overlaps
    assert (overlap.span, overlap.is_open) == (timedelta(seconds=10), True)


def test_zones_of_two_groups_are_none_of_one() -> None:
    records = [*_restored(), _gone(1, "zone-a-0"), _gone(2, "zone-b-0")]

    assert add_up(records, {"one": ["zone-a"], "two": ["zone-b", "zone-c"]}, END).overlaps == ()
