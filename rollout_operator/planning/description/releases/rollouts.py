"""Rollouts of `kuberik.com` and their HealthChecks as every outlet shows them.

All of it is what its status, its gates, its HealthChecks and its objects of Flux say: why it does
not go on is chosen in `waits`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec

from rollout_operator.model.described.releases import (
    DeploymentDescription,
    HealthCheckDescription,
    ReleaseDescription,
    ReleasePhase,
    SelectedCheckDescription,
    TargetDescription,
)
from rollout_operator.model.objects import Unreadable
from rollout_operator.model.releases.flux import ImagePolicy
from rollout_operator.model.releases.health import CheckClass, HealthCheck
from rollout_operator.model.releases.objects import ReleaseObjects
from rollout_operator.model.releases.plan import FluxTarget
from rollout_operator.model.releases.rollout import RefusedRelease, ReleaseIntents, ReleaseRollout
from rollout_operator.model.releases.status import FailedHealthCheck, HistoryEntry
from rollout_operator.planning.conditions import describe_conditions
from rollout_operator.planning.description.releases.gates import MOST_TAGS, describe_gates
from rollout_operator.planning.description.releases.waits import (
    choose_next_tag,
    choose_release_phase,
    list_release_waits,
)
from rollout_operator.planning.description.times import add_span, choose_fit
from rollout_operator.planning.releases import conditions
from rollout_operator.planning.releases.deployment import RECOVERING
from rollout_operator.planning.releases.health import Labels, list_checks
from rollout_operator.planning.releases.intents import FIELDS, without_left_over
from rollout_operator.planning.wording import cut

# A person reads no more of one Rollout; its status has the rest.
MOST_DEPLOYMENTS: Final = 5
MOST_PLACES: Final = 50
_ALONE: Final = ReleaseObjects()
_UNDECIDED: Final = "nothing has been decided yet"


def describe_release(
    rollout: ReleaseRollout | RefusedRelease,
    objects: ReleaseObjects = _ALONE,
    targets: Sequence[FluxTarget] = (),
    error: str = "",
) -> ReleaseDescription:
    """Return one Rollout, among others of all kinds; `targets` are its own.

    `error` is why the last pass over it failed, where this process made it.
    """
    status = rollout.status
    waits = tuple(list_release_waits(rollout, error, _find_latest(rollout, objects.policies)))
    ready = status.find_condition(conditions.READY)
    headline, reason = _UNDECIDED, ""
    if waits:
        headline, reason = waits[0].text, waits[0].reason
    elif ready is not None:
        headline, reason = cut(ready.message), ready.reason
    described = ReleaseDescription(
        name=rollout.head.name,
        namespace=rollout.head.namespace,
        phase=choose_release_phase(status, waits),
        headline=headline,
        reason=reason,
        tag="" if status.current is None else cut(status.current.version.tag),
        next=cut(choose_next_tag(rollout)),
        candidates=tuple(cut(candidate.tag) for candidate in status.release_candidates[:MOST_TAGS]),
        announced=cut(status.available_releases[-1].tag) if status.available_releases else "",
        gates=tuple(describe_gates(rollout.head, status.gates, objects.gates, objects.schedules)),
        history=tuple(map(_describe_entry, status.history[:MOST_DEPLOYMENTS])),
        waits=waits,
        conditions=tuple(describe_conditions(status.conditions)),
    )
    if isinstance(rollout, RefusedRelease):
        return described
    return _with_spec(described, rollout, objects, targets)


def describe_unreadable_release(broken: Unreadable) -> ReleaseDescription:
    """Return a Rollout of which nothing is known but its name."""
    return ReleaseDescription(
        name=broken.name,
        namespace=broken.namespace,
        phase=ReleasePhase.HELD,
        headline=cut(broken.error),
        reason=conditions.INVALID_SPEC,
    )


def _find_latest(rollout: ReleaseRollout | RefusedRelease, policies: Iterable[ImagePolicy]) -> str:
    if isinstance(rollout, RefusedRelease):
        return ""
    spec = rollout.spec
    place = (spec.policy_namespace or rollout.head.namespace, spec.policy_name)
    found = (each.latest for each in policies if (each.head.namespace, each.head.name) == place)
    return next((latest.tag for latest in found if latest is not None), "")


def _with_spec(
    described: ReleaseDescription,
    rollout: ReleaseRollout,
    objects: ReleaseObjects,
    targets: Sequence[FluxTarget],
) -> ReleaseDescription:
    spec, head = rollout.spec, rollout.head
    checks = list_checks(head, spec.checks, objects.checks, objects.namespaces)
    intents = without_left_over(rollout)
    return msgspec.structs.replace(
        described,
        wanted=spec.wanted_version or "",
        policy=f"{spec.policy_namespace or head.namespace}/{spec.policy_name}",
        is_suspended=spec.is_suspended,
        requests=tuple(_list_requests(intents)),
        is_retry_requested=intents.retry is not None,
        checks=tuple(map(_describe_check, checks[:MOST_PLACES])),
        targets=tuple(map(_describe_target, targets[:MOST_PLACES])),
        bake_ends=_find_bake_end(rollout),
        deadline=_find_deadline(rollout),
    )


def _list_requests(intents: ReleaseIntents) -> Iterator[str]:
    for annotation, field in FIELDS.items():
        value: str | None = getattr(intents, field)
        if value is not None:
            yield cut(f"{annotation}: {value}")


def _find_bake_end(rollout: ReleaseRollout) -> datetime | None:
    current = rollout.status.current
    if current is None or not current.is_active or current.bake_start_time is None:
        return None
    return add_span(current.bake_start_time, rollout.spec.bake_time)


def _find_deadline(rollout: ReleaseRollout) -> datetime | None:
    current = rollout.status.current
    is_recovering = rollout.status.has_condition(RECOVERING)
    if current is None or not current.is_active or current.bake_start_time is not None:
        return None
    started = max(current.timestamp, current.last_retry_timestamp or current.timestamp)
    return None if is_recovering else add_span(started, rollout.spec.deploy_timeout)


def _describe_entry(entry: HistoryEntry) -> DeploymentDescription:
    version = entry.version
    return DeploymentDescription(
        tag=cut(version.tag),
        id=entry.id,
        version=cut(version.version or ""),
        revision=cut(version.revision or ""),
        began=choose_fit(entry.timestamp),
        status=cut(entry.bake_status or ""),
        text=cut(entry.bake_status_message or ""),
        message=cut(entry.message or ""),
        by="" if entry.triggered_by is None else cut(entry.triggered_by.name),
        bake_began=choose_fit(entry.bake_start_time),
        bake_ended=choose_fit(entry.bake_end_time),
        failed_checks=tuple(map(_render_failed, entry.failed_health_checks[:MOST_PLACES])),
        retries=entry.retries,
    )


def _render_failed(check: FailedHealthCheck) -> str:
    text = f": {check.message}" if check.message else ""
    return cut(f"{check.namespace}/{check.name}{text}")


def _describe_check(check: HealthCheck) -> SelectedCheckDescription:
    status = check.status
    return SelectedCheckDescription(
        name=check.head.key, status=cut(status.status), text=cut(status.message or "")
    )


def _describe_target(target: FluxTarget) -> TargetDescription:
    return TargetDescription(
        kind=target.kind,
        name=target.name,
        variable=target.variable,
        tag=None if target.tag is None else cut(target.tag),
        waiting_for=cut(target.waiting_for),
    )


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
