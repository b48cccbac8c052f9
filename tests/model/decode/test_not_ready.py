"""READY-01..04 and D-11 row by row, and what is said of a pod that is not ready (FP-27)."""

import pytest

from rollout_operator.model.decode.objects import decode_pod
from rollout_operator.model.decode.wire import REASON_LIMIT
from tests.model.wire_trees import (
    DELETED,
    RUNNING,
    Tree,
    as_json,
    condition,
    container,
    pod_tree,
    terminated,
    waiting,
    with_metadata,
)

# What every pod passes through on its way up.
STARTING = (
    "no phase", "no container statuses", "phase Pending", "ContainerCreating", "PodInitializing",
    "waiting", "container ", "readiness condition ", "no readiness condition",
)  # fmt: skip


def has(*containers: Tree) -> Tree:
    return {"containerStatuses": [*containers]}


def begun(init: Tree, *others: Tree) -> Tree:
    """Return a pod whose init containers are at work."""
    statuses = {"initContainerStatuses": [init, *others]}
    return {"phase": "Pending", **statuses, **has(waiting("PodInitializing"))}


def ready(*conditions: Tree) -> Tree:
    return {"conditions": [*conditions]}


DONE = container(ready=True, state={"terminated": {"exitCode": 0}})
UNSCHEDULED = condition("False", type="PodScheduled", reason="Unschedulable")
GATED = condition("False", reason="ReadinessGatesNotReady")
NO_STATUS = "no container statuses"


@pytest.mark.parametrize(
    ("status", "why_not_ready"),
    [
        pytest.param({}, "", id="D-11 all holds: ready"),
        pytest.param({"phase": "Pending"}, "phase Pending", id="READY-01 phase exactly Running"),
        pytest.param({"phase": "running"}, "phase running", id="READY-01 other spelling"),
        pytest.param({"phase": "Unknown"}, "phase Unknown", id="FP-27 Unknown"),
        pytest.param({"phase": None}, "no phase", id="FP-27 no phase"),
        pytest.param(
            {"phase": "Failed", "reason": "Evicted", **has()}, "phase Failed: Evicted", id="evicted"
        ),
        pytest.param({"containerStatuses": None}, NO_STATUS, id="W-26 absent statuses"),
        pytest.param(has(), NO_STATUS, id="W-26 empty statuses"),
        pytest.param(
            has(container(), container("b", ready=False)),
            "container b not ready",
            id="READY-01 one",
        ),
        pytest.param(has(container(state={})), "container app not running", id="no running state"),
        pytest.param(
            has({"name": "app", "ready": True}), "container app not running", id="no state"
        ),
        pytest.param(
            has({"name": "app", "state": RUNNING}), "container app not ready", id="absent"
        ),
        pytest.param(
            has(container(ready=False), waiting("CrashLoopBackOff")), "CrashLoopBackOff", id="FP-27"
        ),
        pytest.param(
            {"phase": "Pending", **has(waiting("ImagePullBackOff"))},
            "ImagePullBackOff",
            id="FP-27 image pull says more than the phase",
        ),
        pytest.param(has(terminated(reason="Error", exitCode=1)), "terminated: Error", id="ended"),
        pytest.param(has(terminated(exitCode=137)), "terminated: 137", id="FP-27 without reason"),
        pytest.param(
            has(container(state={"waiting": {}}, ready=False)), "waiting", id="waiting, no reason"
        ),
        pytest.param(
            ready(GATED), "readiness condition false (ReadinessGatesNotReady)", id="W-26 gate"
        ),
        pytest.param(ready(condition("Unknown")), "readiness condition unknown", id="node lost"),
        pytest.param(ready(condition("true")), "readiness condition true", id="D-11 exactly True"),
        pytest.param({"conditions": None}, "no readiness condition", id="D-11 no conditions"),
        pytest.param(
            ready(condition("True", type="ContainersReady")),
            "no readiness condition",
            id="D-11 type",
        ),
        pytest.param(
            ready(condition("True"), condition("False")),
            "readiness condition false",
            id="D-11 worse",
        ),
        pytest.param(
            {"phase": "Pending", **ready(UNSCHEDULED), "containerStatuses": None},
            "Unschedulable",
            id="FP-27 no room on any node",
        ),
        pytest.param(
            begun(waiting("CrashLoopBackOff")), "init: CrashLoopBackOff", id="FP-27 init says more"
        ),
        pytest.param(
            begun(DONE, terminated(reason="OOMKilled", exitCode=137)),
            "init terminated: OOMKilled",
            id="FP-27 failed init container",
        ),
        pytest.param(begun(waiting("PodInitializing")), "PodInitializing", id="FP-27 init at work"),
        pytest.param(
            begun(terminated(reason="Completed", exitCode=0)),
            "PodInitializing",
            id="FP-27 init done",
        ),
        pytest.param(
            {"initContainerStatuses": [container("sidecar", ready=False)]},
            "",
            id="READY-02 a sidecar counts only through the Ready condition",
        ),
    ],
)
def test_readiness_and_why_not(status: Tree, why_not_ready: str) -> None:
    decoded = decode_pod(as_json(pod_tree(**status)))
    assert (decoded.why_not_ready, decoded.is_ready) == (why_not_ready, not why_not_ready)
    assert decoded.is_starting is why_not_ready.startswith(STARTING)
    assert (decoded.ready_since is not None) is decoded.is_ready


def test_ready04_a_terminating_pod_is_never_ready() -> None:
    decoded = decode_pod(as_json(with_metadata(pod_tree(), deletionTimestamp=DELETED)))
    assert (decoded.is_terminating, decoded.is_ready, decoded.why_not_ready) == (
        True,
        False,
        "terminating",
    )


@pytest.mark.parametrize(
    "reason",
    [
        pytest.param("line\nbreak\x1b[31m\x07", id="SI-23 control characters"),
        pytest.param("\u202egnp.exe\u2028", id="SI-23 bidi and line separators"),
        pytest.param("x" * 10_000, id="SI-23 long"),
        pytest.param("\x7f" * 100, id="SI-23 DEL, long once escaped"),
    ],
)
def test_si23_trouble_is_one_short_printable_line(reason: str) -> None:
    for status in ({"containerStatuses": [waiting(reason)]}, {"phase": reason}):
        why_not_ready = decode_pod(as_json(pod_tree(**status))).why_not_ready
        assert why_not_ready.isascii()
        assert why_not_ready.isprintable()
        assert 0 < len(why_not_ready) <= REASON_LIMIT


@pytest.mark.parametrize(
    ("status", "is_crash_looping"),
    [
        pytest.param(has(container(), waiting("CrashLoopBackOff")), True, id="one of two"),
        pytest.param(begun(waiting("CrashLoopBackOff")), True, id="before it starts"),
        pytest.param(begun(DONE, waiting("CrashLoopBackOff")), True, id="the second of these"),
        pytest.param(has(waiting("ImagePullBackOff")), False, id="it has not started"),
        pytest.param(has(terminated(reason="Error", exitCode=1)), False, id="it may start again"),
        pytest.param(has(container(ready=False)), False, id="it runs"),
        pytest.param({}, False, id="it is ready"),
    ],
)
def test_d88_a_pod_that_crashes_again_and_again(status: Tree, is_crash_looping: bool) -> None:
    """D-88: the kubelet says so."""
    assert decode_pod(as_json(pod_tree(**status))).is_crash_looping is is_crash_looping
