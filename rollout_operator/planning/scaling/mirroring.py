"""What a zone that mirrors an object with a `scale` should count: MIRR-01 to 11.

Decides which object that is, and by what is known of it what the zone should count; how it is found
and read is left to `kube`. What is published there is decided in `publishing`, whether a downscale
may go on in `permission`, and what pods have to say to it in `pod_answers`.
"""

import re
from collections.abc import Collection
from dataclasses import replace
from typing import Final

from rollout_operator.model.errors import InvalidInput
from rollout_operator.model.names import (
    FORCE_REPLICAS,
    MIRROR_API_VERSION,
    MIRROR_KIND,
    MIRROR_NAME,
    MIRROR_WRITE_BACK,
)
from rollout_operator.model.objects import StatefulSet
from rollout_operator.model.outcome import Code, Reason, Severity
from rollout_operator.model.scaling import NoScale, Reference, Scale, ScalingSnapshot
from rollout_operator.model.units import parse_go_bool
from rollout_operator.planning.downscales.endpoint import show
from rollout_operator.planning.scaling.annotations import complain, read_force
from rollout_operator.planning.scaling.delays import find_half_delay, read_delay
from rollout_operator.planning.scaling.desired import Aim

# All of it becomes part of a path: nothing but names may.
_KIND: Final = re.compile(r"[A-Za-z][A-Za-z0-9]{0,62}")
_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


def find_reference(sts: StatefulSet) -> Reference | Reason | None:
    """Return the object that a set mirrors, what is wrong with its name, or None for none.

    MIRR-02, 03: only the group of the `api-version` matters.
    """
    name = sts.annotations.get(MIRROR_NAME, "")
    kind = sts.annotations.get(MIRROR_KIND, "")
    if not name or not kind:
        return None
    written = sts.annotations.get(MIRROR_API_VERSION, "")
    group = written.rpartition("/")[0]
    if group and not _NAME.fullmatch(group):
        why = f"{show(written)} is neither group/version nor version"
        return complain(sts, Code.BAD_REFERENCE, MIRROR_API_VERSION, why)
    if not _KIND.fullmatch(kind):
        return complain(sts, Code.BAD_REFERENCE, MIRROR_KIND, f"{show(kind)} is no kind")
    if not _NAME.fullmatch(name) or ".." in name:
        why = f"{show(name)} is no name of an object"
        return complain(sts, Code.BAD_REFERENCE, MIRROR_NAME, why)
    return Reference(group, kind, name)


def choose_mirrored(sts: StatefulSet, followed: Collection[str], scaling: ScalingSnapshot) -> Aim:
    """Return what the count of a set should become that follows nobody.

    `followed` are the names of zones that others follow: the time between zones begins with them.
    """
    reference = find_reference(sts)
    if reference is None:
        return Aim(problems=_find_idle_annotations(sts))
    force = read_force(sts)
    problems = tuple(one for one in (force, read_write_back(sts)) if isinstance(one, Reason))
    if isinstance(reference, Reason):
        return Aim(problems=(reference, *problems), is_failure=True)
    aim = replace(
        _read_count(sts, reference, scaling),
        what=f"{sts.name} mirrors {reference}",
        keeps_apart=sts.name in followed,
    )
    if isinstance(force, int):
        note = f", forced by {FORCE_REPLICAS}"
        aim = replace(aim, replicas=force, note=note, is_forced=True, waits=(), is_failure=False)
    return _add_delay(sts, replace(aim, problems=(*aim.problems, *problems)))


def read_write_back(sts: StatefulSet) -> bool | Reason:
    """Tell whether the count of a mirroring set is published, or what is wrong with its switch."""
    try:
        return parse_go_bool(sts.annotations.get(MIRROR_WRITE_BACK, "true"))
    except InvalidInput as error:
        why = f"{error}; nothing is published of {sts.name}"
        return complain(sts, Code.BAD_SCALING_SWITCH, MIRROR_WRITE_BACK, why)


def _read_count(sts: StatefulSet, reference: Reference, scaling: ScalingSnapshot) -> Aim:
    reading = scaling.scales.get(reference)
    match reading:
        case Scale(replicas=replicas):
            return Aim(replicas=replicas)
        case NoScale(why=why, is_lasting=True):
            problem = complain(sts, Code.BAD_REFERENCE, MIRROR_NAME, why)
            return Aim(problems=(problem,), is_failure=True)
        case NoScale(why=why):
            text, severity = f"{sts.name} mirrors {reference}: {why}", Severity.INFO
        case None:
            text = f"{sts.name} mirrors {reference}, which has not been read yet"
            severity = Severity.DEBUG
    reason = Reason(code=Code.REFERENCE_NOT_READ, text=text, severity=severity, zone=sts.name)
    return Aim(waits=(reason,))


def _add_delay(sts: StatefulSet, aim: Aim) -> Aim:
    delay = read_delay(sts)
    if isinstance(delay, Reason):
        return replace(aim, problems=(*aim.problems, delay), may_shrink=False)
    half = find_half_delay(sts)
    problems = aim.problems if half is None else (*aim.problems, half)
    return replace(aim, delay=delay, problems=problems)


def _find_idle_annotations(sts: StatefulSet) -> tuple[Reason, ...]:
    """Return what somebody wrote for a zone whose count nobody but people decides."""
    found: list[Reason] = []
    for there, missing in ((MIRROR_NAME, MIRROR_KIND), (MIRROR_KIND, MIRROR_NAME)):
        if sts.annotations.get(there):
            why = f"annotation {missing} is not set or empty: nothing is mirrored"
            found.append(complain(sts, Code.BAD_REFERENCE, there, why))
    if FORCE_REPLICAS in sts.annotations:
        why = f"{sts.name} follows and mirrors nothing: it is ignored"
        found.append(complain(sts, Code.BAD_FORCE_REPLICAS, FORCE_REPLICAS, why))
    return tuple(found)
