"""What brings plain StatefulSets under the operator: patches, the way back, and what to know.

Only labels, annotations and the update strategy of StatefulSets change. None of them is part of a
revision, so that no pod is replaced; where that cannot be shown, nothing is proposed.
"""

from collections.abc import Mapping
from typing import Final

from rollout_operator.model.adoption.namespace import (
    AdoptableNamespace,
    AdoptableSet,
    AdoptionChoice,
)
from rollout_operator.model.adoption.proposal import AdoptionPlan, GroupAdoption, Patch, SetAdoption
from rollout_operator.model.errors import InvalidInput
from rollout_operator.model.names import GROUP_LABEL, MAX_UNAVAILABLE, ON_DELETE
from rollout_operator.model.outcome import Severity
from rollout_operator.model.units import parse_max_unavailable
from rollout_operator.planning.adoption.budgets import (
    build_budget,
    choose_limit,
    choose_selector,
    has_zone_budget,
    list_native,
    list_native_findings,
    report_missing_selector,
)
from rollout_operator.planning.adoption.findings import (
    is_settled,
    list_findings,
    report_single_zone,
)
from rollout_operator.planning.adoption.zones import (
    Candidate,
    choose_zone,
    group_sets,
    read_group,
    refuse_group,
    refuse_names,
)
from rollout_operator.planning.wording import join_names

# As many at a time as a StatefulSet replaces by itself.
_ONE_BY_ONE: Final = "1"


def plan_adoption(seen: AdoptableNamespace, choice: AdoptionChoice) -> AdoptionPlan:
    """Return what is proposed. Raises InvalidInput for names that are not there, or cannot be."""
    refuse_names(seen)
    names = {sts.name for sts in seen.sets}
    chosen = choice.names or frozenset(names)
    missing = sorted(chosen - names)
    if missing:
        raise InvalidInput(f"there is no StatefulSet {join_names(missing)} among those read")
    named = choice.group if choice.is_narrowed else ""
    candidates = group_sets(seen.sets, chosen, named)
    if choice.group:
        candidates = [each for each in candidates if each.name == choice.group]
        if not candidates:
            raise InvalidInput(
                f"no StatefulSets begin with the name {choice.group}: name those that belong to it"
            )
    is_meant = choice.is_narrowed or bool(choice.group)
    severity = Severity.ERROR if is_meant else Severity.INFO
    return AdoptionPlan(
        namespace=seen.namespace,
        groups=tuple(
            _plan_group(each, seen, chosen if named else frozenset())
            for each in candidates
            if len(each.members) > 1
        ),
        left_alone=tuple(
            report_single_zone(each, severity) for each in candidates if len(each.members) == 1
        ),
        unread=seen.unread,
    )


def _plan_group(
    candidate: Candidate, seen: AdoptableNamespace, named: frozenset[str]
) -> GroupAdoption:
    """Return what is proposed for a group; `named` are its zones by the word of a person."""
    name, members = candidate.name, candidate.members
    refuse_group(name)
    findings = [*list_findings(candidate, named)]
    native = list_native(seen, members)
    selector: Mapping[str, str] = {}
    budget: Patch | None = None
    if native and not has_zone_budget(seen, members):
        chosen = choose_selector(seen, members)
        if chosen is None:
            findings.append(report_missing_selector(name))
        else:
            selector = chosen
            budget = build_budget(name, seen.namespace, chosen, choose_limit(native, members))
            findings += list_native_findings(native, members)
    sets = tuple(_plan_set(member, {GROUP_LABEL: name}, selector) for member in members)
    if budget is None and all(sts.patch is None for sts in sets):
        findings = []  # it has been adopted: what is wrong with it, `doctor` says
    return GroupAdoption(
        name=name,
        pods=sum(member.replicas for member in members),
        sets=sets,
        budget=budget,
        findings=tuple(findings),
        checked=all(map(is_settled, members)) and not any(map(_touches_pods, sets)),
    )


def _plan_set(
    sts: AdoptableSet, group: Mapping[str, str], selector: Mapping[str, str]
) -> SetAdoption:
    wanted = dict(selector) if read_group(sts) else {**group, **selector}
    labels = {key: value for key, value in wanted.items() if sts.labels.get(key) != value}
    is_plain = sts.strategy != ON_DELETE
    annotations = (
        {MAX_UNAVAILABLE: _keep_pace(sts)}
        if is_plain and MAX_UNAVAILABLE not in sts.annotations
        else {}
    )
    zone, source = choose_zone(sts)
    if not (labels or annotations or is_plain):
        return SetAdoption(name=sts.name, zone=zone, zone_source=source)
    return SetAdoption(
        name=sts.name,
        zone=zone,
        zone_source=source,
        # A null takes away what the API server has filled in, which OnDelete does not allow.
        patch=_build(labels, annotations, _choose_strategy(ON_DELETE, None) if is_plain else None),
        undo=_build(
            {key: sts.labels.get(key) for key in labels},
            dict.fromkeys(annotations),
            _choose_strategy(sts.strategy, sts.rolling_update) if is_plain else None,
        ),
    )


def _keep_pace(sts: AdoptableSet) -> str:
    """Return how many pods the set may replace at a time today, where it says so."""
    text = f"{(sts.rolling_update or {}).get('maxUnavailable', _ONE_BY_ONE)}"
    try:
        return f"{parse_max_unavailable(text)}"
    except InvalidInput:
        return _ONE_BY_ONE


def _choose_strategy(kind: str, rolling_update: Mapping[str, object] | None) -> Patch:
    return {"type": kind, "rollingUpdate": rolling_update}


def _build(
    labels: Mapping[str, str | None], annotations: Mapping[str, str | None], strategy: Patch | None
) -> Patch:
    head = {
        key: content
        for key, content in (("labels", labels), ("annotations", annotations))
        if content
    }
    patch: dict[str, object] = {"metadata": head} if head else {}
    if strategy is not None:
        patch["spec"] = {"updateStrategy": strategy}
    return patch


def _touches_pods(set_adoption: SetAdoption) -> bool:
    """Return whether a patch changes more of a spec than its strategy: the template makes pods."""
    spec = (set_adoption.patch or {}).get("spec", {})
    return not isinstance(spec, dict) or not spec.keys() <= {"updateStrategy"}
