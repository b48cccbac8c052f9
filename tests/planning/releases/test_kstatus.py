"""What objects of any kind are at, by the rules of kstatus."""

from collections.abc import Mapping
from typing import Any, Final

import pytest

from rollout_operator.model.release_plan import ObjectStatus
from rollout_operator.model.units import format_rfc3339
from rollout_operator.planning.flux import assess_status, get_failure_time
from tests.planning.releases.builders import START, at

CURRENT, IN_PROGRESS, FAILED, TERMINATING, UNKNOWN = ObjectStatus

API: Final = {
    **dict.fromkeys(("Deployment", "StatefulSet", "ReplicaSet", "DaemonSet"), "apps/v1"),
    **dict.fromkeys(("Job", "CronJob"), "batch/v1"),
    **dict.fromkeys(("Pod", "PersistentVolumeClaim", "Service", "Secret"), "v1"),
    "CustomResourceDefinition": "apiextensions.k8s.io/v1",
}


def condition(kind: str, status: str = "True", reason: str = "") -> dict[str, Any]:
    """Return a condition since the start."""
    since = format_rfc3339(START)
    return {"type": kind, "status": status, "reason": reason, "lastTransitionTime": since}


def thing(
    kind: str,
    *conditions: dict[str, Any],
    spec: Mapping[str, Any] | None = None,
    api: str = "",
    meta: Mapping[str, Any] | None = None,
    **status: Any,
) -> dict[str, Any]:
    """Return an object of generation 1; fields of its status by name."""
    shown = {**status, "conditions": list(conditions)} if conditions else status
    return {
        "apiVersion": api or API.get(kind, "example.com/v1"),
        "kind": kind,
        "metadata": {"generation": 1, **(meta or {})},
        "spec": spec or {},
        "status": shown,
    }


def counts(*numbers: int, revision: str = "a") -> dict[str, Any]:
    """Return replicas: all, ready, current, updated, available, labelled."""
    names = ("", "ready", "current", "updated", "available", "fullyLabeled")
    keys = [f"{name}Replicas" if name else "replicas" for name in names]
    both = {"currentRevision": "a", "updateRevision": revision}
    return {**dict(zip(keys, numbers, strict=False)), **both}


AVAILABLE = condition("Available")
NEW_SET = condition("Progressing", reason="NewReplicaSetAvailable")
DEADLINE = {"progressDeadlineSeconds": 600}
ON_DELETE = {"replicas": 2, "updateStrategy": {"type": "OnDelete"}}
PARTITION = {"replicas": 3, "updateStrategy": {"rollingUpdate": {"partition": 1}}}
READY_DAEMONS: Final[Mapping[str, Any]] = {
    "observedGeneration": 1,
    **dict.fromkeys(
        (
            *("desiredNumberScheduled", "currentNumberScheduled", "updatedNumberScheduled"),
            *("numberAvailable", "numberReady"),
        ),
        2,
    ),
}
CRASHING = [{"name": "app", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]
NO_NODE = condition("PodScheduled", "False", "Unschedulable")


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        (thing("Any", meta={"deletionTimestamp": "x"}), TERMINATING),
        (thing("Any", meta={"generation": 2}, observedGeneration=1), IN_PROGRESS),
        (thing("Any", observedGeneration=1), CURRENT),
        (thing("Any", condition("Reconciling"), condition("Stalled")), IN_PROGRESS),
        (thing("Any", condition("Stalled"), condition("Reconciling")), FAILED),
        (thing("Any", condition("Stalled", "False"), condition("Ready")), CURRENT),
        (thing("Any", condition("Ready", "False")), IN_PROGRESS),
        (thing("Any", condition("Ready", "Unknown")), IN_PROGRESS),
        (thing("Any"), CURRENT),
        ({}, CURRENT),
        ({"status": 7, "metadata": [], "kind": None}, CURRENT),
        ({"status": {"conditions": ["Stalled", {"type": 1}]}}, CURRENT),
    ],
)
def test_any_kind(tree: Mapping[str, object], expected: ObjectStatus) -> None:
    """REL-114: in this order, whatever else an object says."""
    assert assess_status(tree, START).status is expected


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        (thing("Deployment", AVAILABLE, **counts(1, 1, 1, 1, 1)), CURRENT),
        (thing("Deployment", AVAILABLE), IN_PROGRESS),
        (thing("Deployment", AVAILABLE, spec={"replicas": 0}), CURRENT),
        (thing("Deployment", AVAILABLE, **counts(1, 1, 1, 0, 1)), IN_PROGRESS),
        (thing("Deployment", AVAILABLE, **counts(2, 1, 1, 1, 1)), IN_PROGRESS),
        (thing("Deployment", AVAILABLE, **counts(1, 1, 1, 1, 0)), IN_PROGRESS),
        (thing("Deployment", AVAILABLE, **counts(1, 0, 1, 1, 1)), IN_PROGRESS),
        (thing("Deployment", **counts(1, 1, 1, 1, 1)), IN_PROGRESS),
        (thing("Deployment", AVAILABLE, spec=DEADLINE, **counts(1, 1, 1, 1, 1)), IN_PROGRESS),
        (thing("Deployment", AVAILABLE, NEW_SET, spec=DEADLINE, **counts(1, 1, 1, 1, 1)), CURRENT),
        (
            thing("Deployment", condition("Progressing", "False", "ProgressDeadlineExceeded")),
            FAILED,
        ),
        (thing("StatefulSet", **counts(1, 1, 1, 1)), CURRENT),
        (thing("StatefulSet", **counts(0, 0, 0, 0)), IN_PROGRESS),
        (thing("StatefulSet", **counts(1, 0, 1, 1)), IN_PROGRESS),
        (thing("StatefulSet", **counts(2, 2, 2, 2)), IN_PROGRESS),
        (thing("StatefulSet", **counts(1, 1, 0, 1)), IN_PROGRESS),
        (thing("StatefulSet", **counts(1, 1, 1, 0, revision="b")), IN_PROGRESS),
        (thing("StatefulSet", spec=PARTITION, **counts(3, 3, 1, 2, revision="b")), CURRENT),
        (thing("StatefulSet", spec=PARTITION, **counts(3, 3, 2, 1, revision="b")), IN_PROGRESS),
        (thing("ReplicaSet", **counts(1, 1, 0, 0, 1, 1)), CURRENT),
        (thing("ReplicaSet", **counts(1, 1, 0, 0, 1, 0)), IN_PROGRESS),
        (thing("ReplicaSet", **counts(1, 1, 0, 0, 0, 1)), IN_PROGRESS),
        (thing("ReplicaSet", **counts(1, 0, 0, 0, 1, 1)), IN_PROGRESS),
        (thing("ReplicaSet", **counts(2, 1, 0, 0, 1, 1)), IN_PROGRESS),
        (thing("ReplicaSet", condition("ReplicaFailure"), **counts(1, 1, 0, 0, 1, 1)), IN_PROGRESS),
        (thing("DaemonSet", **READY_DAEMONS), CURRENT),
        (thing("DaemonSet", **{**READY_DAEMONS, "numberReady": 1}), IN_PROGRESS),
        (thing("DaemonSet", **{**READY_DAEMONS, "observedGeneration": None}), IN_PROGRESS),
        (thing("DaemonSet", observedGeneration=1), IN_PROGRESS),
        (thing("Pod"), IN_PROGRESS),
        (thing("Pod", phase="Succeeded"), CURRENT),
        (thing("Pod", phase="Failed"), CURRENT),
        (thing("Pod", phase="Strange"), UNKNOWN),
        (thing("Pod", condition("Ready"), phase="Running"), CURRENT),
        (thing("Pod", phase="Running"), IN_PROGRESS),
        (thing("Pod", phase="Running", containerStatuses=CRASHING), FAILED),
        (thing("Pod", phase="Pending"), IN_PROGRESS),
        (thing("Job"), IN_PROGRESS),
        (thing("Job", startTime="x"), CURRENT),
        (thing("Job", condition("Complete"), startTime="x"), CURRENT),
        (thing("Job", condition("Suspended")), CURRENT),
        (thing("Job", condition("Failed"), startTime="x"), FAILED),
        (thing("PersistentVolumeClaim", phase="Bound"), CURRENT),
        (thing("PersistentVolumeClaim", phase="Lost"), IN_PROGRESS),
        (thing("Service"), CURRENT),
        (thing("Service", spec={"type": "LoadBalancer"}), IN_PROGRESS),
        (thing("Service", spec={"type": "LoadBalancer", "clusterIP": "10.0.0.1"}), CURRENT),
        (thing("Service", condition("Ready", "False"), api="serving.knative.dev/v1"), IN_PROGRESS),
        (thing("CustomResourceDefinition"), IN_PROGRESS),
        (thing("CustomResourceDefinition", condition("Established")), CURRENT),
        (thing("CustomResourceDefinition", condition("NamesAccepted", "False")), FAILED),
        (thing("CustomResourceDefinition", condition("Established", "False")), FAILED),
        (
            thing("CustomResourceDefinition", condition("Established", "False", "Installing")),
            IN_PROGRESS,
        ),
        (thing("Secret", condition("Ready", "False")), CURRENT),
        (thing("CronJob"), CURRENT),
    ],
)
def test_kinds_of_kubernetes(tree: Mapping[str, object], expected: ObjectStatus) -> None:
    """REL-114."""
    assert assess_status(tree, START).status is expected


@pytest.mark.parametrize(("minutes", "expected"), [(0.2, IN_PROGRESS), (0.25, FAILED)])
def test_a_pod_may_wait_for_a_node_for_15_seconds(minutes: float, expected: ObjectStatus) -> None:
    """REL-114."""
    assert assess_status(thing("Pod", NO_NODE, phase="Pending"), at(minutes)).status is expected


@pytest.mark.parametrize(
    ("numbers", "expected"), [((2, 2, 2, 1), IN_PROGRESS), ((2, 2, 0, 2), CURRENT)]
)
def test_pods_that_are_replaced_one_by_one_are_waited_for(
    numbers: tuple[int, ...], expected: ObjectStatus
) -> None:
    """RELB-36: to kstatus a StatefulSet with OnDelete is current whatever its pods run."""
    tree = thing("StatefulSet", spec=ON_DELETE, **counts(*numbers, revision="b"))

    assert assess_status(tree, START).status is expected


def test_a_verdict_has_its_numbers() -> None:
    """REL-114."""
    tree = thing("StatefulSet", spec={"replicas": 3}, **counts(3, 2))

    assert assess_status(tree, START).text == "readyReplicas: 2 of 3"


def dated(kind: str, minutes: float | None, status: str = "True") -> dict[str, Any]:
    since = "never" if minutes is None else at(minutes).isoformat()
    return {"type": kind, "status": status, "lastTransitionTime": since}


@pytest.mark.parametrize(
    ("conditions", "minutes"),
    [
        pytest.param([], None, id="RT-138 none"),
        pytest.param([dated("Ready", 1)], 1, id="RT-138 a single one"),
        pytest.param([dated("Ready", 5), dated("Other", 1)], 5, id="RT-138 the newest"),
        pytest.param([dated("Stalled", 1), dated("Ready", 5)], 1, id="RT-138 it stalled"),
        pytest.param([dated("Stalled", 1, "False"), dated("Ready", 5)], 5, id="RT-138 it did not"),
        pytest.param([dated("Ready", None)], None, id="RT-138 no times"),
    ],
)
def test_the_time_of_a_failure(conditions: list[dict[str, Any]], minutes: float | None) -> None:
    """REL-111."""
    found = get_failure_time({"status": {"conditions": conditions}})

    assert found == (None if minutes is None else at(minutes))
