"""What is promised of rollouts at every moment: SI-01 to SI-04, SI-06 to SI-09, 18, 24 and 27.

Checked at the commit of each delete of the operator, on the state just before it; what evictions
break that it allowed is judged beside it, in `budgets`. Two allowances
separate its faults from coincidence: `known`, how long a fact must have been true, and `flight`,
for the state of sets, of which no precondition of a pod's delete can speak. Where a request was
made to be late, nothing counts that happened after the read it rests on. Downscales are judged in
`downscales`, what else is promised of pods that a policy drives in `batches`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from rollout_operator.kube.api import CLUSTER_ROLLOUT_SCHEDULES, NODES, SELF_ACCESS_REVIEWS
from tests.judge.book import Book, Disruption, World, Write
from tests.judge.budgets import Eviction, Judge, Rule, list_let_go
from tests.judge.deletes import Delete, map_deletes
from tests.judge.downscales import Downscale, get_first_granted, list_downscales
from tests.judge.objects import Pod, Set
from tests.judge.policies import PolicyBook, read_policies
from tests.judge.promises import LIVE_READ_LASTS, Promises, Violation


class Finding(NamedTuple):
    text: str
    is_excused: bool = False  # whether only a reservation (SI-17) could have prevented it


class Case(msgspec.Struct, frozen=True):
    world: World
    pod: Pod
    owner: Set
    delete: Delete
    at: timedelta
    promises: Promises
    counts_evictions: bool = False
    """Whether what was evicted in other zones is a disruption like any other (SI-01)."""

    @property
    def known(self) -> timedelta:
        """Return when a fact must have begun to be one that the operator had to know."""
        return self.delete.cut(self.at - self.promises.known)

    @property
    def flight(self) -> timedelta:
        """Return since when the state of sets may have changed unseen."""
        return self.delete.cut(self.at - self.promises.flight)

    @property
    def limit(self) -> int:
        """Return how many may be missing: a limit lowered a moment ago is not yet known."""
        recent = self.world.window(self.owner.uid, self.known)
        return max([self.owner.limit, *(each.limit for each in recent)])

    def list_other_zones(self, since: timedelta, *, is_strict: bool = True) -> list[Set]:
        """Return the other sets that have been in the group since then, if its own has."""
        if self.promises.is_observed and is_strict:
            since = self.at
        members = {zone.uid: zone for zone in self.world.members(self.owner.group or "", since)}
        return list(members.values()) if members.pop(self.owner.uid, None) else []

    def list_own(self) -> list[Disruption]:
        """Return what is going in the same zone: an eviction after the last read is unseen."""
        return [
            one
            for one in self.world.open
            if one.pod.owner == self.owner.uid
            if self.promises.is_observed
            or not (one.is_eviction and self.delete.may_miss(one.begun))
        ]

    def forgives(self, other: Disruption) -> bool:
        """Return whether only a reservation (SI-17) could have kept the two apart."""
        return self.delete.is_ghost or (other.is_ghost and self.delete.may_miss(other.begun))


def list_broken(book: Book) -> Iterator[Violation]:
    deletes = map_deletes(book)
    for delete in deletes.values():
        yield from judge_request(delete, book)
    yield from list_blind(deletes)
    world, judge = World(spares_new=not book.promises.is_observed), Judge(book)
    policies = read_policies(book)
    downscales = {id(one.write): one for one in list_downscales(book) if one.must_prepare}
    for write in book.writes:
        if id(write) in downscales:
            yield from _judge_alone(world, book, downscales[id(write)])
        if write.ended_pod is not None:
            requested = deletes.get(write.commit.call)
            yield from _judge_end((world, policies), judge, write, requested)
        world.take(write)
        judge.take(write)


def _judge_end(
    state: tuple[World, PolicyBook], judge: Judge, write: Write, requested: Delete | None
) -> Iterator[Violation]:
    """Judge the end of a pod, if the operator has a part in it."""
    (world, _), pod, book = state, write.ended_pod, judge.book
    assert pod is not None, "requested only then"
    since = write.at - book.promises.known
    disruption = judge.find(world, write, requested.cut(since) if requested else None)
    rules = judge.list_rules(disruption) if disruption else []
    if disruption is not None:
        yield from judge.judge(disruption, rules)
    if requested is not None:
        for one in _judge(state, pod, (requested, write.at), book.promises, rules):
            yield replace(one, is_promised=one.is_promised or bool(rules))
        _disrupt(world, pod, write.at, requested)
    elif disruption is not None and rules:
        _disrupt(world, pod, write.at, disruption.eviction)
    elif book.promises.is_observed and judge.is_stray(world, write):
        yield Violation("SI-06", write.at, f"eviction of {pod.name}, which is no zone's")
    elif book.is_operator(write.commit.actor):
        text = f"{pod.name} was ended by {write.commit.actor} and by no delete of its own"
        yield Violation("SI-07", write.at, text)


def _judge_alone(world: World, book: Book, downscale: Downscale) -> Iterator[Violation]:
    """SI-01, D-25: nothing that the operator let go in another zone is missing, or about to go.

    Of what the process did itself that allowed it, the later one was wrong, whichever that is. What
    another process did had to be seen, once it was written.
    """
    if not downscale.reviews or downscale.is_spare:
        return
    review, granted_at = downscale.reviews[-1], get_first_granted(book, downscale)
    run = book.runs.find(review.actor, review.begun)
    going = {one.pod.uid for one in world.open if one.disturbs}
    for pod, at, by in list_let_go(book):
        is_own = by.run == run and by.sent_at < downscale.at
        is_open = pod.uid in going if at < downscale.at else world.serves(pod)
        since = min(by.sent_at, granted_at) - book.promises.known
        members = {one.uid for one in world.members(downscale.before.group or "", since)}
        zones = {pod.owner, downscale.before.uid}
        if is_open and (is_own or at < granted_at) and len(zones & members) > 1:
            who = "the same" if is_own else "another"
            text = f"{downscale.text} while {pod.name} is missing, let go by {who} process"
            yield Violation("SI-01", downscale.at, text)


def list_foreign(book: Book) -> Iterator[Violation]:
    """Yield the requests that leave the namespace (SI-24)."""
    for called in book.own_calls:
        request = called.request
        resource = request.resource
        if request.verb == "discover":
            continue  # which kinds there are, and nothing of any object
        if resource.is_namespaced:
            is_fine = request.namespace == book.promises.namespace
        else:
            # Where nothing else says the zones of a policy its nodes do.
            is_read = request.verb in ("get", "list", "watch")
            is_zones = resource == NODES and is_read and book.policies
            is_schedules = book.releases and (
                (resource == CLUSTER_ROLLOUT_SCHEDULES and is_read)
                or (resource == SELF_ACCESS_REVIEWS and request.verb == "create")
            )
            is_hooks = resource.plural.endswith("webhookconfigurations")
            is_fine = bool(is_zones or is_schedules) or is_hooks
        if not is_fine:
            where = request.namespace or "the whole cluster"
            text = f"{request.verb} {resource.plural} {request.name} in {where}"
            yield Violation("SI-24", called.begun, text)


def judge_request(delete: Delete, book: Book) -> Iterator[Violation]:
    """Check what a request alone shows, whether it was granted or not: SI-06, SI-07, SI-09."""
    called = delete.called
    name, at = called.request.name, called.begun
    if called.request.namespace != book.promises.namespace:
        yield Violation("SI-06", at, f"delete of {name} in namespace {called.request.namespace}")
    if not name:
        yield Violation("SI-07", at, "delete of a whole collection of pods")
    # The log of a real API server has no body of a request that the role forbids.
    elif not all(delete.precondition) and not (book.promises.is_observed and called.status == 403):
        uid, version = delete.precondition
        text = (
            f"delete of {name} with uid {uid or 'unset'} and resourceVersion"
            f" {version or 'unset'} as preconditions"
        )
        yield Violation("SI-07", at, text)
    why = _name_stale(delete, book)
    if why:
        yield Violation("SI-09", at, f"delete of {name} {why}")


def list_blind(deletes: Mapping[int, Delete]) -> Iterator[Violation]:
    """Yield deletes that follow one without an answer, with no read in between (SI-18)."""
    unknown: dict[tuple[str, str], Delete] = {}
    for delete in sorted(deletes.values(), key=lambda each: each.sent_at):
        # What becomes of a pod of another group is no part of the decision.
        key = (delete.called.actor, delete.group)
        before = unknown.get(key)
        is_blind = (
            before is not None
            and delete.live_read is not None
            and not delete.is_ghost
            and delete.live_read.at < before.sent_at
        )
        if is_blind and before is not None:
            text = (
                f"delete of {delete.called.request.name} rests on a read that is older than the"
                f" delete of {before.called.request.name}, which got no answer"
            )
            yield Violation("SI-18", delete.called.begun, text)
        if delete.is_lost:
            unknown[key] = delete


def _name_stale(delete: Delete, book: Book) -> str:
    """Return what the read of a delete lacks, empty where it is good (SI-09)."""
    called = delete.called
    run = book.runs.find(called.actor, called.begun)
    if delete.live_read is None:
        start = f" since its start at {run.begun.total_seconds():.1f} s" if run else ""
        return f"by {called.actor}, which has not read the group live{start}"
    has_wrong_clock = any(one.kind == "clock_rate" for one in book.faults)
    most = LIVE_READ_LASTS / (book.promises.slowest_clock if has_wrong_clock else 1)
    age = delete.sent_at - delete.live_read.at
    if age <= most + book.promises.flight or delete.is_ghost:
        return ""
    return f"rests on a live read {age.total_seconds():.1f} s old"


def _judge(
    state: tuple[World, PolicyBook],
    pod: Pod,
    requested: tuple[Delete, timedelta],
    promises: Promises,
    rules: Sequence[Rule],
) -> Iterator[Violation]:
    (world, policies), (delete, at) = state, requested
    since = at if promises.is_observed else delete.cut(at - promises.known)
    owner = world.find_owner(pod.owner, since)
    is_owned = any(policies.list_owners(pod.owner, since, at))
    states = [owner, *world.window(owner.uid, since)] if owner else []
    if owner is None or not (is_owned or any(one and one.group is not None for one in states)):
        why = "has no group" if owner else "is no StatefulSet's"
        yield Violation("SI-06", at, f"delete of {pod.name}, which {why}")
        return
    # Partitions are whole apart from one another: of evictions then only SI-05 speaks.
    counts = promises.is_observed and not any(rule.pattern for rule in rules)
    case = Case(world, pod, owner, delete, at, promises, counts)
    # What never was up is not disrupted; what a policy drives obeys the policy's own rules.
    is_spared = pod.name in world.unused or policies.drives(pod, since, at)
    spared = {"SI-01", "SI-02", "SI-03", "SI-04", "SI-27"} if is_spared else set()
    if not world.serves(pod):
        spared |= {"SI-01", "SI-02"}  # its zone is no shorter without it (D-88)
    for invariant, check in CHECKS.items():
        for text, is_excused in () if invariant in spared else check(case):
            text = f"delete of {pod.name}: {text}"
            if is_excused:
                text = f"{text} (else {invariant})"
                yield Violation("SI-17", at, text, is_promised=False)
            else:
                yield Violation(invariant, at, text)


def _one_zone(case: Case) -> Iterator[Finding]:
    members = {zone.uid for zone in case.list_other_zones(case.flight)}
    others = [
        each
        for each in case.world.open
        if each.pod.owner in members and (case.counts_evictions or not each.is_eviction)
        # What was on its way already must not wait for what disturbs nothing: that may go any time.
        if each.disturbs or each.begun <= case.delete.sent_at
    ]
    if others:
        names = ", ".join(each.pod.name for each in others)
        is_excused = all(case.forgives(each) for each in others)
        yield Finding(f"the operator's disruption of another zone is not over: {names}", is_excused)


def _others_whole(case: Case) -> Iterator[Finding]:
    for zone in case.list_other_zones(case.known):
        for name in case.world.list_short(zone, case.known):
            span = case.at - case.world.short_since[name]
            yield Finding(f"{name} has been unavailable for {span.total_seconds():.1f} s")


def _within_limit(case: Case) -> Iterator[Finding]:
    world, pod, owner = case.world, case.pod, case.owner
    if not world.is_available(pod.name):
        return  # it was down anyway: the count does not rise
    own = case.list_own()
    missing = {pod.name, *world.list_short(owner, case.known), *(each.pod.name for each in own)}
    if len(missing) > case.limit:
        text = f"{len(missing)} of {owner.name} missing, limit {case.limit}: {sorted(missing)}"
        yield Finding(text, any(case.forgives(each) for each in own))


def _strictly_within_limit(case: Case) -> Iterator[Finding]:
    if case.pod.uid not in case.world.were_ready:
        return  # put there by a disruption that lasts: to end it anew adds none (LI-10)
    own = case.list_own()
    count = len({case.pod.name, *(each.pod.name for each in own)})
    if count > case.limit:
        text = f"{count} disruptions in {case.owner.name} at once, limit {case.limit}"
        yield Finding(text, any(case.forgives(each) for each in own))


def _soaked(case: Case) -> Iterator[Finding]:
    if not case.world.is_available(case.pod.name):
        return
    others = case.list_other_zones(case.known)
    soak = max(
        min(each.soak for each in [zone, *case.world.window(zone.uid, case.known)])
        for zone in [case.owner, *others]
    )
    passed = case.at - case.world.find_whole(others, case.known)
    if passed + case.promises.time_error < soak and case.world.is_begun(others):
        whole, wanted = passed.total_seconds(), soak.total_seconds()
        yield Finding(f"the other zones have been whole for {whole:.1f} s of {wanted:g}")


def _right_pod(case: Case) -> Iterator[Finding]:
    flight = case.world.window(case.owner.uid, case.flight)
    if all(case.pod.revision == each.update_revision for each in flight):
        yield Finding(f"it is on the update revision {case.pod.revision} already")
    if all(each.is_paused for each in case.world.window(case.owner.uid, case.known)):
        yield Finding(f"{case.owner.name} is paused")


def _sets_fit(case: Case) -> Iterator[Finding]:
    for zone in [case.owner, *case.list_other_zones(case.flight, is_strict=False)]:
        flight = case.world.window(zone.uid, case.flight)
        for what, is_so in UNFIT.items():
            if all(is_so(each) for each in flight):
                yield Finding(f"{zone.name} {what}")


UNFIT: Final[dict[str, Callable[[Set], bool]]] = {
    "has another strategy than OnDelete": lambda each: each.strategy != "OnDelete",
    "has a status that lags": lambda each: each.observed < each.generation,
    "has no update revision": lambda each: not each.update_revision,
}
CHECKS: Final[dict[str, Callable[[Case], Iterator[Finding]]]] = {
    "SI-01": _one_zone,
    "SI-02": _others_whole,
    "SI-03": _within_limit,
    "SI-04": _strictly_within_limit,
    "SI-07": _right_pod,
    "SI-08": _sets_fit,
    "SI-27": _soaked,
}


def _disrupt(world: World, pod: Pod, at: timedelta, by: Delete | Eviction | None) -> None:
    if pod.owner in world.sets and pod.name not in world.unused:
        is_ghost, is_eviction = isinstance(by, Delete) and by.is_ghost, not isinstance(by, Delete)
        world.open.append(Disruption(pod, at, is_ghost, is_eviction, world.serves(pod)))
