"""What views keep of thousands of labels and of endless texts, and what may select them (D-68)."""

import gc
import tracemalloc
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from rollout_operator.model.decode.objects import LONGEST_RECORD, decode_pod, decode_statefulset
from rollout_operator.model.decode.wire import salvage
from rollout_operator.model.names import (
    DISRUPTION_RECORD,
    DOWNSCALE_INTENT,
    DOWNSCALE_RECORD,
    DecodeError,
)
from rollout_operator.model.objects import (
    LEFT_OUT,
    MOST_LABELS,
    LabelSelector,
    Pod,
    SelectorTerm,
    StatefulSet,
    Unreadable,
    bound_labels,
    is_certain,
)
from tests.model.wire_trees import as_json, pod_tree, set_tree, with_metadata

LONG = "x" * (255 << 10)


@cache
def fill(number: int, many: int = 4_000) -> dict[str, str]:
    return {f"l{number}x{i}": f"v{number}x{i}" for i in range(many)}


def long_set(number: int) -> StatefulSet:
    labels = {"rollout-group": "g", **fill(number)}
    tree = set_tree(selector={"matchLabels": fill(number)}, serviceName=LONG)
    annotations = {DOWNSCALE_INTENT: LONG, "rollout-max-unavailable": LONG}
    return decode_statefulset(as_json(with_metadata(tree, labels=labels, annotations=annotations)))


def long_pod(number: int) -> Pod:
    owner = {"uid": f"{number}{LONG}", "controller": True}
    annotations = {DISRUPTION_RECORD: LONG, DOWNSCALE_RECORD: LONG}
    head: dict[str, Any] = {"annotations": annotations, "ownerReferences": [owner]}
    tree = pod_tree(podIP=f"{number}{LONG}", phase=f"{number}{LONG}")
    return decode_pod(as_json(with_metadata(tree, labels=fill(number), **head)))


def broken(number: int) -> Unreadable:
    head: dict[str, Any] = {"ownerReferences": [{"uid": f"{number}{LONG}", "controller": True}]}
    labels = {"rollout-group": "g", **fill(number)}
    raw = as_json(with_metadata(pod_tree(), labels=labels, **head))
    return salvage("Pod", raw, DecodeError("broken"))


@pytest.mark.parametrize("read", [long_set, long_pod, broken])
def test_d68_objects_of_a_mebibyte_cost_kibibytes(read: Callable[[int], object]) -> None:
    """Sixty StatefulSets of 12,000 labels each were once the end of a process with 200 MiB."""
    read(0)
    for number in range(1, 4):
        fill(number)  # made while it is traced, it takes three times as long
    gc.collect()
    tracemalloc.start()
    decoded = [read(number) for number in range(1, 4)]
    gc.collect()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size / len(decoded) < 64 << 10


def test_d68_what_is_too_long_is_kept_as_what_nothing_obeys() -> None:
    sts, pod = long_set(1), long_pod(1)
    for text in (sts.annotations[DOWNSCALE_INTENT], sts.service_name, pod.disruption):
        assert text.startswith("xxx")
        assert text.endswith("x...")
        assert len(text) <= LONGEST_RECORD + 3
    assert len(sts.selector) == MOST_LABELS
    assert sts.selector.items() < fill(1).items()  # it finds more pods than are its own, not fewer


@pytest.mark.parametrize("read", [long_set, broken])
def test_d68_an_object_with_too_many_labels_keeps_its_group(
    read: Callable[[int], StatefulSet | Unreadable],
) -> None:
    assert read(1).group == "g"
    assert read(1).labels == {"rollout-group": "g", LEFT_OUT: ""}


def test_d68_only_what_is_known_is_certain() -> None:
    cut = bound_labels({"rollout-group": "g", **fill(1)})
    assert is_certain({"rollout-group": "g"}, cut)
    assert not is_certain({"rollout-group": "g", "name": "a"}, cut)
    assert is_certain({"name": "a"}, {"name": "b"})


def test_labels_as_people_have_them_are_all_kept() -> None:
    labels = fill(1, MOST_LABELS)
    assert bound_labels(labels) == labels


def test_labels_and_terms_must_all_fit() -> None:
    exists = SelectorTerm(key="a", operator="Exists")
    selector = LabelSelector(labels={"x": "y"}, terms=(exists,))
    assert selector.takes({"a": "b", "x": "y"})
    assert not selector.takes({"x": "y"})
    assert not selector.takes({"a": "b", "x": "z"})
    assert LabelSelector().takes({})
