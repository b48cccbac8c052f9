"""Settings of rollout groups that stop them, or make them go another way than meant.

Keys that start with `grafana.com/` or `rollout-` are compared with those in `model.names`; a key
that is near to none of them belongs to another tool and is left alone.
"""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from rollout_operator.model import names
from rollout_operator.model.diagnosis.findings import Finding, FindingCode
from rollout_operator.model.diagnosis.installation import Installation, ZoneSet
from rollout_operator.model.units import is_odd_brake
from rollout_operator.planning.diagnosis.remedies import make_finding
from rollout_operator.planning.downscales.endpoint import NoTarget, plan_target
from rollout_operator.planning.downscales.request import is_labelled
from rollout_operator.planning.rollout.zones import list_odd_values
from rollout_operator.planning.wording import join_names

_DIGITS: Final = re.compile(r"([0-9]+)")
_PREFIXES: Final = ("grafana.com/", "rollout-")
# Two letters of twenty may be wrong, and a short word may be another word.
_NEAR: Final = 0.85

KNOWN: Final = frozenset(
    value
    for value in vars(names).values()
    if isinstance(value, str) and value.startswith(_PREFIXES)
)
_APPLICATION: Final = "app.kubernetes.io/name"
_INSTANCE: Final = "app.kubernetes.io/instance"
_GROUP_LABELS: Final = frozenset({names.GROUP_LABEL, names.GROUP_LABEL_LONG})
_SWITCHES: Final = frozenset({names.NO_DOWNSCALE, names.PREPARE_DOWNSCALE})
_ONLY_LABELS: Final = _GROUP_LABELS | _SWITCHES
_ONLY_ANNOTATIONS: Final = (
    names.STATEFULSET_ANNOTATIONS - _SWITCHES - {names.MIN_TIME_BETWEEN_DOWNSCALES}
)


def check_zones(installation: Installation) -> Iterator[Finding]:
    """Yield groups of one zone."""
    for group, members in _group_by_name(installation).items():
        if len(members) == 1:
            text = f"its only zone is {members[0].sts.name}"
            yield make_finding(FindingCode.SINGLE_ZONE, f"group {group}", text)


def check_shared(installation: Installation) -> Iterator[Finding]:
    """Yield groups that two applications share, since their charts name groups alike.

    As grafana's charts of Mimir and Loki do in one namespace (grafana/mimir#8406,
    grafana/loki#13168). Each zone may be a release, or an application, of its own: then none of
    them has several sets of the group.
    """
    for group, members in _group_by_name(installation).items():
        sets: dict[tuple[str, ...], list[str]] = {}
        for member in members:
            sets.setdefault(_find_application(member), []).append(member.sts.name)
        if len(sets) > 1 and max(map(len, sets.values())) > 1:
            text = "; ".join(
                f"{_name_application(of)} has {join_names(names)}" for of, names in sets.items()
            )
            yield make_finding(FindingCode.GROUP_SHARED, f"group {group}", text)


def check_strategies(installation: Installation) -> Iterator[Finding]:
    """Yield members that Kubernetes replaces the pods of."""
    for member in installation.members:
        if member.sts.strategy != names.ON_DELETE:
            text = f"its update strategy is {member.sts.strategy}"
            yield make_finding(FindingCode.NOT_ON_DELETE, _name(member), text)


def check_order(installation: Installation) -> Iterator[Finding]:
    """Yield groups whose zones go in another order than their numbers."""
    for group, members in _group_by_name(installation).items():
        by_bytes = sorted(member.sts.name for member in members)
        by_number = sorted(by_bytes, key=natural_key)
        if by_bytes != by_number:
            text = f"the order is {join_names(by_bytes, shown=len(by_bytes))}"
            yield make_finding(FindingCode.ZONE_ORDER, f"group {group}", text)


def check_values(installation: Installation) -> Iterator[Finding]:
    """Yield what the planner warns of: values that it cannot use."""
    for members in _group_by_name(installation).values():
        for member in members:
            for _, problem in list_odd_values(member.sts):
                yield make_finding(FindingCode.ODD_VALUE, _name(member), problem)


def check_preparing(installation: Installation) -> Iterator[Finding]:
    """Yield sets whose pods are to be prepared nowhere, or that say where and not that."""
    for sts in installation.sets:
        if is_labelled(sts.sts.labels, names.PREPARE_DOWNSCALE):
            target = plan_target(sts.sts.annotations, sts.sts.service_name)
            if isinstance(target, NoTarget):
                yield make_finding(FindingCode.PREPARE_INCOMPLETE, _name(sts), target.problem)
        elif names.PREPARE_DOWNSCALE not in sts.labels:
            misplaced = sorted({names.PREPARE_PATH, names.PREPARE_PORT} & sts.annotations.keys())
            if misplaced:
                text = f"it has {join_names(misplaced)} without the label {names.PREPARE_DOWNSCALE}"
                yield make_finding(FindingCode.PREPARE_WITHOUT_LABEL, _name(sts), text)


def check_leading_zones(installation: Installation) -> Iterator[Finding]:
    """Yield zones that follow a zone which is not in their group."""
    for members in _group_by_name(installation).values():
        present = {member.sts.name for member in members}
        for member in members:
            leading = member.sts.annotations.get(names.LEADING_ZONE)
            if leading is not None and leading not in present:
                text = f'annotation {names.LEADING_ZONE}: "{leading}" is no zone of its group'
                yield make_finding(FindingCode.LEADING_ZONE_UNKNOWN, _name(member), text)


def natural_key(name: str) -> list[tuple[int, int | str]]:
    """Return what orders names as people do: numbers by what they count."""
    return [(0, int(part)) if part.isdigit() else (1, part) for part in _DIGITS.split(name) if part]


def _group_by_name(installation: Installation) -> Mapping[str, list[ZoneSet]]:
    groups: dict[str, list[ZoneSet]] = {}
    for member in sorted(installation.members, key=lambda member: member.sts.name):
        groups.setdefault(f"{member.sts.group}", []).append(member)
    return dict(sorted(groups.items()))


def check_spelling(installation: Installation) -> Iterator[Finding]:
    """Yield keys of StatefulSets with the known key that they are nearest to."""
    for sts in installation.sets:
        for what, keys in _list_places(sts):
            for key in sorted(keys):
                nearest = choose_nearest(key)
                if nearest:
                    text = f'{what} "{key}" is not known; did you mean "{nearest}"?'
                    yield make_finding(FindingCode.KEY_UNKNOWN, _name(sts), text)


def choose_nearest(key: str) -> str:
    """Return the known key that `key` misspells, empty where it is known or foreign."""
    if key in KNOWN or not key.lower().startswith(_PREFIXES):
        return ""
    # Under the other prefix, or without a prefix.
    same_name = [known_key for known_key in sorted(KNOWN) if _short(known_key) == _short(key)]
    if same_name:
        return same_name[0]
    near = difflib.get_close_matches(_short(key), map(_short, sorted(KNOWN)), n=1, cutoff=_NEAR)
    return next((known_key for known_key in sorted(KNOWN) if _short(known_key) in near), "")


def check_places(installation: Installation) -> Iterator[Finding]:
    """Yield keys of the operator's that do nothing where they stand."""
    for sts in installation.sets:
        for key in sorted(_ONLY_LABELS & sts.annotations.keys() - sts.labels.keys()):
            yield make_finding(
                FindingCode.KEY_MISPLACED, _name(sts), f'"{key}" is a label, not an annotation'
            )
        for key in sorted(_ONLY_ANNOTATIONS & sts.labels.keys() - sts.annotations.keys()):
            yield make_finding(
                FindingCode.KEY_MISPLACED, _name(sts), f'"{key}" is an annotation, not a label'
            )
        # A group label of the pods alone is common: the set then belongs to no group.
        for key in sorted((_ONLY_LABELS & sts.pod_labels.keys()) - sts.labels.keys()):
            if key in _SWITCHES or sts.sts.group is None:
                text = f'label "{key}" is on the pod template only, not on the StatefulSet'
                yield make_finding(FindingCode.KEY_MISPLACED, _name(sts), text)


def check_switches(installation: Installation) -> Iterator[Finding]:
    """Yield labels that switch a review on with a value that may not be meant to."""
    for sts in installation.sets:
        for key in sorted(_SWITCHES & sts.labels.keys()):
            value = sts.labels[key]
            if is_odd_brake(value):
                text = f'label {key}: "{value}" is neither "true" nor "false", and counts as true'
                yield make_finding(FindingCode.ODD_VALUE, _name(sts), text)


def _find_application(member: ZoneSet) -> tuple[str, ...]:
    """Return which application a set belongs to, as charts label it, and of which release."""
    labels = member.labels
    return labels.get(_APPLICATION, ""), labels.get(_INSTANCE, "")


def _name_application(application: tuple[str, ...]) -> str:
    return " of release ".join(filter(None, application)) or "no application"


def _list_places(sts: ZoneSet) -> Iterable[tuple[str, Mapping[str, str]]]:
    return ("label", sts.labels), ("annotation", sts.annotations)


def _name(sts: ZoneSet) -> str:
    return f"StatefulSet {sts.sts.name}"


def _short(key: str) -> str:
    return key.rpartition("/")[2].lower()
