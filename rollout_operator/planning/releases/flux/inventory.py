"""What the objects that a Kustomization applied say of its health, all together.

Each of them was read and judged before; here is decided what counts first. An object that is gone
does not count: the Kustomization itself says what it lacks.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from rollout_operator.model.errors import InvalidInput
from rollout_operator.model.releases.health import CheckFinding, HealthStatus
from rollout_operator.model.releases.object_status import ObjectStatus, StatusVerdict
from rollout_operator.model.units import quote
from rollout_operator.planning.wording import join_names


class InventoryObject(msgspec.Struct, frozen=True, kw_only=True):
    """One object of an inventory. Without a namespace it is one of the cluster."""

    namespace: str
    name: str
    group: str
    kind: str

    @property
    def key(self) -> str:
        """Return kind, namespace and name, as texts name it."""
        return f"{self.kind} {self.namespace}/{self.name}".replace(" /", " ")


class InventoryFinding(msgspec.Struct, frozen=True, kw_only=True):
    """What was found where an entry points to."""

    name: str
    verdict: StatusVerdict | None = None
    """None where there is no such object, or where it cannot be read."""
    problem: str = ""
    """Why it cannot be read."""
    may_pass: bool = False
    """Whether that may pass by itself."""
    failed_at: datetime | None = None
    """When it failed, as far as it says so."""


def parse_inventory_id(text: str) -> InventoryObject:
    """Return the object of `namespace_name_group_kind` (REL-109). Raises InvalidInput."""
    parts = text.rsplit("_", 2)
    namespace, separator, name = parts[0].partition("_")
    if len(parts) < 3 or not (separator and name and parts[2]):
        raise InvalidInput(f"inventory: {quote(text)} is no id: namespace_name_group_kind")
    return InventoryObject(
        # No name has an underscore; where a role has a colon, the inventory has two of them.
        namespace=namespace,
        name=name.replace("__", ":"),
        group=parts[1],
        kind=parts[2],
    )


def assess_inventory(
    own: StatusVerdict, findings: Sequence[InventoryFinding], failed_at: datetime | None = None
) -> CheckFinding:
    """Return the health of a Kustomization by itself and by what it applied (REL-108 to 110)."""
    if own.status in {ObjectStatus.FAILED, ObjectStatus.UNKNOWN}:
        return CheckFinding(status=HealthStatus.UNHEALTHY, text=own.text, failed_at=failed_at)
    is_pending = own.status is not ObjectStatus.CURRENT
    broken = [f"{finding.name}: {finding.problem}" for finding in findings if finding.problem]
    failed = _list_at(findings, {ObjectStatus.FAILED, ObjectStatus.UNKNOWN})
    waiting = _list_at(findings, {ObjectStatus.IN_PROGRESS, ObjectStatus.TERMINATING})
    if broken or failed:
        times = [inventory.failed_at for inventory in failed if inventory.failed_at is not None]
        text = join_names([*broken, *_show(failed)])
        return CheckFinding(
            status=HealthStatus.UNHEALTHY, text=text, failed_at=max(times, default=None)
        )
    if waiting:
        return CheckFinding(status=HealthStatus.PENDING, text=join_names(_show(waiting)))
    if is_pending or not findings:
        text = own.text if is_pending else "it has applied nothing yet"
        return CheckFinding(status=HealthStatus.PENDING, text=text)
    return CheckFinding(status=HealthStatus.HEALTHY, text=own.text)


def _list_at(
    findings: Iterable[InventoryFinding], statuses: set[ObjectStatus]
) -> list[InventoryFinding]:
    return [
        finding
        for finding in findings
        if finding.verdict is not None and finding.verdict.status in statuses
    ]


def _show(findings: Iterable[InventoryFinding]) -> list[str]:
    return [
        f"{finding.name}: {finding.verdict.text}"
        for finding in findings
        if finding.verdict is not None
    ]
