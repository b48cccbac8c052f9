"""Memory of our own deletes, until the cache shows them.

A pod that we deleted still looks ready in a cache that lags. It counts as gone from before the
request is sent until the cache shows it terminating, replaced or absent. A delete without an answer
is kept as unknown: it is read back first, and as long as it may still be committed it counts as
gone, too.
"""

from collections.abc import Collection, Iterator, Mapping
from datetime import timedelta
from typing import Final

import msgspec
from msgspec.structs import replace

from rollout_operator.aio.clock import Clock
from rollout_operator.kube.cache.store import PodStore
from rollout_operator.model.group import Deletion
from rollout_operator.model.names import Uid
from rollout_operator.model.objects import Pod

# An API server ends every request after 60 s (`--request-timeout`); a write that it holds cannot be
# committed later than that. The rest is room for a connection that was slow to deliver it.
COMMIT_LIMIT: Final = timedelta(seconds=90)
# A list is reported in steps, between which groups are reconciled: pods that it shows on their way
# out are forgotten before all are reported.
REPORTED_WITHIN: Final = timedelta(minutes=1)


class OwnDelete(msgspec.Struct, frozen=True, kw_only=True):
    """One pod that we deleted or are about to."""

    pod: Pod
    state: Deletion
    sent_at: timedelta
    """When the newest request was sent, on the clock's `elapsed`."""
    accepted_at: timedelta | None = None
    was_sent_before: bool = False
    """An earlier request for the same pod got no answer and may still be carried out."""


class OwnDeletes:
    """All deletes that the cache does not show yet, by UID of the pod.

    They are found by the UIDs of the StatefulSets that control the pods: a set that moves to
    another group takes its pods along.
    """

    def __init__(self, pods: PodStore, clock: Clock) -> None:
        self._pods = pods
        self._clock = clock
        self._by_uid: dict[Uid, OwnDelete] = {}
        self._seen: dict[Uid, timedelta] = {}
        """When the cache showed the deletes forgotten here, for `REPORTED_WITHIN`: the oldest
        first."""

    def __len__(self) -> int:
        return len(self._by_uid)

    def begin(self, pod: Pod) -> None:
        """Remember a delete before it is sent: from now on its outcome may be unknown."""
        self._by_uid[pod.uid] = OwnDelete(
            pod=pod,
            state=Deletion.UNKNOWN,
            sent_at=self._clock.elapsed(),
            was_sent_before=pod.uid in self._by_uid,
        )

    def accept(self, pod: Pod) -> None:
        """Record that the API server accepted the delete, or shows that it was carried out."""
        deleted = self._by_uid.get(pod.uid)
        if deleted is not None:
            now = self._clock.elapsed()
            self._by_uid[pod.uid] = replace(deleted, state=Deletion.ACCEPTED, accepted_at=now)

    def drop(self, pod: Pod) -> None:
        """Forget a pod: no delete of it that we sent can be carried out any more."""
        self._by_uid.pop(pod.uid, None)

    def refuse(self, pod: Pod) -> None:
        """Record that this request was refused; an earlier request may still be carried out."""
        deleted = self._by_uid.get(pod.uid)
        if deleted is not None and not deleted.was_sent_before:
            del self._by_uid[pod.uid]

    def map_deletions(self, owners: Collection[Uid]) -> Mapping[Uid, Deletion]:
        """Return the deletes that the cache does not show yet, and forget those that it shows."""
        now = self._clock.elapsed()
        for uid, own in list(self._by_uid.items()):
            if has_left(self._pods, own.pod):
                del self._by_uid[uid]
                self._seen[uid] = now
        while self._seen and now - next(iter(self._seen.values())) >= REPORTED_WITHIN:
            del self._seen[next(iter(self._seen))]
        return {own.pod.uid: own.state for own in self._of(owners)}

    def is_ours(self, pod: Uid) -> bool:
        """Return whether a pod goes, may go, or went a moment ago, deleted by this process."""
        return pod in self._by_uid or pod in self._seen

    def list_unknown(self, owners: Collection[Uid]) -> tuple[OwnDelete, ...]:
        """Return the deletes whose outcome must be read back."""
        return tuple(own for own in self._of(owners) if own.state is Deletion.UNKNOWN)

    def may_still_commit(self, own: OwnDelete) -> bool:
        """Return whether a delete without an answer could be carried out even now."""
        return self._clock.elapsed() - own.sent_at < COMMIT_LIMIT

    def longest_unseen(self, owners: Collection[Uid]) -> timedelta:
        """Return for how long the oldest accepted delete has not been seen."""
        now = self._clock.elapsed()
        accepted = [own.accepted_at for own in self._of(owners) if own.accepted_at is not None]
        return now - min(accepted, default=now)

    def _of(self, owners: Collection[Uid]) -> Iterator[OwnDelete]:
        return (own for own in self._by_uid.values() if own.pod.owner_uid in owners)


def has_left(pods: PodStore, pod: Pod) -> bool:
    """Return whether the cache shows a pod on its way out, replaced or absent."""
    cached = pods.get(pod.namespace, pod.name)
    if cached is None or cached.uid != pod.uid:
        return True
    return isinstance(cached, Pod) and cached.is_terminating
