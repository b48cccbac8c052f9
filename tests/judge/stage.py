"""Histories as texts, and what the judge says of them.

A line is one history: what it is about, a colon, and its records, `TIME WORD ARGUMENTS`, each with
a `;` behind it. Words are the methods of `Words`; `10+5x4` is four times, every five seconds. What
all histories of a table begin with stands in the brackets of its heading. For a zone `zone-b` its
letter will do, and `b-2` for a pod of it. Events say what a good operator would have done, if
nothing else is said.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from datetime import timedelta
from typing import Any, Final, Self

import msgspec
from msgspec.structs import replace
from rollout_lab.model import history as kinds
from rollout_lab.model.history import History, Record
from rollout_lab.model.request import ApiRequest, Verb
from rollout_lab.schemas.kinds import REPLICA_TEMPLATES
from rollout_lab.world import EPOCH

from rollout_operator.kube import api
from rollout_operator.kube.api import PODS, STATEFULSETS, JsonObject, Resource
from rollout_operator.model import names as annotated
from rollout_operator.model.decode.custom import parse_budget
from rollout_operator.model.names import DISRUPTION_RECORD, FORCE_REPLICAS, InvalidInput
from rollout_operator.model.units import format_rfc3339
from tests.judge.book import Book, read_book
from tests.judge.budgets import EVICTION_PATH, list_grants, read_rule
from tests.judge.deletes import get_sent
from tests.judge.departures import get_held_until
from tests.judge.downscales import FORGED, describe_review
from tests.judge.liveness import count_allowed_reads, count_batches, list_passed_over, list_still
from tests.judge.policies import get_longest_pause, read_policies
from tests.judge.promises import Promises, Violation
from tests.judge.reviews import list_spans
from tests.judge.verdict import judge_book, list_observed_violations
from tests.stories import Story

OPERATOR: Final = "operator-1"
PERSON: Final = "alice"
NAMESPACE: Final = "default"
MOMENT: Final = "2026-01-02T03:04:05Z"
# Where words for a part of a StatefulSet stand in it.
PLACES: Final = {
    "replicas": ("spec", "replicas"),
    "strategy": ("spec", "updateStrategy", "type"),
    "generation": ("metadata", "generation"),
    "uid": ("metadata", "uid"),
    "going": ("metadata", "deletionTimestamp"),
    "observed": ("status", "observedGeneration"),
    "there": ("status", "replicas"),
    "available": ("status", "availableReplicas"),
    "ready": ("status", "readyReplicas"),
    "update_revision": ("status", "updateRevision"),
    "current_revision": ("status", "currentRevision"),
    "limit": ("metadata", "annotations", "rollout-max-unavailable"),
    "check": ("metadata", "annotations", "grafana.com/rollout-health-check"),
    "bypass": ("metadata", "annotations", "grafana.com/rollout-health-check-bypass-until"),
    "paused": ("metadata", "annotations", "grafana.com/rollout-paused"),
    "path": ("metadata", "annotations", "grafana.com/prepare-downscale-http-path"),
    "last": ("metadata", "annotations", "grafana.com/last-downscale"),
    "follows": ("metadata", "annotations", "grafana.com/rollout-downscale-leader"),
    "pause": ("metadata", "annotations", "grafana.com/min-time-between-zones-downscale"),
    "group": ("metadata", "labels", "rollout-group"),
    "prepare": ("metadata", "labels", "grafana.com/prepare-downscale"),
    "keep": ("metadata", "labels", "grafana.com/no-downscale"),
    "wait": ("metadata", "labels", "grafana.com/min-time-between-zones-downscale"),
    "az": ("metadata", "labels", "topology.kubernetes.io/zone"),
    "template_az": ("spec", "template", "metadata", "labels", "topology.kubernetes.io/zone"),
    "node_az": ("spec", "template", "spec", "nodeSelector", "topology.kubernetes.io/zone"),
    "min_ready": ("spec", "minReadySeconds"),
}

Places = Mapping[Any, object]


def s(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


def full(name: str) -> str:
    """Return the name of a zone or a pod that may be given by its letter."""
    return f"zone-{name}" if re.fullmatch(r"[a-z](-\d+)?", name) else name


def put(found: JsonObject, path: tuple[str, ...], value: object) -> None:
    """Set a part of an object; None removes it."""
    *way, last = path
    for key in way:
        inner = found.setdefault(key, {})
        assert isinstance(inner, dict)
        found = inner
    if value is None:
        found.pop(last, None)
    else:
        found[last] = value


def statefulset(name: str) -> JsonObject:
    """Return a whole set of group `ingester` with three pods, its status up to date."""
    metadata = {"name": name, "namespace": NAMESPACE, "uid": name, "creationTimestamp": MOMENT}
    return {
        "metadata": {
            **metadata,
            "resourceVersion": "1",
            "generation": 1,
            "labels": {"rollout-group": "ingester"},
            "annotations": {},
        },
        "spec": {"replicas": 3, "updateStrategy": {"type": "OnDelete"}},
        "status": {"observedGeneration": 1, "updateRevision": "new", "currentRevision": "old"},
    }


def pod_object(
    name: str,
    *,
    uid: str = "",
    owner: str | None = None,
    ready: bool = True,
    crashing: bool = False,
    stopped: bool = False,
    revision: str = "old",
    phase: str = "Running",
    labels: Mapping[str, str] | None = None,
) -> JsonObject:
    """Return a pod of the set that its name begins with; without one where `owner` is empty."""
    ready = ready and not crashing and not stopped
    state: JsonObject = {"terminated": {}} if stopped else {"running": {}}
    if crashing:
        state = {"waiting": {"reason": "CrashLoopBackOff"}}
    kept = name.rpartition("-")[0] if owner is None else owner
    reference = {"kind": "StatefulSet", "name": kept, "uid": kept, "controller": True}
    labels = {"controller-revision-hash": revision, **(labels or {})}
    metadata = {"name": name, "namespace": NAMESPACE, "uid": uid or f"{name}@0", "labels": labels}
    return {
        "metadata": {**metadata, "resourceVersion": "1", "ownerReferences": [reference]},
        "spec": {"containers": [{"name": "app"}]},
        "status": {
            "phase": phase,
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
            "containerStatuses": [{"name": "app", "ready": ready, "state": state}],
        },
    }


class HistoryBuilder(msgspec.Struct):
    """Writes a history; each method adds one event, or a few, and returns the builder."""

    history: History = msgspec.field(default_factory=History)
    revision: int = 0
    number: int = 0
    objects: dict[tuple[str, str], JsonObject] = {}

    # Objects

    def write(
        self, at: float, resource: Resource, name: str, after: JsonObject | None, **how: Any
    ) -> Self:
        """Commit a state; `how` may name `actor` and `call`."""
        name = full(name)
        key = (resource.plural, name)
        before = self.objects.pop(key, None)
        self.revision += 1
        if after is not None:
            self.objects[key] = after
        fields = {"actor": "person", "call": 0, "revision": self.revision, **how}
        namespace = NAMESPACE if resource.is_namespaced else ""
        about = {"resource": resource, "namespace": namespace, "name": name}
        return self.add(kinds.Commit, at, **about, before=before, after=after, **fields)

    def remove(self, at: float, resource: Resource, name: str) -> Self:
        return self.write(at, resource, name, None)

    def edit(self, at: float, resource: Resource, name: str, put_at: Places, **how: Any) -> Self:
        """Commit an object with other values at these places."""
        after = deepcopy(self.objects[resource.plural, full(name)])
        for path, value in put_at.items():
            put(after, path, value)
        return self.write(at, resource, name, after, **how)

    def zone(self, at: float, name: str, **parts: Any) -> Self:
        """Create a set, or change parts of it: see `PLACES`; labels and annotations are added."""
        how = {key: parts.pop(key) for key in ("actor", "call") if key in parts}
        known = self.objects.get((STATEFULSETS.plural, full(name)))
        after = statefulset(full(name)) if known is None else deepcopy(known)
        for kind in ("labels", "annotations"):
            for key, value in parts.pop(kind, {}).items():
                put(after, ("metadata", kind, key), value)
        for key, value in parts.items():
            put(after, PLACES[key], value)
        return self.write(at, STATEFULSETS, name, after, **how)

    def sets(self, at: float, letters: str, **parts: Any) -> Self:
        for letter in letters:
            self.zone(at, letter, **parts)
        return self

    def pod(self, at: float, name: str, **parts: Any) -> Self:
        """Create a pod, or write it anew: see `pod_object`."""
        return self.write(at, PODS, name, pod_object(full(name), **parts))

    def down(self, at: float, name: str, **parts: Any) -> Self:
        return self.pod(at, name, ready=False, **parts)

    def gone(self, at: float, *names: str, **how: Any) -> Self:
        for name in names:
            self.write(at, PODS, name, None, **how)
        return self

    def zones(self, replicas: int = 3, letters: str = "abc", **parts: Any) -> Self:
        """Create whole zones at revision `old` that are to be at revision `new`."""
        for letter in letters:
            self.zone(0, letter, replicas=replicas, **parts)
            for ordinal in range(replicas):
                self.pod(0, f"{letter}-{ordinal}")
        return self

    def replace(self, at: float, name: str, *, ready: bool = True, revision: str = "new") -> Self:
        """Have a pod end and its successor come."""
        uid = f"{full(name)}@{at:g}"
        self.gone(at, name).down(at + 0.1, name, uid=uid, revision=revision)
        return self.pod(at + 0.2, name, uid=uid, revision=revision) if ready else self

    def hooks(self, at: float, *names: str, policy: str = "Fail") -> Self:
        """Have webhooks in force from then on."""
        rules = [{"operations": ["UPDATE"], "resources": ["statefulsets", "statefulsets/scale"]}]
        how = {"failurePolicy": policy, "rules": rules}
        paths = [{"service": {"path": f"/admission/{name}"}} for name in names]
        hooks = [{"clientConfig": path, **how} for path in paths]
        return self.write(at, api.VALIDATING_WEBHOOKS, "ours", {"webhooks": hooks})

    def budget(self, at: float, name: str = "ingester", **spec: Any) -> Self:
        """Create a budget that selects all pods, if nothing else is said, or write it anew."""
        spec = {"selector": {"matchLabels": {}}, **spec}
        return self.write(at, api.ZONE_BUDGETS, name, {"metadata": {"name": name}, "spec": spec})

    def template(self, at: float, replicas: int, status: int | None = None) -> Self:
        reported = {"replicas": replicas if status is None else status}
        after: JsonObject = {"spec": {"replicas": replicas}, "status": reported}
        after["metadata"] = {"name": "ingesters"}
        return self.write(at, REPLICA_TEMPLATES, "ingesters", after)

    def force(self, at: float, name: str, replicas: int) -> Self:
        return self.zone(at, name, annotations={FORCE_REPLICAS: f"{replicas}"})

    # Requests and answers

    def call(self, at: float, verb: Verb, resource: Resource, name: str = "", **parts: Any) -> Self:
        """Add an answered request, of the operator if nothing else is said."""
        if "number" not in parts:
            parts["number"] = self.number = self.number + 1
        fields = {"actor": OPERATOR, "status": 200, **parts}
        namespace = fields.pop("namespace", NAMESPACE if resource.is_namespaced else "")
        parts = {key: fields.pop(key) for key in ("subresource", "query", "body") if key in fields}
        request = ApiRequest(
            verb=verb, resource=resource, namespace=namespace, name=full(name), **parts
        )
        return self.add(kinds.Called, at, request=request, **fields)

    def add(self, kind: type[Record], at: float, /, **fields: Any) -> Self:
        """Record what began at `begun`, if that is said, and what has no beginning of its own."""
        if "begun" in kind.__struct_fields__:
            fields["begun"] = s(fields.get("begun", at))
        self.history.add(kind(at=s(at), **fields))
        return self

    def live_read(self, at: float, **parts: Any) -> Self:
        """Add reads of the group, live if nothing else is said."""
        return self.call(at, "list", STATEFULSETS, **parts).call(at, "list", PODS, **parts)

    def delete(self, at: float, name: str, *, is_read: bool = True, **parts: Any) -> Self:
        """Have the operator delete a pod, on a live read just before; `record` marks it before."""
        if parts.pop("record", False):
            self.mark(at - 0.05, name, engine="rollout")
        if is_read:
            self.live_read(at - 0.1)
        requested = {"uid": self._uid(name), "resourceVersion": "7", **parts.pop("if", {})}
        body = {"kind": "DeleteOptions", "preconditions": requested}
        self.terminate(at, name, parts.get("actor", OPERATOR))
        return self.call(at, "delete", PODS, name, **{"body": body, **parts})

    def review(self, at: float, name: str, call: int | None = None, **parts: Any) -> Self:
        """Add a review by prepare-downscale that was allowed, by default of the next request."""
        fields = {
            "begun": at - 0.5,
            "call": self.number + 1 if call is None else call,
            "actor": OPERATOR,
            "path": "/admission/prepare-downscale",
            "namespace": NAMESPACE,
            "resource": "statefulsets",
            "dry_run": False,
            "allowed": True,
            "status": 0,
        }
        return self.add(kinds.Reviewed, at, name=full(name), **{**fields, **parts})

    def prepare(self, at: float, name: str, **parts: Any) -> Self:
        """Add a POST, or another `method`, that a pod has acted on."""
        fields = {
            "actor": OPERATOR,
            "method": "POST",
            "path": "/ingester/prepare",
            "uid": self._uid(name),
            "status": 200,
            "acted": True,
        }
        return self.add(kinds.PodCalled, at, pod=full(name), **{**fields, **parts})

    def delay(self, at: float, name: str, **parts: Any) -> Self:
        """Have the operator call a delayed pod; `method` may be DELETE."""
        return self.prepare(at, name, **{"path": "/delayed", **parts})

    # Whole steps

    def scale(self, at: float, name: str = "a", **parts: Any) -> Self:
        """Have a downscale to two pods persist, well guarded: prepared, reviewed, written."""
        self.live_read(at - 1.5).prepare(at - 1, f"{name}-2").review(at - 0.5, name)
        return self.persist(at, name, **parts)

    def persist(self, at: float, name: str = "a", replicas: int = 2, **parts: Any) -> Self:
        """Have a person's request for fewer pods be written and answered."""
        self.zone(at, name, replicas=replicas, actor=PERSON, call=self.number + 1, **parts)
        return self.send_request(at, name, body={"spec": {"replicas": replicas}})

    def send_request(self, at: float, name: str = "a", **parts: Any) -> Self:
        """Have a person request two pods, answered at a time, begun two seconds before."""
        how: dict[str, Any] = {"begun": at - 2, "actor": PERSON, "subresource": "scale"}
        body = {"spec": {"replicas": 2}}
        return self.call(at, "patch", STATEFULSETS, name, **{**how, "body": body, **parts})

    def set_replicas(
        self, at: float, name: str, replicas: int, *, is_read: bool = True, **parts: Any
    ) -> Self:
        """Have the operator write the replicas of a zone, on a live read a second before."""
        if is_read:
            self.live_read(at - 1)
        self.zone(at, name, replicas=replicas, actor=OPERATOR, call=self.number + 1)
        body = [{"op": "replace", "path": "/spec/replicas", "value": replicas}]
        return self.call(at, "patch", STATEFULSETS, name, body=body, **parts)

    def mark(self, at: float, name: str, engine: str = "eviction", **parts: Any) -> Self:
        """Have the operator write on a pod that it may go; `body` and `uid` may be wrong ones."""
        actor = parts.get("actor", OPERATOR)
        record = {"uid": parts.pop("uid", self._uid(name)), "engine": engine, "by": actor}
        self._annotate(
            at, name, {DISRUPTION_RECORD: json.dumps({**record, "at": f"{at:g}"})}, actor
        )
        swap: JsonObject = {"metadata": {"uid": "u", "resourceVersion": "7"}}
        return self.call(at, "patch", PODS, name, **{"body": swap, **parts})

    def unmark(self, at: float, name: str) -> Self:
        return self._annotate(at, name, {}).call(at, "patch", PODS, name, body=[])

    def evict(self, at: float, name: str, *, dry: str = "", **how: Any) -> Self:
        """Have a person evict a pod: marked, allowed, carried out. `dry`: as in `request`."""
        number, allowed = self.number + 1, how.get("allowed", True)
        self.number += 1
        self.call(at - 0.3, "list", PODS)
        if how.pop("marked", True):
            self.mark(at - 0.2, name)
        about = {"path": EVICTION_PATH, "resource": "pods/eviction", "dry_run": dry == "query"}
        self.review(at - 0.1, name, number, **about, **how)
        if allowed and not dry:
            self.terminate(at, name, PERSON).call(at, "delete", PODS, name, actor=PERSON)
        return self.request(at, name, dry=dry, number=number, status=201 if allowed else 429)

    def request(self, at: float, name: str, *, dry: str = "", **parts: Any) -> Self:
        """Add the answer to an eviction; `dry` is how a dry run says so: by `query` or `body`."""
        query = {"dryRun": "All"} if dry == "query" else {}
        body = {"deleteOptions": {"dryRun": ["All"]}} if dry == "body" else {}
        how = {"begun": at - 1, "actor": PERSON, "status": 201, "subresource": "eviction", **parts}
        return self.call(at, "create", PODS, name, query=query, body=body, **how)

    # What goes wrong

    def lived(self, at: float, what: str) -> Self:
        return self.add(kinds.Lived, at, actor=OPERATOR, what=what)

    def fault(self, at: float, kind: str, text: str = "", actor: str = OPERATOR) -> Self:
        return self.add(kinds.Fault, at, number=1, kind=kind, actor=actor, text=text)

    def terminate(self, at: float, name: str, actor: str) -> Self:
        places = {("metadata", "deletionTimestamp"): MOMENT}
        return self.edit(at, PODS, name, places, actor=actor, call=self.number + 1)

    def _annotate(self, at: float, name: str, notes: JsonObject, actor: str = OPERATOR) -> Self:
        places = {("metadata", "annotations"): notes}
        return self.edit(at, PODS, name, places, actor=actor, call=self.number + 1)

    def _uid(self, name: str) -> str:
        metadata = self.objects[PODS.plural, full(name)]["metadata"]
        assert isinstance(metadata, dict)
        return str(metadata["uid"])


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

    # Health checks

    def health(
        self,
        at: float,
        passed: str = "",
        *,
        result: str = "",
        seen: float = 0,
        back: str = "",
        late: str = "",
        sent: float = 0,
    ) -> Self:
        """Write a health check of all zones: which its gate let begin, and what was found `seen`.

        The write may have been `sent` long before.

        Its range is ten seconds; zones that go `back` ran the revision `new` before, and of those
        that are `late` the rollout was seen only after all pods had been created.
        """
        records: list[JsonObject] = [
            {
                "name": full(letter),
                "updateRevision": "new",
                "stableRevision": "new" if letter in back else "old",
                "seenAt": "9" if letter in late else "",
                **({"passedAt": MOMENT} if letter in passed else {}),
            }
            for letter in "abc"
        ]
        evaluated = format_rfc3339(EPOCH + s(seen))
        state: JsonObject = {"name": "errors", "result": result, "evaluatedAt": evaluated}
        group: JsonObject = {"group": "ingester", "statefulSets": [*records]}
        if result:
            group["checks"] = [state]
        spec: JsonObject = {"checks": [{"name": "errors", "currentRange": "10s"}]}
        body: JsonObject = {"spec": spec, "status": {"groups": [group]}}
        resource, how = api.ROLLOUT_HEALTH_CHECKS, {}
        if sent:
            what = f"patch {resource.plural}/health/status"
            self.fault(sent, "slow", f"call 9: {what}: {timedelta(seconds=at - sent)}")
            self.call(at, "patch", resource, "health", subresource="status")
            how["call"] = self.number
        return self.write(at, resource, "health", body, actor=OPERATOR, **how)

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

    def complete(self, at: float, value: str | None = "then") -> Self:
        path = ("status", "lastBatch", "completionTime")
        return self._edit_policy(at, *path, value=value, actor=OPERATOR)

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
