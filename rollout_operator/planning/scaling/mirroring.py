"""What a zone that mirrors an object with a `scale` should count, and what is published there.

Decides which object that is, and by what is known of it what the zone should count (MIRR-01 to 11);
how it is found and read is left to `kube`. It gets one value for all zones that mirror it
(W-19): the replicas of the zone that is furthest from what is wanted, so that it is done only when
all zones are. Whether a downscale may go on is decided in `permission`, how far by the answers
of pods in `pod_answers`.
"""

import re
from collections.abc import Collection, Iterable
from typing import Final

from msgspec.structs import replace

from rollout_operator.model.errors import InvalidInput
from rollout_operator.model.names import (
    FORCE_REPLICAS,
    MIRROR_API_VERSION,
    MIRROR_KIND,
    MIRROR_NAME,
    MIRROR_WRITE_BACK,
    Uid,
)
from rollout_operator.model.objects import StatefulSet
from rollout_operator.model.outcome import Code, Reason, Severity
from rollout_operator.model.scaling import (
    NoScale,
    PublishReplicas,
    Reference,
    Scale,
    ScalingSnapshot,
)
from rollout_operator.model.units import parse_go_bool
from rollout_operator.planning.downscales.endpoint import show
from rollout_operator.planning.scaling.delays import find_half_delay, read_delay
from rollout_operator.planning.scaling.desired import (
    DesiredReplicas,
    complain,
    count_replicas,
    read_force,
)
from rollout_operator.planning.scaling.following import follows

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


def choose_mirrored(
    sts: StatefulSet, followed: Collection[str], scaling: ScalingSnapshot
) -> DesiredReplicas:
    """Return what the count of a set should become that follows no zone.

    `followed` are the names of zones that others follow: the time between zones begins with them.
    """
    reference = find_reference(sts)
    if reference is None:
        return DesiredReplicas(problems=_list_idle_annotations(sts))
    force = read_force(sts)
    problems = tuple(
        problem for problem in (force, read_write_back(sts)) if isinstance(problem, Reason)
    )
    if isinstance(reference, Reason):
        return DesiredReplicas(problems=(reference, *problems), is_failure=True)
    desired = replace(
        _read_count(sts, reference, scaling),
        what=f"{sts.name} mirrors {reference}",
        keeps_apart=sts.name in followed,
    )
    if isinstance(force, int):
        suffix = f", forced by {FORCE_REPLICAS}"
        desired = replace(
            desired, replicas=force, suffix=suffix, is_forced=True, waits=(), is_failure=False
        )
    return _add_delay(sts, replace(desired, problems=(*desired.problems, *problems)))


def read_write_back(sts: StatefulSet) -> bool | Reason:
    """Return whether a mirroring set's replicas are published, or what is wrong with its switch."""
    try:
        return parse_go_bool(sts.annotations.get(MIRROR_WRITE_BACK, "true"))
    except InvalidInput as error:
        why = f"{error}; nothing is published of {sts.name}"
        return complain(sts, Code.BAD_SCALING_SWITCH, MIRROR_WRITE_BACK, why)


def group_mirrors(sets: Iterable[StatefulSet]) -> dict[Reference, list[StatefulSet]]:
    """Return which sets mirror which object, in the order of references and of `sets`."""
    mirrors: dict[Reference, list[StatefulSet]] = {}
    for sts in sets:
        reference = None if follows(sts) else find_reference(sts)
        if isinstance(reference, Reference):
            mirrors.setdefault(reference, []).append(sts)
    return dict(sorted(mirrors.items()))


def choose_published(
    sets: Iterable[StatefulSet], scaled: Collection[Uid], scaling: ScalingSnapshot
) -> tuple[PublishReplicas, ...]:
    """Return what is to be written, in the order of references.

    Zones of other groups have their part in it, so that no two groups publish against each other.
    Nothing where one of the zones is in `scaled`, those that are scaled right now: it would be
    written twice.
    """
    published: list[PublishReplicas] = []
    others = group_mirrors(scaling.elsewhere)
    for reference, mirrors in group_mirrors(sets).items():
        scale = scaling.scales.get(reference)
        publishing = [sts for sts in mirrors if read_write_back(sts) is True]
        if not isinstance(scale, Scale) or not publishing:
            continue
        if any(sts.uid in scaled for sts in publishing):
            continue
        publishing += [sts for sts in others.get(reference, ()) if read_write_back(sts) is True]
        replicas, last = _choose_furthest(publishing, scale.replicas, scaling)
        if replicas != scale.status_replicas:
            text = (
                f"{reference}: status.replicas {scale.status_replicas} → {replicas},"
                f" as {last.name} has; {scale.replicas} wanted"
            )
            reason = Reason(Code.SCALE_PUBLISHED, text, zone=last.name)
            published.append(PublishReplicas(reference=reference, replicas=replicas, reason=reason))
    return tuple(published)


def _choose_furthest(
    sets: Iterable[StatefulSet], wanted: int, scaling: ScalingSnapshot
) -> tuple[int, StatefulSet]:
    """Return the replicas that are furthest from what is wanted, and the first set with them."""
    replicas = [(count_replicas(sts, scaling), sts) for sts in sets]
    return min(replicas, key=lambda pair: (-abs(pair[0] - wanted), pair[0]))


def _read_count(
    sts: StatefulSet, reference: Reference, scaling: ScalingSnapshot
) -> DesiredReplicas:
    reading = scaling.scales.get(reference)
    match reading:
        case Scale(replicas=replicas):
            return DesiredReplicas(replicas=replicas)
        case NoScale(why=why, is_lasting=True):
            problem = complain(sts, Code.BAD_REFERENCE, MIRROR_NAME, why)
            return DesiredReplicas(problems=(problem,), is_failure=True)
        case NoScale(why=why):
            text, severity = f"{sts.name} mirrors {reference}: {why}", Severity.INFO
        case None:
            text = f"{sts.name} mirrors {reference}, which has not been read yet"
            severity = Severity.DEBUG
    return DesiredReplicas(waits=(Reason(Code.REFERENCE_NOT_READ, text, severity, sts.name),))


def _add_delay(sts: StatefulSet, desired: DesiredReplicas) -> DesiredReplicas:
    delay = read_delay(sts)
    if isinstance(delay, Reason):
        return replace(desired, problems=(*desired.problems, delay), may_shrink=False)
    half = find_half_delay(sts)
    problems = desired.problems if half is None else (*desired.problems, half)
    return replace(desired, delay=delay, problems=problems)


def _list_idle_annotations(sts: StatefulSet) -> tuple[Reason, ...]:
    """Return the annotations without effect of a zone whose replicas people decide."""
    reasons: list[Reason] = []
    for there, missing in ((MIRROR_NAME, MIRROR_KIND), (MIRROR_KIND, MIRROR_NAME)):
        if sts.annotations.get(there):
            why = f"annotation {missing} is not set or empty: nothing is mirrored"
            reasons.append(complain(sts, Code.BAD_REFERENCE, there, why))
    if FORCE_REPLICAS in sts.annotations:
        why = f"{sts.name} follows and mirrors nothing: it is ignored"
        reasons.append(complain(sts, Code.BAD_FORCE_REPLICAS, FORCE_REPLICAS, why))
    return tuple(reasons)
