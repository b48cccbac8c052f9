"""HealthChecks of releases as every outlet shows them: their findings and their Rollouts."""

from collections.abc import Iterable, Mapping

from rollout_operator.model.described.releases import HealthCheckDescription
from rollout_operator.model.releases.health import CheckClass, HealthCheck
from rollout_operator.model.releases.rollout import ReleaseRollout
from rollout_operator.planning.description.times import choose_fit
from rollout_operator.planning.releases.health import Labels, list_checks
from rollout_operator.planning.wording import cut


def describe_check(
    check: HealthCheck, rollouts: Iterable[ReleaseRollout], namespaces: Mapping[str, Labels]
) -> HealthCheckDescription:
    """Return one HealthCheck; `rollouts` are all that may select it."""
    status, own = check.status, (check,)
    selecting = sorted(
        rollout.head.key
        for rollout in rollouts
        if list_checks(rollout.head, rollout.spec.checks, own, namespaces)
    )
    return HealthCheckDescription(
        name=check.head.name,
        namespace=check.head.namespace,
        status=cut(status.status),
        text=cut(status.message or ""),
        check_class=cut(check.check_class),
        object=cut(_choose_object(check)),
        changed=choose_fit(status.last_change_time),
        failed=choose_fit(status.last_error_time),
        rollouts=tuple(selecting),
    )


def _choose_object(check: HealthCheck) -> str:
    """Return what it looks at by its class."""
    named = {
        CheckClass.KUSTOMIZATION: check.kustomization,
        CheckClass.ROLLOUT_GROUP: check.rollout_group,
        CheckClass.MULTI_AZ_ROLLOUT: check.policy,
    }
    names = {str(kind): name for kind, name in named.items()}
    return names.get(check.check_class) or ""
