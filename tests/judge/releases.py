"""What is promised of releases: REL-01, REL-50, RELB-10, RELB-15, RELB-35, RELB-42.

Judged at each write of a process of the operator. A status is written over the version that it was
decided by, so what a Rollout requested then is known to the letter. Gates and schedules may be
known late, and a request may be held up on its way. Of schedules only those are judged that say the
same at all times.
"""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Final

import msgspec
from rollout_lab.model.fields import child, children, number, text
from rollout_lab.model.history import Commit

from rollout_operator.kube.api import (
    KUSTOMIZATIONS,
    OCI_REPOSITORIES,
    ROLLOUT_GATES,
    ROLLOUT_SCHEDULES,
    ROLLOUTS,
    JsonObject,
    Resource,
)
from tests.judge.book import Book
from tests.judge.objects import annotations, labels
from tests.judge.promises import Violation

_REQUESTED: Final = "rollout.kuberik.com/"
FORCE: Final = f"{_REQUESTED}force-deploy"
BYPASS: Final = f"{_REQUESTED}bypass-gates"
UNBLOCK: Final = f"{_REQUESTED}unblock-failed"
RETRY: Final = f"{_REQUESTED}retry"
_INTENTS: Final = (FORCE, BYPASS, UNBLOCK, RETRY)
_TRIED: Final = "lastRetryTimestamp"
_TAGGED_BY: Final = f"{_REQUESTED}rollout"
_HOLDS_UP: Final = frozenset({"late", "slow", "throttled"})
# The longest that these hold a request up, and that an event of a gate may be missing.
LONGEST: Final = timedelta(minutes=3)
UNSEEN: Final = timedelta(minutes=6)
_UNSEEN_BY: Final = frozenset(
    {
        *("drop_event", "delay_event", "freeze", "cut_stream", "gone_event", "stale_list"),
        *("spoil_event", "partition"),
    }
)


class _State(msgspec.Struct):
    newest: dict[str, list[tuple[timedelta, str]]] = {}
    """By Rollout, the tags that its history had at the head, and since when."""
    closed: dict[str, dict[str, timedelta]] = {}
    """By Rollout, the gates that do not pass, and since when."""
    frozen: dict[str, tuple[timedelta, JsonObject]] = {}
    """By schedule that is closed, since when it is as it is, and the labels that it selects."""
    labels: dict[str, tuple[timedelta, JsonObject]] = {}
    """By Rollout, its labels, and since when it has them."""
    credited: dict[tuple[str, str], set[int]] = {}
    """By Rollout and name of a person, the entries that were requested in that name."""

    def take(self, commit: Commit) -> None:
        after = commit.after or {}
        if commit.resource == ROLLOUT_GATES:
            rollout = text(after or commit.before or {}, "spec", "rolloutRef", "name")
            closed = self.closed.setdefault(rollout, {})
            if commit.after is None or child(after, "spec").get("passing") is not False:
                closed.pop(commit.name, None)
            else:
                closed.setdefault(commit.name, commit.at)
        if commit.resource == ROLLOUT_SCHEDULES:
            self._take_schedule(commit, child(after, "spec"))
        if commit.resource == ROLLOUTS:
            if labels(after) != self.labels.get(commit.name, (None, None))[1]:
                self.labels[commit.name] = (commit.at, labels(after))
            tags = self.newest.setdefault(commit.name, [])
            tag = text(_head(after), "version", "tag")
            if tag and (not tags or tags[-1][1] != tag):
                tags.append((commit.at, tag))

    def list_frozen(self, rollout: str) -> Iterator[tuple[str, timedelta]]:
        since, own = self.labels[rollout]
        for name, (at, selected) in self.frozen.items():
            if selected.items() <= own.items():
                yield name, max(since, at)

    def _take_schedule(self, commit: Commit, spec: JsonObject) -> None:
        if spec == child(commit.before or {}, "spec"):
            return
        self.frozen.pop(commit.name, None)
        rules = children(spec, "rules")
        is_at_all_times = all(rule.keys() <= {"name"} for rule in rules)
        if spec and text(spec, "action") != "Allow" and is_at_all_times:
            self.frozen[commit.name] = (commit.at, child(spec, "rolloutSelector", "matchLabels"))


def list_broken(book: Book) -> Iterator[Violation]:
    state = _State()
    for commit in book.releases:
        if book.is_operator(commit.actor) and commit.after is not None:
            if commit.resource == ROLLOUTS:
                yield from _judge_deployment(book, state, commit)
                yield from _judge_intents(state, commit)
            elif commit.resource in (*OCI_REPOSITORIES, *KUSTOMIZATIONS):
                yield from _judge_tag(book, state, commit)
        state.take(commit)


def _judge_deployment(book: Book, state: _State, commit: Commit) -> Iterator[Violation]:
    """Each new entry: requested by name, or the next by itself."""
    before, after = commit.before or {}, commit.after or {}
    entry, current = _head(after), _head(before)
    if not entry or number(entry, "id") == number(current, "id"):
        return
    tag, requested = text(entry, "version", "tag"), annotations(before)
    is_named = tag in (text(before, "spec", "wantedVersion"), requested.get(FORCE))
    if is_named or not current:
        return
    last = children(after, "status", "history")[1:2]
    status = text(last[0], "bakeStatus") if last else "Succeeded"
    is_unblocked = status == "Failed" and requested.get(UNBLOCK) == "true"
    if status != "Succeeded" and not is_unblocked:
        what = f"{text(current, 'version', 'tag')} is {status}"
        yield _violation("REL-01", commit, f"{tag} is deployed by itself while {what}")
    if requested.get(BYPASS) == tag:
        return
    for gate, since in state.closed.get(commit.name, {}).items():
        known = UNSEEN if _has_missed(book, commit) else book.promises.known
        if commit.at - since > known:
            seconds = (commit.at - since).total_seconds()
            why = f"gate {gate} has been closed for {seconds:.1f} s"
            yield _violation("REL-50", commit, f"{tag} is deployed by itself, though {why}")
    yield from _judge_schedules(book, state, commit, tag)


def _judge_schedules(book: Book, state: _State, commit: Commit, tag: str) -> Iterator[Violation]:
    """A schedule counts as soon as it is known, whatever has become of its gate."""
    known = LONGEST if _is_held_up(book, commit) else book.promises.flight
    known = UNSEEN if _has_missed(book, commit, ROLLOUTS, ROLLOUT_SCHEDULES) else known
    for schedule, since in state.list_frozen(commit.name):
        if commit.at - since > known:
            seconds = (commit.at - since).total_seconds()
            why = f"schedule {schedule} has been closed for {seconds:.1f} s"
            yield _violation("RELB-42", commit, f"{tag} is deployed by itself, though {why}")


def _judge_intents(state: _State, commit: Commit) -> Iterator[Violation]:
    """What is requested is on record before it goes, has had its effect, and has it once."""
    before, after = commit.before or {}, commit.after or {}
    recorded, records = _map_consumed(before), _map_consumed(after)
    for key in _INTENTS:
        was, now = annotations(before).get(key), annotations(after).get(key)
        if was is not None and now is None and recorded.get(key) != was:
            yield _violation("RELB-10", commit, f"{key}={was} is removed, and not on record")
    forced = records.get(FORCE)
    is_new = forced is not None and recorded.get(FORCE) != forced
    # One that was there already is done, and the next may go in the same pass.
    if is_new and forced not in [text(_head(one), "version", "tag") for one in (before, after)]:
        yield _violation("RELB-10", commit, f"{forced} was forced, and is not deployed")
    retried, times = records.get(RETRY), [_head(one).get(_TRIED) for one in (before, after)]
    is_retry = retried is not None and recorded.get(RETRY) != retried
    if is_retry and text(_head(before), "bakeStatus") == "Failed" and times[0] == times[1]:
        yield _violation("RELB-35", commit, "a retry was taken, and nothing was tried again")
    person = child(_head(after), "triggeredBy")
    if text(person, "kind") == "User":
        requester = (commit.name, text(person, "name"))
        entries = state.credited.setdefault(requester, set())
        entries.add(number(_head(after), "id"))
        if len(entries) > 1 and _head(before).get("id") != _head(after).get("id"):
            yield _violation("RELB-10", commit, f"what {requester[1]} requested is deployed again")


def _judge_tag(book: Book, state: _State, commit: Commit) -> Iterator[Violation]:
    """Flux is given what is deployed by then, and nothing that is not on record."""
    before, after = commit.before or {}, commit.after or {}
    tag = text(after, "spec", "ref", "tag")
    rollout = str(annotations(before).get(_TAGGED_BY, ""))
    if not rollout or tag == text(before, "spec", "ref", "tag"):
        return
    since = commit.at - (LONGEST if _is_held_up(book, commit) else book.promises.flight)
    tags = state.newest.get(rollout, [])
    ends = [at for at, _ in tags[1:]] + [timedelta.max]
    if not any(known == tag and end >= since for (_, known), end in zip(tags, ends, strict=True)):
        newest = tags[-1][1] if tags else "nothing"
        yield _violation("RELB-15", commit, f"it gets {tag} while {newest} is on record")


def _is_held_up(book: Book, commit: Commit) -> bool:
    """Return whether the request for a write was made to be late."""
    target = f"patch {commit.resource.plural}/{commit.name}"
    return any(
        one.kind in _HOLDS_UP and target in one.text
        for one in book.list_faults(commit.actor, commit.at - LONGEST, commit.at)
    )


def _has_missed(book: Book, commit: Commit, *kinds: Resource) -> bool:
    """Return whether these, or any, may be known late: events were lost, or a list was old."""
    return bool(list_missed(book, commit, *kinds))


def list_missed(book: Book, commit: Commit, *kinds: Resource) -> list[timedelta]:
    """Return when events of these, or any, were lost, or a list was old."""
    of_kinds = tuple(f" {kind.plural}" for kind in kinds) or ("",)
    return [
        one.at
        for one in book.list_faults(commit.actor, commit.at - UNSEEN, commit.at)
        # A slow watch begins late: what came meanwhile is seen then.
        if one.kind in _UNSEEN_BY or (one.kind == "slow" and ": watch " in one.text)
        if one.kind == "partition" or any(of in one.text for of in of_kinds)
    ]


def _map_consumed(obj: JsonObject) -> Mapping[str, str]:
    found = children(obj, "status", "consumedIntents")
    return {text(one, "annotation"): text(one, "value") for one in found}


def _head(obj: JsonObject) -> JsonObject:
    return next(iter(children(obj, "status", "history")), {})


def _violation(invariant: str, commit: Commit, why: str) -> Violation:
    what = f"{commit.resource.kind} {commit.name}"
    return Violation(invariant, commit.at, f"{what}: {why}")
