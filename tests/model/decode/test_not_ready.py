"""READY-01..04 and D-11 row by row, and what is said of a pod that is not ready (FP-27)."""

import pytest

from rollout_operator.model.decode.not_ready import TROUBLE_LIMIT
from rollout_operator.model.decode.objects import (
    decode_pod,
)
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


@pytest.mark.parametrize(
    ("status", "trouble"),
    [
        pytest.param({}, "", id="D-11 all holds: ready"),
        pytest.param({"phase": "Pending"}, "phase Pending", id="READY-01 phase exactly Running"),
        pytest.param({"phase": "running"}, "phase running", id="READY-01 other spelling"),
        pytest.param({"phase": "Unknown"}, "phase Unknown", id="FP-27 Unknown"),
        pytest.param({"phase": None}, "no phase", id="FP-27 no phase"),
        pytest.param(
            {"phase": "Failed", "reason": "Evicted", "containerStatuses": []},
            "phase Failed: Evicted",
            id="FP-27 evicted",
        ),
        pytest.param(
            {"containerStatuses": None}, "no container statuses", id="W-26 absent statuses"
        ),
        pytest.param({"containerStatuses": []}, "no container statuses", id="W-26 empty statuses"),
        pytest.param(
            {"containerStatuses": [container(), container("b", ready=False)]},
            "container b not ready",
            id="READY-01 second container not ready",
        ),
        pytest.param(
            {"containerStatuses": [container(state={})]},
            "container app not running",
            id="READY-01 ready without running state",
        ),
        pytest.param(
            {"containerStatuses": [{"name": "app", "ready": True}]},
            "container app not running",
            id="READY-01 ready without state",
        ),
        pytest.param(
            {"containerStatuses": [{"name": "app", "state": RUNNING}]},
            "container app not ready",
            id="READY-01 ready absent is false",
        ),
        pytest.param(
            {"containerStatuses": [container(ready=False), waiting("CrashLoopBackOff")]},
            "CrashLoopBackOff",
            id="FP-27 crash loop names its reason",
        ),
        pytest.param(
            {"phase": "Pending", "containerStatuses": [waiting("ImagePullBackOff")]},
            "ImagePullBackOff",
            id="FP-27 image pull says more than the phase",
        ),
        pytest.param(
            {"containerStatuses": [terminated(reason="Error", exitCode=1)]},
            "terminated: Error",
            id="FP-27 terminated",
        ),
        pytest.param(
            {"containerStatuses": [terminated(exitCode=137)]},
            "terminated: 137",
            id="FP-27 terminated without reason",
        ),
        pytest.param(
            {"containerStatuses": [container(state={"waiting": {}}, ready=False)]},
            "waiting",
            id="FP-27 waiting without reason",
        ),
        pytest.param(
            {"conditions": [condition("False", reason="ReadinessGatesNotReady")]},
            "readiness condition false (ReadinessGatesNotReady)",
            id="W-26 readiness gate false",
        ),
        pytest.param(
            {"conditions": [condition("Unknown")]},
            "readiness condition unknown",
            id="FP-27 node lost: condition Unknown",
        ),
        pytest.param(
            {"conditions": [condition("true")]},
            "readiness condition true",
            id="D-11 exactly True",
        ),
        pytest.param({"conditions": None}, "no readiness condition", id="D-11 no conditions"),
        pytest.param(
            {"conditions": [condition("True", type="ContainersReady")]},
            "no readiness condition",
            id="D-11 only the condition Ready counts",
        ),
        pytest.param(
            {"conditions": [condition("True"), condition("False")]},
            "readiness condition false",
            id="D-11 of two conditions the worse",
        ),
        pytest.param(
            {
                "phase": "Pending",
                "conditions": [condition("False", type="PodScheduled", reason="Unschedulable")],
                "containerStatuses": None,
            },
            "Unschedulable",
            id="FP-27 no room on any node",
        ),
        pytest.param(
            {
                "phase": "Pending",
                "initContainerStatuses": [waiting("CrashLoopBackOff")],
                "containerStatuses": [waiting("PodInitializing")],
            },
            "init: CrashLoopBackOff",
            id="FP-27 init container says more than PodInitializing",
        ),
        pytest.param(
            {
                "phase": "Pending",
                "initContainerStatuses": [
                    container(ready=True, state={"terminated": {"exitCode": 0}}),
                    terminated(reason="OOMKilled", exitCode=137),
                ],
                "containerStatuses": [waiting("PodInitializing")],
            },
            "init terminated: OOMKilled",
            id="FP-27 failed init container",
        ),
        pytest.param(
            {
                "phase": "Pending",
                "initContainerStatuses": [waiting("PodInitializing")],
                "containerStatuses": [waiting("PodInitializing")],
            },
            "PodInitializing",
            id="FP-27 init containers under way",
        ),
        pytest.param(
            {
                "phase": "Pending",
                "initContainerStatuses": [terminated(reason="Completed", exitCode=0)],
                "containerStatuses": [waiting("PodInitializing")],
            },
            "PodInitializing",
            id="FP-27 an init container that did its work is no trouble",
        ),
        pytest.param(
            {"initContainerStatuses": [container("sidecar", ready=False)]},
            "",
            id="READY-02 a sidecar counts only through the Ready condition",
        ),
    ],
)
def test_readiness_and_why_not(status: Tree, trouble: str) -> None:
    view = decode_pod(as_json(pod_tree(**status)))
    assert (view.trouble, view.is_ready) == (trouble, not trouble)
    assert view.is_starting is trouble.startswith(STARTING)
    assert (view.ready_since is not None) is view.is_ready


def test_ready04_a_terminating_pod_is_never_ready() -> None:
    view = decode_pod(as_json(with_metadata(pod_tree(), deletionTimestamp=DELETED)))
    assert (view.is_terminating, view.is_ready, view.trouble) == (True, False, "terminating")


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
        trouble = decode_pod(as_json(pod_tree(**status))).trouble
        assert trouble.isascii()
        assert trouble.isprintable()
        assert 0 < len(trouble) <= TROUBLE_LIMIT
