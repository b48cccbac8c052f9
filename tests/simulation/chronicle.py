"""Hand-made histories: a group of zones whose pods are deleted, well or badly."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from rollout_operator.kube.api import (
    PODS,
    STATEFULSETS,
    VALIDATING_WEBHOOKS,
    JsonObject,
    Resource,
)
from rollout_operator.lab.model.history import (
    Called,
    Commit,
    Fault,
    History,
    Lived,
    PodCalled,
    Reviewed,
)
from rollout_operator.lab.model.request import ApiRequest, Verb

OPERATOR: Final = "operator-1"
PERSON: Final = "alice"
NAMESPACE: Final = "default"
PREPARED: Final[Mapping[str, str]] = {"grafana.com/prepare-downscale": "true"}
PATHS: Final = {
    "grafana.com/prepare-downscale-http-path": "ingester/prepare",
    "grafana.com/prepare-downscale-http-port": "80",
}
WAIT: Final = "grafana.com/min-time-between-zones-downscale"


def s(seconds: float) -> timedelta:
    """Return seconds."""
    return timedelta(seconds=seconds)


@dataclass(slots=True)
class Chronicle:
    """Writes a history, one event after another."""

    history: History = field(default_factory=History)
    revision: int = 0
    number: int = 0
    objects: dict[tuple[str, str], JsonObject] = field(default_factory=dict)

    def write(
        self, at: float, resource: Resource, name: str, after: JsonObject | None, **how: Any
    ) -> None:
        """Commit a state; `how` may name `actor` and `call`."""
        key = (resource.plural, name)
        before = self.objects.pop(key, None)
        self.revision += 1
        if after is not None:
            self.objects[key] = after
        self.history.add(
            Commit(
                at=s(at),
                revision=self.revision,
                actor=how.get("actor", "someone"),
                resource=resource,
                namespace=NAMESPACE if resource.is_namespaced else "",
                name=name,
                before=before,
                after=after,
                call=how.get("call", 0),
            )
        )

    def zone(self, at: float, name: str, **parts: Any) -> None:
        """Create a set, or change parts of it: see `statefulset`."""
        known = self.objects.get((STATEFULSETS.plural, name))
        how = {key: parts.pop(key) for key in ("actor", "call") if key in parts}
        after = statefulset(name) if known is None else deepcopy(known)
        _change(after, parts)
        self.write(at, STATEFULSETS, name, after, **how)

    def pod(self, at: float, name: str, **parts: Any) -> None:
        """Create a pod, or write it anew: see `pod_object`."""
        self.write(at, PODS, name, pod_object(name, **parts))

    def zones(self, replicas: int = 3, letters: str = "abc", **parts: Any) -> None:
        """Create whole zones at revision `old` that are to be at revision `new`."""
        for letter in letters:
            self.zone(0, f"zone-{letter}", replicas=replicas, **parts)
            for ordinal in range(replicas):
                self.pod(0, f"zone-{letter}-{ordinal}")

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
        **parts: Any,
    ) -> int:
        """Add an answered request, of the operator if nothing else is said; return its number."""
        self.number += 1
        namespace = parts.pop("namespace", NAMESPACE if resource.is_namespaced else "")
        request = ApiRequest(
            verb=verb,
            resource=resource,
            namespace=str(namespace),
            name=name,
            **parts,
        )
        self.history.add(
            Called(
                at=s(at),
                begun=s(at if begun is None else begun),
                number=self.number,
                actor=actor,
                request=request,
                status=status,
            )
        )
        return self.number

    def look(self, at: float, **parts: Any) -> None:
        """Add reads of the group, live if nothing else is said."""
        for resource in (STATEFULSETS, PODS):
            self.call(at, "list", resource, **parts)

    def delete(self, at: float, name: str, *, looked: bool = True, **parts: Any) -> None:
        """Have the operator delete a pod, as it should if nothing else is said."""
        if looked:
            self.look(at - 0.1)
        pod = self.objects[PODS.plural, name]
        uid = str(_metadata(pod)["uid"])
        body = parts.pop("body", preconditions(uid))
        number = self.number + 1
        going = deepcopy(pod)
        _metadata(going)["deletionTimestamp"] = "2026-01-02T03:04:05Z"
        self.write(at, PODS, name, going, actor=parts.get("actor", OPERATOR), call=number)
        self.call(at, "delete", PODS, name, body=body, **parts)

    def replace(self, at: float, name: str, *, ready: bool = True, revision: str = "new") -> None:
        """Have a pod end and its successor come."""
        self.write(at, PODS, name, None)
        self.pod(at + 0.1, name, uid=f"{name}@{at}", ready=False, revision=revision)
        if ready:
            self.pod(at + 0.2, name, uid=f"{name}@{at}", revision=revision)

    def lived(self, at: float, what: str, actor: str = OPERATOR) -> None:
        """Add a step in the life of a process."""
        self.history.add(Lived(at=s(at), actor=actor, what=what))

    def fault(self, at: float, kind: str, text: str = "", actor: str = OPERATOR) -> None:
        """Add something that goes wrong."""
        self.history.add(Fault(at=s(at), number=1, kind=kind, actor=actor, text=text))

    def hooks(self, at: float, *names: str, policy: str = "Fail") -> None:
        """Have webhooks in force from then on."""
        rule: JsonObject = {
            "operations": ["UPDATE"],
            "resources": ["statefulsets", "statefulsets/scale"],
        }
        hooks: list[JsonObject] = [
            {
                "clientConfig": {"service": {"path": f"/admission/{name}"}},
                "failurePolicy": policy,
                "rules": [rule],
            }
            for name in names
        ]
        self.write(at, VALIDATING_WEBHOOKS, "ours", {"webhooks": hooks})

    def prepare(self, at: float, name: str, **parts: Any) -> None:
        """Add a POST, or another `method`, that a pod has acted on."""
        pod = self.objects[PODS.plural, name]
        told: dict[str, Any] = {
            "at": s(at),
            "begun": s(at),
            "actor": OPERATOR,
            "method": "POST",
            "pod": name,
            "uid": str(_metadata(pod)["uid"]),
            "path": "/ingester/prepare",
            "status": 200,
            "acted": True,
        }
        self.history.add(PodCalled(**{**told, **parts}))

    def review(self, at: float, name: str, call: int, **parts: Any) -> None:
        """Add a review by prepare-downscale that was allowed, if nothing else is said."""
        told: dict[str, Any] = {
            "at": s(at),
            "begun": s(at - 0.5),
            "call": call,
            "actor": OPERATOR,
            "path": "/admission/prepare-downscale",
            "namespace": NAMESPACE,
            "name": name,
            "resource": "statefulsets",
            "dry_run": False,
            "allowed": True,
            "status": 0,
        }
        self.history.add(Reviewed(**{**told, **parts}))


def statefulset(name: str) -> JsonObject:
    """Return a whole set of group `ingester` with three pods, its status up to date."""
    return {
        "metadata": {
            "name": name,
            "uid": name,
            "generation": 1,
            "creationTimestamp": "2026-01-02T03:04:05Z",
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
    revision: str = "old",
    phase: str = "Running",
) -> JsonObject:
    """Return a pod of the set that its name begins with."""
    set_uid = name.rpartition("-")[0] if owner is None else owner
    return {
        "metadata": {
            "name": name,
            "uid": uid or f"{name}@0",
            "labels": {"controller-revision-hash": revision},
            "ownerReferences": [
                {"kind": "StatefulSet", "name": set_uid, "uid": set_uid, "controller": True}
            ],
        },
        "spec": {"containers": [{"name": "app"}]},
        "status": {
            "phase": phase,
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
            "containerStatuses": [{"name": "app", "ready": ready, "state": {"running": {}}}],
        },
    }


def preconditions(uid: str, version: str = "7") -> JsonObject:
    """Return the options of a delete that holds only for this pod in this state."""
    return {"kind": "DeleteOptions", "preconditions": {"uid": uid, "resourceVersion": version}}


def _metadata(found: JsonObject) -> JsonObject:
    metadata = found["metadata"]
    assert isinstance(metadata, dict)
    return metadata


def _change(found: JsonObject, parts: Mapping[str, object]) -> None:
    """Set what a test names where a StatefulSet has it."""
    places = {
        "replicas": ("spec", "replicas"),
        "strategy": ("spec", "updateStrategy", "type"),
        "generation": ("metadata", "generation"),
        "uid": ("metadata", "uid"),
        "observed": ("status", "observedGeneration"),
        "ready": ("status", "readyReplicas"),
        "update_revision": ("status", "updateRevision"),
        "current_revision": ("status", "currentRevision"),
        "limit": ("metadata", "annotations", "rollout-max-unavailable"),
        "paused": ("metadata", "annotations", "grafana.com/rollout-paused"),
        "group": ("metadata", "labels", "rollout-group"),
    }
    for key, value in parts.items():
        if key in ("labels", "annotations"):
            assert isinstance(value, Mapping)
            inner = _metadata(found)[key]
            assert isinstance(inner, dict)
            inner.update(value)
            continue
        *path, last = places[key]
        at = found
        for step in path:
            inner = at[step]
            assert isinstance(inner, dict)
            at = inner
        if value is None:
            at.pop(last, None)
        else:
            at[last] = value
