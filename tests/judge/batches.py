"""What is promised of MultiAZRollouts at every moment: MAZ-25, 30 to 33, 36, 40, 43, 46 and SI-17.

Checked at the commit of each delete by the operator of a pod that a policy owned at that time, and
at each batch that the operator records. What a policy says is taken from its object as it was in
the last five seconds: a promise is broken where it was so in all of its states. Pods, pauses and
zones are counted anew from what the store had; of a status only the pods, the number and the end of
a batch are read. SI-07 and SI-08 of the same deletes are judged in `rollouts`.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Final

import msgspec
from msgspec.structs import replace

from tests.judge.book import NO_TIME, Book, World, Write
from tests.judge.deletes import Delete, list_unanswered, map_deletes
from tests.judge.objects import Json, Pod, Set
from tests.judge.policies import (
    Owned,
    PolicyBook,
    RecordedBatch,
    count_limit,
    read_batch,
    read_policies,
)
from tests.judge.promises import Violation


class PolicyDisruption(msgspec.Struct, frozen=True):
    """A delete of the operator for a policy; it lasts until a new pod of that name is up."""

    pod: Pod
    delete: Delete
    batch: RecordedBatch | None
    revision: str  # the update revision of the set at that time
    begun: timedelta
    disturbs: bool = True  # whether its zone was shorter after it (D-88)


class Outage(msgspec.Struct, frozen=True):
    """When a wanted pod was not available; the end is that of its `minReadySeconds`."""

    begun: timedelta
    ended: timedelta | None = None

    def lasts(self, known: timedelta, at: timedelta) -> bool:
        """Return whether it is one at a time, and had begun when it had to be known."""
        return self.begun <= known and (self.ended is None or self.ended > at)


class Pause(msgspec.Struct):
    """Since when the pods of a policy are whole, for the pause that counts from it."""

    batch: RecordedBatch | None = None  # the last one of which a pod was deleted
    short_since: timedelta | None = None
    is_open: bool = False  # whether a pod was deleted since all of them were available last
    begun: timedelta | None = None

    def take(self, shorts: Iterable[Outage], interval: timedelta, at: timedelta) -> None:
        ends = [one.ended for one in shorts]
        if None in ends:
            self.short_since = at if self.short_since is None else self.short_since
        elif self.short_since is not None:
            is_running = self.begun is not None and self.short_since < self.begun + interval
            if self.is_open or is_running:
                self.begun = max([at, *(one for one in ends if one is not None)])
            self.short_since, self.is_open = None, False


class PolicyWorld(msgspec.Struct):
    world: World
    deletes: dict[int, Delete]
    outages: dict[str, Outage] = {}  # by pod name, the newest of each
    pauses: dict[str, Pause] = {}  # by UID of a policy
    open: list[PolicyDisruption] = []

    def take(self, write: Write, owned: Mapping[str, Owned]) -> None:
        self.world.take(write)
        self._take_outages(write.at)
        self.open = [one for one in self.open if self.world.lacks(one.pod)]
        for policy in {one.policy.uid: one.policy for one in owned.values()}.values():
            uids = {uid for uid, one in owned.items() if one.policy.uid == policy.uid}
            pause = self.pauses.setdefault(policy.uid, Pause())
            pause.take(self._list_outages(uids), policy.interval, write.at)

    def forget_left(self, owned: Mapping[str, Owned]) -> None:
        """Forget batches whose StatefulSet a policy owns no more: they are over (MAZ-47)."""
        kept = {(one.policy.uid, self.world.sets[uid].name) for uid, one in owned.items()}
        for policy, pause in self.pauses.items():
            if pause.batch is not None and (policy, pause.batch.set_name) not in kept:
                self.pauses[policy] = Pause()

    def disrupt(self, one: PolicyDisruption, policies: Iterable[str]) -> None:
        self.open.append(one)
        for uid in policies:
            pause = self.pauses.setdefault(uid, Pause())
            pause.is_open, pause.batch = True, one.batch or pause.batch

    def list_short(self, zone: Set, known: timedelta, at: timedelta) -> list[str]:
        """Return the wanted pods of a set that are not available, and that must be known to be."""
        named = ((name, self.outages.get(name)) for name in zone.pod_names)
        return [name for name, outage in named if outage and outage.lasts(known, at)]

    def _take_outages(self, at: timedelta) -> None:
        shorts = self.world.short_since
        for name, begun in shorts.items():
            if name not in self.outages or self.outages[name].ended is not None:
                before = self.outages.get(name)
                is_same = before is not None and before.lasts(at, at)
                self.outages[name] = Outage(before.begun if is_same and before else begun)
        for name, outage in self.outages.items():
            if outage.ended is None and name not in shorts:
                pod = self.world.pods.get(name)
                zone = self.world.sets.get(pod.owner) if pod else None
                patience = zone.min_ready if zone else NO_TIME
                self.outages[name] = replace(outage, ended=at + patience)

    def _list_outages(self, uids: Collection[str]) -> list[Outage]:
        sets = [self.world.sets[uid] for uid in uids if uid in self.world.sets]
        names = [name for zone in sets for name in zone.pod_names]
        known = [self.outages[name] for name in names if name in self.outages]
        # A new pod of an upscale that was deleted before it was ever ready had none.
        for one in self.open:
            outage = self.outages.get(one.pod.name)
            is_known = outage and (outage.ended is None or outage.ended >= one.begun)
            if one.pod.owner in uids and not is_known:
                known.append(Outage(one.begun))
        return known


class PolicyCase(msgspec.Struct, frozen=True):
    """One delete of a pod that a policy owned, at its commit."""

    state: PolicyWorld
    book: Book
    policies: PolicyBook
    pod: Pod
    owner: Set
    owners: tuple[Owned, ...]  # all that owned it in the last five seconds
    batch: RecordedBatch | None
    delete: Delete
    at: timedelta

    @property
    def known(self) -> timedelta:
        """Return when a fact must have begun to be one that the operator had to know."""
        return self.delete.cut(self.at - self.book.promises.known)

    @property
    def is_healthy(self) -> bool:
        """Return whether it was available: else it costs nothing, and waits for nothing."""
        if not self.disturbs:
            return False
        outage = self.state.outages.get(self.pod.name)
        return outage is None or (outage.ended is not None and outage.ended <= self.at)

    @property
    def disturbs(self) -> bool:
        return self.state.world.serves(self.pod)

    @property
    def pause(self) -> Pause:
        return self.state.pauses.get(self.owners[-1].policy.uid, Pause())

    @property
    def interval(self) -> timedelta:
        return min(one.policy.interval for one in self.owners)

    @property
    def goes_on(self) -> bool:
        """Return whether its batch has begun before, or the one before was not wanted any more."""
        last, batch = self.pause.batch, self.batch
        if last is None or batch is None:
            return True
        is_same = (last.policy_uid, last.number) == (batch.policy_uid, batch.number)
        # Late on its way, it was sent before the last one was recorded.
        if is_same or self.delete.sent_at < last.at:
            return True
        unanswered = list_unanswered(self.state.deletes, self.delete)
        if any(one.sent_at >= batch.at for one in unanswered):
            return True
        sets = self.state.world.window(self.owner.uid, self.known)
        is_for = last.set_name == self.owner.name
        has_changed = any(one.update_revision != last.revision for one in [self.owner, *sets])
        has_ended = False
        for one in self.policies.batches:
            if one.at <= self.at and (one.policy_uid, one.number) == (last.policy_uid, last.number):
                # A pod that fails in the pause opens it again, unless it was superseded by then.
                known = one.at - self.book.promises.known
                wanted = self.state.world.past[self.owner.uid].window(known, one.at)
                is_wanted = any(each.update_revision == last.revision for each in wanted)
                has_ended = one.is_complete or (has_ended and not is_wanted)
        return is_for and has_changed and not has_ended

    def list_sets(self, *, is_near: bool) -> list[Set]:
        """Return the other sets of the policy: of the same zone, or of another.

        Only what was so for all of the last five seconds.
        """
        window = self.policies.window(self.known, self.at)
        return [
            zone
            for zone in self.state.world.sets.values()
            if zone.uid != self.owner.uid
            if all(_is_beside(state, self.owner, zone, is_near=is_near) for state in window)
        ]

    def forgives(self, other: PolicyDisruption) -> bool:
        """Return whether it disturbed nothing, or could not be seen.

        The latter where a dead process had requested one of the two.
        """
        if not other.disturbs:
            return True
        is_hidden = other.delete.is_ghost and self.delete.may_miss(other.begun)
        return self.delete.is_ghost or is_hidden


def _is_beside(state: Mapping[str, Owned], zone: Set, other: Set, *, is_near: bool) -> bool:
    mine, its = state.get(zone.uid), state.get(other.uid)
    if mine is None or its is None or mine.policy.uid != its.policy.uid:
        return False
    return (mine.zone == its.zone) == is_near


def list_broken(book: Book) -> Iterator[Violation]:
    policies = read_policies(book)
    if not policies.owned.begins:
        return
    yield from _list_misnumbered(book)
    state = PolicyWorld(World(spares_new=not book.promises.is_observed), map_deletes(book))
    for write in book.writes:
        requested = state.deletes.get(write.commit.call)
        owned = policies.owned.find(write.at) or {}
        if write.ended_pod is not None and requested is not None:
            state.forget_left(owned)
            yield from _judge_end(state, book, policies, (write, requested))
        state.take(write, owned)


def _judge_end(
    state: PolicyWorld, book: Book, policies: PolicyBook, what: tuple[Write, Delete]
) -> Iterator[Violation]:
    write, requested = what
    pod, at = write.ended_pod, write.at
    assert pod is not None, "requested only then"
    found = policies.list_owners(pod.owner, requested.cut(at - book.promises.known), at)
    owners = tuple(one for one in found if one is not None)
    owner = state.world.find_owner(pod.owner, at - book.promises.known)
    if owner is None or not owners:
        return
    batch = policies.find_batch(pod, at)
    if batch is not None or len(owners) == len(found):
        case = PolicyCase(state, book, policies, pod, owner, owners, batch, requested, at)
        for invariant, check in CHECKS.items():
            for text in check(case):
                text = f"delete of {pod.name}: {text}"
                yield Violation(invariant, at, text, is_promised=not requested.is_ghost)
    revision, disturbs = owner.update_revision, state.world.serves(pod)
    one = PolicyDisruption(pod, requested, batch, revision, at, disturbs)
    state.disrupt(one, {each.policy.uid for each in owners})


def _recorded(case: PolicyCase) -> Iterator[str]:
    if case.batch is None and case.owner.group is None:
        yield "no batch of its policy had recorded it"


def _driven(case: PolicyCase) -> Iterator[str]:
    if case.batch is None and case.owner.group is not None:
        name = case.owners[-1].policy.name
        yield f"policy {name} drives group {case.owner.group}, and had not recorded it"


def _one_batch(case: PolicyCase) -> Iterator[str]:
    pause = case.pause
    if case.is_healthy and case.interval and pause.is_open and not case.goes_on:
        number = pause.batch.number if pause.batch else 0
        if not all(map(case.forgives, case.state.open)) or not case.state.open:
            yield f"batch {number} is not complete"


def _one_zone(case: PolicyCase) -> Iterator[str]:
    others = {zone.uid for zone in case.list_sets(is_near=False)}
    found = [one for one in case.state.open if one.pod.owner in others]
    if case.disturbs and found and not all(map(case.forgives, found)):
        names = ", ".join(one.pod.name for one in found)
        yield f"the operator's disruption of another zone is not over: {names}"


def _one_set(case: PolicyCase) -> Iterator[str]:
    near = {zone.uid: zone for zone in case.list_sets(is_near=True)}
    found = [
        one
        for one in case.state.open
        if one.pod.owner in near and one.revision == near[one.pod.owner].update_revision
    ]
    if case.is_healthy and found and not all(map(case.forgives, found)):
        names = ", ".join(one.pod.name for one in found)
        yield f"another StatefulSet of its zone has its turn: {names}"


def _others_whole(case: PolicyCase) -> Iterator[str]:
    at = case.at + case.book.promises.time_error
    for zone in case.list_sets(is_near=False) if case.disturbs else ():
        for name in case.state.list_short(zone, case.known, at):
            yield f"{name} of another zone is not available"


def _within_limit(case: PolicyCase) -> Iterator[str]:
    if not case.is_healthy:
        return
    near = [case.owner, *case.list_sets(is_near=True)]
    at = case.at + case.book.promises.time_error
    missing = {name for zone in near for name in case.state.list_short(zone, case.known, at)}
    uids = {zone.uid for zone in near}
    own = [one for one in case.state.open if one.pod.owner in uids and not case.forgives(one)]
    missing |= {case.pod.name, *(one.pod.name for one in own)}
    sets = case.state.world.window(case.owner.uid, case.known)
    limit = max(count_limit(case.owners, one) for one in [case.owner, *sets])
    if len(missing) > limit:
        yield f"{len(missing)} of its zone missing, limit {limit}: {sorted(missing)}"


def _after_pause(case: PolicyCase) -> Iterator[str]:
    text = _name_shortened(case)
    if text and not case.book.runs.count_starts(case.pause.begun or NO_TIME, case.at):
        yield text


def _after_pause_of_others(case: PolicyCase) -> Iterator[str]:
    text = _name_shortened(case)
    if text and case.book.runs.count_starts(case.pause.begun or NO_TIME, case.at):
        yield f"{text}, and a process began in it"


def _name_shortened(case: PolicyCase) -> str:
    begun = case.pause.begun
    if begun is None or case.pause.is_open or not case.is_healthy or case.goes_on:
        return ""
    passed = case.at - begun
    if passed + case.book.promises.time_error >= case.interval:
        return ""
    return f"{passed.total_seconds():.1f} s of a pause of {case.interval.total_seconds():.0f} s"


def _soaked(case: PolicyCase) -> Iterator[str]:
    """Yield that a batch began before the other zones had been whole for long enough."""
    world, others = case.state.world, case.list_sets(is_near=False)
    if not case.is_healthy or case.goes_on:
        return
    sets = [case.owner, *case.list_sets(is_near=True), *others]
    own = [min(each.soak for each in [one, *world.window(one.uid, case.known)]) for one in sets]
    soak = max(min(one.policy.zone_interval for one in case.owners), *own)
    passed = case.at - world.find_whole(others, case.known)
    if passed + case.book.promises.time_error < soak and world.is_begun(others):
        whole, wanted = passed.total_seconds(), soak.total_seconds()
        yield f"the other zones have been whole for {whole:.1f} s of {wanted:g}"


def _unpaused(case: PolicyCase) -> Iterator[str]:
    if not all(one.policy.is_paused for one in case.owners) or case.batch is None:
        return
    same = (case.batch.policy_uid, case.batch.number)
    recorded = (one for one in case.policies.batches if (one.policy_uid, one.number) == same)
    since = min(one.at for one in recorded) - case.book.promises.known
    owners = case.policies.list_owners(case.owner.uid, since, case.at)
    if all(one is not None and one.policy.is_paused for one in owners):
        yield f"policy {case.owners[-1].policy.name} was paused before its batch began"


CHECKS: Final[Mapping[str, Callable[[PolicyCase], Iterator[str]]]] = {
    "SI-17": _recorded,
    "MAZ-25": _driven,
    "MAZ-30": _one_batch,
    "MAZ-31": _one_zone,
    "MAZ-32": _others_whole,
    "MAZ-33": _one_set,
    "MAZ-36": _within_limit,
    "MAZ-40": _after_pause,
    "MAZ-43": _after_pause_of_others,
    "MAZ-46": _unpaused,
    "SI-27": _soaked,
}


def _list_misnumbered(book: Book) -> Iterator[Violation]:
    """Yield batches that the operator has recorded under a number with other pods (MAZ-30)."""
    for commit in book.policies:
        if not book.is_operator(commit.actor) or commit.after is None:
            continue
        before, now = _find_number(commit.before), _find_number(commit.after)
        if before and now and before[0] == now[0] and before[1] != now[1]:
            text = f"batch {now[0]} of {commit.name} was recorded with other pods before"
            yield Violation("MAZ-30", commit.at, text)


def _find_number(found: Json | None) -> tuple[int, frozenset[str]] | None:
    one = next(read_batch(found, NO_TIME), None) if found else None
    return None if one is None else (one.number, one.pods)
