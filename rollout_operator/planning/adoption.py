"""What brings plain StatefulSets under the operator, and the way back: which StatefulSets are zones
of one group, what stands in the way, and the patches, as commands and as a kustomize component.

Only labels, annotations and the update strategy of StatefulSets change. None of them is part of a
revision, so no pod is replaced; where a rollout is underway, nothing is proposed.
"""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence, Set
from enum import StrEnum, unique
from typing import Final

import msgspec
import yaml

from rollout_operator.model.adoption import AdoptableSet
from rollout_operator.model.budget import ZoneSource
from rollout_operator.model.names import (
    GROUP_LABEL,
    GROUP_LABEL_LONG,
    MAX_UNAVAILABLE,
    ON_DELETE,
    TOPOLOGY_KEYS,
    InvalidInput,
)
from rollout_operator.model.outcome import Severity
from rollout_operator.model.units import parse_max_unavailable, quote
from rollout_operator.planning.policy_zones import ZONE_LABEL, choose_label, choose_permitted_zone
from rollout_operator.planning.wording import count, join_names, one_line, verb

_OBJECT_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", re.ASCII)
_LABEL_VALUE: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII)
# `ingester-zone-a`, `db-az1`, `vault-b`. A number alone is more often a shard than a zone.
_ENDS: Final = re.compile(r"-((?:zone|az)-?[a-z0-9]+|[a-z])$")
_NUMBER: Final = re.compile(r"\d+$", re.ASCII)
_PREFIX: Final = re.compile(r"^(?:zone|az)-?")
_SHORT_END: Final = re.compile(r"(zone|az)?-?(?:([a-z])|\d+)")
# What charts distinguish releases, components and canaries by, where selectors do not.
_APPLICATION: Final = (
    *("app", "app.kubernetes.io/name", "app.kubernetes.io/instance", "app.kubernetes.io/component"),
    *("component", "release", "track"),
)
_OF_ZONES: Final = frozenset({*TOPOLOGY_KEYS, ZONE_LABEL, GROUP_LABEL, GROUP_LABEL_LONG})
_END: Final = "end of the name"
_WORDS: Final = {
    ZoneSource.NODE_SELECTOR: "the nodeSelector of its pods",
    ZoneSource.NODE_AFFINITY: "the node affinity of its pods",
    ZoneSource.LABEL: "a topology label",
    ZoneSource.ZONE_LABEL: "the label zone",
    ZoneSource.NAME_SUFFIX: "the end of its name",
}

_MANAGED_BY: Final = ("app.kubernetes.io/managed-by", "managed-by")
# As `tidb-operator`, `lokistack-controller` and `tidb-controller-manager` call themselves.
_OPERATOR: Final = re.compile(r"operator|controller(-manager)?$")
# Tools that apply what stands in Git, where the patches are written as well.
_NO_OPERATORS: Final = (
    *("rollout-operator", "kustomize-controller", "helm-controller", "argocd", "kapp-controller"),
    *("helm-operator", "kube-controller-manager"),
)

_NOTHING: Final = "replaces no pod: no rollout is underway, and the patches change no template"
_UNPROVEN: Final = "the patches change no template; that no rollout is underway is not shown"
_SETS: Final = {"group": "apps", "version": "v1", "kind": "StatefulSet"}
_COMPONENT_HEAD: Final = """\
# Run the commands of `rollout-operator adopt` on the cluster first, then add this to the
# `components` of the overlay that has these StatefulSets. It needs their names as they are there
# before the overlay's own namePrefix and nameSuffix. If the build fails with "nothing selected by
# StatefulSet", put it into a kustomization of its own, whose only resource is that overlay, or
# leave out groups of other overlays with -group.
"""

Patch = Mapping[str, object]
"""A JSON merge patch of one object."""


@unique
class AdoptionCode(StrEnum):
    """What to know before adopting. Scripts compare these: never renamed."""

    SINGLE_ZONE = "single_zone"
    OTHER_CONTROLLER = "other_controller"
    APPLICATIONS_DIFFER = "applications_differ"
    ZONE_LEFT_OUT = "zone_left_out"
    ROLLOUT_UNDERWAY = "rollout_underway"
    GROUPS_DIFFER = "groups_differ"
    ZONE_SHARED = "zone_shared"


class AdoptionFinding(msgspec.Struct, frozen=True):
    """An error holds back the patches of its group."""

    code: AdoptionCode
    severity: Severity
    object: str
    text: str
    remedy: str


class SetAdoption(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    zone: str
    zone_source: ZoneSource
    patch: Patch | None
    """None where nothing must change."""
    undo: Patch | None
    wanted: Patch
    """What Git has to say, which the cluster may say already."""


class GroupAdoption(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    pods: int
    sets: tuple[SetAdoption, ...]
    findings: tuple[AdoptionFinding, ...]
    checked: bool
    """Whether it is known that no rollout is underway."""

    @property
    def is_held(self) -> bool:
        """Return whether something must be done first."""
        return any(finding.severity is Severity.ERROR for finding in self.findings)

    @property
    def patched(self) -> tuple[SetAdoption, ...]:
        """Return the zones to patch: none while the group is held."""
        return () if self.is_held else tuple(sts for sts in self.sets if sts.patch is not None)


class AdoptionPlan(msgspec.Struct, frozen=True, rename="camel"):
    namespace: str
    """Empty where files name none."""
    groups: tuple[GroupAdoption, ...]
    left_alone: tuple[AdoptionFinding, ...]
    """About StatefulSets in no group of several zones."""

    @property
    def patched(self) -> tuple[SetAdoption, ...]:
        return tuple(sts for group in self.groups for sts in group.patched)

    @property
    def adopted(self) -> tuple[SetAdoption, ...]:
        """Return the zones of all groups that are under the operator, or will be."""
        return tuple(sts for group in self.groups if not group.is_held for sts in group.sets)

    @property
    def needs_a_person(self) -> bool:
        """Return whether a requested group is held."""
        is_wrong = any(finding.severity is Severity.ERROR for finding in self.left_alone)
        return is_wrong or any(group.is_held for group in self.groups)


class Candidate(msgspec.Struct, frozen=True):
    """StatefulSets that may become one group."""

    name: str
    members: Sequence[AdoptableSet]
    """By name in byte order: as rollouts take them."""
    other: AdoptableSet | None
    """One whose name is like theirs, and which is no zone of theirs."""
    left_out: Sequence[str]
    """Zones of the same group by all that is known, which were not named."""


def plan_adoption(
    namespace: str, sets: Sequence[AdoptableSet], names: frozenset[str], group: str
) -> AdoptionPlan:
    """Return what is proposed for the named sets, or for all; `group` limits or names the group.

    Raises InvalidInput for names that are not there, or cannot be.
    """
    known = {sts.name for sts in sets}
    for name in known | {namespace or "default"}:
        if not _OBJECT_NAME.fullmatch(name):
            raise InvalidInput(f"{quote(name)} is no name of an object in Kubernetes")
    if missing := sorted(names - known):
        raise InvalidInput(f"there is no StatefulSet {join_names(missing)} among those read")
    candidates = group_sets(sets, names or known, group if names else "")
    if group:
        candidates = [each for each in candidates if each.name == group]
        if not candidates:
            raise InvalidInput(
                f"no StatefulSets begin with the name {group}: name those that belong to it"
            )
    is_meant = bool(names or group)
    return AdoptionPlan(
        namespace,
        tuple(
            _plan_group(each, names if group else frozenset())
            for each in candidates
            if len(each.members) > 1
        ),
        tuple(
            _report_single_zone(each, Severity.ERROR if is_meant else Severity.INFO)
            for each in candidates
            if len(each.members) == 1
        ),
    )


def choose_zone(sts: AdoptableSet) -> tuple[str, ZoneSource]:
    """Return the zone of a StatefulSet and what says so; the zone is empty where nothing does."""
    end = _ENDS.search(sts.name)
    answers = (
        (choose_label(TOPOLOGY_KEYS, sts.node_selector), ZoneSource.NODE_SELECTOR),
        (choose_permitted_zone(sts.node_terms, TOPOLOGY_KEYS), ZoneSource.NODE_AFFINITY),
        (choose_label(TOPOLOGY_KEYS, sts.pod_labels, sts.labels), ZoneSource.LABEL),
        (choose_label((ZONE_LABEL,), sts.pod_labels, sts.labels), ZoneSource.ZONE_LABEL),
        (end[1] if end else "", ZoneSource.NAME_SUFFIX),
    )
    return next((answer for answer in answers if answer[0]), ("", ZoneSource.NONE))


def choose_base(sts: AdoptableSet) -> str:
    """Return the name of a StatefulSet without its zone, the whole name where it has none."""
    zone, source = choose_zone(sts)
    if zone and sts.name.endswith(f"-{zone}") and len(sts.name) > len(zone) + 1:
        base = sts.name.removesuffix(f"-{zone}")
        return base.removesuffix("-zone") or base
    # `mq-2` in `westeurope-2`. What its own name ends with is no proof.
    given = None if source is ZoneSource.NAME_SUFFIX else _NUMBER.search(zone)
    base = _strip_number(sts.name)
    if base and given and int(sts.name[len(base) + 1 :]) == int(given[0]):
        return base
    return _ENDS.sub("", sts.name) or sts.name


def _strip_number(name: str) -> str:
    """Return `mq` of `mq-2`, empty where no number stands after a hyphen."""
    base = _NUMBER.sub("", name)
    return base[:-1] if base != name and base.endswith("-") else ""


def group_sets(sets: Sequence[AdoptableSet], chosen: Set[str], group: str) -> Sequence[Candidate]:
    """Return the groups to be, by name.

    `chosen` are the names that are meant. `group` is what they are called, empty where their own
    names say it. A set that is in such a group already belongs to it as well.
    """
    bases = {sts.name: choose_base(sts) for sts in sets}
    # Numbers are zones where they are for every set of a name, else shards.
    shards = {_strip_number(name) for name, base in bases.items() if base == name}
    bases = {
        name: name if base in shards and base == _strip_number(name) else base
        for name, base in bases.items()
    }
    kinds = {
        sts.name: (
            bases[sts.name],
            *((what, one) for what, (one, _) in _list_traits(sts, bases[sts.name]).items()),
        )
        for sts in sets
    }
    alike: dict[object, list[AdoptableSet]] = {}
    for sts in sorted(sets, key=lambda sts: sts.name):
        if sts.name in chosen:
            alike.setdefault(group or kinds[sts.name], []).append(sts)
    by_name: dict[str, list[list[AdoptableSet]]] = {}
    for part in alike.values():
        name = group or next(filter(None, map(_read_group, part)), bases[part[0].name])
        by_name.setdefault(name, []).append(part)
    found = []
    for name, parts in sorted(by_name.items()):
        there = [sts for sts in sets if sts.name not in chosen and _read_group(sts) == name]
        for members, other in _split(name, parts, there):
            like = {kinds[sts.name] for sts in members}
            apart = bases.keys() - chosen - {sts.name for sts in members}
            left_out = sorted(each for each in apart if kinds[each] in like)
            ordered = sorted(members, key=lambda sts: sts.name)
            found.append(Candidate(name, ordered, other, left_out))
    return [each for each in found if any(sts.name in chosen for sts in each.members)]


def _split(
    name: str, parts: Sequence[list[AdoptableSet]], there: Sequence[AdoptableSet]
) -> Iterator[tuple[Sequence[AdoptableSet], AdoptableSet | None]]:
    """Yield what may become one group of a name, each with another that may not be part of it."""
    large = [part for part in parts if len(part) > 1]
    joined = large if len(large) == 1 else []
    if labelled := [*there, *(sts for part in parts for sts in part if _read_group(sts) == name)]:
        joined = [
            part
            for part in parts
            if any(sts in labelled for sts in part) or not explain_difference(part[0], labelled[0])
        ]
    if first := [*there, *(sts for part in joined for sts in part)]:
        yield first, None
    rest = [part for part in parts if part not in joined]
    for part in rest:
        others = first or [each[0] for each in large or rest if each is not part]
        yield part, others[0] if others else None


def explain_difference(sts: AdoptableSet, other: AdoptableSet, *, is_end_told: bool = False) -> str:
    """Return what shows that two sets are no zones of one group; empty: nothing does."""
    own, others = (_list_traits(each, choose_base(each)) for each in (sts, other))
    absent = (None, "absent")
    for what in own | others:
        mine, theirs = own.get(what, absent), others.get(what, absent)
        if mine[0] != theirs[0] and (what != _END or is_end_told):
            return f"its {what} is {mine[1]}, that of {other.name} {theirs[1]}"
    return ""


def _list_traits(sts: AdoptableSet, base: str) -> dict[str, tuple[str | None, str]]:
    """Return what zones of one application have in common, to compare and to show."""
    end, (zone, _) = sts.name[len(base) + 1 :], choose_zone(sts)
    # `a` and `zone-a` are of two kinds, and so are `zone-a` and `canary`.
    shape = "canary" if "canary" in end else "word" if end else ""
    if short := _SHORT_END.fullmatch(end):
        shape = f"{short[1] or ''} {'letter' if short[2] else 'number'}"
    image = sts.image.partition("@")[0].rpartition("/")[2].partition(":")[0]
    labels = {
        f"selector for {key}": value
        for key, value in sorted(sts.selector.items())
        if key not in _OF_ZONES
    }
    for key in _APPLICATION:
        if value := choose_label((key,), sts.pod_labels, sts.labels):
            labels[f"label {key}"] = value
    marks = {mark for text in (end, zone) for mark in (text, _PREFIX.sub("", text)) if mark}
    return {
        _END: (shape, quote(sts.name[len(base) :])),
        "image": (image, quote(sts.image)),
        **{key: (_take_out(value, sts.name, marks), quote(value)) for key, value in labels.items()},
    }


def _take_out(value: str, name: str, marks: Set[str]) -> str:
    """Return the value of a label without the zone, which it has as a whole, before or after."""
    if value == name:
        return ""
    for mark in sorted(marks, key=len, reverse=True):
        if _PREFIX.sub("", value) == _PREFIX.sub("", mark):
            return ""
        value = value.removesuffix(f"-{mark}").removeprefix(f"{mark}-")
    return value


def _read_group(sts: AdoptableSet) -> str:
    return sts.labels.get(GROUP_LABEL, sts.labels.get(GROUP_LABEL_LONG, ""))


def _plan_group(candidate: Candidate, named: frozenset[str]) -> GroupAdoption:
    """Return what is proposed for a group; `named` are the zones that a person put into it."""
    name, members = candidate.name, candidate.members
    if not _LABEL_VALUE.fullmatch(name):
        raise InvalidInput(
            f"{quote(name)} is no value of a label, which the name of a group has to be:"
            " choose another name with -group"
        )
    pods = sum(member.replicas for member in members)
    sets = tuple(_plan_set(member, name) for member in members)
    # Of a group that has been adopted, `doctor` says what is wrong with it.
    is_open = any(sts.patch is not None for sts in sets)
    findings = tuple(_list_findings(candidate, named)) if is_open else ()
    return GroupAdoption(name, pods, sets, findings, all(member.is_settled for member in members))


def _plan_set(sts: AdoptableSet, group: str) -> SetAdoption:
    is_plain = sts.strategy != ON_DELETE
    head: dict[str, Mapping[str, str]] = {}
    if not _read_group(sts):
        head["labels"] = {GROUP_LABEL: group}
    if is_plain and MAX_UNAVAILABLE not in sts.annotations:
        head["annotations"] = {MAX_UNAVAILABLE: _keep_pace(sts)}
    patch: dict[str, object] = {"metadata": head} if head else {}
    undo: dict[str, object] = {}
    if head:
        undo["metadata"] = {key: dict.fromkeys(content) for key, content in head.items()}
    if is_plain:
        # A null takes away what the API server has filled in, which OnDelete does not allow.
        patch["spec"] = {"updateStrategy": {"type": ON_DELETE, "rollingUpdate": None}}
        before = {"type": sts.strategy, "rollingUpdate": sts.rolling_update}
        undo["spec"] = {"updateStrategy": before}
    labels = {**_pick(sts.labels, GROUP_LABEL, GROUP_LABEL_LONG), **head.get("labels", {})}
    pace = {**_pick(sts.annotations, MAX_UNAVAILABLE), **head.get("annotations", {})}
    wanted = {
        "metadata": {"labels": labels, **({"annotations": pace} if pace else {})},
        "spec": {"updateStrategy": {"type": ON_DELETE, "rollingUpdate": None}},
    }
    return SetAdoption(sts.name, *choose_zone(sts), patch or None, undo or None, wanted)


def _pick(content: Mapping[str, str], *keys: str) -> dict[str, str]:
    return {key: content[key] for key in keys if key in content}


def _keep_pace(sts: AdoptableSet) -> str:
    """Return how many pods the set may replace at a time today: one where it does not say."""
    try:
        return f"{parse_max_unavailable(str((sts.rolling_update or {}).get('maxUnavailable')))}"
    except InvalidInput:
        return "1"


def _list_findings(candidate: Candidate, named: frozenset[str]) -> Iterator[AdoptionFinding]:
    name, members, where = candidate.name, candidate.members, f"group {candidate.name}"
    for member in members:
        yield from _judge_set(name, member)
    first, other = members[0], candidate.other
    is_named = named.issuperset(member.name for member in members)
    pairs = [(each, first) for each in members[1:]] if other is None else [(first, other)]
    for one, another in pairs:
        if why := explain_difference(one, another, is_end_told=other is not None):
            yield AdoptionFinding(
                AdoptionCode.APPLICATIONS_DIFFER,
                Severity.WARN if other is None and is_named else Severity.ERROR, where,
                f"it would hold the zones of more than one application: {one.name}: {why}",
                "each application needs a group of its own, by a name of its own: rollout-operator"
                f" adopt -group NAME {' '.join(member.name for member in members)}",
            )  # fmt: skip
            break
    zones = {member.name: choose_zone(member)[0] for member in members}
    # A person put these together, now or before.
    known = named | {member.name for member in members if _read_group(member) == name}
    for zone in dict.fromkeys(filter(None, zones.values())):
        names = [each for each in zones if zones[each] == zone]
        is_meant = known.issuperset(names)
        if len(names) > 1:
            yield AdoptionFinding(
                AdoptionCode.ZONE_SHARED, Severity.WARN if is_meant else Severity.ERROR, where,
                f"{join_names(names, shown=len(names))} are all in zone {zone}",
                "the operator takes each StatefulSet for a zone of its own"
                if is_meant else
                f"name its zones: rollout-operator adopt -group {name} STATEFULSETS",
            )  # fmt: skip
    if candidate.left_out:
        yield AdoptionFinding(
            AdoptionCode.ZONE_LEFT_OUT, Severity.WARN, where,
            f"{_look_like_zones(candidate)} and {verb(len(candidate.left_out), 'is', 'are')} not"
            " named: the group would not wait for their pods",
            "name all zones of the group",
        )  # fmt: skip


def _judge_set(group: str, sts: AdoptableSet) -> Iterator[AdoptionFinding]:
    where = f"StatefulSet {sts.name}"
    if owner := _explain_owner(sts):
        yield _report_owner(sts, owner, Severity.ERROR)
    if (present := _read_group(sts)) and present != group:
        yield AdoptionFinding(
            AdoptionCode.GROUPS_DIFFER, Severity.ERROR, where,
            f"it is in the rollout group {present} already",
            "name the StatefulSets that belong together, and their group with -group",
        )  # fmt: skip
    status, partition = sts.status, sts.partition
    if sts.is_settled or (status is None and not partition):
        return
    text = f"its partition {partition} may keep pods at their revision"
    if status is not None:
        pods = f"{status.updated_replicas} of {count(status.replicas, 'pod')} updated"
        text = f"a rollout is underway, or its end is not recorded yet: {pods}"
    remedy = f"wait for `kubectl rollout status statefulset/{sts.name}`, then adopt again"
    if sts.strategy == ON_DELETE:
        remedy = (
            "the operator replaces outdated pods as soon as it sees the label: delete them"
            " yourself first, or undo the change of the template"
        )
    elif partition:
        remedy = f"set its partition, which OnDelete does not have, from {partition} to 0; {remedy}"
    yield AdoptionFinding(AdoptionCode.ROLLOUT_UNDERWAY, Severity.ERROR, where, text, remedy)


def _report_single_zone(candidate: Candidate, severity: Severity) -> AdoptionFinding:
    [sts], base, other = candidate.members, candidate.name, candidate.other
    if owner := _explain_owner(sts):
        return _report_owner(sts, owner, severity)
    text = f"no other StatefulSet is a zone of {base} ({_show_zone(*choose_zone(sts))})"
    if other is not None:
        text = f"no zone of {base}: {explain_difference(sts, other, is_end_told=True)}"
        severity = Severity.WARN if severity is Severity.INFO else severity
    if candidate.left_out:
        text = f"{_look_like_zones(candidate)} of {base} as well, and must be named too"
    return AdoptionFinding(
        AdoptionCode.SINGLE_ZONE, severity, f"StatefulSet {sts.name}", text,
        "an operator of zones is of no use to it; if others are its zones, name them all:"
        f" rollout-operator adopt -group {base} {sts.name} OTHERS",
    )  # fmt: skip


def _explain_owner(sts: AdoptableSet) -> str:
    """Return what shows that another controller reconciles a set; empty where nothing does."""
    if sts.controller:
        return f"{sts.controller} controls it, by its ownerReferences"
    for key in _MANAGED_BY:
        if _is_operator(value := sts.labels.get(key, "")):
            return f"{quote(value)} manages it, by its label {key}"
    writer = next(filter(_is_operator, sts.writers), "")
    return f"{quote(writer)} writes its spec, by its managedFields" if writer else ""


def _is_operator(name: str) -> bool:
    name = name.lower()
    return bool(_OPERATOR.search(name)) and not any(tool in name for tool in _NO_OPERATORS)


def _report_owner(sts: AdoptableSet, owner: str, severity: Severity) -> AdoptionFinding:
    return AdoptionFinding(
        AdoptionCode.OTHER_CONTROLLER, severity, f"StatefulSet {sts.name}",
        f"{owner}: it would revert the patches, or delete pods at the same time",
        "let that controller roll it out; if it no longer does, remove what names it first",
    )  # fmt: skip


def _look_like_zones(candidate: Candidate) -> str:
    names = candidate.left_out
    shown = join_names(names, shown=len(names))
    return f"{shown} {verb(len(names), 'looks like a zone', 'look like zones')}"


def _show_zone(zone: str, source: ZoneSource) -> str:
    return f"zone {zone}, by {_WORDS[source]}" if zone else "nothing says its zone"


def render_text(plan: AdoptionPlan) -> str:
    """Return all that is proposed: commands to paste, and comments."""
    lines = [f"namespace {plan.namespace or 'of the files'}: nothing is written by this command"]
    for group in plan.groups:
        lines += ["", *_list_group(group)]
    lines += [""] if plan.left_alone else []
    lines += [line for finding in plan.left_alone for line in _list_finding(finding)]
    if not plan.groups:
        lines += ["", "there is nothing to adopt: no two StatefulSets are zones of one group"]
    lines = [f"# {line}".rstrip() for line in lines]
    if plan.patched:
        lines += [
            "",
            "# 1. On the cluster. A tool that syncs it from Git is suspended first.",
            *(_render_command(sts.name, sts.patch, plan.namespace) for sts in plan.patched),
            "",
            "# 2. In Git, so that nothing reverts it: rollout-operator adopt -o yaml",
            "#    Where the overlay has namePrefix or nameSuffix, that file says where it belongs.",
            "#    With Helm: set label, annotation and updateStrategy by the values of the chart.",
            "",
            "# The way back. Not during a rollout: the zones would then go on all at once.",
            *(f"# {_render_command(sts.name, sts.undo, plan.namespace)}" for sts in plan.patched),
        ]
    return "".join(f"{line}\n" for line in lines)


def _list_group(group: GroupAdoption) -> Iterator[str]:
    state = (
        ": not yet" if group.is_held else "" if group.patched else ": under the operator already"
    )
    yield f"group {group.name}  {count(len(group.sets), 'zone')}, {count(group.pods, 'pod')}{state}"
    if group.patched:
        yield f"  {_NOTHING if group.checked else _UNPROVEN}"
    width = max(len(sts.name) for sts in group.sets)
    for sts in group.sets:
        yield f"  {sts.name:{width}}  {one_line(_show_zone(sts.zone, sts.zone_source))}"
    for finding in group.findings:
        yield from _list_finding(finding)


def _list_finding(finding: AdoptionFinding) -> Sequence[str]:
    return (
        f"  {finding.severity:5}  {finding.code}  {one_line(finding.object)}",
        f"         {one_line(finding.text)}",
        f"         -> {one_line(finding.remedy)}",
    )


def _render_command(name: str, patch: Patch | None, namespace: str) -> str:
    words = ["kubectl", "patch", "statefulset", name, "--type=merge"]
    words += [f"--namespace={namespace}"] if namespace else []
    return f"{shlex.join(words)} -p {shlex.quote(msgspec.json.encode(patch).decode())}"


def render_component(plan: AdoptionPlan) -> str:
    """Return a kustomize component, the same before and after the patches are applied."""
    component: dict[str, object] = {
        "apiVersion": "kustomize.config.k8s.io/v1alpha1",
        "kind": "Component",
        "patches": [_build_target(sts) for sts in plan.adopted],
        # A target that matches nothing passes in silence, a replacement without its source does
        # not. These write the kind over itself, so that the build fails where no or two sets have
        # the name.
        "replacements": [_build_assertion(sts.name) for sts in plan.adopted],
    }
    return _COMPONENT_HEAD + _dump(component)


def _build_assertion(name: str) -> Mapping[str, object]:
    target = {"select": {**_SETS, "name": name}, "fieldPaths": ["kind"]}
    return {"source": {**_SETS, "name": name, "fieldPath": "kind"}, "targets": [target]}


def _build_target(sts: SetAdoption) -> Mapping[str, object]:
    patch = dict(sts.wanted)
    head = patch.pop("metadata", {})
    named = {"name": sts.name, **(head if isinstance(head, dict) else {})}
    body = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": named, **patch}
    # By a target, since a patch alone must name the namespace that the manifest names, or none.
    # Its name is a pattern.
    return {"target": {**_SETS, "name": sts.name.replace(".", r"\.")}, "patch": _dump(body)}


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as such."""


def _write_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _write_text)


def _dump(content: Mapping[str, object]) -> str:
    return yaml.dump(content, Dumper=_Dumper, sort_keys=False)
