"""Budgets that never allow, protect nothing, or stand in each other's way: of both kinds.

How many pods a ZoneAwarePodDisruptionBudget lets go is decided in `planning.budgets`.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations

from rollout_operator.model.budget import Budget, FlawedBudget
from rollout_operator.model.diagnosis.findings import Finding, FindingCode
from rollout_operator.model.diagnosis.installation import (
    Installation,
    LabelledPod,
    NativeBudget,
    ZoneSet,
)
from rollout_operator.model.errors import InvalidInput
from rollout_operator.model.labels import selects
from rollout_operator.model.units import parse_go_int
from rollout_operator.planning.diagnosis.remedies import make_finding
from rollout_operator.planning.wording import count, join_names

_NATIVE = "PodDisruptionBudget"
_ZONED = "ZoneAwarePodDisruptionBudget"


def check_native_room(installation: Installation) -> Iterator[Finding]:
    """Yield PodDisruptionBudgets over members of groups that never allow, or always."""
    for budget in installation.native_budgets:
        pods = sum(member.sts.replicas for member in installation.members if _takes(budget, member))
        room = count_room(budget, pods) if pods else None
        if room is None or 0 < room < pods:
            continue
        code = (
            FindingCode.NATIVE_BUDGET_PROTECTS_NOTHING
            if room > 0
            else FindingCode.NATIVE_BUDGET_REFUSES
        )
        field = "maxUnavailable" if budget.max_unavailable else "minAvailable"
        value = budget.max_unavailable or budget.min_available
        text = f"{field} is {value}, and it selects {count(pods, 'pod')}"
        yield make_finding(code, f"{_NATIVE} {budget.name}", text)


def _takes(budget: NativeBudget, sts: ZoneSet) -> bool:
    return budget.selector is not None and budget.selector.takes(sts.pod_labels)


def count_room(budget: NativeBudget, pods: int) -> int | None:
    """Return how many of so many ready pods may go at once, None where nothing says it."""
    most = _count_share(budget.max_unavailable, pods)
    least = _count_share(budget.min_available, pods)
    if most is None and least is None:
        return None
    return max(most if most is not None else pods - (least or 0), 0)


def _count_share(text: str, pods: int) -> int | None:
    """Return the number of pods that a field stands for; shares are rounded up."""
    try:
        number = parse_go_int(text.removesuffix("%"))
    except InvalidInput:
        return None
    return -(-number * pods // 100) if text.endswith("%") else number


def check_native_overlap(installation: Installation) -> Iterator[Finding]:
    """Yield pairs of PodDisruptionBudgets that select one pod."""
    for first, second in combinations(installation.native_budgets, 2):
        shared = [
            pod.name
            for pod in installation.pods
            if _takes_pod(first, pod) and _takes_pod(second, pod)
        ]
        if shared:
            text = f"{second.name} selects {join_names(shared)} as well"
            yield make_finding(FindingCode.NATIVE_BUDGETS_OVERLAP, f"{_NATIVE} {first.name}", text)


def _takes_pod(budget: NativeBudget, pod: LabelledPod) -> bool:
    return budget.selector is not None and budget.selector.takes(pod.labels)


def check_both_kinds(installation: Installation) -> Iterator[Finding]:
    """Yield PodDisruptionBudgets over pods that are under a budget of ours."""
    for native in installation.native_budgets:
        for budget in _list_valid(installation):
            shared = [
                pod.name
                for pod in installation.pods
                if _takes_pod(native, pod) and selects(budget.selector, pod.labels)
            ]
            if shared:
                text = f"{_ZONED} {budget.name} selects {join_names(shared)} as well"
                yield make_finding(
                    FindingCode.BUDGETS_OF_TWO_KINDS, f"{_NATIVE} {native.name}", text
                )


def check_zone_budgets(installation: Installation) -> Iterator[Finding]:
    """Yield budgets of ours that cannot be obeyed, or protect nothing."""
    for budget in installation.zone_budgets:
        name = f"{_ZONED} {budget.name}"
        match budget:
            case FlawedBudget(problem=problem):
                yield make_finding(FindingCode.ZONE_BUDGET_INVALID, name, problem)
            case Budget():
                text = _explain_emptiness(budget, installation)
                if text:
                    yield make_finding(FindingCode.ZONE_BUDGET_SELECTS_NOTHING, name, text)


def _explain_emptiness(budget: Budget, installation: Installation) -> str:
    sets = [sts for sts in installation.sets if selects(budget.selector, sts.labels)]
    pods = [pod for pod in installation.pods if selects(budget.selector, pod.labels)]
    if sets and (pods or not installation.pods):
        return ""
    labels = ",".join(f"{key}={value}" for key, value in sorted(budget.selector.items()))
    lacking = [what for what, objects in (("StatefulSet", sets), ("pod", pods)) if not objects]
    return f"no {' and no '.join(lacking)} has {labels}"


def check_zone_overlap(installation: Installation) -> Iterator[Finding]:
    """Yield pairs of our budgets that select one pod."""
    for first, second in combinations(_list_valid(installation), 2):
        shared = [
            pod.name
            for pod in installation.pods
            if selects(first.selector, pod.labels) and selects(second.selector, pod.labels)
        ]
        if shared:
            text = f"{second.name} selects {join_names(shared)} as well"
            yield make_finding(FindingCode.ZONE_BUDGETS_OVERLAP, f"{_ZONED} {first.name}", text)


def _list_valid(installation: Installation) -> Sequence[Budget]:
    return [budget for budget in installation.zone_budgets if isinstance(budget, Budget)]
