"""Which ordinals of a zone hold nothing, because none of their pods was ever ready (D-67, D-26).

An upscale adds ordinals; until a pod of theirs becomes ready there is no data in it, and it holds
up neither a downscale nor a rollout nor an eviction. The successor of a pod that was ready, deleted
or evicted a moment ago, looks the same: that nothing came before a pod is known only from what this
process saw of its ordinal, over a settling time (`guards.downscales.newcomers`); that it was not
ready itself, also from its own status.
"""

from datetime import timedelta
from typing import Final

from rollout_operator.model.group import Newcomers, Zone
from rollout_operator.model.objects import Pod
from rollout_operator.planning.wording import join_names

# What is left of the settling time is shown in steps: a message that changes each second is noise.
_STEP: Final = timedelta(seconds=10)


def count_used(zone: Zone) -> int:
    """Return how many replicas hold something, or may: all ordinals above never held anything.

    Whatever is in doubt is used. Work goes with the pods that exist, not with `spec.replicas`.
    """
    sts, seen = zone.sts, zone.newcomers
    if seen is None or seen.used >= sts.replicas or seen.settles_in or _is_doubtful(zone):
        return sts.replicas
    first = sts.first_ordinal
    held = [ordinal for ordinal, pod in zone.list_pods(sts.ordinals) if not _is_new(seen, pod)]
    used = max([seen.used, *(ordinal - first + 1 for ordinal in held)])
    # A second witness: a pod that the cache does not show as ready.
    return sts.replicas if sts.ready_replicas > used else used


def find_settling(zone: Zone) -> timedelta | None:
    """Return after how long ordinals of a zone count as never used, None where none will."""
    sts, seen = zone.sts, zone.newcomers
    if seen is None or not seen.settles_in or seen.used >= sts.replicas:
        return None
    return seen.settles_in


def render_settling(*zones: Zone) -> str:
    """Return when what is new in zones counts as never used, empty where nothing will."""
    waits = {zone.sts.name: left for zone in zones if (left := find_settling(zone))}
    if not waits:
        return ""
    seconds = -(-max(waits.values()) // _STEP) * int(_STEP.total_seconds())
    return f"new replicas of {join_names(sorted(waits))} count as never used in about {seconds}s"


def _is_doubtful(zone: Zone) -> bool:
    seen = zone.newcomers
    assert seen is not None, "checked by the caller"
    return (
        seen.generation != zone.sts.generation
        or bool(zone.own_unreadable)
        # A pod is gone whose end was not seen yet: it may have been ready.
        or not seen.pods <= {pod.uid for pod in zone.pods}
    )


def _is_new(seen: Newcomers, pod: Pod) -> bool:
    """Return whether a pod surely holds nothing."""
    is_new = pod.uid in seen.pods
    return is_new and not (pod.is_ready or pod.was_ready or pod.is_terminating)
