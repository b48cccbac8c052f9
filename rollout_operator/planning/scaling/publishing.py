"""What the object that zones mirror is told of their counts: MIRR-10, SEED-069.

One value for all zones that mirror it (W-19): the count of the one that is furthest from what is
wanted, so that it reads as done only when all of them are.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from rollout_operator.model.names import Uid
from rollout_operator.model.objects import StatefulSet
from rollout_operator.model.outcome import Code, Reason
from rollout_operator.model.scaling import PublishReplicas, Reference, Scale, ScalingSnapshot
from rollout_operator.planning.scaling.desired import count_replicas
from rollout_operator.planning.scaling.following import follows
from rollout_operator.planning.scaling.mirroring import find_reference, read_write_back


@dataclass(frozen=True, slots=True, kw_only=True)
class _Mirror:
    sts: StatefulSet
    count: int


def list_mirrored(sets: Iterable[StatefulSet]) -> dict[Reference, list[StatefulSet]]:
    """Return which sets mirror which object, in the order of references and of `sets`."""
    found: dict[Reference, list[StatefulSet]] = {}
    for sts in sets:
        reference = None if follows(sts) else find_reference(sts)
        if isinstance(reference, Reference):
            found.setdefault(reference, []).append(sts)
    return dict(sorted(found.items()))


def choose_published(
    sets: Iterable[StatefulSet], scaled: Collection[Uid], scaling: ScalingSnapshot
) -> tuple[PublishReplicas, ...]:
    """Return what is to be written, in the order of references.

    Zones of other groups have their part in it, so that no two groups publish against each other.
    Nothing where one of the zones is in `scaled`, those that are scaled right now: it would be
    written twice.
    """
    found: list[PublishReplicas] = []
    others = list_mirrored(scaling.elsewhere)
    for reference, mirrors in list_mirrored(sets).items():
        reading = scaling.scales.get(reference)
        told = _list_told(mirrors, scaling)
        if not isinstance(reading, Scale) or not told:
            continue
        if any(one.sts.uid in scaled for one in told):
            continue
        told += _list_told(others.get(reference, ()), scaling)
        last = min(told, key=lambda one: (-abs(one.count - reading.replicas), one.count))
        if last.count != reading.status_replicas:
            found.append(_publish(reference, reading, last))
    return tuple(found)


def _list_told(mirrors: Iterable[StatefulSet], scaling: ScalingSnapshot) -> list[_Mirror]:
    return [
        _Mirror(sts=sts, count=count_replicas(sts, scaling))
        for sts in mirrors
        if read_write_back(sts) is True
    ]


def _publish(reference: Reference, reading: Scale, last: _Mirror) -> PublishReplicas:
    text = (
        f"{reference}: status.replicas {reading.status_replicas} → {last.count},"
        f" as {last.sts.name} has; {reading.replicas} wanted"
    )
    reason = Reason(code=Code.SCALE_PUBLISHED, text=text, zone=last.sts.name)
    return PublishReplicas(reference=reference, replicas=last.count, reason=reason)
