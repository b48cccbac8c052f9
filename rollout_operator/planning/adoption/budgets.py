"""Which ZoneAwarePodDisruptionBudget takes the place of a group's native PodDisruptionBudgets.

It selects by labels that the pods have already: another label in a template would make a new
revision, and replace every pod. StatefulSets may get the labels that they lack.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from rollout_operator.model.adoption.namespace import AdoptableNamespace, AdoptableSet
from rollout_operator.model.adoption.proposal import AdoptionCode, AdoptionFinding, Patch
from rollout_operator.model.budget import Budget
from rollout_operator.model.diagnosis.installation import NativeBudget
from rollout_operator.model.labels import selects
from rollout_operator.model.names import GROUP_LABEL
from rollout_operator.model.outcome import Severity
from rollout_operator.planning.adoption.zones import name_budget
from rollout_operator.planning.diagnosis.budgets import count_room
from rollout_operator.planning.wording import count, join_names

_KIND: Final = "ZoneAwarePodDisruptionBudget"
_VERSION: Final = "rollout-operator.grafana.com/v1"
# By which people distinguish components, the clearest first.
_NAMING: Final = (GROUP_LABEL, "app.kubernetes.io/component", "app", "app.kubernetes.io/name")


def list_native(seen: AdoptableNamespace, members: Sequence[AdoptableSet]) -> list[NativeBudget]:
    """Return the native budgets that are about pods of these zones, and of no other set."""
    own = {member.name for member in members}
    return [
        budget
        for budget in seen.native_budgets
        if (taken := {sts.name for sts in seen.sets if _takes(budget, sts)}) and taken <= own
    ]


def _takes(budget: NativeBudget, sts: AdoptableSet) -> bool:
    return budget.selector is not None and budget.selector.takes(sts.pod_labels)


def has_zone_budget(seen: AdoptableNamespace, members: Sequence[AdoptableSet]) -> bool:
    """Return whether a zone-aware budget is about pods of these zones already."""
    return any(
        isinstance(budget, Budget) and selects(budget.selector, member.pod_labels)
        for budget in seen.zone_budgets
        for member in members
    )


def choose_selector(
    seen: AdoptableNamespace, members: Sequence[AdoptableSet]
) -> Mapping[str, str] | None:
    """Return labels that the pods of all these zones have and no others, None where none do."""
    own = {member.name for member in members}
    first, *rest = (member.pod_labels.items() for member in members)
    shared = dict(sorted(set(first).intersection(*rest)))
    usable = {
        key: value
        for key, value in shared.items()
        if all(member.labels.get(key, value) == value for member in members)
    }
    others = [sts.pod_labels for sts in seen.sets if sts.name not in own]
    others += [sts.labels for sts in seen.sets if sts.name not in own]
    others += [pod.labels for pod in seen.pods if pod.name.rpartition("-")[0] not in own]
    single = [{key: usable[key]} for key in (*_NAMING, *usable) if key in usable]
    for candidate in (*single, usable):
        if candidate and not any(selects(candidate, labels) for labels in others):
            return candidate
    return None


def build_budget(
    group: str, namespace: str, selector: Mapping[str, str], limit: Mapping[str, int]
) -> Patch:
    """Return a zone-aware budget as the API takes it."""
    head = {"name": name_budget(group), **({"namespace": namespace} if namespace else {})}
    return {
        "apiVersion": _VERSION,
        "kind": _KIND,
        "metadata": head,
        "spec": {**limit, "selector": {"matchLabels": dict(selector)}},
    }


def choose_limit(
    native: Iterable[NativeBudget], members: Sequence[AdoptableSet]
) -> Mapping[str, int]:
    """Return the strictest of the native limits that lets a pod go, else one pod."""
    rooms = [
        room
        for budget in native
        if (pods := _count_pods(budget, members)) and (room := count_room(budget, pods))
    ]
    return {"maxUnavailable": min(rooms, default=1)}


def _count_pods(budget: NativeBudget, members: Sequence[AdoptableSet]) -> int:
    return sum(member.replicas for member in members if _takes(budget, member))


def list_native_findings(
    native: Sequence[NativeBudget], members: Sequence[AdoptableSet]
) -> Iterator[AdoptionFinding]:
    """Yield what becomes of native budgets once there is a zone-aware budget."""
    for budget in native:
        pods = _count_pods(budget, members)
        if pods and count_room(budget, pods) == 0:
            field = "maxUnavailable" if budget.max_unavailable else "minAvailable"
            value = budget.max_unavailable or budget.min_available
            yield AdoptionFinding(
                code=AdoptionCode.NATIVE_BUDGET_REFUSES,
                severity=Severity.WARN,
                object=f"PodDisruptionBudget {budget.name}",
                text=f"it refuses every eviction: {field} is {value} of {count(pods, 'pod')}",
                remedy="rollouts go on, for they delete; for drains, delete it as said below",
            )
    if native:
        names = [budget.name for budget in native]
        yield AdoptionFinding(
            code=AdoptionCode.NATIVE_BUDGET_REPLACED,
            severity=Severity.INFO,
            object=f"PodDisruptionBudget {join_names(names, shown=len(names))}",
            text="the zone-aware budget takes over; while both are there, both must agree",
            remedy="delete it once `rollout-operator doctor` finds the eviction webhook in order",
        )


def report_missing_selector(group: str) -> AdoptionFinding:
    """Return that no zone-aware budget can be proposed, and what a person can do for it."""
    return AdoptionFinding(
        code=AdoptionCode.BUDGET_SELECTOR_MISSING,
        severity=Severity.WARN,
        object=f"group {group}",
        text="no label is on the pods of all its zones and on no others: no budget can select them",
        remedy=f"add {GROUP_LABEL} to the pod templates with your next rollout, then adopt again;"
        " until then keep the native budgets",
    )
