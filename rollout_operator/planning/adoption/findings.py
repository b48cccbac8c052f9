"""What stands in the way of adopting a group, or should be known before."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from rollout_operator.model.adoption.namespace import AdoptableSet, RolloutProgress
from rollout_operator.model.adoption.proposal import AdoptionCode, AdoptionFinding
from rollout_operator.model.names import ON_DELETE
from rollout_operator.model.outcome import Severity
from rollout_operator.model.placement import ZoneSource
from rollout_operator.model.units import quote
from rollout_operator.planning.adoption.zones import (
    Candidate,
    choose_zone,
    describe_zone,
    explain_difference,
    read_group,
)
from rollout_operator.planning.diagnosis.groups import natural_key
from rollout_operator.planning.wording import count, join_names, verb

_NAME: Final = "name"
_MANAGED_BY: Final = ("app.kubernetes.io/managed-by", "managed-by")
# As `tidb-operator`, `lokistack-controller` and `tidb-controller-manager` call themselves.
_OPERATOR: Final = re.compile(r"operator|controller(-manager)?$")
_NO_OPERATORS: Final = (
    *("rollout-operator", "kustomize-controller", "helm-controller", "argocd", "kapp-controller"),
    *("helm-operator", "kube-controller-manager"),
)


def list_findings(candidate: Candidate, named: frozenset[str]) -> Iterator[AdoptionFinding]:
    """Yield all that is to be said of the zones of a group; their budgets are left to `budgets`.

    `named` are its zones by the word of a person, empty where their names were compared.
    """
    group, members = candidate.name, candidate.members
    for member in members:
        if owner := explain_owner(member):
            yield _report_owner(member, owner, Severity.ERROR)
        yield from _judge_group_label(group, member)
        yield from _judge_partition(member)
        yield from _judge_progress(member)
        yield from _judge_name_label(member, members)
    yield from _judge_application(candidate, named)
    yield from _judge_shared_zones(group, members, named)
    yield from _judge_order(group, members)
    if names := candidate.left_out:
        yield AdoptionFinding(
            code=AdoptionCode.ZONE_LEFT_OUT,
            severity=Severity.WARN,
            object=f"group {group}",
            text=f"{_look_like_zones(names)} and {verb(len(names), 'is', 'are')} not named: the"
            " group would not wait for their pods, and a native budget of all zones would stay",
            remedy="name all zones of the group",
        )


def report_single_zone(candidate: Candidate, severity: Severity) -> AdoptionFinding:
    """Return why one StatefulSet is left alone, and how to say which its zones are."""
    [sts], base, other = candidate.members, candidate.name, candidate.other
    if owner := explain_owner(sts):
        return _report_owner(sts, owner, severity)
    text = f"no other StatefulSet is a zone of {base} ({describe_zone(*choose_zone(sts))})"
    if other is not None:
        text = f"no zone of {base}: {explain_difference(sts, other, is_end_told=True)}"
        severity = Severity.WARN if severity is Severity.INFO else severity
    if candidate.left_out:
        text = f"{_look_like_zones(candidate.left_out)} of {base} as well, and must be named too"
    return _make_finding(
        AdoptionCode.SINGLE_ZONE, severity, sts, text,
        "an operator of zones is of no use to it; if others are its zones, name them all:"
        f" rollout-operator adopt -group {base} {sts.name} OTHERS",
    )  # fmt: skip


def explain_owner(sts: AdoptableSet) -> str:
    """Return what shows that another controller reconciles a set; empty where nothing does.

    Tools that apply what stands in Git are none: there the patches are written as well.
    """
    if sts.controller:
        return f"{sts.controller} controls it, by its ownerReferences"
    for key in _MANAGED_BY:
        if _is_operator(value := sts.labels.get(key, "")):
            return f"{quote(value)} manages it, by its label {key}"
    for writer in sts.writers:
        if _is_operator(writer):
            return f"{quote(writer)} writes its spec, by its managedFields"
    return ""


def _is_operator(name: str) -> bool:
    name = name.lower()
    return bool(_OPERATOR.search(name)) and not any(tool in name for tool in _NO_OPERATORS)


def _report_owner(sts: AdoptableSet, owner: str, severity: Severity) -> AdoptionFinding:
    return _make_finding(
        AdoptionCode.OTHER_CONTROLLER, severity, sts,
        f"{owner}: it would revert the patches, or delete pods at the same time",
        "let that controller roll it out; if it no longer does, remove what names it first",
    )  # fmt: skip


def _look_like_zones(names: Sequence[str]) -> str:
    shown = join_names(names, shown=len(names))
    return f"{shown} {verb(len(names), 'looks like a zone', 'look like zones')}"


def _judge_application(candidate: Candidate, named: frozenset[str]) -> Iterator[AdoptionFinding]:
    """Yield where one group would hold two applications."""
    first, *rest = candidate.members
    differing = [each for each in rest if explain_difference(each, first)]
    other = candidate.other
    if not differing and other is None:
        return
    if other is not None:
        why = f"{first.name}: {explain_difference(first, other, is_end_told=True)}"
    else:
        why = f"{differing[0].name}: {explain_difference(differing[0], first)}"
    is_named = named.issuperset(member.name for member in candidate.members)
    names = " ".join(member.name for member in candidate.members)
    yield AdoptionFinding(
        code=AdoptionCode.APPLICATIONS_DIFFER,
        severity=Severity.WARN if is_named and other is None else Severity.ERROR,
        object=f"group {candidate.name}",
        text=f"it would hold the zones of more than one application: {why}",
        remedy="each application needs a group of its own, by a name of its own:"
        f" rollout-operator adopt -group NAME {names}",
    )


def is_settled(sts: AdoptableSet) -> bool:
    """Return whether every pod is at the revision that its set wants, so that none is outdated."""
    status = sts.status
    if status is None:
        return False
    return (
        status.observed_generation >= sts.generation
        and status.current_revision == status.update_revision
        and status.updated >= status.replicas
    )


def _judge_group_label(group: str, sts: AdoptableSet) -> Iterator[AdoptionFinding]:
    present = read_group(sts)
    if present and present != group:
        yield _make_finding(
            AdoptionCode.GROUPS_DIFFER, Severity.ERROR, sts,
            f"it is in the rollout group {present} already",
            "name the StatefulSets that belong together, and their group with -group",
        )  # fmt: skip


def _judge_partition(sts: AdoptableSet) -> Iterator[AdoptionFinding]:
    if not sts.partition:
        return
    is_used = not is_settled(sts)
    yield _make_finding(
        AdoptionCode.PARTITION, Severity.ERROR if is_used else Severity.WARN, sts,
        f"partition {sts.partition} {'keeps' if is_used else 'would keep'} its pods below ordinal"
        f" {sts.partition} at their revision, which OnDelete cannot",
        "end the rollout: set the partition to 0 and wait" if is_used else
        "none is held back now; later, the annotation grafana.com/rollout-paused stops a zone",
    )  # fmt: skip


def _judge_progress(sts: AdoptableSet) -> Iterator[AdoptionFinding]:
    status = sts.status
    if status is None:
        yield _make_finding(
            AdoptionCode.STATUS_UNKNOWN, Severity.WARN, sts,
            "the input has no status: whether a rollout is underway is not known",
            "leave -f out to read the cluster, or check with `kubectl rollout status`",
        )  # fmt: skip
    elif not is_settled(sts):
        yield _make_finding(
            AdoptionCode.ROLLOUT_UNDERWAY, Severity.ERROR, sts,
            _describe_progress(sts, status),
            _explain_end(sts),
        )  # fmt: skip
    elif status.ready < sts.replicas:
        yield _make_finding(
            AdoptionCode.PODS_NOT_READY, Severity.WARN, sts,
            f"{status.ready} of {count(sts.replicas, 'pod')} are ready",
            "adopting replaces no pod; the operator rolls nothing out while another zone has pods"
            " that are not ready",
        )  # fmt: skip


def _describe_progress(sts: AdoptableSet, status: RolloutProgress) -> str:
    if status.observed_generation < sts.generation:
        return "its status does not know its latest spec yet"
    outdated = max(status.replicas - status.updated, 0)
    if not outdated:
        return "a rollout of it has just replaced its last pod"
    be = verb(outdated, "is", "are")
    return f"a rollout is underway: {count(outdated, 'pod')} of {status.replicas} {be} outdated"


def _explain_end(sts: AdoptableSet) -> str:
    if sts.strategy == ON_DELETE:
        return (
            "the operator replaces outdated pods as soon as it sees the label: delete them"
            " yourself first, or undo the change of the template"
        )
    return f"wait for `kubectl rollout status statefulset/{sts.name}`, then adopt again"


def _judge_name_label(
    sts: AdoptableSet, members: Sequence[AdoptableSet]
) -> Iterator[AdoptionFinding]:
    value = sts.pod_labels.get(_NAME)
    if value and [each.pod_labels.get(_NAME) for each in members].count(value) == 1:
        return
    yield _make_finding(
        AdoptionCode.NAME_LABEL_MISSING, Severity.INFO, sts,
        f"the label {_NAME} does not distinguish its pods from those of other zones",
        "this operator finds pods by their owner; only grafana's would not find them",
    )  # fmt: skip


def _judge_shared_zones(
    group: str, members: Sequence[AdoptableSet], named: frozenset[str]
) -> Iterator[AdoptionFinding]:
    zones: dict[str, list[AdoptableSet]] = {}
    for member in members:
        zone, source = choose_zone(member)
        if source is not ZoneSource.NONE:
            zones.setdefault(zone, []).append(member)
    for zone, sets in zones.items():
        if len(sets) < 2:
            continue
        names = [sts.name for sts in sets]
        is_known = named.issuperset(names) or all(read_group(sts) == group for sts in sets)
        yield AdoptionFinding(
            code=AdoptionCode.ZONE_SHARED,
            severity=Severity.WARN if is_known else Severity.ERROR,
            object=f"group {group}",
            text=f"{join_names(names, shown=len(names))} are all in zone {zone}",
            remedy="the operator takes each StatefulSet for a zone of its own"
            if is_known else f"name its zones: rollout-operator adopt -group {group} STATEFULSETS",
        )  # fmt: skip


def _judge_order(group: str, members: Sequence[AdoptableSet]) -> Iterator[AdoptionFinding]:
    names = [member.name for member in members]
    if names != sorted(names, key=natural_key):
        yield AdoptionFinding(
            code=AdoptionCode.ZONE_ORDER,
            severity=Severity.WARN,
            object=f"group {group}",
            text=f"its zones go in the order of bytes: {join_names(names, shown=len(names))}",
            remedy="nothing else is wrong with it; a new StatefulSet with another name, such as"
            " -zone-02, is the only way to another order",
        )


def _make_finding(
    code: AdoptionCode, severity: Severity, sts: AdoptableSet, text: str, remedy: str
) -> AdoptionFinding:
    return AdoptionFinding(
        code=code, severity=severity, object=f"StatefulSet {sts.name}", text=text, remedy=remedy
    )
