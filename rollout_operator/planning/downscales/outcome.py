"""What became of a downscale that was allowed, and which pods stay after all.

Only the set itself says whether it happened: its answer may have been lost, refused by another
webhook, or reverted by a person right after.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum, unique
from typing import Final

from rollout_operator.model.downscale import Key
from rollout_operator.model.names import Uid
from rollout_operator.model.objects import Pod, StatefulSet

# A pod carries the whole second in which it came, and a record a time up to a second ahead.
_ROUNDING: Final = timedelta(seconds=2)


@unique
class DownscaleOutcome(StrEnum):
    """What the replicas that a set wants say of a downscale."""

    OPEN = "open"
    HAPPENED = "happened"
    FAILED = "failed"


def judge_downscale(key: Key, sts: StatefulSet, *, may_persist: bool) -> DownscaleOutcome:
    """Return what became of a downscale; `may_persist`: the API server may still write it.

    A downscale that happened and was reverted is open again for as long: the same may be requested
    twice, and a pod that a downscale may still take away must not be un-prepared (SI-12).
    """
    if sts.replicas <= key.replicas_to:
        return DownscaleOutcome.HAPPENED
    return DownscaleOutcome.OPEN if may_persist else DownscaleOutcome.FAILED


def choose_staying(
    sts: StatefulSet, pods: Iterable[Pod], called: Mapping[Uid, str]
) -> dict[Uid, Pod]:
    """Return the pods to un-prepare, by the UID that was prepared, in order of ordinals.

    `called` has the names. A pod that has gone meanwhile, and is wanted, is followed by another pod
    of its name, which may find on its disk that it is to go: it is called when it runs.
    """
    present = {pod.name: pod for pod in pods if not pod.is_terminating}
    candidates: list[tuple[int, Uid, Pod]] = []
    for uid, name in called.items():
        pod, ordinal = present.get(name), sts.find_ordinal(name, sts.ordinals)
        if pod is not None and ordinal is not None and (pod.uid == uid or pod.ip):
            candidates.append((ordinal, uid, pod))
    return {uid: pod for _, uid, pod in sorted(candidates, key=lambda pair: pair[0])}


def took_pods(sts: StatefulSet, pods: Iterable[Pod], called: Mapping[Uid, str]) -> bool:
    """Return whether a pod that was prepared has gone, or is going, though its set wants it.

    Then the downscale has happened and was reverted, whether or not a watch has shown it.
    `called` has the names.
    """
    present = {pod.uid for pod in pods if not pod.is_terminating}
    return any(uid not in present and is_wanted(sts, name) for uid, name in called.items())


def find_replaced(
    key: Key, sts: StatefulSet, pods: Iterable[Pod], at: datetime, now: datetime
) -> datetime | None:
    """Return when the newest pod came of a downscale of about `at`, None where none came after it.

    Then it has happened, and was reverted: `now` where a pod is still to come. The answer is a
    time of the API server, however `at` was forged: at most it says what is so.
    """
    taken = range(sts.first_ordinal + key.replicas_to, sts.first_ordinal + key.replicas_from)
    wanted = range(taken.start, min(taken.stop, sts.ordinals.stop))
    came = [pod.created for pod in pods if sts.find_ordinal(pod.name, wanted) is not None]
    if len(came) < len(wanted):
        return now
    newest = max((now if time is None else time for time in came), default=None)
    return newest if newest is not None and at - newest <= _ROUNDING else None


def is_wanted(sts: StatefulSet, name: str) -> bool:
    """Return whether a set wants a pod of that name."""
    return sts.find_ordinal(name, sts.ordinals) is not None


def spares(key: Key, sts: StatefulSet, pod: str) -> bool:
    """Return whether a downscale surely leaves the pod of that name where it is."""
    ordinal = sts.ordinal_of(pod)
    return ordinal is not None and ordinal < sts.first_ordinal + key.replicas_to


def is_over(pods: Iterable[Pod], called: Collection[Uid]) -> bool:
    """Return whether all pods that were prepared are gone or on their way out."""
    return not any(pod.uid in called and not pod.is_terminating for pod in pods)
