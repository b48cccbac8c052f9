"""Notice that another operator rolls out a group: its outdated pods go without our doing (D-73).

Two operators that act on one group, two of ours without a Lease or one of grafana's, delete beside
one another, and no live read of ours binds the other operator. So a group is left alone while the
signs last, and taken up again where they end. Counts of replicas are written as ever: another
operator comes to the same counts, and a downscale waits for pods that are down whatever deleted
them.

A sign is a pod that was ready and at an outdated revision and turns terminating, other than

- by a delete of this process;
- by an eviction, a preemption or the end of its node: the pod says so itself, whichever client
requested it;
- because it is not wanted any more: its ordinal was scaled down, or its StatefulSet goes.

All others are deletes by other operators, and by people. Two within a minute may well be a
person's; that delays the group by a minute and does no harm. A pod that is found gone is no sign:
after a gap in the watch it is not known how it went. That may miss a sign, and the next follows.

While another process acts its deletes are no sign either, nor are those that an earlier process has
sent and the API server carries out late: so nothing counts until `COMMIT_LIMIT` after this process
has begun to act. The decision itself is taken in `planning.rollout.zones`.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, NamedTuple

from rollout_operator.aio.clock import Clock
from rollout_operator.guards.budgets.own_deletes import COMMIT_LIMIT, OwnDeletes
from rollout_operator.kube.cache.store import StatefulSetStore
from rollout_operator.model.group import OtherRollout
from rollout_operator.model.names import GroupName, Uid
from rollout_operator.model.objects import Pod, StatefulSet, Unreadable
from rollout_operator.planning.rollout.comparison import is_replaced, is_wanted
from rollout_operator.planning.rollout.zones import LEFT_ALONE

# Of a group. Two decide; the others are kept for signs that turn out to be a downscale's, of which
# the watch of StatefulSets is later than that of pods.
MOST_SIGNS: Final = 64


class _Sign(NamedTuple):
    """One pod that another operator seems to have deleted."""

    owner: Uid
    ordinal: int
    pod: str
    at: timedelta
    """On the clock's `elapsed`."""


@dataclass(slots=True)
class OtherOperators:
    """The groups that other operators roll out, as far as this process sees it."""

    sets: StatefulSetStore
    """By which outdated and wanted pods are found."""
    deletes: OwnDeletes
    clock: Clock
    count: Callable[[GroupName], None]
    """Called with each sign."""
    _signs: dict[GroupName, deque[_Sign]] = field(default_factory=dict, init=False)
    _counts_from: timedelta | None = field(default=None, init=False)

    def __len__(self) -> int:
        return len(self._signs)

    def begin(self) -> None:
        """Record that this process acts from now on, and no earlier process does."""
        self._counts_from = self.clock.elapsed() + COMMIT_LIMIT

    def on_pod(self, old: Pod | Unreadable | None, new: Pod | Unreadable | None) -> None:
        """Take over a pod that changed."""
        if not (isinstance(old, Pod) and isinstance(new, Pod) and old.is_ready):
            return
        now = self.clock.elapsed()
        if self._counts_from is None or now < self._counts_from or self.deletes.is_ours(old.uid):
            return
        sts = None if old.owner_uid is None else self.sets.get_by_uid(old.owner_uid)
        if not isinstance(sts, StatefulSet) or not is_replaced(sts, old, new):
            return
        group, ordinal = sts.group, sts.ordinal_of(old.name)
        if group is None or ordinal is None:
            return
        signs = self._signs.setdefault(group, deque(maxlen=MOST_SIGNS))
        signs.append(_Sign(sts.uid, ordinal, old.name, now))
        self.count(group)

    def find(self, group: GroupName, sets: Sequence[StatefulSet]) -> OtherRollout | None:
        """Return the rollout of a group by another operator; `sets` are its members as they are.

        Old signs are forgotten, and all signs of a group without members.
        """
        now, signs = self.clock.elapsed(), self._signs.get(group)
        if signs is None:
            return None
        if not sets or now - signs[-1].at >= LEFT_ALONE:
            del self._signs[group]
            return None
        by_uid = {sts.uid: sts for sts in sets}
        valid = [
            sign
            for sign in signs
            if (sts := by_uid.get(sign.owner)) is not None and is_wanted(sts, sign.ordinal)
        ]
        if len(valid) < 2:
            return None
        before, last = valid[-2:]
        left = last.at + LEFT_ALONE - now
        if last.at - before.at > LEFT_ALONE or left <= timedelta(0):
            return None
        return OtherRollout(pods=(before.pod, last.pod), left=left)
