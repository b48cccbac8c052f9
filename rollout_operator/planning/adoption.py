"""What brings plain StatefulSets under the operator, and the way back: which StatefulSets are zones
of one group, what stands in the way, the patches, the budget, and all of it as text and as YAML.

Only labels, annotations and the update strategy of StatefulSets change. None of them is part of a
revision, so no pod is replaced; where that cannot be shown, nothing is proposed. For the same
reason a budget selects by labels that the pods already have.
"""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
import yaml

from rollout_operator.model.adoption import (
    AdoptableNamespace,
    AdoptableSet,
    AdoptionChoice,
    AdoptionCode,
    AdoptionFinding,
    AdoptionPlan,
    GroupAdoption,
    Patch,
    RolloutProgress,
    SetAdoption,
)
from rollout_operator.model.budget import Budget, ZoneSource
from rollout_operator.model.diagnosis import NativeBudget
from rollout_operator.model.names import (
    GROUP_LABEL,
    GROUP_LABEL_LONG,
    MAX_UNAVAILABLE,
    ON_DELETE,
    TOPOLOGY_KEYS,
    InvalidInput,
)
from rollout_operator.model.objects import selects
from rollout_operator.model.outcome import Severity
from rollout_operator.model.units import parse_max_unavailable, quote
from rollout_operator.planning.doctor import count_room, natural_key
from rollout_operator.planning.policy_zones import ZONE_LABEL, choose_label, choose_permitted_zone
from rollout_operator.planning.wording import count, join_names, one_line, verb

_ZONE_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", re.ASCII)
_LABEL_VALUE: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII)
# `ingester-zone-a`, `db-az1`, `vault-b`. A number alone is more often a shard than a zone.
_ENDS: Final = re.compile(r"-((?:zone|az)-?[a-z0-9]+|[a-z])$")
_NUMBER: Final = re.compile(r"(\d+)$", re.ASCII)
_PREFIX: Final = re.compile(r"^(?:zone|az)-?")
_SHORT_END: Final = re.compile(r"(zone|az)?-?(?:([a-z])|\d+)")
_CANARY: Final = "canary"
# What charts distinguish releases, components and canaries by, where selectors do not.
_APPLICATION: Final = (
    *("app", "app.kubernetes.io/name", "app.kubernetes.io/instance", "app.kubernetes.io/component"),
    *("component", "release", "track"),
)
_OF_ZONES: Final = frozenset({*TOPOLOGY_KEYS, ZONE_LABEL, GROUP_LABEL, GROUP_LABEL_LONG})

_WORDS: Final = {
    ZoneSource.NODE_SELECTOR: "the nodeSelector of its pods",
    ZoneSource.NODE_AFFINITY: "the node affinity of its pods",
    ZoneSource.LABEL: "a topology label",
    ZoneSource.ZONE_LABEL: "the label zone",
    ZoneSource.NAME_SUFFIX: "the end of its name",
}
_END: Final = "end of the name"
_IMAGE: Final = "image"
_LABEL: Final = "label "
_SELECTOR: Final = "selector for "
_KIND: Final = "ZoneAwarePodDisruptionBudget"
_VERSION: Final = "rollout-operator.grafana.com/v1"
# By which people distinguish components, the clearest first.
_NAMING: Final = (GROUP_LABEL, "app.kubernetes.io/component", "app", "app.kubernetes.io/name")
_NAME: Final = "name"
_MANAGED_BY: Final = ("app.kubernetes.io/managed-by", "managed-by")
# As `tidb-operator`, `lokistack-controller` and `tidb-controller-manager` call themselves.
_OPERATOR: Final = re.compile(r"operator|controller(-manager)?$")
_NO_OPERATORS: Final = (
    *("rollout-operator", "kustomize-controller", "helm-controller", "argocd", "kapp-controller"),
    *("helm-operator", "kube-controller-manager"),
)
# As many at a time as a StatefulSet replaces by itself.
_ONE_BY_ONE: Final = "1"

_BUDGETS_FILE: Final = "budgets.yaml"
_SETS: Final = {"group": "apps", "version": "v1", "kind": "StatefulSet"}

_COMPONENT_HEAD: Final = """\
# Run the commands of `rollout-operator adopt` on the cluster first, then add this to the
# `components` of the overlay that has these StatefulSets. It needs their names as they are there
# before the overlay's own namePrefix and nameSuffix. If the build fails with "nothing selected by
# StatefulSet", put it into a kustomization of its own, whose only resource is that overlay.
"""
_NOTHING: Final = (
    "replaces no pod: each is at the revision that its StatefulSet wants, and the patches change",
    "labels, annotations and updateStrategy, which are no part of a revision",
)
_UNPROVEN: Final = ("the patches change no template; that no rollout is underway is not shown",)
_TEMPLATES: Final = (
    "The pod templates stay as they are: a label there would make a new revision and replace every",
    "pod, and the operator finds pods by their owner.",
)


def plan_adoption(seen: AdoptableNamespace, choice: AdoptionChoice) -> AdoptionPlan:
    """Return what is proposed. Raises InvalidInput for names that are not there, or cannot be."""
    _refuse_names(seen)
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
            _report_single_zone(each, severity) for each in candidates if len(each.members) == 1
        ),
        unread=seen.unread,
    )


def render_text(plan: AdoptionPlan) -> str:
    """Return all that is proposed, with commands that can be pasted."""
    groups = [group for group in plan.groups if group.patched or group.is_held or group.budget]
    lines = [f"namespace {plan.namespace or 'of the files'}: nothing is written by this command"]
    lines += [f"not read: {one_line(text)}" for text in plan.unread]
    for group in plan.groups:
        lines += ["", *_list_group(group)]
    lines += [""] if plan.left_alone else []
    for finding in plan.left_alone:
        lines += _list_finding(finding)
    if not plan.groups:
        lines += ["", "there is nothing to adopt: no two StatefulSets are zones of one group"]
    open_groups = [group for group in groups if not group.is_held]
    lines += ["", *_TEMPLATES] if open_groups else []
    lines = [f"# {line}".rstrip() for line in lines]
    for number, step in enumerate(_list_steps(open_groups, plan.namespace), start=1):
        lines += ["", f"# {number}. {step[0]}", *step[1:]]
    lines += _list_way_back(open_groups, plan.namespace)
    return "".join(f"{line}\n" for line in lines)


def render_component(plan: AdoptionPlan) -> str:
    """Return a kustomize component with the patches; budgets are a file beside it."""
    patched = [adoption for group in plan.groups for adoption in group.patched]
    component: dict[str, object] = {
        "apiVersion": "kustomize.config.k8s.io/v1alpha1",
        "kind": "Component",
    }
    if list_budgets(plan):
        component["resources"] = [_BUDGETS_FILE]
    component["patches"] = [_build_target(adoption) for adoption in patched]
    # A target that matches nothing passes in silence, a replacement without its source does not.
    # These write the kind over itself, so that the build fails where no or two sets have the name.
    if patched:
        component["replacements"] = [_build_assertion(adoption.name) for adoption in patched]
    return _COMPONENT_HEAD + _dump(component)


def list_budgets(plan: AdoptionPlan) -> list[Patch]:
    return [group.budget for group in plan.groups if group.budget is not None and not group.is_held]


def render_objects(objects: list[Patch]) -> str:
    return "---\n".join(_dump(obj) for obj in objects)


def _describe_zone(zone: str, source: ZoneSource) -> str:
    if source is ZoneSource.NONE:
        return "nothing says its zone"
    return f"zone {zone}, by {_WORDS[source]}"


def choose_zone(sts: AdoptableSet) -> tuple[str, ZoneSource]:
    """Return the zone of a StatefulSet and what says so; the zone is empty where nothing does."""
    return next(_list_zones(sts), ("", ZoneSource.NONE))


def _list_zones(sts: AdoptableSet) -> Iterator[tuple[str, ZoneSource]]:
    if zone := choose_label(TOPOLOGY_KEYS, sts.node_selector):
        yield zone, ZoneSource.NODE_SELECTOR
    if zone := choose_permitted_zone(sts.node_terms, TOPOLOGY_KEYS):
        yield zone, ZoneSource.NODE_AFFINITY
    if zone := choose_label(TOPOLOGY_KEYS, sts.pod_labels, sts.labels):
        yield zone, ZoneSource.LABEL
    if zone := choose_label((ZONE_LABEL,), sts.pod_labels, sts.labels):
        yield zone, ZoneSource.ZONE_LABEL
    if match := _ENDS.search(sts.name):
        yield match[1], ZoneSource.NAME_SUFFIX


def choose_base(sts: AdoptableSet) -> str:
    """Return the name of a StatefulSet without its zone, the whole name where it has none."""
    zone, source = choose_zone(sts)
    if zone and sts.name.endswith(f"-{zone}") and len(sts.name) > len(zone) + 1:
        base = sts.name.removesuffix(f"-{zone}")
        return base.removesuffix("-zone") or base
    if source not in (ZoneSource.NONE, ZoneSource.NAME_SUFFIX) and _has_number(sts.name, zone):
        return _strip_number(sts.name)
    return _ENDS.sub("", sts.name) or sts.name


def _has_number(name: str, zone: str) -> bool:
    """Return whether a name such as `mq-2` ends with the number of its zone, as `westeurope-2`."""
    own, given = _NUMBER.search(name), _NUMBER.search(zone)
    if own is None or given is None or not _strip_number(name):
        return False
    return int(own[1]) == int(given[1])


def _strip_number(name: str) -> str:
    """Return `mq` of `mq-2`, empty where no number stands after a hyphen."""
    base = _NUMBER.sub("", name)
    return base[:-1] if base != name and base.endswith("-") else ""


def _read_group(sts: AdoptableSet) -> str:
    return sts.labels.get(GROUP_LABEL, sts.labels.get(GROUP_LABEL_LONG, ""))


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """StatefulSets that may become one group."""

    name: str
    members: tuple[AdoptableSet, ...]
    """By name in byte order: as rollouts take them."""
    other: AdoptableSet | None = None
    """One whose name is like theirs, and which is no zone of theirs."""
    left_out: tuple[str, ...] = ()
    """Zones of the same group by all that is known, which were not named."""


def group_sets(
    sets: Sequence[AdoptableSet], chosen: frozenset[str], group: str
) -> Sequence[Candidate]:
    """Return the groups to be, by name.

    `chosen` are the names that are meant. `group` is what they are called, empty where their own
    names say it. A set that is in such a group already belongs to it as well.
    """
    bases = _choose_bases(sets)
    kinds = {
        sts.name: (bases[sts.name], *_list_traits(sts, bases[sts.name]).items()) for sts in sets
    }
    groups: dict[str, list[list[AdoptableSet]]] = {}
    alike: dict[object, list[AdoptableSet]] = {}
    for sts in sorted(sets, key=lambda sts: sts.name):
        if sts.name in chosen:
            alike.setdefault(group or kinds[sts.name], []).append(sts)
    for members in alike.values():
        name = group or next(filter(None, map(_read_group, members)), bases[members[0].name])
        groups.setdefault(name, []).append(members)
    found: list[Candidate] = []
    for name, parts in sorted(groups.items()):
        there = [sts for sts in sets if sts.name not in chosen and _read_group(sts) == name]
        for part, other in _split(name, parts, there):
            if chosen.isdisjoint(sts.name for sts in part):
                continue
            known = {kinds[sts.name] for sts in part}
            left_out = [sts for sts in sets if kinds[sts.name] in known and sts not in part]
            found.append(
                Candidate(
                    name=name,
                    members=tuple(sorted(part, key=lambda sts: sts.name)),
                    other=other,
                    left_out=tuple(sts.name for sts in left_out if sts.name not in chosen),
                )
            )
    return found


def _split(
    name: str, parts: Sequence[list[AdoptableSet]], there: Sequence[AdoptableSet]
) -> Iterator[tuple[Sequence[AdoptableSet], AdoptableSet | None]]:
    """Yield what may become one group of a name, each with another that may not be part of it."""
    first = [*there, *(sts for part in parts for sts in part if _read_group(sts) == name)]
    rest = [*parts]
    if first:
        joined = [
            part
            for part in parts
            if any(sts in first for sts in part) or not explain_difference(part[0], first[0])
        ]
        rest = [part for part in parts if part not in joined]
        yield [*there, *(sts for part in joined for sts in part)], None
    large = [part for part in rest if len(part) > 1]
    for part in rest:
        others = first or [each[0] for each in large or rest if each is not part]
        is_alone = len(large) == 1 and not first and part in large
        yield part, None if is_alone or not others else others[0]


def explain_difference(sts: AdoptableSet, other: AdoptableSet, *, is_end_told: bool = False) -> str:
    """Return what shows that two sets are no zones of one group; empty: nothing does."""
    own, others = (_list_traits(each, choose_base(each)) for each in (sts, other))
    for what in (*own, *others):
        if own.get(what) != others.get(what) and (what != _END or is_end_told):
            mine, theirs = (_show_trait(each, what) for each in (sts, other))
            return f"its {what} is {mine}, that of {other.name} {theirs}"
    return ""


def _list_traits(sts: AdoptableSet, base: str) -> Mapping[str, str]:
    """Return what zones of one application have in common, without what says the zone."""
    end = sts.name[len(base) + 1 :]
    zone, _ = choose_zone(sts)
    marks = {mark for text in (end, zone) for mark in (text, _PREFIX.sub("", text)) if mark}
    labels = {
        f"{_SELECTOR}{key}": value
        for key, value in sorted(sts.selector.items())
        if key not in _OF_ZONES
    }
    for key in _APPLICATION:
        if value := sts.pod_labels.get(key, sts.labels.get(key, "")):
            labels[f"{_LABEL}{key}"] = value
    image = sts.image.partition("@")[0].rpartition("/")[2].partition(":")[0]
    return {
        _END: _name_shape(end),
        _IMAGE: image,
        **{what: _take_out(value, sts.name, marks) for what, value in labels.items()},
    }


def _name_shape(end: str) -> str:
    """Return what kind of end it is: `a` and `zone-a` are two, and so are `zone-a` and `canary`."""
    if match := _SHORT_END.fullmatch(end):
        return f"{match[1] or ''} {'letter' if match[2] else 'number'}"
    return _CANARY if _CANARY in end else "word" if end else ""


def _take_out(value: str, name: str, marks: Iterable[str]) -> str:
    """Return the value of a label without the zone, which it has as a whole, before or after."""
    if value == name:
        return ""
    for mark in sorted(marks, key=len, reverse=True):
        if _PREFIX.sub("", value) == _PREFIX.sub("", mark):
            return ""
        value = value.removesuffix(f"-{mark}").removeprefix(f"{mark}-")
    return value


def _show_trait(sts: AdoptableSet, what: str) -> str:
    if what == _END:
        return quote(sts.name[len(choose_base(sts)) :])
    if what == _IMAGE:
        return quote(sts.image)
    key = what.removeprefix(_SELECTOR).removeprefix(_LABEL)
    labels = sts.selector if what.startswith(_SELECTOR) else {**sts.labels, **sts.pod_labels}
    return quote(labels[key]) if key in labels else "absent"


def _choose_bases(sets: Iterable[AdoptableSet]) -> Mapping[str, str]:
    """Return the base of each name. Numbers are zones where they are for every one, else shards."""
    bases = {sts.name: choose_base(sts) for sts in sets}
    shards = {_strip_number(name) for name, base in bases.items() if base == name}
    return {
        name: name if base in shards and base == _strip_number(name) else base
        for name, base in bases.items()
    }


def _refuse_names(seen: AdoptableNamespace) -> None:
    names = [seen.namespace] if seen.namespace else []
    for name in (*names, *(sts.name for sts in seen.sets)):
        if not _ZONE_NAME.fullmatch(name):
            raise InvalidInput(f"{quote(name)} is no name of an object in Kubernetes")


def _refuse_group(name: str) -> None:
    if not _LABEL_VALUE.fullmatch(name):
        raise InvalidInput(
            f"{quote(name)} is no value of a label, which the name of a group has to be:"
            " choose another name with -group"
        )


def _name_budget(group: str) -> str:
    """Return the name of a group's budget: labels allow upper case and underscores, names do not.

    Each part between dots begins and ends with a letter or a digit.
    """
    parts = group.lower().replace("_", "-").split(".")
    return ".".join(filter(None, (part.strip("-") for part in parts)))


def _list_native(
    seen: AdoptableNamespace, members: Sequence[AdoptableSet]
) -> Iterator[NativeBudget]:
    own = {member.name for member in members}
    for budget in seen.native_budgets:
        taken = {sts.name for sts in seen.sets if budget.takes(sts.pod_labels)}
        if taken and taken <= own:
            yield budget


def _has_zone_budget(seen: AdoptableNamespace, members: Sequence[AdoptableSet]) -> bool:
    return any(
        isinstance(budget, Budget) and selects(budget.selector, member.pod_labels)
        for budget in seen.zone_budgets
        for member in members
    )


def _choose_selector(
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


def _build_budget(
    group: str, namespace: str, selector: Mapping[str, str], limit: Mapping[str, int]
) -> Patch:
    head = {"name": _name_budget(group), **({"namespace": namespace} if namespace else {})}
    return {
        "apiVersion": _VERSION,
        "kind": _KIND,
        "metadata": head,
        "spec": {**limit, "selector": {"matchLabels": dict(selector)}},
    }


def _choose_limit(
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
    return sum(member.replicas for member in members if budget.takes(member.pod_labels))


def _list_native_findings(
    native: Sequence[NativeBudget], members: Sequence[AdoptableSet]
) -> Iterator[AdoptionFinding]:
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


def _report_missing_selector(group: str) -> AdoptionFinding:
    return AdoptionFinding(
        code=AdoptionCode.BUDGET_SELECTOR_MISSING,
        severity=Severity.WARN,
        object=f"group {group}",
        text="no label is on the pods of all its zones and on no others: no budget can select them",
        remedy=f"add {GROUP_LABEL} to the pod templates with your next rollout, then adopt again;"
        " until then keep the native budgets",
    )


def _list_findings(candidate: Candidate, named: frozenset[str]) -> Iterator[AdoptionFinding]:
    """Yield the findings about the zones of a group, not about its budgets.

    `named` are the zones that a person named, empty where names were compared.
    """
    group, members = candidate.name, candidate.members
    for member in members:
        if owner := _explain_owner(member):
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


def _report_single_zone(candidate: Candidate, severity: Severity) -> AdoptionFinding:
    [sts], base, other = candidate.members, candidate.name, candidate.other
    if owner := _explain_owner(sts):
        return _report_owner(sts, owner, severity)
    text = f"no other StatefulSet is a zone of {base} ({_describe_zone(*choose_zone(sts))})"
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


def _explain_owner(sts: AdoptableSet) -> str:
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
    """Return whether no pod is outdated."""
    status = sts.status
    if status is None:
        return False
    return (
        status.observed_generation >= sts.generation
        and status.current_revision == status.update_revision
        and status.updated >= status.replicas
    )


def _judge_group_label(group: str, sts: AdoptableSet) -> Iterator[AdoptionFinding]:
    present = _read_group(sts)
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
        is_known = named.issuperset(names) or all(_read_group(sts) == group for sts in sets)
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


def _plan_group(
    candidate: Candidate, seen: AdoptableNamespace, named: frozenset[str]
) -> GroupAdoption:
    """Return what is proposed for a group; `named` are the zones that a person named."""
    name, members = candidate.name, candidate.members
    _refuse_group(name)
    findings = [*_list_findings(candidate, named)]
    native = [*_list_native(seen, members)]
    selector: Mapping[str, str] = {}
    budget: Patch | None = None
    if native and not _has_zone_budget(seen, members):
        chosen = _choose_selector(seen, members)
        if chosen is None:
            findings.append(_report_missing_selector(name))
        else:
            selector = chosen
            budget = _build_budget(name, seen.namespace, chosen, _choose_limit(native, members))
            findings += _list_native_findings(native, members)
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
    wanted = dict(selector) if _read_group(sts) else {**group, **selector}
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


def _list_group(group: GroupAdoption) -> Iterator[str]:
    size = f"{count(len(group.sets), 'zone')}, {count(group.pods, 'pod')}"
    if group.is_held:
        yield f"group {group.name}  {size}: not yet"
    elif not (group.patched or group.budget):
        yield f"group {group.name}  {size}: under the operator already"
    else:
        yield f"group {group.name}  {size}"
        yield from (f"  {line}" for line in (_NOTHING if group.checked else _UNPROVEN))
    width = max(len(sts.name) for sts in group.sets)
    for sts in group.sets:
        yield f"  {sts.name:{width}}  {one_line(_describe_zone(sts.zone, sts.zone_source))}"
    for finding in group.findings:
        yield from _list_finding(finding)


def _list_finding(finding: AdoptionFinding) -> Iterator[str]:
    yield f"  {finding.severity:5}  {finding.code}  {one_line(finding.object)}"
    yield f"         {one_line(finding.text)}"
    yield f"         -> {one_line(finding.remedy)}"


def _list_steps(groups: list[GroupAdoption], namespace: str) -> Iterator[list[str]]:
    patched = [adoption for group in groups for adoption in group.patched]
    budgets = [group.budget for group in groups if group.budget is not None]
    if patched:
        yield [
            "On the cluster. A tool that syncs it from Git is suspended first.",
            *(
                _render_command(adoption.name, adoption.patch or {}, namespace)
                for adoption in patched
            ),
        ]
    if budgets:
        yield [
            "With the operator's kinds and its eviction webhook installed:",
            "kubectl apply -f - <<'END'",
            render_objects(budgets).rstrip(),
            "END",
        ]
    if groups:
        yield [
            "In Git, so that nothing reverts it: rollout-operator adopt -o yaml",
            "#    Where the overlay has namePrefix or nameSuffix, that file says where it belongs.",
        ]


def _list_way_back(groups: list[GroupAdoption], namespace: str) -> Iterator[str]:
    patched = [adoption for group in groups for adoption in group.patched]
    if patched:
        yield ""
        yield "# The way back. Not during a rollout: the zones would then go on all at once."
        yield from (
            f"# {_render_command(adoption.name, adoption.undo or {}, namespace)}"
            for adoption in patched
        )
        yield from (f"# {_render_removal(group, namespace)}" for group in groups if group.budget)


def _render_command(name: str, patch: Patch, namespace: str) -> str:
    words = ["kubectl", "patch", "statefulset", name, "--type=merge"]
    words += [f"--namespace={namespace}"] if namespace else []
    body = msgspec.json.encode(patch).decode()
    return f"{shlex.join(words)} -p {shlex.quote(body)}"


def _render_removal(group: GroupAdoption, namespace: str) -> str:
    words = ["kubectl", "delete", "zoneawarepoddisruptionbudget", _name_budget(group.name)]
    return shlex.join(words + ([f"--namespace={namespace}"] if namespace else []))


def _build_assertion(name: str) -> Mapping[str, object]:
    chosen = {**_SETS, "name": name}
    target = {"select": chosen, "fieldPaths": ["kind"]}
    return {"source": {**chosen, "fieldPath": "kind"}, "targets": [target]}


def _build_target(set_adoption: SetAdoption) -> Mapping[str, object]:
    patch = set_adoption.patch or {}
    head = patch.get("metadata", {})
    named = {"metadata": {"name": set_adoption.name, **(head if isinstance(head, dict) else {})}}
    body = {"apiVersion": "apps/v1", "kind": "StatefulSet", **patch, **named}
    # By a target, since a patch alone must name the namespace that the manifest names, or none.
    # Its name is a pattern.
    target = {**_SETS, "name": set_adoption.name.replace(".", r"\.")}
    return {"target": target, "patch": _dump(body)}


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as such."""


def _write_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _write_text)


def _dump(content: Mapping[str, object]) -> str:
    return yaml.dump(content, Dumper=_Dumper, sort_keys=False)
