"""StatefulSets that are played second by second, and a policy that is decided for each second.

What is deleted comes back at once at the update revision, and is ready some seconds later unless
its revision crashes. Each delete is judged by a count of its own, pod by pod.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import count
from typing import Any

from msgspec import structs
from msgspec.structs import replace

from rollout_operator.model.names import Revision, Uid
from rollout_operator.model.objects import Pod, StatefulSet
from rollout_operator.model.policy import Batch, PolicyPlan, PolicySnapshot
from rollout_operator.planning.policies import plan_policy
from tests.builders import NOW, pod, zone
from tests.planning.policies.snapshots import resolution, seconds, snapshot

STARTS_IN = 2
"""So many seconds after it was deleted a pod is ready again."""


class PlayedPolicy:
    """A policy, its StatefulSets by letter, and what was recorded so far."""

    def __init__(self, *zones: tuple[str, Sequence[str]], replicas: int = 3, **fields: Any) -> None:
        self.placed = resolution(*zones)
        self.fields = fields
        letters = [letter for _, members in zones for letter in members]
        self.zones = {letter: zone(letter, "l" * replicas) for letter in letters}
        self.zone_of = {letter: name for name, members in zones for letter in members}
        self.batch: Batch | None = None
        self.time = 0
        self.crashing: set[str] = set()
        self.down: set[Uid] = set()
        """Pods that crash by themselves."""
        self._uids = count()
        self._ready_at: dict[Uid, int] = {}

    @property
    def now(self) -> datetime:
        return NOW + seconds(self.time)

    def change_template(self, revision: str, *letters: str) -> None:
        for letter in letters or self.zones:
            self._change(letter, update_revision=Revision(revision))

    def scale(self, letter: str, replicas: int) -> None:
        self._change(letter, replicas=replicas)

    def tick(self, *, is_killed: bool = False) -> PolicyPlan:
        """Decide and act for one second; a process that is killed has recorded, and no more."""
        self._play_pods()
        plan = plan_policy(self.snapshot())
        before, self.batch = self.batch, plan.batch
        if plan.action is not None:
            self._judge(plan, before)
            if not is_killed:
                self._delete(one.pod for one in plan.action.going)
        for record in plan.records:
            self._change(record.zone.name[-1], current_revision=record.revision)
        self.time += 1
        return plan

    def snapshot(self) -> PolicySnapshot:
        case = snapshot(*self.zones.values(), batch=self.batch, now=self.now, **self.fields)
        return structs.replace(case, resolution=self.placed)

    def _play_pods(self) -> None:
        for letter, member in self.zones.items():
            sts = member.sts
            pods = [one for one in member.pods if (sts.ordinal_of(one.name) or 0) < sts.replicas]
            names = {one.name for one in pods}
            gaps = [place for place in sts.ordinals if f"zone-{letter}-{place}" not in names]
            pods += [self._create(letter, ordinal, sts) for ordinal in gaps]
            pods = [self._age(one) for one in pods]
            self.zones[letter] = structs.replace(member, pods=tuple(pods))
            up = sum(one.is_ready for one in pods)
            self._change(
                letter, ready_replicas=up, available_replicas=up, status_replicas=len(pods)
            )

    def _create(self, letter: str, ordinal: int, sts: StatefulSet) -> Pod:
        uid = Uid(f"new-{next(self._uids)}")
        self._ready_at[uid] = self.time + STARTS_IN - 1
        return pod(letter, ordinal, "N", uid=uid, revision=sts.update_revision, created=self.now)

    def _age(self, one: Pod) -> Pod:
        is_up = one.revision not in self.crashing and one.uid not in self.down
        is_up = is_up and self._ready_at.get(one.uid, 0) <= self.time
        if is_up == one.is_ready:
            return one
        since = self.now if is_up else None
        is_crashing = not is_up and one.revision in self.crashing
        return replace(
            one, is_ready=is_up, ready_since=since, was_ready=one.is_ready,
            is_crash_looping=is_crashing, never_ready=False,
        )  # fmt: skip

    def _delete(self, going: Iterable[Pod]) -> None:
        gone = {one.uid for one in going}
        for letter, member in self.zones.items():
            kept = tuple(one for one in member.pods if one.uid not in gone)
            self.zones[letter] = structs.replace(member, pods=kept)

    def _change(self, letter: str, **changes: object) -> None:
        member = self.zones[letter]
        self.zones[letter] = structs.replace(member, sts=replace(member.sts, **changes))

    def _judge(self, plan: PolicyPlan, before: Batch | None) -> None:
        """Assert what holds at every delete: D-88, MAZ-30 to MAZ-32, MAZ-36 and MAZ-40."""
        assert plan.action is not None
        assert self.batch is not None
        going = [one.pod for one in plan.action.going]
        assert {one.owner_uid for one in going} == {plan.action.zone.uid}
        assert {one.uid for one in going} <= {one.uid for one in self.batch.pods}
        letter = plan.action.zone.name[-1]
        is_harmless = all(one.never_ready or one.is_crash_looping for one in going)  # D-88
        for other, name in self.zone_of.items():
            if name != self.zone_of[letter] and not is_harmless:
                assert self._count_up(other) == self.zones[other].sts.replicas
        own = [other for other, name in self.zone_of.items() if name == self.zone_of[letter]]
        short = sum(self.zones[other].sts.replicas - self._count_up(other) for other in own)
        policy = self.snapshot().policy
        limit = policy.max_unavailable.of(plan.action.zone.replicas)
        healthy = sum(one.is_ready for one in going)
        assert healthy <= max(limit - short, 0)
        assert all(one.revision != plan.action.zone.update_revision for one in going)
        if healthy and before is not None and before.completion is not None:
            assert self.now - before.completion >= policy.interval

    def _count_up(self, letter: str) -> int:
        return sum(one.is_ready for one in self.zones[letter].pods)
