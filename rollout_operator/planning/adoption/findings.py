"""What stands in the way of adopting a group, or should be known before."""

from collections.abc import Iterator, Sequence
from typing import Final

from rollout_operator.model.adoption.namespace import AdoptableSet, RolloutProgress
from rollout_operator.model.adoption.proposal import AdoptionCode, AdoptionFinding
from rollout_operator.model.names import ON_DELETE
from rollout_operator.model.outcome import Severity
from rollout_operator.model.placement import ZoneSource
from rollout_operator.planning.adoption.zones import choose_zone, describe_zone, read_group
from rollout_operator.planning.diagnosis.groups import natural_key
from rollout_operator.planning.wording import count, join_names, verb

_NAME: Final = "name"


def list_findings(group: str, members: Sequence[AdoptableSet]) -> Iterator[AdoptionFinding]:
    """Yield all that is to be said of the zones of a group; their budgets are left to `budgets`."""
    for member in members:
        yield from _judge_group_label(group, member)
        yield from _judge_partition(member)
        yield from _judge_progress(member)
        yield from _judge_name_label(member, members)
    yield from _judge_shared_zones(group, members)
    yield from _judge_order(group, members)


def report_single_zone(sts: AdoptableSet, base: str, severity: Severity) -> AdoptionFinding:
    """Return that a StatefulSet has no other zone, and how to say which they are."""
    return _make_finding(
        AdoptionCode.SINGLE_ZONE, severity, sts,
        f"no other StatefulSet is a zone of {base} ({describe_zone(*choose_zone(sts))})",
        "an operator of zones is of no use to it; if others are its zones, name them all:"
        f" rollout-operator adopt -group {base} {sts.name} OTHERS",
    )  # fmt: skip


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


def _judge_shared_zones(group: str, members: Sequence[AdoptableSet]) -> Iterator[AdoptionFinding]:
    names: dict[str, list[str]] = {}
    for member in members:
        zone, source = choose_zone(member)
        if source is not ZoneSource.NONE:
            names.setdefault(zone, []).append(member.name)
    for zone, sets in names.items():
        if len(sets) > 1:
            yield AdoptionFinding(
                code=AdoptionCode.ZONE_SHARED,
                severity=Severity.WARN,
                object=f"group {group}",
                text=f"{join_names(sets, shown=len(sets))} are all in zone {zone}",
                remedy="the operator takes each StatefulSet for a zone of its own",
            )


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
