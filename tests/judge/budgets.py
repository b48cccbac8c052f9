"""What is promised of pods under a budget, whatever lets them go: SI-01 to SI-05 and SI-17.

Which budget was in force is read from the history: nothing here is the operator's own reading.
Checked at the commit of each eviction that the operator allowed, and of each of its own deletes.
Facts count that were there for `known`, or at the operator's read where that was earlier; what the
operator itself has let go counts at once. While a budget changes, either version will do.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Final, NamedTuple

import msgspec
from rollout_lab.model.fields import child, name_of, text
from rollout_lab.model.history import Called, Reviewed

from rollout_operator.kube.api import PODS, STATEFULSETS, ZONE_BUDGETS, JsonObject
from rollout_operator.model.names import DISRUPTION_RECORD
from tests.judge.book import Book, ProcessRun, Track, World, Write, once
from tests.judge.deletes import Delete, get_span, is_live, map_deletes
from tests.judge.downscales import PREPARE_PATH, list_reviews
from tests.judge.objects import Pod, Set, annotations, labels, read_time
from tests.judge.policies import selects
from tests.judge.promises import Violation

SEVERAL: Final = "several budgets"
ABSENT_PEERS: Final = "grafana.com/rollout-operator-absent-peers"


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    selector: JsonObject
    maximum: int = 1
    share: int = 0  # in percent of the zone of the pod that goes; 0 for none
    pattern: str = ""
    group: int = 1
    delay: timedelta = timedelta(0)
    forgives: bool = False  # whether a zone without the partition counts as having handed it over

    def selects(self, labels: Mapping[str, object]) -> bool:
        return selects(self.selector, labels)

    def name_partition(self, pod: str) -> str:
        """Return the partition of a pod, empty where its name has none."""
        found = re.fullmatch(self.pattern, pod)
        return "" if found is None else found.group(self.group) or ""

    def limit(self, states: Iterable[Set]) -> int:
        """Return how many pods may be gone; `states` are those of the zone, of late."""
        if self.maximum or not self.share:
            return self.maximum
        counts = [one.replicas for one in states]
        return max((max(1, self.share * one // 100) for one in counts if one), default=0)


def forbidding(name: str, selector: JsonObject) -> Rule:
    """Return the rule of a budget that cannot be obeyed: nothing may go."""
    return Rule(name=name, selector=selector, maximum=0)


_State = Mapping[str, tuple[Rule, ...]]
"""By name of a budget, the rules that may be in force by what it said."""


@once
def read_timeline(book: Book) -> Track[_State]:
    timeline: Track[_State] = Track()
    state: _State = {}
    for commit in book.budgets:
        before = state.get(commit.name, ())
        state = {name: rules for name, rules in state.items() if name != commit.name}
        if commit.after is not None:
            state[commit.name] = tuple(_list_in_force(before, commit.after))
        timeline.add(commit.at, state)
    return timeline


def find_rules(
    timeline: Track[_State], labels: Mapping[str, object], since: timedelta, until: timedelta
) -> list[Rule]:
    """Return the rules that may be in force for a pod in a span of time, the newest last.

    Empty where it was under no budget for a part of that time, however short.
    """
    found: list[Rule] = []
    for state in timeline.window(since, until) if timeline.find(since) is not None else ():
        each = ([rule for rule in rules if rule.selects(labels)] for rules in state.values())
        selecting = [rules for rules in each if rules]
        if not selecting:
            return []
        found += selecting[0] if len(selecting) == 1 else [forbidding(SEVERAL, {})]
    return found


def _list_in_force(before: Iterable[Rule], budget: JsonObject) -> Iterator[Rule]:
    rule = read_rule(budget)
    if rule is not None:
        yield rule
        return
    # The last one that made sense stays in force; a process that never saw it lets nothing go.
    yield from (one for one in before if one.maximum or one.share)
    yield forbidding(
        name_of(budget), {"matchLabels": child(budget, "spec", "selector", "matchLabels")}
    )


def read_rule(budget: JsonObject) -> Rule | None:
    spec = child(budget, "spec")
    maximum, share = spec.get("maxUnavailable"), spec.get("maxUnavailablePercentage")
    pattern, delay = text(spec, "podNamePartitionRegex"), text(spec, "crossZoneEvictionDelay")
    group = spec.get("podNameRegexGroup", 1)
    if None not in (maximum, share) or (share and pattern) or (delay and not pattern):
        return None
    if not isinstance(group, int) or not _has_group(pattern, group, "podNameRegexGroup" in spec):
        return None
    default = 1 if share is None else 0
    return Rule(
        name=name_of(budget),
        selector=child(spec, "selector"),
        maximum=maximum if isinstance(maximum, int) else default,
        share=share if isinstance(share, int) else 0,
        pattern=pattern,
        group=group,
        delay=read_time(delay),
        forgives=annotations(budget).get(ABSENT_PEERS) == "gone",
    )


def _has_group(pattern: str, group: int, is_named: bool) -> bool:
    if not pattern:
        return True
    try:
        groups = re.compile(pattern).groups
    except re.error:
        return False
    return 1 <= group <= groups and (groups == 1 or is_named)


EVICTION_PATH: Final = "/admission/pod-eviction"


class Eviction(msgspec.Struct, frozen=True):
    called: Called
    review: Reviewed  # the last one of it: an API server may call twice
    read_at: timedelta  # when its last live list of pods began; without one, the review itself
    sent_at: timedelta  # when that was answered
    run: ProcessRun | None  # the life in which it was


@once
def map_evictions(book: Book) -> dict[int, Eviction]:
    """Return the evictions that were allowed and carried out, by number of the inner delete."""
    reviews: dict[int, Reviewed] = {}
    for review in list_reviews(book, EVICTION_PATH):
        if review.allowed:
            reviews[review.call] = review
    found: dict[int, Eviction] = {}
    for inner, called in book.evictions.items():
        if (last := reviews.get(called.number)) is not None:
            read_at = max(_list_reads(book, last), default=last.begun)
            run = book.runs.find(last.actor, last.at)
            found[inner] = Eviction(called, last, read_at, last.at, run)
    return found


def _list_reads(book: Book, review: Reviewed) -> list[timedelta]:
    return [
        one.begun
        for one in book.own_calls
        if one.actor == review.actor and one.request.verb == "list" and is_live(one)
        if one.request.resource == PODS and review.begun <= one.begun and one.at <= review.at
    ]


@once
def list_let_go(book: Book) -> list[tuple[Pod, timedelta, Delete | Eviction]]:
    """Return the pods that the operator deleted, or let go under a budget, and when they went.

    That an eviction is of a pod under a budget is shown by its record.
    """
    found: list[tuple[Pod, timedelta, Delete | Eviction]] = []
    for write in book.writes:
        by = map_deletes(book).get(write.commit.call) or map_evictions(book).get(write.commit.call)
        is_marked = DISRUPTION_RECORD in annotations(write.commit.before)
        if by is not None and write.ended_pod and (is_marked or isinstance(by, Delete)):
            found.append((write.ended_pod, write.at, by))
    return found


class Record(msgspec.Struct, frozen=True):
    """That a pod may go, as it was written on it."""

    pod: str
    uid: str
    text: str
    engine: str
    at: timedelta
    call: int


class PodFacts(msgspec.Struct):
    """What is known of pods and sets beside their readiness."""

    labels: dict[str, Mapping[str, object]] = {}  # by UID, of pods and sets
    running_since: dict[str, timedelta] = {}  # by UID: since when a pod has run without a break
    ready_since: dict[str, timedelta] = {}
    """By UID: since when a pod has been ready without a break."""
    labelled_at: dict[str, timedelta] = {}  # by UID: since when a set has had its labels
    records: dict[str, Record] = {}  # by UID of the pod: its newest one that is about itself

    def take(self, write: Write) -> None:
        if write.now is None:
            return
        uid, after = write.now.uid, write.commit.after
        if isinstance(write.now, Set) and self.labels.get(uid) != labels(after):
            self.labelled_at[uid] = write.at
        self.labels[uid] = labels(after)
        if isinstance(write.now, Pod):
            _keep(self.running_since, uid, write.at, text(after or {}, "status", "phase"))
            _keep(self.ready_since, uid, write.at, "Running" if write.now.is_ready else "")
            record = read_record(write)
            if record is None:
                self.records.pop(uid, None)
            elif record.text != getattr(self.records.get(uid), "text", ""):
                self.records[uid] = record

    def was_running(self, uid: str, since: timedelta) -> bool:
        return self.running_since.get(uid, since + timedelta.resolution) <= since


def read_record(write: Write) -> Record | None:
    if not isinstance(write.now, Pod):
        return None
    found = annotations(write.commit.after).get(DISRUPTION_RECORD)
    try:
        said = msgspec.json.decode(str(found), type=dict[str, object])
    except ValueError:
        return None
    if said.get("uid") != write.now.uid:
        return None
    pod, commit = write.now, write.commit
    return Record(pod.name, pod.uid, str(found), str(said.get("engine", "")), write.at, commit.call)


def _keep(since: dict[str, timedelta], uid: str, at: timedelta, phase: str) -> None:
    if phase == "Running":
        since.setdefault(uid, at)
    else:
        since.pop(uid, None)


# Budgets are only watched: what goes wrong with that may keep a change from the operator so long.
LATE_RULES: Final = timedelta(minutes=10)
# Nothing is answered on a view that nothing has proven live for so long, by a clock that may be
# slow (SI-09).
UNPROVEN: Final = timedelta(minutes=2)
# Of faults: what comes after such an event waits with it.
DELAYING_EVENTS: Final = frozenset({"delay_event", "freeze"})


class Broken(NamedTuple):
    invariant: str
    text: str


class JudgedDisruption(msgspec.Struct, frozen=True):
    """A pod that goes because the operator let it."""

    book: Book
    world: World
    facts: PodFacts
    pod: Pod
    owner: Set
    at: timedelta
    since: timedelta  # what has lasted from then on had to be known
    actor: str  # the process that let it go
    eviction: Eviction | None = None  # none where the operator deletes it

    @property
    def text(self) -> str:
        return f"{'delete' if self.eviction is None else 'eviction'} of {self.pod.name}"

    def list_other_zones(self, rule: Rule) -> list[Set]:
        return [
            zone
            for zone in self.world.sets.values()
            if zone.uid != self.owner.uid and rule.selects(self.facts.labels.get(zone.uid, {}))
            if self.book.promises.is_observed or not self._may_be_new(zone)
        ]

    def _may_be_new(self, zone: Set) -> bool:
        """Return whether who let it go may not know yet that a set has the labels that it has."""
        since = self.facts.labelled_at.get(zone.uid, self.since)
        late = self.book.list_faults(self.actor, since - LATE_RULES, self.at)
        return since > self.since or any(
            (one.kind in DELAYING_EVENTS or ": watch " in one.text)  # a slow one begins late
            and STATEFULSETS.plural in one.text
            and one.at <= since < one.at + get_span(one)
            and one.at + get_span(one) > self.since
            for one in late
        )


class Judge:
    def __init__(self, book: Book) -> None:
        self.book = book
        self._timeline = read_timeline(book)
        self._evictions = map_evictions(book)
        self._facts = PodFacts()

    def take(self, write: Write) -> None:
        self._facts.take(write)

    def find(self, world: World, write: Write, since: timedelta | None) -> JudgedDisruption | None:
        """Return the disruption that begins with a write, None where it is not the operator's.

        `since` is given for the operator's own deletes: what has lasted from then on had to be
        known.
        """
        pod, eviction = write.ended_pod, self._evictions.get(write.commit.call)
        owner = None if pod is None else world.sets.get(pod.owner)
        if pod is None or owner is None or (since is None and eviction is None):
            return None
        known = write.at - self.book.promises.known
        if eviction is not None:
            since = min(known, eviction.read_at)
            running = eviction.review.begun - self.book.promises.time_error
            if self.book.promises.is_observed:
                running = write.at
            if not self._facts.was_running(pod.uid, running):
                return None  # ZPDB-54: what does not run yet is not disrupted
        actor = write.commit.actor if eviction is None else eviction.review.actor
        since, facts = known if since is None else since, self._facts
        return JudgedDisruption(
            self.book, world, facts, pod, owner, write.at, since, actor, eviction
        )

    def is_stray(self, world: World, write: Write) -> bool:
        """Return whether an eviction begins with a write, of a pod under a budget and of no set."""
        pod = write.ended_pod
        if pod is None or pod.owner in world.sets or write.commit.call not in self._evictions:
            return False
        labels = self._facts.labels.get(pod.uid, {})
        return bool(find_rules(self._timeline, labels, write.at, write.at))

    def list_rules(self, disruption: JudgedDisruption) -> list[Rule]:
        labels, known = self._facts.labels.get(disruption.pod.uid, {}), self.book.promises.known
        since = min(disruption.since, disruption.at - known)
        troubles = self.book.list_faults(disruption.actor, since - LATE_RULES, disruption.at)
        late = [
            one.at - known
            for one in troubles
            if ZONE_BUDGETS.plural in one.text
            # A stream may still be dead since a partition, and taken for alive.
            or (one.kind == "partition" and disruption.at <= one.at + UNPROVEN)
        ]
        return find_rules(self._timeline, labels, min([since, *late]), disruption.at)

    def judge(self, disruption: JudgedDisruption, rules: list[Rule]) -> Iterator[Violation]:
        """Yield what a disruption breaks: nothing where any of the rules allows it."""
        findings = [list(_judge_by(rule, disruption)) for rule in rules]
        if findings and all(findings):
            for invariant, text in findings[-1]:
                yield Violation(invariant, disruption.at, f"{disruption.text}: {text}")
        if findings:
            yield from _judge_record(disruption)


def _judge_by(rule: Rule, disruption: JudgedDisruption) -> Iterator[Broken]:
    if disruption.eviction is None and not disruption.world.is_available(disruption.pod.name):
        return  # it was down anyway (D-14, LI-10)
    limit = rule.limit(disruption.world.window(disruption.owner.uid, disruption.since))
    promises = disruption.book.promises
    if disruption.eviction is None and not (promises.is_observed and rule.name == SEVERAL):
        limit = limit or disruption.owner.limit  # ROLL-36
    if not limit:
        yield Broken("SI-03", f"the budget {rule.name} lets nothing go")
    elif rule.pattern:
        yield from _judge_partition(rule, disruption, limit)
    else:
        yield from _judge_zones(rule, disruption)
        yield from _judge_own_zone(disruption, limit)


def _judge_zones(rule: Rule, disruption: JudgedDisruption) -> Iterator[Broken]:
    """Judge an eviction by all other zones, and a delete by what was evicted there.

    All else that a delete may break there is judged in `rollouts`.
    """
    world, is_delete = disruption.world, disruption.eviction is None
    for zone in disruption.list_other_zones(rule):
        ours = [one for one in world.open if one.pod.owner == zone.uid]
        going = [one.pod.name for one in ours if one.is_eviction or not is_delete]
        if going:
            text = f"a disruption of another zone is not over: {', '.join(going)}"
            yield Broken("SI-01", text)
        if is_delete:
            continue
        for name in world.list_short(zone, disruption.since):
            span = disruption.at - world.short_since[name]
            yield Broken("SI-02", f"{name} has been unavailable for {span.total_seconds():.1f} s")


def _judge_own_zone(disruption: JudgedDisruption, limit: int) -> Iterator[Broken]:
    world, owner, name = disruption.world, disruption.owner, disruption.pod.name
    own = {one.pod.name for one in world.open if one.pod.owner == owner.uid}
    going = {name, *own}
    is_judged = disruption.book.promises.is_observed or disruption.pod.uid in world.were_ready
    if len(going) > limit and is_judged:
        text = f"{len(going)} disruptions in {owner.name} at once, limit {limit}"
        yield Broken("SI-04", text)
    missing = {*going, *world.list_short(owner, disruption.since)}
    if len(missing) > max(limit, len(going)):
        text = f"{len(missing)} of {owner.name} missing, limit {limit}: {sorted(missing)}"
        yield Broken("SI-03", text)


def _judge_partition(rule: Rule, disruption: JudgedDisruption, limit: int) -> Iterator[Broken]:
    partition = rule.name_partition(disruption.pod.name)
    if not partition:
        yield Broken("SI-05", f"no partition by {rule.pattern}")
        return
    missing = [
        text
        for zone in disruption.list_other_zones(rule)
        for text in _list_missing(rule, disruption, zone, partition)
    ]
    if len(missing) >= limit:
        text = f"partition {partition} lacks {', '.join(missing)}, limit {limit}"
        yield Broken("SI-05", text)


def _list_missing(
    rule: Rule, disruption: JudgedDisruption, zone: Set, partition: str
) -> Iterator[str]:
    world = disruption.world
    names = [name for name in zone.pod_names if rule.name_partition(name) == partition]
    going = {one.pod.name for one in world.open if one.pod.owner == zone.uid}
    short = world.list_short(zone, disruption.since)
    if not names and not rule.forgives:
        yield f"a pod of {zone.name}"
    for name in names:
        if name in going or name in short:
            yield name
        elif rule.delay and world.is_available(name):
            since = disruption.facts.ready_since.get(world.pods[name].uid, disruption.at)
            lasted = disruption.at - since
            if lasted <= rule.delay - disruption.book.promises.time_error:
                yield f"{name} (ready for {lasted.total_seconds():.1f} s of {rule.delay})"


def _judge_record(disruption: JudgedDisruption) -> Iterator[Violation]:
    """SI-17: a record of its own was on the pod, written by compare-and-swap."""
    book, record = disruption.book, disruption.facts.records.get(disruption.pod.uid)
    if not book.promises.are_recorded or _may_not_patch(disruption):
        return
    why = ""
    if record is None:
        why = "nothing on the pod says that it may go"
    elif not book.promises.is_observed:
        called = book.calls.get(record.call)
        body = called.request.body if called else None
        swap = child(body, "metadata") if isinstance(body, dict) else {}
        swaps = swap.get("resourceVersion") and swap.get("uid")
        if called is None or not book.is_operator(called.actor):
            why = "who wrote that it may go is not the operator"
        elif called.request.verb != "patch" or not swaps:
            why = "that it may go was written without its resourceVersion"
    if why:
        yield Violation("SI-17", disruption.at, f"{disruption.text}: {why}")


def _may_not_patch(disruption: JudgedDisruption) -> bool:
    """Return whether the process has learnt that its role forbids it."""
    return any(
        one.actor == disruption.actor
        and (one.request.verb, one.request.resource, one.status) == ("patch", PODS, 403)
        and "cannot patch" in one.message
        for one in disruption.book.own_calls
        if one.at <= disruption.at
    )


class Grant(msgspec.Struct, frozen=True):
    zone: str
    read_at: timedelta
    """When the read began that it rests on, or any later one before the first call of a pod."""
    ended_at: timedelta  # when its request was answered: written, or refused by another webhook


def list_overlaps(book: Book) -> Iterator[Violation]:
    """Yield deletes in one zone while another was about to lose pods."""
    grants = list(list_grants(book))
    if not grants:
        return
    groups: dict[str, Track[str | None]] = {}
    for write in book.writes:
        if isinstance(write.now, Set):
            groups.setdefault(write.now.name, Track()).add(write.at, write.now.group)
    for pod, _, disruption in list_let_go(book):
        for grant in grants:
            name, zone = pod.name, pod.name.rpartition("-")[0]
            if zone == grant.zone or not _is_between(book, disruption, grant):
                continue
            at = _get_decided(disruption)
            if len({groups.get(one, Track()).find(at) for one in (zone, grant.zone)}) == 1:
                text = f"{'delete' if isinstance(disruption, Delete) else 'eviction'} of {name}:"
                text += f" {grant.zone} was granted a downscale that might still be written"
                yield Violation("SI-02", disruption.called.at, text)


def list_grants(book: Book) -> Iterator[Grant]:
    """Yield the downscales that were allowed, of those for which pods were called and confirmed."""
    for review in list_reviews(book, PREPARE_PATH):
        called = book.calls.get(review.call)
        if called is None or not review.allowed or review.dry_run or _is_no_decrease(book, review):
            continue
        read_at = _find_live_read(book, review)
        if read_at is not None:
            yield Grant(review.name, read_at, called.at)


def _is_no_decrease(book: Book, review: Reviewed) -> bool:
    """Return whether what was reviewed is written, and takes no pod away: a new image, say."""
    return any(
        isinstance(write.now, Set)
        and isinstance(write.before, Set)
        and (write.commit.call, write.now.name) == (review.call, review.name)
        and write.now.replicas >= write.before.replicas
        for write in book.writes
    )


def _find_live_read(book: Book, review: Reviewed) -> timedelta | None:
    """Return when the last live read of a review began before it called pods; None without both."""
    reported = [
        one.begun
        for one in book.pod_calls
        if one.method == "POST"
        and one.pod.rpartition("-")[0] == review.name
        and review.begun <= one.begun <= review.at
    ]
    reads = [
        one.begun
        for one in book.own_calls
        if one.request.verb == "list"
        and one.request.resource.plural == STATEFULSETS.plural
        and review.begun <= one.begun <= min(reported, default=timedelta(0))
    ]
    return max(reads, default=None)


def _is_between(book: Book, disruption: Delete | Eviction, grant: Grant) -> bool:
    called = disruption.called
    return (
        called.status < 300
        and not (isinstance(disruption, Delete) and disruption.is_late)
        and grant.read_at < _get_decided(disruption) < grant.ended_at
        and book.runs.are_the_same(grant.read_at, called.at)
    )


def _get_decided(disruption: Delete | Eviction) -> timedelta:
    """Return when it could not be released any more."""
    return disruption.called.begun if isinstance(disruption, Delete) else disruption.called.at
