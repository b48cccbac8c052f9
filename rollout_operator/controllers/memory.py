"""Memory of our own deletes, until the cache shows them.

A pod that we deleted still looks ready in a cache that lags. It counts as gone from before the
request is sent until the cache shows it terminating, replaced or absent. A delete without an answer
is kept as unknown: it is read back first, and as long as it may still be committed it counts as
gone, too.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta

from rollout_operator.aio.clock import Clock
from rollout_operator.model.group import Deletion
from rollout_operator.model.names import GroupName, Uid
from rollout_operator.model.objects import Pod, Unreadable

# An API server ends every request after 60 s (`--request-timeout`); a write that it holds cannot be
# committed later than that. The rest is room for a connection that was slow to deliver it.
COMMIT_LIMIT = timedelta(seconds=90)

FindPod = Callable[[str, str], Pod | Unreadable | None]
"""The cache's pod by namespace and name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnDelete:
    """One delete that we sent or are about to send."""

    group: GroupName
    pod: Pod
    state: Deletion
    sent_at: timedelta
    """When it was first sent, on the clock's `elapsed`."""
    was_sent_before: bool = False
    """An earlier request for the same pod got no answer and may still be carried out."""


class OwnDeletes:
    """All deletes that the cache does not show yet, by UID of the pod."""

    def __init__(self, find_pod: FindPod, clock: Clock) -> None:
        self._find_pod = find_pod
        self._clock = clock
        self._by_uid: dict[Uid, OwnDelete] = {}

    def __len__(self) -> int:
        return len(self._by_uid)

    def begin(self, group: GroupName, pod: Pod) -> None:
        """Remember a delete before it is sent: from now on its outcome may be unknown."""
        known = self._by_uid.get(pod.uid)
        self._by_uid[pod.uid] = OwnDelete(
            group=group,
            pod=pod,
            state=Deletion.UNKNOWN,
            sent_at=known.sent_at if known else self._clock.elapsed(),
            was_sent_before=known is not None,
        )

    def accept(self, pod: Pod) -> None:
        """The API server said yes, or shows that the delete was carried out."""
        known = self._by_uid.get(pod.uid)
        if known is not None:
            self._by_uid[pod.uid] = replace(known, state=Deletion.ACCEPTED)

    def drop(self, pod: Pod) -> None:
        """No delete of this pod that we sent can be carried out any more."""
        self._by_uid.pop(pod.uid, None)

    def withdraw(self, pod: Pod) -> None:
        """This request was turned away; an earlier one may still be carried out."""
        known = self._by_uid.get(pod.uid)
        if known is not None and not known.was_sent_before:
            del self._by_uid[pod.uid]

    def list_group(self, group: GroupName) -> Mapping[Uid, Deletion]:
        """Return what the cache does not show yet, and forget what it shows."""
        self._forget_seen(group)
        return {uid: own.state for uid, own in self._by_uid.items() if own.group == group}

    def list_unknown(self, group: GroupName) -> tuple[OwnDelete, ...]:
        """Return the deletes of the group whose outcome must be read back."""
        return tuple(
            own
            for own in self._by_uid.values()
            if own.group == group and own.state is Deletion.UNKNOWN
        )

    def may_still_commit(self, own: OwnDelete) -> bool:
        """Tell whether a delete without an answer could be carried out even now."""
        return self._clock.elapsed() - own.sent_at < COMMIT_LIMIT

    def longest_unseen(self, group: GroupName) -> timedelta:
        """Return for how long the oldest accepted delete of the group has not been seen."""
        now = self._clock.elapsed()
        return max(
            (
                now - own.sent_at
                for own in self._by_uid.values()
                if own.group == group and own.state is Deletion.ACCEPTED
            ),
            default=timedelta(0),
        )

    def _forget_seen(self, group: GroupName) -> None:
        for uid, own in list(self._by_uid.items()):
            if own.group == group and self._is_seen(own):
                del self._by_uid[uid]

    def _is_seen(self, own: OwnDelete) -> bool:
        cached = self._find_pod(own.pod.namespace, own.pod.name)
        if cached is None or cached.uid != own.pod.uid:
            return True
        return isinstance(cached, Pod) and cached.is_terminating
