"""Pods whose eviction was allowed and did not happen: each time, the next one is allowed later.

Another webhook or a PodDisruptionBudget may refuse what was allowed here, or the review was sent by
somebody who has no eviction to carry out. While such a grant stands it holds all other pods of the
budget; so what comes to nothing must not be granted again at once. That holds nobody else.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from rollout_operator.aio.backoff import Backoff
from rollout_operator.aio.clock import Clock
from rollout_operator.model.names import Uid
from rollout_operator.model.objects import Pod, Unreadable

# `kubectl drain` asks again after five seconds, and others have their turn before that.
PAUSES: Final = Backoff(first=timedelta(seconds=5), most=timedelta(minutes=1))
# After so long without another one a pod is like every other.
REMEMBERED: Final = timedelta(hours=1)
# More pods than one node holds; beyond that the one that was noted longest ago is forgotten.
MOST_PODS: Final = 1_000

FindPod = Callable[[str, str], Pod | Unreadable | None]
"""The cache's pod by namespace and name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unused:
    """How often evictions of one pod were allowed and did not happen."""

    pod: Pod
    times: int
    at: timedelta
    """When the last grant was taken back, on the clock's `elapsed`."""


class UnusedGrants:
    """All pods of which that is remembered, by UID."""

    def __init__(self, find_pod: FindPod, clock: Clock) -> None:
        self._find_pod = find_pod
        self._clock = clock
        self._by_uid: dict[Uid, Unused] = {}

    def __len__(self) -> int:
        return len(self._by_uid)

    def note(self, pod: Pod) -> None:
        """A grant of a pod was taken back: the pod is untouched."""
        times = self.count(pod.uid) + 1
        self._by_uid.pop(pod.uid, None)  # the newest is the last one
        self._by_uid[pod.uid] = Unused(pod=pod, times=times, at=self._clock.elapsed())
        self._forget_old()

    def count(self, pod: Uid) -> int:
        """Return how many grants of a pod came to nothing lately."""
        known = self._by_uid.get(pod)
        return known.times if known is not None and self._is_valid(known) else 0

    def wait_before(self, pod: Uid) -> timedelta:
        """Return for how long a pod is not to be allowed to go, zero where it may."""
        known = self._by_uid.get(pod)
        if known is None:
            return timedelta(0)
        left = known.at + PAUSES.bound(known.times) - self._clock.elapsed()
        return max(left, timedelta(0))

    def _forget_old(self) -> None:
        for uid, one in list(self._by_uid.items()):
            if len(self._by_uid) > MOST_PODS or not self._is_valid(one):
                del self._by_uid[uid]

    def _is_valid(self, one: Unused) -> bool:
        if self._clock.elapsed() - one.at >= REMEMBERED:
            return False
        cached = self._find_pod(one.pod.namespace, one.pod.name)
        return cached is not None and cached.uid == one.pod.uid
