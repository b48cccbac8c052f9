"""Histories that are built by hand, one event after another, for tests of what reads them.

For a zone `zone-b` its letter will do, and `b-2` for a pod of it. Events say what a good operator
would have done, if nothing else is said.
"""

import json
import re
from collections.abc import Mapping
from copy import deepcopy
from datetime import timedelta
from typing import Any, Final, Self

import msgspec
from rollout_lab.model import history as kinds
from rollout_lab.model.history import History, Record
from rollout_lab.model.request import ApiRequest, Verb
from rollout_lab.schemas.kinds import REPLICA_TEMPLATES

from rollout_operator.kube import api
from rollout_operator.kube.api import PODS, STATEFULSETS, JsonObject, Resource
from rollout_operator.model.names import DISRUPTION_RECORD, FORCE_REPLICAS
from tests.judge.budgets import EVICTION_PATH

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

    def unbudget(self, at: float) -> Self:
        return self.remove(at, api.ZONE_BUDGETS, "ingester")

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
