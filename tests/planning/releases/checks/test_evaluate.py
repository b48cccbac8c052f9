"""The health of a Kustomization, of a rollout group and of a MultiAZRollout."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

import pytest

from rollout_operator.model.outcome import Code, Reason
from rollout_operator.model.release_plan import (
    CheckFinding,
    HealthStatus,
    ObjectStatus,
    StatusVerdict,
)
from rollout_operator.model.units import format_rfc3339
from rollout_operator.planning.health_checks import (
    InventoryFinding,
    assess_group,
    assess_held,
    assess_kustomization,
    assess_object,
    assess_policy,
    assess_sets,
    assess_unread,
    describe_stall,
    has_lasted,
    needs_read,
    parse_inventory_id,
    track_failure,
)
from tests.planning.releases.builders import at

HEALTHY, UNHEALTHY, PENDING = HealthStatus
FAILED: Final = (("Ready", "False", "Stalled"), ("Stalled", "True", "x"))
GRACE: Final = timedelta(minutes=2)
FINE: Final = InventoryFinding(name="a", verdict=StatusVerdict(ObjectStatus.CURRENT, "applied"))
UNREAD: Final = InventoryFinding(name="b", problem="timeout", may_pass=True)
BROKEN: Final = InventoryFinding(name="c", problem="no id")


def kustomization(reason: str = "ReconciliationSucceeded", status: str = "True") -> dict[str, Any]:
    """Return one whose condition `Ready` is so since the start."""
    return thing("kustomize.toolkit.fluxcd.io/v1", "Kustomization", ("Ready", status, reason))


def thing(api: str, kind: str, *conditions: tuple[str, str, str], **status: Any) -> dict[str, Any]:
    since = format_rfc3339(at(0))
    shown = [
        {
            "type": type_,
            "status": state,
            "reason": reason,
            "message": "m",
            "lastTransitionTime": since,
        }
        for type_, state, reason in conditions
    ]
    return {
        "apiVersion": api,
        "kind": kind,
        "metadata": {"name": "db-a", "generation": 1},
        "status": {"observedGeneration": 1, "conditions": shown, **status},
    }


def zone(updated: int, ready: int = 3) -> Mapping[str, object]:
    """Return a StatefulSet of three pods that are replaced by OnDelete."""
    numbers = {"replicas": 3, "readyReplicas": ready, "updatedReplicas": updated}
    spec = {"replicas": 3, "updateStrategy": {"type": "OnDelete"}}
    return {**thing("apps/v1", "StatefulSet", **numbers), "spec": spec}


@pytest.mark.parametrize(
    ("tree", "minutes", "status", "failed_at"),
    [
        pytest.param(kustomization(), 9, ObjectStatus.CURRENT, at(0), id="REL-108 it is ready"),
        pytest.param(
            kustomization("BuildFailed", "False"), 2, ObjectStatus.IN_PROGRESS, at(0),
            id="RELB-37 within the grace",
        ),
        pytest.param(
            kustomization("BuildFailed", "False"), 2.1, ObjectStatus.FAILED,
            at(0) + timedelta(seconds=1), id="RELB-37 after the grace",
        ),
        pytest.param(
            kustomization("DependencyNotReady", "False"), 99, ObjectStatus.IN_PROGRESS, at(0),
            id="RELB-37 it waits for another",
        ),
        pytest.param(
            thing("v1", "Other", ("Ready", "False", "BuildFailed")), 99, ObjectStatus.IN_PROGRESS,
            at(0), id="RELB-37 an object that is none of Flux",
        ),
        pytest.param(
            thing("v1", "Other", ("Stalled", "True", "x")), 99, ObjectStatus.FAILED, at(0),
            id="REL-111 its own time",
        ),
    ],
)  # fmt: skip
def test_one_object(
    tree: Mapping[str, object], minutes: float, status: ObjectStatus, failed_at: object
) -> None:
    now = at(minutes)
    failure = track_failure(tree, None, now)
    counts = has_lasted(failure, now, GRACE)
    found = assess_object("Kustomization app", tree, now, failure if counts else None)

    assert found.verdict is not None
    assert (found.verdict.status, found.failed_at) == (status, failed_at)


def test_one_that_has_yet_to_apply_a_release() -> None:
    """RELB-16, RELB-37: what it has applied says nothing, but that it fails does."""
    hold = CheckFinding(status=PENDING, text="waiting for Flux")
    failed = InventoryFinding(
        name="app", verdict=StatusVerdict(ObjectStatus.FAILED, "BuildFailed: m"), failed_at=at(1)
    )

    assert assess_held(hold, FINE) == hold
    assert assess_held(hold, failed) == CheckFinding(
        status=UNHEALTHY, text="BuildFailed: m", failed_at=at(1)
    )


@pytest.mark.parametrize(
    ("findings", "unread", "status", "text"),
    [
        pytest.param([FINE], 0, HEALTHY, "applied", id="RT-133 all current"),
        pytest.param([FINE, UNREAD], 2, PENDING, "b: timeout", id="RELB-37 not read twice"),
        pytest.param([FINE, UNREAD], 3, UNHEALTHY, "b: timeout", id="RELB-37 three times"),
        pytest.param([FINE, BROKEN], 1, UNHEALTHY, "c: no id", id="RELB-37 what never passes"),
    ],
)
def test_errors_that_may_pass(
    findings: list[InventoryFinding], unread: int, status: HealthStatus, text: str
) -> None:
    verdict = assess_kustomization(FINE, findings, unread)

    assert (verdict.status, verdict.text) == (status, text)


@pytest.mark.parametrize(("unread", "status"), [(1, PENDING), (2, PENDING), (3, UNHEALTHY)])
def test_a_kustomization_that_is_missing(unread: int, status: HealthStatus) -> None:
    """RT-129, RELB-37: for a moment it may be."""
    missing = InventoryFinding(name="app", problem="not found", may_pass=True)

    assert assess_kustomization(missing, [], unread) == assess_unread("not found", unread)
    assert assess_unread("not found", unread) == CheckFinding(status=status, text="not found")


@pytest.mark.parametrize(
    ("text", "is_read"),
    [("p_a__Secret", False), ("p_a__ConfigMap", False), ("p_a_apps_Deployment", True)],
)
def test_what_cannot_fail_is_not_read(text: str, is_read: bool) -> None:
    """RELB-28: no right to read Secrets is needed."""
    assert needs_read(parse_inventory_id(text)) is is_read


@pytest.mark.parametrize(
    ("sets", "status", "text"),
    [
        pytest.param(
            [zone(3), zone(3)], HEALTHY, "all pods run the update revision and are ready",
            id="RELB-36 all zones are through",
        ),
        pytest.param(
            [zone(3), zone(1)], PENDING, "StatefulSet db-a: updatedReplicas: 1 of 3",
            id="RELB-36 one zone is not",
        ),
        pytest.param(
            [zone(3, ready=2)], PENDING, "StatefulSet db-a: readyReplicas: 2 of 3",
            id="RELB-36 a pod is not ready",
        ),
        pytest.param([], PENDING, "it has no StatefulSet yet", id="RELB-36 no zone"),
    ],
)  # fmt: skip
def test_zones_of_a_group(
    sets: list[Mapping[str, object]], status: HealthStatus, text: str
) -> None:
    found = assess_sets(sets, at(5))

    assert (found.status, found.text) == (status, text)


def policy(*conditions: tuple[str, str, str]) -> dict[str, Any]:
    return thing("rollout.grafana.com/v1alpha1", "MultiAZRollout", *conditions)


@pytest.mark.parametrize(
    ("own", "sets", "expected"),
    [
        pytest.param(
            policy(("Ready", "True", "UpToDate")), [zone(3)], HEALTHY, id="RELB-36 through"
        ),
        pytest.param(
            policy(("Ready", "True", "UpToDate")), [zone(0)], PENDING,
            id="RELB-36 it has not seen the new version yet",
        ),
        pytest.param(
            policy(("Ready", "False", "RollingOut"), ("Reconciling", "True", "RollingOut")),
            [zone(3)], PENDING, id="RELB-36 it rolls out",
        ),
        pytest.param(
            policy(("Ready", "False", "RollingOut"), ("Stalled", "True", "Deadline")),
            [zone(1)], UNHEALTHY, id="RELB-36 it is stalled",
        ),
        pytest.param(policy(), [zone(3)], PENDING, id="RELB-36 it has no status"),
    ],
)  # fmt: skip
def test_zones_of_a_policy(
    own: Mapping[str, object], sets: list[Mapping[str, object]], expected: HealthStatus
) -> None:
    found = assess_policy(own, sets, at(5))

    assert found.status is expected
    assert (found.failed_at == at(0)) is (expected is UNHEALTHY)


def test_a_policy_that_failed_says_why_and_since_when() -> None:
    """RELB-36."""
    found = assess_policy(
        thing("rollout.grafana.com/v1alpha1", "MultiAZRollout", *FAILED), [], at(9)
    )
    assert found == CheckFinding(status=UNHEALTHY, text="m", failed_at=at(0))


STALL: Final = CheckFinding(status=UNHEALTHY, text="db-a: RollingUpdate", failed_at=at(0))


@pytest.mark.parametrize(
    ("sets", "stall", "expected"),
    [
        pytest.param([zone(1)], STALL, UNHEALTHY, id="RELB-36 only a person ends it"),
        pytest.param([zone(1)], None, PENDING, id="RELB-36 it rolls out"),
        pytest.param([zone(3)], STALL, HEALTHY, id="RELB-36 it is through all the same"),
    ],
)
def test_a_group_that_is_stalled(
    sets: list[Mapping[str, object]], stall: CheckFinding | None, expected: HealthStatus
) -> None:
    assert assess_group(sets, at(5), stall).status is expected


@pytest.mark.parametrize(
    ("code", "is_stalled"),
    [
        (Code.WRONG_STRATEGY, True),
        (Code.OBJECT_UNREADABLE, True),
        (Code.POLICY_PAUSED, False),
        (Code.ZONE_NOT_READY, False),
    ],
)
def test_what_stalls_a_group(code: Code, is_stalled: bool) -> None:
    """RELB-36: what goes on by itself, and what is paused, is no failure."""
    found = describe_stall([Reason(code=code, text="why")], at(3))

    assert found == (
        CheckFinding(status=UNHEALTHY, text="why", failed_at=at(3)) if is_stalled else None
    )
