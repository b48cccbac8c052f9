"""Which budget was in force for a pod at any time, as a judge reads it from the history.

Written for itself: nothing here is the operator's own reading.
"""

import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Final

import msgspec
from rollout_lab.model.fields import child, children, name_of, text
from rollout_lab.model.history import Called, Commit, Reviewed

from rollout_operator.kube.api import PODS, JsonObject
from rollout_operator.model.names import DISRUPTION_RECORD
from tests.judge.book import Book, Write, annotations, labels
from tests.judge.deletes import is_live
from tests.judge.downscales import list_reviews
from tests.judge.objects import Pod, Set, read_time
from tests.judge.policies import holds

SEVERAL: Final = "several budgets"
ABSENT_PEERS: Final = "grafana.com/rollout-operator-absent-peers"


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """What one budget requests."""

    name: str
    selector: Mapping[str, object]
    terms: Sequence[JsonObject] = ()
    """What the selector wants beside labels of these values."""
    maximum: int = 1
    share: int = 0
    """In percent of the zone of the pod that goes; 0 for none."""
    pattern: str = ""
    group: int = 1
    delay: timedelta = timedelta(0)
    forgives: bool = False
    """Whether a zone without the partition counts as having handed it over."""

    def selects(self, labels: Mapping[str, object]) -> bool:
        """Return whether something with these labels is under it."""
        are_equal = all(labels.get(key) == value for key, value in self.selector.items())
        return are_equal and all(holds(term, labels) for term in self.terms)

    def name_partition(self, pod: str) -> str:
        """Return the partition of a pod, empty where its name has none."""
        found = re.fullmatch(self.pattern, pod)
        return "" if found is None else found.group(self.group) or ""

    def limit(self, states: Iterable[Set]) -> int:
        """Return how many pods may be gone; `states` are those of the zone, of late."""
        if self.maximum or not self.share:
            return self.maximum
        return max((_share(self.share, one.replicas) for one in states), default=0)


def forbidding(name: str, selector: Mapping[str, object]) -> Rule:
    """Return the rule of a budget that cannot be obeyed: nothing may go."""
    return Rule(name=name, selector=selector, maximum=0)


_State = Mapping[str, tuple[Rule, ...]]
"""By name of a budget, the rules that may be in force by what it said."""


class Timeline(msgspec.Struct):
    """All budgets, at all times."""

    begins: list[timedelta] = []
    states: list[_State] = []

    def find(self, labels: Mapping[str, object], since: timedelta, until: timedelta) -> list[Rule]:
        """Return the rules that may be in force for a pod in a span of time, the newest last.

        Empty where it was under no budget for a part of that time, however short.
        """
        first = bisect_right(self.begins, since) - 1
        found: list[Rule] = []
        if first < 0:
            return []
        for state in self.states[first : bisect_right(self.begins, until)]:
            each = ([rule for rule in rules if rule.selects(labels)] for rules in state.values())
            selecting = [rules for rules in each if rules]
            if not selecting:
                return []
            found += selecting[0] if len(selecting) == 1 else [forbidding(SEVERAL, {})]
        return found


def read_timeline(book: Book) -> Timeline:
    """Return what the budgets of a history said."""
    timeline = Timeline()
    for commit in book.budgets:
        last = timeline.states[-1] if timeline.states else {}
        timeline.begins.append(commit.at)
        timeline.states.append(_next(last, commit))
    return timeline


def _next(last: _State, commit: Commit) -> _State:
    state = {name: rules for name, rules in last.items() if name != commit.name}
    if commit.after is None:
        return state
    rule = read_rule(commit.after)
    if rule is not None:
        return {**state, commit.name: (rule,)}
    selector = child(commit.after, "spec", "selector", "matchLabels")
    # The last one that made sense stays in force; a process that never saw it lets nothing go.
    kept = [one for one in last.get(commit.name, ()) if one.maximum or one.share]
    return {**state, commit.name: (*kept, forbidding(commit.name, selector))}


def read_rule(budget: JsonObject) -> Rule | None:
    """Return the rule of a budget, None where it makes no sense."""
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
        selector=child(spec, "selector", "matchLabels"),
        terms=children(spec, "selector", "matchExpressions"),
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


def _share(percent: int, replicas: int) -> int:
    return max(1, percent * replicas // 100) if replicas else 0


EVICTION_PATH: Final = "/admission/pod-eviction"


class Eviction(msgspec.Struct, frozen=True, kw_only=True):
    """A pod's end that the operator has allowed."""

    called: Called
    review: Reviewed
    """The last one of it: an API server may call twice."""
    read_at: timedelta
    """When its last live list of pods began; without one, the review itself."""


def map_evictions(book: Book) -> dict[int, Eviction]:
    """Return the evictions that were allowed and carried out, by number of the inner delete."""
    reviews: dict[int, Reviewed] = {}
    for review in list_reviews(book, EVICTION_PATH):
        if review.allowed:
            reviews[review.call] = review
    return {
        inner: Eviction(
            called=called,
            review=reviews[called.number],
            read_at=_get_live_read(book, reviews[called.number]),
        )
        for inner, called in book.evictions.items()
        if called.number in reviews
    }


def _get_live_read(book: Book, review: Reviewed) -> timedelta:
    reads = [
        one.begun
        for one in book.own_calls
        if one.actor == review.actor and one.request.verb == "list" and is_live(one)
        if one.request.resource == PODS and review.begun <= one.begun and one.at <= review.at
    ]
    return max(reads, default=review.begun)


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """That a pod may go, as it was written on it."""

    pod: str
    uid: str
    text: str
    engine: str
    at: timedelta
    call: int


class PodFacts(msgspec.Struct):
    """What is known of pods and sets beside their readiness."""

    labels: dict[str, Mapping[str, object]] = {}
    """By UID, of pods and sets."""
    running_since: dict[str, timedelta] = {}
    """By UID: since when a pod has run without a break."""
    ready_since: dict[str, timedelta] = {}
    """By UID: since when a pod has been ready without a break."""
    labelled_at: dict[str, timedelta] = {}
    """By UID: since when a set has had its labels."""
    records: dict[str, Record] = {}
    """By UID of the pod: its newest one that is about itself."""

    def take(self, write: Write) -> None:
        """Move on by one write."""
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
        """Return whether a pod has run since then: what does not run yet is no disruption."""
        return self.running_since.get(uid, since + timedelta.resolution) <= since


def read_record(write: Write) -> Record | None:
    """Return the record of a pod as a write left it, None where it has none of its own."""
    if not isinstance(write.now, Pod):
        return None
    found = annotations(write.commit.after).get(DISRUPTION_RECORD)
    said = _decode(found)
    if said.get("uid") != write.now.uid:
        return None
    return Record(
        pod=write.now.name,
        uid=write.now.uid,
        text=str(found),
        engine=str(said.get("engine", "")),
        at=write.at,
        call=write.commit.call,
    )


def _keep(since: dict[str, timedelta], uid: str, at: timedelta, phase: str) -> None:
    if phase == "Running":
        since.setdefault(uid, at)
    else:
        since.pop(uid, None)


def _decode(value: object) -> JsonObject:
    try:
        found = json.loads(str(value))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
