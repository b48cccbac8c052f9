"""What the objects of an inventory say together."""

from datetime import datetime
from typing import Final

import pytest

from rollout_operator.model.names import InvalidInput
from rollout_operator.model.release_plan import (
    CheckFinding,
    HealthStatus,
    ObjectStatus,
    StatusVerdict,
)
from rollout_operator.planning.health_checks import (
    InventoryFinding,
    InventoryObject,
    assess_inventory,
    parse_inventory_id,
)
from tests.planning.releases.builders import at

READY: Final = StatusVerdict(ObjectStatus.CURRENT, "applied 2")
APPLYING: Final = StatusVerdict(ObjectStatus.IN_PROGRESS, "applying 2")
STALLED: Final = StatusVerdict(ObjectStatus.FAILED, "stalled")


def found(
    status: ObjectStatus | None, text: str = "", when: datetime | None = None
) -> InventoryFinding:
    verdict = None if status is None else StatusVerdict(status, text)
    return InventoryFinding(name="Deployment a", verdict=verdict, failed_at=when)


FINE: Final = found(ObjectStatus.CURRENT)
WAITING: Final = found(ObjectStatus.IN_PROGRESS, "0 of 1 ready")
GOING: Final = found(ObjectStatus.TERMINATING, "it goes")
FAILED: Final = found(ObjectStatus.FAILED, "deadline", at(1))
GONE: Final = found(None)
UNREAD: Final = InventoryFinding(name="x", problem="forbidden")
HEALTHY, UNHEALTHY, PENDING = HealthStatus.HEALTHY, HealthStatus.UNHEALTHY, HealthStatus.PENDING


@pytest.mark.parametrize(
    ("own", "findings", "status", "text"),
    [
        pytest.param(READY, [FINE], HEALTHY, "applied 2", id="REL-110 all current"),
        pytest.param(READY, [], PENDING, "it has applied nothing yet", id="RT-130 no inventory"),
        pytest.param(
            READY, [FINE, WAITING], PENDING, "Deployment a: 0 of 1 ready", id="RT-131 in progress"
        ),
        pytest.param(READY, [GOING], PENDING, "Deployment a: it goes", id="REL-109 terminating"),
        pytest.param(
            READY, [WAITING, FAILED], UNHEALTHY, "Deployment a: deadline", id="RT-132 failed"
        ),
        pytest.param(READY, [GONE], HEALTHY, "applied 2", id="RT-133 an object that is gone"),
        pytest.param(
            READY, [FAILED, UNREAD], UNHEALTHY, "x: forbidden and Deployment a: deadline",
            id="REL-110 one that cannot be read",
        ),
        pytest.param(APPLYING, [FINE], PENDING, "applying 2", id="REL-110 itself in progress"),
        pytest.param(APPLYING, [FAILED], UNHEALTHY, "Deployment a: deadline", id="REL-110 first"),
        pytest.param(STALLED, [FINE], UNHEALTHY, "stalled", id="REL-108 itself failed"),
    ],
)  # fmt: skip
def test_health_of_all_of_it(
    own: StatusVerdict, findings: list[InventoryFinding], status: HealthStatus, text: str
) -> None:
    verdict = assess_inventory(own, findings)

    assert (verdict.status, verdict.text) == (status, text)


def test_the_newest_failure_counts() -> None:
    """REL-111: where none says when it failed, there is none."""
    later = found(ObjectStatus.FAILED, "later", at(5))

    assert assess_inventory(READY, [later, FAILED]).failed_at == at(5)
    assert assess_inventory(READY, [found(ObjectStatus.FAILED)]).failed_at is None
    assert assess_inventory(STALLED, [later], at(2)) == CheckFinding(
        status=UNHEALTHY, text="stalled", failed_at=at(2)
    )


@pytest.mark.parametrize(
    ("text", "key", "group"),
    [
        ("prod_app_apps_Deployment", "Deployment prod/app", "apps"),
        ("prod_app__ConfigMap", "ConfigMap prod/app", ""),
        ("_system__node_rbac.authorization.k8s.io_ClusterRole", "ClusterRole system:node",
         "rbac.authorization.k8s.io"),
    ],
)  # fmt: skip
def test_ids_of_objects(text: str, key: str, group: str) -> None:
    """REL-109."""
    parsed = parse_inventory_id(text)

    assert isinstance(parsed, InventoryObject)
    assert (parsed.key, parsed.group) == (key, group)


@pytest.mark.parametrize("text", ["", "a", "a_b", "a_b_c", "a__c_D", "a_b_c_"])
def test_ids_of_nothing(text: str) -> None:
    """REL-109."""
    with pytest.raises(InvalidInput, match="is no id: namespace_name_group_kind"):
        parse_inventory_id(text)
