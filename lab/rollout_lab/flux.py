"""The controllers of Flux, as far as releases wait for them: fetch a tag, apply it, report it.

Decides when an OCIRepository has the artifact of its tag, when a Kustomization has applied it, and
what their statuses say: that is as the controllers themselves were recorded. Tags are announced
from outside: there is no registry. What a Kustomization applies are the StatefulSets that have its
labels, as Flux labels what it applies: their first container gets the version. What else a spec may
want is NotModelled.
"""

import asyncio
import hashlib
import random
from collections.abc import Sequence
from datetime import timedelta
from typing import Final, NamedTuple, NoReturn

import msgspec

from rollout_lab.apiserver.api import SimulatedApi
from rollout_lab.model.fields import child, children, condition_of, name_of, number, text, timestamp
from rollout_lab.model.history import Commit
from rollout_lab.model.request import STRATEGIC_PATCH, ApiRequest, NotModelled, not_modelled, patch
from rollout_lab.virtual_loop.pace import Range, draw
from rollout_operator.aio.queue import WorkQueue
from rollout_operator.kube.api import (
    IMAGE_POLICIES,
    KUSTOMIZATIONS,
    OCI_REPOSITORIES,
    STATEFULSETS,
    JsonObject,
    Resource,
)

IMAGE_POLICY: Final = IMAGE_POLICIES[0]
SOURCE: Final = OCI_REPOSITORIES[0]
KUSTOMIZATION: Final = KUSTOMIZATIONS[0]
# By these Flux knows what it applied.
OWNER_LABELS: Final = ("kustomize.toolkit.fluxcd.io/name", "kustomize.toolkit.fluxcd.io/namespace")
_REQUESTED_AT: Final = ("metadata", "annotations", "reconcile.fluxcd.io/requestedAt")
_STORED: Final = "ArtifactInStorage"
_HANDLED_AT: Final = "lastHandledReconcileAt"
_ACTORS: Final = {
    IMAGE_POLICY: "image-reflector-controller",
    SOURCE: "source-controller",
    KUSTOMIZATION: "kustomize-controller",
}
_NOT_MODELLED: Final = ("components", "decryption", "dependsOn", "healthChecks", "patches", "wait")
_CONTAINERS: Final = ("spec", "template", "spec", "containers")
# After a failure: `spec.interval` of what people write is minutes.
_RETRY: Final = timedelta(minutes=1)


class FluxTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Spans from which each delay is drawn evenly: the least and the most."""

    fetch: Range = (timedelta(seconds=2), timedelta(seconds=4))
    """From a change of an OCIRepository until it has the artifact."""
    apply: Range = (timedelta(seconds=1), timedelta(seconds=3))
    """From a change of a Kustomization, or of its artifact, until it is applied."""


def label_owner(name: str, namespace: str) -> dict[str, str]:
    return dict(zip(OWNER_LABELS, (name, namespace), strict=True))


class _Key(NamedTuple):
    resource: Resource
    namespace: str
    name: str


class _State(NamedTuple):
    """A condition, as it is now."""

    kind: str
    reason: str
    message: str
    status: str = "True"


class Flux:
    """Reconciles the objects of Flux of one world while `run` is running."""

    def __init__(
        self, api: SimulatedApi, *, rng: random.Random, times: FluxTimes | None = None
    ) -> None:
        self.missing: set[str] = set()
        """Tags that have no artifact: a fetch of such a tag fails."""
        self._api = api
        self._rng = rng
        self._times = times or FluxTimes()
        self._queue: WorkQueue[_Key] = WorkQueue()

    async def announce(self, namespace: str, policy: str, tag: str, *, digest: str = "") -> None:
        """Have an image policy select a tag, as its controller does after a scan."""
        key = _Key(IMAGE_POLICY, namespace, policy)
        image = "registry.example/app"
        latest: JsonObject = {"name": image, "tag": tag, **({"digest": digest} if digest else {})}
        found = self._api.get(*key) or {}
        status: JsonObject = {
            "latestRef": latest,
            "observedGeneration": number(found, "metadata", "generation"),
        }
        message = f"Latest image tag for {image} resolved to {tag}"
        ready = _State("Ready", "Succeeded", message)
        await self._report(key, status, ready)

    async def run(self) -> NoReturn:
        """Reconcile what is there, and what changes, until cancelled. Raises NotModelled."""
        for resource in (SOURCE, KUSTOMIZATION):
            for obj in self._api.list(resource, ""):
                self._wake(_Key(resource, text(obj, "metadata", "namespace"), name_of(obj)))
        self._api.on_commit(self._see)
        while True:
            key = await self._queue.take()
            try:
                again = await self._reconcile(key)
            except NotModelled as error:
                # Else nothing would come any more, and the story would go on.
                problem = {"message": f"the sandbox has a gap: {error}", "exception": error}
                asyncio.get_running_loop().call_exception_handler(problem)
                raise
            self._queue.done(key)
            if again is not None:
                self._queue.add_after(key, again)

    def _see(self, commit: Commit) -> None:
        if commit.resource not in (SOURCE, KUSTOMIZATION) or commit.after is None:
            return
        key = _Key(commit.resource, commit.namespace, commit.name)
        if _is_unobserved(commit.after) and _get_wish(commit.before) != _get_wish(commit.after):
            self._wake(key)
        if commit.resource == SOURCE and _get_revision(commit.before) != _get_revision(
            commit.after
        ):
            for each in self._list_fed(key):
                self._wake(each)

    def _list_fed(self, source: _Key) -> Sequence[_Key]:
        return [
            _Key(KUSTOMIZATION, source.namespace, name_of(kustomization))
            for kustomization in self._api.list(KUSTOMIZATION, source.namespace)
            if text(kustomization, "spec", "sourceRef", "name") == source.name
        ]

    def _wake(self, key: _Key) -> None:
        span = self._times.fetch if key.resource == SOURCE else self._times.apply
        self._queue.add_after(key, draw(self._rng, span))

    async def _reconcile(self, key: _Key) -> timedelta | None:
        """Bring one object nearer to its spec; return when to try again after a failure."""
        obj = self._api.get(*key)
        if obj is None or child(obj, "spec").get("suspend") is True:
            return None
        return await (self._fetch if key.resource == SOURCE else self._apply)(key, obj)

    async def _fetch(self, key: _Key, obj: JsonObject) -> timedelta | None:
        reference = child(obj, "spec", "ref")
        if reference.keys() - {"tag"}:
            not_modelled(f"an OCIRepository with {', '.join(sorted(reference))}")
        tag = text(reference, "tag")
        if tag in self.missing or not tag:
            reason = "OCIArtifactPullFailed"
            message = f"failed to determine artifact digest: MANIFEST_UNKNOWN: no tag {tag!r}"
            await self._report(
                key,
                _mark_handled(obj),
                _State("Reconciling", "ProgressingWithRetry", "building artifact"),
                _State("Ready", reason, message, "False"),
                _State("FetchFailed", reason, message),
            )
            return _RETRY
        status = _observe(obj)
        digest = f"sha256:{hashlib.sha256(tag.encode()).hexdigest()}"
        revision = f"{tag}@{digest}"
        status["artifact"] = {"revision": revision, "digest": digest}
        message = f"stored artifact for digest '{revision}'"
        await self._report(
            key,
            status,
            *(_State(kind, "Succeeded", message) for kind in ("Ready", _STORED)),
        )
        return None

    async def _apply(self, key: _Key, obj: JsonObject) -> timedelta | None:
        spec = child(obj, "spec")
        if others := sorted(spec.keys() & set(_NOT_MODELLED)):
            not_modelled(f"a Kustomization with {', '.join(others)}")
        kind, name = (text(spec, "sourceRef", field) for field in ("kind", "name"))
        if kind != SOURCE.kind:
            not_modelled(f"a Kustomization of a {kind}")
        source = self._api.get(SOURCE, key.namespace, name)
        if source is None or not _get_revision(source):
            message = f"Source artifact not found, retrying in {_RETRY.total_seconds():g}s"
            await self._report(
                key, _mark_handled(obj), _State("Ready", "ArtifactFailed", message, "False")
            )
            return _RETRY
        status = _observe(obj)
        revision = _get_revision(source)
        sets = self._list_sets(key)
        for sts in sets:
            await self._set_version(sts, revision.partition("@")[0])
        status["lastAppliedRevision"] = status["lastAttemptedRevision"] = revision
        entries = [
            {"id": f"{key.namespace}_{name_of(sts)}_apps_StatefulSet", "v": "v1"} for sts in sets
        ]
        status["inventory"] = {"entries": entries}
        message = f"Applied revision: {revision}"
        await self._report(key, status, _State("Ready", "ReconciliationSucceeded", message))
        return None

    def _list_sets(self, key: _Key) -> Sequence[JsonObject]:
        return [
            sts
            for sts in self._api.list(STATEFULSETS, "")
            if tuple(text(sts, "metadata", "labels", label) for label in OWNER_LABELS)
            == (key.name, key.namespace)
        ]

    async def _set_version(self, sts: JsonObject, version: str) -> None:
        container = next(iter(children(sts, *_CONTAINERS)), {})
        image, colon, _ = text(container, "image").rpartition(":")
        wanted = f"{image}:{version}" if colon else version
        containers = [{"name": text(container, "name"), "image": wanted}]
        body: JsonObject = {"spec": {"template": {"spec": {"containers": containers}}}}
        namespace, actor = text(sts, "metadata", "namespace"), _ACTORS[KUSTOMIZATION]
        await self._send(
            patch(STATEFULSETS, name_of(sts), body, namespace, actor, kind=STRATEGIC_PATCH)
        )

    async def _report(self, key: _Key, status: JsonObject, *states: _State) -> None:
        """Write fields of a status with all its conditions; an object that is gone has none."""
        obj, now = self._api.get(*key) or {}, timestamp(self._api.now())
        conditions = [_render(obj, state, now) for state in states]
        stored = condition_of(obj, _STORED)
        if stored and all(state.kind != _STORED for state in states):
            conditions.append(stored)  # the artifact of before is there still
        body: JsonObject = {"status": {**status, "conditions": conditions}}
        resource, namespace, name = key
        actor = _ACTORS[resource]
        await self._send(patch(resource, name, body, namespace, actor, subresource="status"))

    async def _send(self, request: ApiRequest) -> None:
        """Write; an object that is gone by now is reconciled no more."""
        await self._api.call(request)


def _render(obj: JsonObject, state: _State, now: str) -> JsonObject:
    """Return a condition with its times: each attempt begins with `Ready` unknown."""
    condition: JsonObject = {
        "type": state.kind,
        "status": state.status,
        "reason": state.reason,
        "message": state.message,
        "observedGeneration": number(obj, "metadata", "generation"),
    }
    before = condition_of(obj, state.kind)
    is_same = state.kind != "Ready" and all(
        before.get(key) == condition[key] for key in ("status", "reason", "message")
    )
    since = text(before, "lastTransitionTime") if is_same else now
    return {**condition, "lastTransitionTime": since}


def _observe(obj: JsonObject) -> JsonObject:
    """Return what a status says of a spec that was reconciled; it is observed with success only."""
    return {
        "observedGeneration": number(obj, "metadata", "generation"),
        **_mark_handled(obj),
    }


def _mark_handled(obj: JsonObject) -> JsonObject:
    requested = text(obj, *_REQUESTED_AT)
    return {_HANDLED_AT: requested} if requested else {}


def _get_wish(obj: JsonObject | None) -> tuple[int, str]:
    return (
        (0, "")
        if obj is None
        else (number(obj, "metadata", "generation"), text(obj, *_REQUESTED_AT))
    )


def _is_unobserved(obj: JsonObject) -> bool:
    known = (number(obj, "status", "observedGeneration"), text(obj, "status", _HANDLED_AT))
    return known != _get_wish(obj)


def _get_revision(source: JsonObject | None) -> str:
    return text(source or {}, "status", "artifact", "revision")
