"""What became of a downscale that was allowed, and which pods stay after all.

Only the set itself says whether it happened: its answer may have been lost, refused by somebody
else, or taken back by a person right after.
"""

from collections.abc import Collection, Iterable
from enum import StrEnum, unique

from rollout_operator.model.downscale import Key
from rollout_operator.model.names import Uid
from rollout_operator.model.objects import Pod, StatefulSet


@unique
class Fate(StrEnum):
    """What the replicas that a set wants say of a downscale."""

    OPEN = "open"
    HAPPENED = "happened"
    FAILED = "failed"


def judge_downscale(key: Key, sts: StatefulSet, *, may_persist: bool) -> Fate:
    """Return what became of a downscale; `may_persist`: the API server may still write it.

    One that happened and was taken back is open again for as long: the same may be asked twice, and
    a pod that a downscale may still take away must not be told that it stays (SI-12).
    """
    if sts.replicas <= key.replicas_to:
        return Fate.HAPPENED
    return Fate.OPEN if may_persist else Fate.FAILED


def choose_staying(sts: StatefulSet, pods: Iterable[Pod], told: Collection[Uid]) -> tuple[Pod, ...]:
    """Return the pods that were told to go and that the set wants to keep, in order of ordinals."""
    staying: list[tuple[int, Pod]] = []
    for pod in pods:
        ordinal = sts.find_ordinal(pod.name, sts.ordinals)
        if ordinal is not None and pod.uid in told and not pod.is_terminating:
            staying.append((ordinal, pod))
    return tuple(pod for _, pod in sorted(staying, key=lambda one: one[0]))


def takes_away(key: Key, sts: StatefulSet, pod: str) -> bool:
    """Tell whether a downscale takes away the pod of that name."""
    ordinal = sts.ordinal_of(pod)
    return ordinal is not None and ordinal >= sts.first_ordinal + key.replicas_to


def is_over(pods: Iterable[Pod], told: Collection[Uid]) -> bool:
    """Tell whether all pods that were told are gone or on their way out."""
    return not any(pod.uid in told and not pod.is_terminating for pod in pods)
