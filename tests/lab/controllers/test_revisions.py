"""Revisions of StatefulSets: names, hashes and numbers as the real controller gives them."""

import pytest
from rollout_lab.controllers.members import find_equal, hash_of, new_revision, restored_revisions
from rollout_lab.model.fields import child, name_of, text
from rollout_lab.zones import ZoneSpec, statefulset

from rollout_operator.kube.api import JsonObject


def sts_of(**status: object) -> JsonObject:
    sts = statefulset(ZoneSpec(name="web", image="v1", annotations={"a": "b"}))
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


def test_a_long_name_is_cut_before_the_hash() -> None:
    sts = statefulset(ZoneSpec(name="n" * 240))
    assert name_of(new_revision(sts, 1, 0)).startswith("n" * 223 + "-")


def test_a_copied_set_gets_the_revisions_that_its_status_names() -> None:
    sts = sts_of(currentRevision="web-old", updateRevision="web-new")
    old, new = restored_revisions(sts, is_seen=True)
    assert (name_of(old), name_of(new)) == ("web-old", "web-new")
    assert find_equal([old, new], sts) is new
    assert text(new, "metadata", "namespace") == "default"


def test_a_copied_set_whose_template_is_unseen_gets_a_new_revision_from_its_template() -> None:
    """Which template the named one kept is not known: it must not be taken for the present one."""
    sts = sts_of(currentRevision="web-x", updateRevision="web-x")
    revisions = restored_revisions(sts, is_seen=False)
    assert [name_of(one) for one in revisions] == ["web-x"]
    assert find_equal(revisions, sts) is None
    assert restored_revisions(sts_of(), is_seen=False) == []
