"""What is known of the time after a dump that it does not hold: given to `simulate` as changes.

Pure. That an image is bad shows only where one of its pods has crashed; those that have not are
named. `list_crashes` speaks of the pods of one moment, `in_time` brings all changes into order.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta

from rollout_lab.simulate.changes import parse_change

from tests.world.api import Json
from tests.world.kubelet import image_of

# After which a pod that was created has been seen, and is not ready: none is so soon.
SEEN_AFTER = timedelta(seconds=0.5)


def list_crashes(
    names: Iterable[str], pods: Sequence[Json], image: str, ends_after: timedelta
) -> Iterator[str]:
    """Yield that pods of a bad image will crash: those that start, and those that come next."""
    there = {str(pod["metadata"]["name"]): pod for pod in pods}
    for name in names:
        pod = there.get(name)
        if pod is None:
            yield f"pod {name} fails at {SEEN_AFTER.total_seconds():.2f}s"
        elif "deletionTimestamp" in pod["metadata"]:
            yield f"pod {name} fails at {(ends_after + SEEN_AFTER).total_seconds():.2f}s"
        elif image_of(pod) == image and not _has_crashed(pod):
            yield f"pod {name} fails at 0s"


def _has_crashed(pod: Json) -> bool:
    statuses = pod.get("status", {}).get("containerStatuses", ())
    return any("waiting" in one["state"] for one in statuses)


def in_time(changes: Iterable[str]) -> tuple[str, ...]:
    """Return changes in the order of their times; those at once keep theirs."""
    return tuple(sorted(changes, key=lambda text: parse_change(text).at or timedelta(0)))
