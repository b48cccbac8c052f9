"""Which HealthChecks belong to a Rollout, and whether they hold its next release back.

What they say of a release that is deployed is weighed in `bake`.
"""

from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum, unique
from typing import Final

import msgspec

from rollout_operator.model.labels import LabelSelector
from rollout_operator.model.releases.health import HealthCheck, HealthStatus
from rollout_operator.model.releases.rollout import CheckSelector, ReleaseHead, ReleaseRollout
from rollout_operator.model.releases.status import FailedHealthCheck
from rollout_operator.planning.wording import join_names

Labels = Mapping[str, str]


@unique
class BlockedCode(StrEnum):
    """Reasons of the condition `DeploymentBlocked`. Never renamed."""

    UNHEALTHY = "UnhealthyHealthChecks"
    HEALTHY = "HealthChecksHealthy"
    MANUAL = "ManualDeployment"
    SUSPENDED = "Suspended"
    WANTED_NOT_FOUND = "WantedVersionNotFound"
    WANTED_NOT_VERIFIED = "WantedVersionNotVerified"


HOLDING: Final = frozenset(
    {BlockedCode.SUSPENDED, BlockedCode.WANTED_NOT_FOUND, BlockedCode.WANTED_NOT_VERIFIED}
)
"""What holds a release back that is requested by name, too."""


class HealthVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """Whether something holds deployments back."""

    code: BlockedCode
    text: str = ""

    @property
    def is_blocking(self) -> bool:
        """Return what the condition says."""
        return self.code not in {BlockedCode.HEALTHY, BlockedCode.MANUAL}


def list_checks(
    head: ReleaseHead,
    selector: CheckSelector | None,
    checks: Iterable[HealthCheck],
    namespaces: Mapping[str, Labels],
) -> tuple[HealthCheck, ...]:
    """Return the HealthChecks of a Rollout, by namespace and name (REL-54).

    `namespaces` has the labels of all that are known; in an unknown namespace none is found.
    """
    if selector is None or selector.selector is None:
        return ()
    labels, spaces = selector.selector, selector.namespaces
    selected = (
        check
        for check in checks
        if labels.takes(check.labels) and _is_within(check.head.namespace, head, spaces, namespaces)
    )
    return tuple(sorted(selected, key=lambda check: (check.head.namespace, check.head.name)))


def takes_check(rollout: ReleaseRollout, check: HealthCheck) -> bool:
    """Return whether a HealthCheck may belong to a Rollout, by its labels alone."""
    checks = rollout.spec.checks
    return (
        checks is not None and checks.selector is not None and checks.selector.takes(check.labels)
    )


def selects_namespaces(rollout: ReleaseRollout) -> bool:
    """Return whether HealthChecks of other namespaces may belong to a Rollout."""
    return rollout.spec.checks is not None and rollout.spec.checks.namespaces is not None


def assess_health(
    checks: Iterable[HealthCheck], forgiven: Collection[FailedHealthCheck] = ()
) -> HealthVerdict:
    """Return whether the next release waits for health (REL-55).

    `forgiven` are those for which the current release failed, where that is not to stop the next
    one (RELB-25).
    """
    forgiven_checks = {(check.namespace, check.name) for check in forgiven}
    failing = [
        check
        for check in checks
        if is_unhealthy(check) and (check.head.namespace, check.head.name) not in forgiven_checks
    ]
    if not failing:
        return HealthVerdict(code=BlockedCode.HEALTHY, text="no HealthCheck is unhealthy")
    texts = [f"{check.head.key} ({check.status.message or 'unhealthy'})" for check in failing]
    return HealthVerdict(code=BlockedCode.UNHEALTHY, text=f"unhealthy: {join_names(texts)}")


def is_unhealthy(check: HealthCheck) -> bool:
    """Return whether a check found a failure. Pending, and not looked yet, are none."""
    return check.status.status == HealthStatus.UNHEALTHY


def _is_within(
    namespace: str,
    head: ReleaseHead,
    spaces: LabelSelector | None,
    namespaces: Mapping[str, Labels],
) -> bool:
    if spaces is None:
        return namespace == head.namespace
    return namespace in namespaces and spaces.takes(namespaces[namespace])
