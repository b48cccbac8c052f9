"""Settings of rollout groups that stop them, or make them go another way than meant."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from rollout_operator.model.diagnosis.findings import Finding, FindingCode
from rollout_operator.model.diagnosis.installation import Installation, ZoneSet
from rollout_operator.model.names import (
    LEADING_ZONE,
    ON_DELETE,
    PREPARE_DOWNSCALE,
    PREPARE_PATH,
    PREPARE_PORT,
)
from rollout_operator.planning.diagnosis.remedies import find
from rollout_operator.planning.downscales.endpoint import NoTarget, plan_target
from rollout_operator.planning.downscales.request import is_labelled
from rollout_operator.planning.rollout.zones import list_odd_values
from rollout_operator.planning.wording import join_names

_DIGITS: Final = re.compile(r"([0-9]+)")


def check_zones(installation: Installation) -> Iterator[Finding]:
    """Yield groups of one zone."""
    for group, members in _group_by_name(installation).items():
        if len(members) == 1:
            text = f"its only zone is {members[0].sts.name}"
            yield find(FindingCode.SINGLE_ZONE, f"group {group}", text)


def check_strategies(installation: Installation) -> Iterator[Finding]:
    """Yield members that Kubernetes replaces the pods of."""
    for member in installation.members:
        if member.sts.strategy != ON_DELETE:
            text = f"its update strategy is {member.sts.strategy}"
            yield find(FindingCode.NOT_ON_DELETE, _name(member), text)


def check_order(installation: Installation) -> Iterator[Finding]:
    """Yield groups whose zones go in another order than their numbers."""
    for group, members in _group_by_name(installation).items():
        by_bytes = sorted(member.sts.name for member in members)
        by_number = sorted(by_bytes, key=natural_key)
        if by_bytes != by_number:
            text = f"the order is {join_names(by_bytes, shown=len(by_bytes))}"
            yield find(FindingCode.ZONE_ORDER, f"group {group}", text)


def check_values(installation: Installation) -> Iterator[Finding]:
    """Yield what the planner warns of: values that it cannot use."""
    for members in _group_by_name(installation).values():
        for member in members:
            for _, problem in list_odd_values(member.sts):
                yield find(FindingCode.ODD_VALUE, _name(member), problem)


def check_preparing(installation: Installation) -> Iterator[Finding]:
    """Yield sets whose pods are to be prepared nowhere, or that say where and not that."""
    for sts in installation.sets:
        if is_labelled(sts.sts.labels, PREPARE_DOWNSCALE):
            target = plan_target(sts.sts.annotations, sts.sts.service_name)
            if isinstance(target, NoTarget):
                yield find(FindingCode.PREPARE_INCOMPLETE, _name(sts), target.problem)
        elif PREPARE_DOWNSCALE not in sts.labels:
            misplaced = sorted({PREPARE_PATH, PREPARE_PORT} & sts.annotations.keys())
            if misplaced:
                text = f"it has {join_names(misplaced)} without the label {PREPARE_DOWNSCALE}"
                yield find(FindingCode.PREPARE_WITHOUT_LABEL, _name(sts), text)


def check_leading_zones(installation: Installation) -> Iterator[Finding]:
    """Yield zones that follow a zone which is not in their group."""
    for members in _group_by_name(installation).values():
        names = {member.sts.name for member in members}
        for member in members:
            leading = member.sts.annotations.get(LEADING_ZONE)
            if leading is not None and leading not in names:
                text = f'annotation {LEADING_ZONE}: "{leading}" is no zone of its group'
                yield find(FindingCode.LEADING_ZONE_UNKNOWN, _name(member), text)


def natural_key(name: str) -> list[tuple[int, int | str]]:
    """Return what orders names as people do: numbers by what they count."""
    return [(0, int(part)) if part.isdigit() else (1, part) for part in _DIGITS.split(name) if part]


def _group_by_name(installation: Installation) -> Mapping[str, list[ZoneSet]]:
    groups: dict[str, list[ZoneSet]] = {}
    for member in sorted(installation.members, key=lambda member: member.sts.name):
        groups.setdefault(f"{member.sts.group}", []).append(member)
    return dict(sorted(groups.items()))


def _name(sts: ZoneSet) -> str:
    return f"StatefulSet {sts.sts.name}"
