"""What downscales read of pods and sets: addresses, records, which are not ready or updated."""

from typing import Any

import pytest

from rollout_operator.model.decode.objects import decode_pod, decode_statefulset
from rollout_operator.model.names import (
    DOWNSCALE_RECORD,
    LAST_DOWNSCALE,
    MIN_TIME_BETWEEN_DOWNSCALES,
    NO_DOWNSCALE,
    PREPARE_DOWNSCALE,
    PREPARE_PATH,
    PREPARE_PORT,
    DecodeError,
)
from tests.model.wire_trees import as_json, condition, pod_tree, set_tree, with_metadata

# When the condition of `wire_trees` turned.
TURNED = "2026-01-01T00:00:30Z"


@pytest.mark.parametrize(
    ("status", "ip"),
    [
        pytest.param({"podIP": "10.1.2.3"}, "10.1.2.3", id="D-27 an address"),
        pytest.param({"podIP": "fd00::1"}, "fd00::1", id="IPv6"),
        pytest.param({"podIP": ""}, "", id="empty"),
        pytest.param({}, "", id="D-27 none yet"),
        pytest.param({"hostIP": "10.9.9.9"}, "", id="SI-21 the node's address is not the pod's"),
        pytest.param({"podIP": "evil.example"}, "evil.example", id="judged where it is used"),
    ],
)
def test_a_pod_says_its_address(status: dict[str, Any], ip: str) -> None:
    assert decode_pod(as_json(pod_tree(**status))).ip == ip


@pytest.mark.parametrize(
    ("annotations", "record"),
    [
        pytest.param({DOWNSCALE_RECORD: "x"}, "x", id="D-23 undecoded"),
        pytest.param({DOWNSCALE_RECORD: ""}, "", id="empty"),
        pytest.param({"other": "x"}, "", id="none"),
        pytest.param({DOWNSCALE_RECORD: None}, "", id="null"),
        pytest.param({}, "", id="no annotations"),
        pytest.param(None, "", id="null annotations"),
    ],
)
def test_a_pod_carries_its_record(annotations: object, record: str) -> None:
    tree = with_metadata(pod_tree(), annotations=annotations)
    assert decode_pod(as_json(tree)).downscale_record == record


def test_a_record_that_is_no_text_is_an_error_that_names_it() -> None:
    tree = with_metadata(pod_tree(), annotations={DOWNSCALE_RECORD: 7})
    with pytest.raises(DecodeError, match="expected str"):
        decode_pod(as_json(tree))


def read(started: str | None, ready: str, turned: str | None = TURNED) -> tuple[bool, bool]:
    """Return whether a pod has never been ready, and whether it has been."""
    conditions = [condition(ready, lastTransitionTime=turned)]
    decoded = decode_pod(as_json(pod_tree(startTime=started, conditions=conditions)))
    assert not (decoded.never_ready and decoded.is_ready)
    return decoded.never_ready, decoded.was_ready


@pytest.mark.parametrize(
    ("started", "ready", "expected"),
    [
        pytest.param("00:30Z", "False", (True, False), id="D-26 not ready since its start"),
        pytest.param("00:28Z", "False", (True, False), id="D-26 but for a moment"),
        pytest.param("00:27Z", "False", (False, True), id="SI-10 it has been ready"),
        pytest.param("00:32Z", "False", (True, False), id="D-26 stamped in the other order"),
        pytest.param("00:33Z", "False", (False, False), id="SI-10 a change before the start"),
        # FP-17: a node an hour ahead wrote the start, the controller that lost it the change.
        pytest.param("59:30Z", "False", (False, False), id="SI-10 long before the start"),
        pytest.param("00:00Z", "True", (False, False), id="ready now"),
        pytest.param("00:30Z", "True", (False, False), id="ready from the start on"),
        pytest.param("00:00Z", "Unknown", (False, False), id="SI-13 a silent node"),
        pytest.param("00:30Z", "Unknown", (False, False), id="SI-13 silent from the start on"),
        pytest.param(None, "False", (False, False), id="SI-13 no start: nothing is proven"),
        pytest.param("soon", "False", (False, False), id="SI-13 no instant"),
        pytest.param("00:30", "False", (False, False), id="SI-13 no zone"),
    ],
)
def test_si04_si10_only_proof_says_whether_a_pod_has_been_ready(
    started: str | None, ready: str, expected: tuple[bool, bool]
) -> None:
    """The condition turned at 00:00:30."""
    assert read(started and f"2026-01-01T00:{started}", ready) == expected


@pytest.mark.parametrize("turned", [None, "", "yesterday"])
def test_si13_a_change_at_an_unknown_time_proves_nothing(turned: str | None) -> None:
    assert read("2026-01-01T00:00:00Z", "False", turned) == (False, False)


def test_si13_a_pod_without_a_condition_proves_nothing() -> None:
    tree = pod_tree(startTime=TURNED, conditions=None, containerStatuses=None)
    assert not decode_pod(as_json(tree)).never_ready


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ({"serviceName": "gossip"}, "gossip"),
        ({"serviceName": ""}, ""),
        ({"serviceName": None}, ""),
        ({}, ""),
        ({"serviceName": "a b"}, "a b"),
    ],
)
def test_prep08_a_set_says_its_service_as_it_is_written(spec: dict[str, Any], name: str) -> None:
    assert decode_statefulset(as_json(set_tree(**spec))).service_name == name


def test_prep17_a_set_says_how_many_pods_are_updated() -> None:
    tree = set_tree()
    assert decode_statefulset(as_json(tree)).updated_replicas == 0
    tree["status"]["updatedReplicas"] = 2
    assert decode_statefulset(as_json(tree)).updated_replicas == 2


@pytest.mark.parametrize("number", [-1, 2**31, "2", 1.5, True])
def test_si08_a_broken_count_is_not_taken_for_none(number: object) -> None:
    tree = set_tree()
    tree["status"]["updatedReplicas"] = number
    with pytest.raises(DecodeError, match=r"status\.updatedReplicas"):
        decode_statefulset(as_json(tree))


def test_a_set_keeps_all_labels_and_the_annotations_that_downscales_read() -> None:
    annotations = {
        LAST_DOWNSCALE: "a",
        MIN_TIME_BETWEEN_DOWNSCALES: "b",
        PREPARE_PATH: "c",
        PREPARE_PORT: "d",
        NO_DOWNSCALE: "e",
        PREPARE_DOWNSCALE: "f",
    }
    labels = {NO_DOWNSCALE: "g", PREPARE_DOWNSCALE: "h", MIN_TIME_BETWEEN_DOWNSCALES: "i"}
    tree = with_metadata(
        set_tree(), annotations=annotations | {"x": "y"}, labels=labels | {LAST_DOWNSCALE: "no"}
    )
    decoded = decode_statefulset(as_json(tree))

    assert decoded.annotations == annotations
    assert decoded.labels == labels | {LAST_DOWNSCALE: "no"}
