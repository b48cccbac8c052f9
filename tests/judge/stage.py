"""Histories as texts, and what the judge says of them.

A line is one history: what it is about, a colon, and its records, `TIME WORD ARGUMENTS`, each with
a `;` behind it. Words are the methods of `Words`; `10+5x4` is four times, every five seconds. What
all histories of a table begin with stands in the brackets of its heading.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any, Final, Self

import msgspec
from msgspec.structs import replace
from rollout_lab.schemas.kinds import REPLICA_TEMPLATES
from rollout_lab.world import EPOCH

from rollout_operator.kube import api
from rollout_operator.kube.api import JsonObject, Resource
from rollout_operator.model import names as annotated
from rollout_operator.model.decode.custom import parse_budget
from rollout_operator.model.names import InvalidInput
from rollout_operator.model.units import format_rfc3339
from tests.judge.book import Book, read_book
from tests.judge.budgets import EVICTION_PATH, list_grants, read_rule
from tests.judge.builder import NAMESPACE, OPERATOR, HistoryBuilder, full, s
from tests.judge.deletes import get_sent
from tests.judge.departures import get_held_until
from tests.judge.downscales import FORGED, describe_review
from tests.judge.liveness import count_allowed_reads, count_batches, list_passed_over, list_still
from tests.judge.policies import get_longest_pause, read_policies
from tests.judge.promises import Promises, Violation
from tests.judge.reviews import list_spans
from tests.judge.verdict import judge_book, list_observed_violations
from tests.stories import Story

KINDS: Final[Mapping[str, Resource]] = {
    one.plural: one for one in (*vars(api).values(), REPLICA_TEMPLATES) if isinstance(one, Resource)
}
POLICY: Final = "db"
APP: Final = "app"
SOURCE: Final = api.OCI_REPOSITORIES[0]
INTENT: Final = "rollout.kuberik.com/"
_TOKEN: Final = re.compile(r'(?:"(?:[^"\\]|\\.)*"|[^\s"])+')
_RECORD: Final = re.compile(r'(?=[^\s;])(?:"(?:[^"\\]|\\.)*"|[^";])+')
_TIMES: Final = re.compile(r"([\d.]+)(?:\+([\d.]+)x(\d+))?")
_NAMED: Final = re.compile(r"(?P<key>\w+)(?:\.(?P<inner>[^=]+))?=(?P<value>.*)")
LAST: Final = ("show", "say")
USED: Final = "1 pod not ready in zone-a; budget ingester: max unavailable 1"
MOST_TIMES: Final = 3


class Words(HistoryBuilder):
    """What the words of a history do, beside those of the builder."""

    promises: Promises = Promises()
    says: bool = False
    shown: list[str] = msgspec.field(default_factory=list)

    def promise(self, **parts: Any) -> None:
        spans = {key: one if isinstance(one, bool) else s(one) for key, one in parts.items()}
        self.promises = replace(self.promises, **spans)

    def show(self, *what: str) -> None:
        book = read_book(self.history, self.promises)
        self.shown += [f"{one}: {LOOKS[one](book) or 'none'}" for one in what]

    def say(self) -> None:
        self.says = True

    # Rollouts and reviews

    def roll(self, at: float, letters: str = "abc") -> Self:
        """Have every pod replaced, one after another, three seconds each."""
        for letter in letters:
            for ordinal in range(3):
                name = f"{letter}-{ordinal}"
                self.delete(at, name).replace(at + 1.5, name)
                at += 3
            self.zone(at, letter, current_revision="new", actor=OPERATOR)
        return self

    def updated(self, at: float) -> Self:
        """Have all pods of zone-a at the update revision, as another's work."""
        for ordinal in range(3):
            self.pod(at, f"a-{ordinal}", uid=f"new-{ordinal}", revision="new")
        return self

    def record(self, at: float) -> Self:
        """Have the operator record the update revision of zone-a."""
        self.zone(at, "a", call=self.number + 1, current_revision="new", actor=OPERATOR)
        return self.call(at, "update", api.STATEFULSETS, "a", subresource="status")

    def take(self, at: float, name: str) -> Self:
        """Have the rollout replace a pod under a budget."""
        return self.delete(at, name, record=True).replace(at + 1, name)

    def refuse(self, at: float, name: str, message: str = USED) -> Self:
        return self.request(at, name, status=429, message=message)

    def deny(self, at: float, name: str, **review: Any) -> Self:
        """Have another webhook refuse an eviction, whatever ours has said of it."""
        self.request(at, name, status=403, message="the quota is used")
        return self.review(at + 0.1, name, self.number, path=EVICTION_PATH, **review)

    def again(self, at: float, name: str) -> Self:
        return self.edit(at, api.PODS, name, {}, actor=OPERATOR, call=1)

    def grant(self, at: float, **how: Any) -> Self:
        """Have zone-a go down: read and called before, answered half a second after, written."""
        self.live_read(at - 0.5).prepare(at, "a-2").review(at + 0.5, "a", begun=at - 0.8, **how)
        return self.send_request(at + 1) if how else self.persist(at + 1)

    def lose(self, at: float, subresource: str = "scale") -> Self:
        """Have zone-a lose a pod, and the label by which it is to keep it."""
        self.review(at - 0.5, "a", path="/admission/no-downscale", begun=at - 0.9)
        self.zone(at, "a", replicas=2, keep="off", call=self.number + 1)
        return self.send_request(at, subresource=subresource)

    def forge(self, at: float, hook: str, **request: Any) -> Self:
        """Have a forged review arrive."""
        about = {"metadata": {"name": "zone-a-0"}, "deleteOptions": {}}
        fields = {"namespace": NAMESPACE, "name": "zone-a-0", "dryRun": False, "object": about}
        requested = describe_review(msgspec.json.encode({"request": {**fields, **request}}))
        text = f"at /admission/{hook}?timeout=5s: {requested}"
        return self.fault(at, FORGED, text, actor="api-server")

    def lease(self, at: float, holder: str) -> Self:
        spec: JsonObject = {"holderIdentity": f"{holder}_1"}
        return self.write(at, api.LEASES, "lease", {"spec": spec}, actor=holder)

    # Counts

    def mirror(self, at: float, name: str, delay: str = "") -> Self:
        """Have a zone mirror the ReplicaTemplate, on a word of its pods where there is a delay."""
        notes = {annotated.MIRROR_NAME: "ingesters", annotated.MIRROR_KIND: REPLICA_TEMPLATES.kind}
        if delay:
            notes[annotated.DOWNSCALE_DELAY] = delay
            notes[annotated.DOWNSCALE_DELAY_URL] = "http://pod:8080/delayed"
        return self.zone(at, name, annotations=notes)

    def settle(self, at: float, name: str, replicas: int) -> Self:
        """Have a zone be whole, at its update revision, with so many replicas."""
        counts = dict.fromkeys(("replicas", "there", "available"), replicas)
        return self.zone(at, name, update_revision="old", current_revision="old", **counts)

    def contest(self, at: float) -> Self:
        """Have the operator write the replicas of zone-b, and something else put them back."""
        self.set_replicas(at, "b", 3, is_read=False)
        return self.zone(at + 0.2, "b", replicas=1)

    def tell(self, at: float, where: str, last: float | None, actor: str = "carol") -> Self:
        """Have an annotation, or the zone tracker, say when zone-a was scaled down last."""
        text = None if last is None else format_rfc3339(EPOCH + s(last))
        if where == "annotation":
            return self.zone(at, "a", annotations={annotated.LAST_DOWNSCALE: text}, actor=actor)
        said = "{" if where == "garbage" else json.dumps({"lastDownscaled": text})
        data: JsonObject = {} if text is None else {"zone-a": said}
        return self.write(at, api.CONFIG_MAPS, "zone-tracker", {"data": data}, actor=actor)

    # Policies

    def policy(self, at: float, name: str = POLICY, created: int = 2, **spec: Any) -> Self:
        """Have a person write a policy that selects all sets; its status stays."""
        everything = {"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}
        known = self.objects.get((api.MULTI_AZ_ROLLOUTS.plural, name), {})
        since = f"2026-01-0{created:g}"
        metadata: JsonObject = {"name": name, "uid": name, "creationTimestamp": since}
        after = {**known, "metadata": metadata, "spec": {"statefulSetSelector": everything, **spec}}
        return self.write(at, api.MULTI_AZ_ROLLOUTS, name, after)

    def plan(self, at: float, number: int, *names: str, **how: Any) -> Self:
        """Have the operator record a batch of pods, as they are by now; `end` may complete it."""
        pods = [{"name": full(one), "uid": self._uid(one)} for one in names]
        about = {"number": number, "statefulSet": full(names[0]).rpartition("-")[0], "pods": pods}
        batch = {**about, "updateRevision": how.get("revision", "new")}
        if how.get("end"):
            batch["completionTime"] = "then"
        return self._edit_policy(at, "status", "lastBatch", value=batch, actor=OPERATOR)

    def complete(self, at: float) -> Self:
        path = ("status", "lastBatch", "completionTime")
        return self._edit_policy(at, *path, value="then", actor=OPERATOR)

    def batch(self, at: float, number: int, *names: str, revision: str = "new") -> Self:
        """Have the operator record a batch, and delete its pods."""
        self.plan(at - 0.2, number, *names, revision=revision)
        for place, name in enumerate(names):
            self.delete(at + place * 0.1, name)
        return self

    def first(self, at: float, name: str = "a-0") -> Self:
        """Have batch 1 begin, whose pod is back ten seconds later."""
        return self.batch(at, 1, name).replace(at + 9.8, name).complete(at + 10)

    def expire(self, at: float) -> Self:
        return self._edit_policy(at, "metadata", "deletionTimestamp", value="then")

    def _edit_policy(self, at: float, *path: str, value: object, **how: Any) -> Self:
        return self.edit(at, api.MULTI_AZ_ROLLOUTS, POLICY, {path: value}, **how)

    # Releases

    def release(self) -> Self:
        """Have a Rollout with 1.0.0 at the head of its history, and its source with that tag."""
        source: JsonObject = {"metadata": {"annotations": {f"{INTENT}rollout": APP}}, "spec": {}}
        self.write(0, SOURCE, APP, source).tag(0, "1.0.0", actor="amy")
        return self.write(0, api.ROLLOUTS, APP, {"metadata": {}, "spec": {}}).enter(0, "1:1.0.0")

    def enter(self, at: float, *entries: str, tried: str | None = None, **consumed: str) -> Self:
        """Have the operator record entries, the newest first, and what had its effect."""
        known = [{"annotation": _name_intent(key), "value": one} for key, one in consumed.items()]
        places: dict[Any, object] = {("status", "consumedIntents"): known}
        if entries:
            head, *history = map(_read_entry, entries)
            head = {**head, "lastRetryTimestamp": tried} if tried else head
            places["status", "history"] = [head, *history]
        return self.edit(at, api.ROLLOUTS, APP, places, actor=OPERATOR)

    def deploy(self, at: float, last: str = "Succeeded") -> Self:
        return self.enter(at, "2:1.1.0:Deploying", f"1:1.0.0:{last}")

    def intend(self, at: float, actor: str = "amy", **intents: str | None) -> Self:
        """Have annotations set, or removed with null."""
        places = {
            ("metadata", "annotations", _name_intent(key)): value for key, value in intents.items()
        }
        return self.edit(at, api.ROLLOUTS, APP, places, actor=actor)

    def pin(self, at: float, tag: str) -> Self:
        return self.edit(at, api.ROLLOUTS, APP, {("spec", "wantedVersion"): tag})

    def label(self, at: float, **labels: str) -> Self:
        return self.edit(at, api.ROLLOUTS, APP, {("metadata", "labels"): labels})

    def close(self, at: float, *, passing: bool = False, actor: str = "amy") -> Self:
        spec: JsonObject = {"rolloutRef": {"name": APP}, "passing": passing}
        return self.write(at, api.ROLLOUT_GATES, "freeze", {"spec": spec}, actor=actor)

    def freeze(self, at: float, action: str = "Deny", rule: str = "name", **labels: str) -> Self:
        """Have a schedule that selects Rollouts with these labels, mostly at all times."""
        spec: JsonObject = {"rolloutSelector": {"matchLabels": {**labels}}, "action": action}
        spec["rules"] = [{"name": "nights", rule: "some"}]
        return self.write(at, api.ROLLOUT_SCHEDULES, "nights", {"spec": spec})

    def tag(self, at: float, value: str, actor: str = OPERATOR) -> Self:
        return self.edit(at, SOURCE, APP, {("spec", "ref", "tag"): value}, actor=actor)

    def disown(self, at: float) -> Self:
        return self.edit(at, SOURCE, APP, {("metadata", "annotations"): {}})

    def check(self, at: float, name: str) -> Self:
        return self.write(at, api.HEALTH_CHECKS, name, {"spec": {"class": name}})


def _name_intent(key: str) -> str:
    return f"{INTENT}{key.replace('_', '-')}"


def _read_entry(text: str) -> JsonObject:
    """Read `2:1.1.0:Deploying:amy`: the person who requested it, if one did, comes last."""
    number, tag, *more = text.split(":")
    status, user = [*more, "", ""][:2]
    return {
        "id": int(number),
        "version": {"tag": tag},
        "bakeStatus": status or "Succeeded",
        "triggeredBy": {"kind": "User" if user else "System", "name": user or "operator"},
    }


def judge(story: Story) -> str:
    """Return what is said of the history of a line."""
    [command] = story.commands
    heading = story.title.removesuffix(f": {command}")
    history = Words()
    begin = heading[heading.index("[") + 1 : heading.rindex("]")]
    play_records(history, f"{begin}; {command.partition(': ')[2]}")
    promises = history.promises
    if promises.is_observed:
        found = list_observed_violations(history.history, promises)
        return "; ".join([_count(found) or "clean", *(map(str, found) if history.says else ())])
    verdict = judge_book(history.history, promises)
    said = [*map(str, (*verdict.violations, *verdict.unpromised))]
    assert "None" not in " ".join(said), "all is said of what is found: when, of what, and why"
    parts = [_count(verdict.violations) or "clean"]
    if verdict.unpromised:
        parts.append(f"not promised: {_count(verdict.unpromised)}")
    if verdict.undetermined:
        parts.append(f"{len(verdict.undetermined)} undetermined")
    if history.says:
        parts = [*parts, *said, *verdict.undetermined]
    return "; ".join([*parts, *history.shown])


def play_records(history: HistoryBuilder, text: str) -> None:
    """Do what the records say in the order of their times; what has none comes first, or last."""
    steps: list[tuple[float, list[str], tuple[float, ...]]] = []
    for record in _RECORD.findall(text):
        words = _TOKEN.findall(record)
        if times := _TIMES.fullmatch(words[0]):
            first, step, count = (float(one or 0) for one in times.groups())
            spots = [first + step * place for place in range(int(count) or 1)]
            steps += [(at, words[1:], (at,)) for at in spots]
        else:
            steps.append((math.inf if words[0] in LAST else 0, words, ()))
    for _, (word, *rest), at in sorted(steps, key=lambda step: step[0]):
        given, named = _read_words(rest)
        getattr(history, word)(*at, *given, **named)


def _read_words(words: Iterable[str]) -> tuple[list[object], dict[str, Any]]:
    """Read `b 2 ready=false labels.app=x`."""
    given: list[object] = []
    named: dict[str, Any] = {}
    for word in words:
        found = _NAMED.fullmatch(word)
        if found is None:
            given.append(_read_value(word))
        elif found["inner"]:
            named.setdefault(found["key"], {})[found["inner"]] = _read_value(found["value"])
        else:
            named[found["key"]] = _read_value(found["value"])
    return given, named


def _read_value(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return KINDS.get(text, text)


def _count(found: Iterable[Violation]) -> str:
    """Return what is broken, and when: of many times the first ones."""
    times: dict[str, list[str]] = {}
    for one in found:
        times.setdefault(one.invariant, []).append(_write(one.at))
    return ", ".join(
        f"{name} at {', '.join(all_[:MOST_TIMES])}"
        + (f" and {len(all_) - MOST_TIMES} more" if len(all_) > MOST_TIMES else "")
        for name, all_ in times.items()
    )


def _write(at: timedelta) -> str:
    return f"{round(at.total_seconds(), 3):g}"


def _list_at(found: Iterable[Violation]) -> str:
    return ", ".join(_write(one.at) for one in found)


def _read_budget(book: Book) -> str:
    """Return what the newest budget says; the operator reads it alike, in its own words."""
    found = book.budgets[-1].after or {}
    rule = read_rule(found)
    metadata = {"name": "b", "namespace": NAMESPACE, "uid": "u", "resourceVersion": "1"}
    about = {"apiVersion": "rollout-operator.grafana.com/v1", "kind": api.ZONE_BUDGETS.kind}
    try:
        one = parse_budget(msgspec.json.encode({**found, **about, "metadata": metadata}))
    except InvalidInput:
        return f"{rule}" if rule else "none"
    said = (one.max_unavailable, one.percentage or 0, one.delay, one.pattern, one.pattern_group)
    ours = rule and (rule.maximum, rule.share, rule.delay, rule.pattern, rule.group)
    return " ".join(map(str, said)) if ours == said else f"{ours}, and the operator reads {said}"


LOOKS: Final[Mapping[str, Callable[[Book], str]]] = {
    "sent": lambda book: ", ".join(_write(get_sent(book, one)) for one in book.own_calls),
    "grants": lambda book: ", ".join(
        f"{one.zone} from {_write(one.read_at)} to {_write(one.ended_at)}"
        for one in list_grants(book)
    ),
    "owned": lambda book: ", ".join(
        f"{uid} in {one.zone}" for uid, one in read_policies(book).owned.states[-1].items()
    ),
    "marks": lambda book: ", ".join(f"{one.pod} to {_write(end)}" for one, end in list_spans(book)),
    "held": lambda book: _write(get_held_until(book)),
    "batches": lambda book: f"{count_batches(book, timedelta.max)}",
    "pause": lambda book: _write(get_longest_pause(book)),
    "reads": lambda book: f"{count_allowed_reads(book)}",
    "still": lambda book: _list_at(list_still(book, s(0), s(0))),
    "passed": lambda book: _list_at(list_passed_over(book, s(0))),
    "rule": _read_budget,
    "evictions": lambda book: ", ".join(one.request.name for one in book.evictions.values()),
}
