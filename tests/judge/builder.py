"""Build histories by hand, one event after another, for tests of what reads them.

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
from rollout_lab.model.history import Called, Commit, Fault, History, Lived, PodCalled, Reviewed
from rollout_lab.model.request import ApiRequest, Verb
from rollout_lab.schemas.kinds import REPLICA_TEMPLATES

from rollout_operator.kube.api import (
    PODS,
    STATEFULSETS,
    VALIDATING_WEBHOOKS,
    ZONE_BUDGETS,
    JsonObject,
    Resource,
)
from rollout_operator.model.names import DISRUPTION_RECORD, FORCE_REPLICAS
from tests.judge.budgets import EVICTION_PATH
from tests.judge.builder_objects import (
    MOMENT,
    change_set,
    metadata_of,
    pod_object,
    preconditions,
    statefulset,
)

OPERATOR: Final = "operator-1"
PERSON: Final = "alice"
NAMESPACE: Final = "default"
BUDGET: Final = "ingester"
TEMPLATE: Final = "ingesters"
DELAY_PATH: Final = "/delayed"
PREPARED: Final[Mapping[str, str]] = {"grafana.com/prepare-downscale": "true"}
PATHS: Final = {
    "grafana.com/prepare-downscale-http-path": "ingester/prepare",
    "grafana.com/prepare-downscale-http-port": "80",
}
WAIT: Final = "grafana.com/min-time-between-zones-downscale"


def s(seconds: float) -> timedelta:
    """Return seconds."""
    return timedelta(seconds=seconds)


def full(name: str) -> str:
    """Return the name of a zone or a pod that may be given by its letter."""
    return f"zone-{name}" if re.fullmatch(r"[a-z](-\d+)?", name) else name


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
        self.history.add(
            Commit(
                at=s(at),
                revision=self.revision,
                actor=how.get("actor", "person"),
                resource=resource,
                namespace=NAMESPACE if resource.is_namespaced else "",
                name=name,
                before=before,
                after=after,
                call=how.get("call", 0),
            )
        )
        return self

    def zone(self, at: float, name: str, **parts: Any) -> Self:
        """Create a set, or change parts of it: see `change_set`."""
        name = full(name)
        known = self.objects.get((STATEFULSETS.plural, name))
        how = {key: parts.pop(key) for key in ("actor", "call") if key in parts}
        after = statefulset(name) if known is None else deepcopy(known)
        change_set(after, parts)
        return self.write(at, STATEFULSETS, name, after, **how)

    def pod(self, at: float, name: str, **parts: Any) -> Self:
        """Create a pod, or write it anew: see `pod_object`."""
        return self.write(at, PODS, name, pod_object(full(name), **parts))

    def gone(self, at: float, name: str, **how: Any) -> Self:
        """Have a pod go away for good."""
        return self.write(at, PODS, name, None, **how)

    def zones(self, replicas: int = 3, letters: str = "abc", **parts: Any) -> Self:
        """Create whole zones at revision `old` that are to be at revision `new`."""
        for letter in letters:
            self.zone(0, letter, replicas=replicas, **parts)
            for ordinal in range(replicas):
                self.pod(0, f"{letter}-{ordinal}")
        return self

    def replace(self, at: float, name: str, *, ready: bool = True, revision: str = "new") -> Self:
        """Have a pod end and its successor come."""
        uid = f"{full(name)}@{at}"
        self.gone(at, name).pod(at + 0.1, name, uid=uid, ready=False, revision=revision)
        return self.pod(at + 0.2, name, uid=uid, revision=revision) if ready else self

    def hooks(self, at: float, *names: str, policy: str = "Fail") -> Self:
        """Have webhooks in force from then on."""
        rule = {"operations": ["UPDATE"], "resources": ["statefulsets", "statefulsets/scale"]}
        hooks: list[JsonObject] = [
            {
                "clientConfig": {"service": {"path": f"/admission/{name}"}},
                "failurePolicy": policy,
                "rules": [rule],
            }
            for name in names
        ]
        return self.write(at, VALIDATING_WEBHOOKS, "ours", {"webhooks": hooks})

    def budget(self, at: float, **spec: Any) -> Self:
        """Create the budget that selects all pods, or write it anew."""
        budget: JsonObject = {
            "metadata": {"name": BUDGET},
            "spec": {"selector": {"matchLabels": {}}, **spec},
        }
        return self.write(at, ZONE_BUDGETS, BUDGET, budget)

    def unbudget(self, at: float) -> Self:
        """Delete the budget."""
        return self.write(at, ZONE_BUDGETS, BUDGET, None)

    def template(self, at: float, replicas: int, status: int | None = None) -> Self:
        """Have the ReplicaTemplate want so many replicas, and report `status`, else as many."""
        after: JsonObject = {
            "metadata": {"name": TEMPLATE},
            "spec": {"replicas": replicas},
            "status": {"replicas": replicas if status is None else status},
        }
        return self.write(at, REPLICA_TEMPLATES, TEMPLATE, after)

    def force(self, at: float, name: str, replicas: int | None) -> Self:
        """Have a person force a number of replicas, or none any more."""
        text = None if replicas is None else f"{replicas}"
        return self.zone(at, name, annotations={FORCE_REPLICAS: text})

    # Requests and answers

    def call(
        self,
        at: float,
        verb: Verb,
        resource: Resource,
        name: str = "",
        *,
        begun: float | None = None,
        actor: str = OPERATOR,
        status: int = 200,
        message: str = "",
        number: int | None = None,
        **parts: Any,
    ) -> Self:
        """Add an answered request, of the operator if nothing else is said."""
        if number is None:
            number = self.number = self.number + 1
        namespace = parts.pop("namespace", NAMESPACE if resource.is_namespaced else "")
        request = ApiRequest(
            verb=verb, resource=resource, namespace=str(namespace), name=full(name), **parts
        )
        self.history.add(
            Called(
                at=s(at),
                begun=s(at if begun is None else begun),
                number=number,
                actor=actor,
                request=request,
                status=status,
                message=message,
            )
        )
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
        uid = str(metadata_of(self.objects[PODS.plural, full(name)])["uid"])
        body = parts.pop("body", preconditions(uid))
        self.terminate(at, name, parts.get("actor", OPERATOR))
        return self.call(at, "delete", PODS, name, body=body, **parts)

    def review(self, at: float, name: str, call: int | None = None, **parts: Any) -> Self:
        """Add a review by prepare-downscale that was allowed, by default of the next request."""
        fields: dict[str, Any] = {
            "at": s(at),
            "begun": s(at - 0.5),
            "call": self.number + 1 if call is None else call,
            "actor": OPERATOR,
            "path": "/admission/prepare-downscale",
            "namespace": NAMESPACE,
            "name": full(name),
            "resource": "statefulsets",
            "dry_run": False,
            "allowed": True,
            "status": 0,
        }
        self.history.add(Reviewed(**{**fields, **parts}))
        return self

    def prepare(self, at: float, name: str, **parts: Any) -> Self:
        """Add a POST, or another `method`, that a pod has acted on."""
        pod = self.objects[PODS.plural, full(name)]
        fields: dict[str, Any] = {
            "at": s(at),
            "begun": s(at),
            "actor": OPERATOR,
            "method": "POST",
            "pod": full(name),
            "uid": str(metadata_of(pod)["uid"]),
            "path": "/ingester/prepare",
            "status": 200,
            "acted": True,
        }
        self.history.add(PodCalled(**{**fields, **parts}))
        return self

    def delay(self, at: float, name: str, **parts: Any) -> Self:
        """Have the operator call a delayed pod; `method` may be DELETE."""
        return self.prepare(at, name, **{"path": DELAY_PATH, **parts})

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
        how: dict[str, Any] = {
            "begun": at - 2,
            "actor": PERSON,
            "body": {"spec": {"replicas": 2}},
            "subresource": "scale",
            **parts,
        }
        return self.call(at, "patch", STATEFULSETS, name, **how)

    def set_replicas(
        self, at: float, name: str, replicas: int, *, is_read: bool = True, **parts: Any
    ) -> Self:
        """Have the operator write the replicas of a zone, on a live read a second before."""
        if is_read:
            self.live_read(at - 1)
        self.zone(at, name, replicas=replicas, actor=OPERATOR, call=self.number + 1)
        body = [{"op": "replace", "path": "/spec/replicas", "value": replicas}]
        return self.call(at, "patch", STATEFULSETS, name, body=body, **parts)

    def mark(self, at: float, name: str, **parts: Any) -> Self:
        """Have the operator write on a pod that it may go; `body` and `uid` may be wrong ones."""
        uid = parts.pop("uid", metadata_of(self.objects[PODS.plural, full(name)])["uid"])
        record = {"uid": uid, "engine": parts.pop("engine", "eviction")}
        actor = str(parts.get("actor", OPERATOR))
        record |= {"by": actor, "at": f"{at}"}
        swap: JsonObject = {"metadata": {"uid": "u", "resourceVersion": "7"}}
        self._annotate(at, name, {DISRUPTION_RECORD: json.dumps(record)}, actor)
        return self.call(at, "patch", PODS, name, **{"body": swap, **parts})

    def unmark(self, at: float, name: str) -> Self:
        """Have a record removed."""
        return self._annotate(at, name, {}).call(at, "patch", PODS, name, body=[])

    def evict(
        self,
        at: float,
        name: str,
        *,
        marked: bool = True,
        allowed: bool = True,
        dry: str = "",
        actor: str = OPERATOR,
    ) -> Self:
        """Have a person evict a pod: marked, allowed, carried out. `dry`: as `request_eviction`."""
        number = self.number = self.number + 1
        self.call(at - 0.3, "list", PODS)
        if marked:
            self.mark(at - 0.2, name)
        how = {"path": EVICTION_PATH, "resource": "pods/eviction", "dry_run": dry == "query"}
        self.review(at - 0.1, name, number, allowed=allowed, actor=actor, **how)
        if allowed and not dry:
            self.terminate(at, name, PERSON).call(at, "delete", PODS, name, actor=PERSON)
        return self.request_eviction(at, name, number, dry=dry, status=201 if allowed else 429)

    def request_eviction(
        self,
        at: float,
        name: str,
        number: int | None = None,
        *,
        status: int = 201,
        dry: str = "",
        message: str = "",
    ) -> Self:
        """Add the answer to an eviction; `dry` is how a dry run says so: by `query` or `body`."""
        return self.call(
            at,
            "create",
            PODS,
            name,
            begun=at - 1,
            actor=PERSON,
            status=status,
            message=message,
            number=number,
            subresource="eviction",
            query={"dryRun": "All"} if dry == "query" else {},
            body={"deleteOptions": {"dryRun": ["All"]}} if dry == "body" else {},
        )

    # What goes wrong

    def lived(self, at: float, what: str) -> Self:
        """Add a step in the life of a process."""
        self.history.add(Lived(at=s(at), actor=OPERATOR, what=what))
        return self

    def fault(self, at: float, kind: str, text: str = "", actor: str = OPERATOR) -> Self:
        """Add something that goes wrong."""
        self.history.add(Fault(at=s(at), number=1, kind=kind, actor=actor, text=text))
        return self

    def terminate(self, at: float, name: str, actor: str) -> Self:
        pod = deepcopy(self.objects[PODS.plural, full(name)])
        metadata_of(pod)["deletionTimestamp"] = MOMENT
        return self.write(at, PODS, name, pod, actor=actor, call=self.number + 1)

    def _annotate(
        self, at: float, name: str, annotations: JsonObject, actor: str = OPERATOR
    ) -> Self:
        pod = deepcopy(self.objects[PODS.plural, full(name)])
        metadata_of(pod)["annotations"] = annotations
        return self.write(at, PODS, name, pod, actor=actor, call=self.number + 1)
