"""Revisions of StatefulSets: names, hashes and numbers as the real controller gives them."""

import pytest

from rollout_operator.kube.api import JsonObject
from rollout_operator.lab.controllers.revisions import (
    HASH_LABEL,
    data_of,
    find_equal,
    hash_of,
    in_order,
    list_forgotten,
    new_revision,
    next_number,
    restored_revisions,
    template_of,
)
from rollout_operator.lab.model.fields import child, name_of, text
from rollout_operator.lab.zones import ZoneSpec, statefulset


def sts_of(image: str = "v1", **status: object) -> JsonObject:
    sts = statefulset(ZoneSpec(name="web", image=image, annotations={"a": "b"}))
    metadata = {**child(sts, "metadata"), "uid": "u-1", "generation": 3}
    return {**sts, "metadata": metadata, "status": status}


@pytest.mark.parametrize(
    ("data", "collisions", "expected"),
    [
        pytest.param({}, 0, "cccc864bc", id="nothing"),
        pytest.param({"a": 1}, 0, "d55c4ff5f", id="a field"),
        pytest.param({"a": 1}, 1, "d55c4ff5d", id="the same after a collision"),
        pytest.param(
            {"spec": {"template": {"x": "<é&>", "$patch": "replace"}}},
            0,
            "9d878f989",
            id="keys in order, angle brackets escaped as by Go, the rest in UTF-8",
        ),
    ],
)
def test_hashes_are_those_of_the_real_controller(
    data: JsonObject, collisions: int, expected: str
) -> None:
    """The expected ones were computed by Go's own hash/fnv and alphabet."""
    assert hash_of(data, collisions) == expected


def test_a_revision_keeps_the_template_and_is_named_by_it() -> None:
    sts = sts_of()
    revision = new_revision(sts, 4, 0)
    digest = hash_of(data_of(sts), 0)
    assert name_of(revision) == f"web-{digest}"
    assert revision["revision"] == 4
    assert child(revision, "metadata", "labels") == {"name": "web", HASH_LABEL: digest}
    assert child(revision, "metadata", "annotations") == {"a": "b"}
    assert template_of(revision) == child(sts, "spec", "template")
    assert child(revision, "data", "spec", "template")["$patch"] == "replace"


def test_a_long_name_is_cut_before_the_hash() -> None:
    sts = statefulset(ZoneSpec(name="n" * 240))
    assert name_of(new_revision(sts, 1, 0)).startswith("n" * 223 + "-")


def test_only_the_template_makes_a_revision() -> None:
    sts, scaled = sts_of(), sts_of()
    scaled["spec"] = {**child(scaled, "spec"), "replicas": 9, "minReadySeconds": 3}
    assert data_of(scaled) == data_of(sts)
    assert data_of(sts_of("v2")) != data_of(sts)


def numbered(image: str, number: int, **metadata: str) -> JsonObject:
    revision = new_revision(sts_of(image), number, 0)
    return {**revision, "metadata": {**child(revision, "metadata"), **metadata}}


def test_revisions_go_by_number_then_age_then_name() -> None:
    late = numbered("a", 2, creationTimestamp="2026-01-02T00:00:01Z", name="a")
    early = numbered("b", 2, creationTimestamp="2026-01-02T00:00:00Z", name="z")
    twin = numbered("c", 2, creationTimestamp="2026-01-02T00:00:01Z", name="b")
    first = numbered("d", 1)
    assert in_order([twin, late, early, first]) == [first, early, late, twin]
    assert next_number([first, early]) == 3
    assert next_number([]) == 1


def test_the_newest_equal_revision_is_found() -> None:
    old, other, new = numbered("v1", 1), numbered("v2", 2), numbered("v1", 3, name="again")
    assert find_equal([old, other, new], sts_of("v1")) is new
    assert find_equal([old, other], sts_of("v3")) is None


@pytest.mark.parametrize(
    ("limit", "live", "forgotten"),
    [
        pytest.param(1, [], ["r1", "r2"], id="the oldest beyond the limit"),
        pytest.param(1, ["r1"], ["r2"], id="live ones neither go nor count"),
        pytest.param(0, ["r3"], ["r1", "r2"], id="limit 0 keeps what is live"),
        pytest.param(3, [], [], id="as many as the limit"),
        pytest.param(None, [], [], id="10 where nothing is said"),
        pytest.param(-1, [], [], id="a negative limit keeps all"),
    ],
)
def test_history_is_limited(limit: int | None, live: list[str], forgotten: list[str]) -> None:
    sts = sts_of()
    if limit is not None:
        child(sts, "spec")["revisionHistoryLimit"] = limit
    ordered = [numbered("x", place, name=f"r{place}") for place in (1, 2, 3)]
    assert [name_of(one) for one in list_forgotten(sts, ordered, live)] == forgotten


def test_a_copied_set_gets_the_revisions_that_its_status_names() -> None:
    sts = sts_of(currentRevision="web-old", updateRevision="web-new", observedGeneration=3)
    old, new = restored_revisions(sts)
    assert (name_of(old), name_of(new)) == ("web-old", "web-new")
    assert find_equal([old, new], sts) is new
    assert text(new, "metadata", "namespace") == "default"


def test_a_copied_set_whose_status_lags_gets_a_new_revision_from_its_template() -> None:
    """Which template the named one kept is not known: it must not be taken for the present one."""
    sts = sts_of(currentRevision="web-x", updateRevision="web-x", observedGeneration=2)
    revisions = restored_revisions(sts)
    assert [name_of(one) for one in revisions] == ["web-x"]
    assert find_equal(revisions, sts) is None
    assert restored_revisions(sts_of()) == []
