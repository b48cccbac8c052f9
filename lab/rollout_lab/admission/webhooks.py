"""The webhooks of the simulated API server: which it calls for a write, and what comes of it.

Decides order, failure policies and the words of refusals, as the real server does: mutating
webhooks one after another, by the names of their configurations; validating webhooks at the same
time. What answers behind a webhook is the `HookCaller`'s part.
"""

import asyncio
import base64
import math
import random
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Final, Literal, Protocol
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from rollout_lab.model.fields import child, children, name_of, number, text
from rollout_lab.model.history import Commit, History, Reviewed
from rollout_lab.model.request import ApiRefusal, not_modelled
from rollout_lab.schemas.kinds import NAMESPACES, ObjectKind
from rollout_lab.schemas.metadata import (
    copy_json,
    expect,
    expect_one_of,
    is_empty,
    labels_of,
    matches,
)
from rollout_lab.schemas.patches import patched
from rollout_operator.aio.tasks import gather_all
from rollout_operator.kube.api import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS, JsonObject, Resource

Operation = Literal["CREATE", "UPDATE", "DELETE"]
_EXEMPT: Final = "admissionregistration.k8s.io"


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    operation: Operation
    kind: ObjectKind
    subresource: str
    namespace: str
    name: str
    user: str
    call: int
    """Number of the request."""
    old: JsonObject | None
    new: JsonObject | None
    """Of the subresource where there is one: a Scale, an Eviction."""
    dry_run: bool
    options: JsonObject
    may_wait: bool
    """Whether webhooks can be called: not where the caller needs its answer at once."""
    deadline: timedelta
    """When the request is given up, since the world began."""
    namespace_labels: Mapping[str, str] = {}

    @property
    def target(self) -> str:
        """Return the resource with its subresource, as in `statefulsets/scale`."""
        plural = self.kind.resource.plural
        return f"{plural}/{self.subresource}" if self.subresource else plural


class RegisteredHook(msgspec.Struct, frozen=True, kw_only=True):
    """One webhook of a configuration, with its defaults filled in."""

    name: str
    address: str
    """`https://host:port`, as errors show it."""
    path: str
    service: str
    """`namespace/name` of the Service, or the URL's host."""
    timeout: timedelta
    is_ignored: bool
    """Whether a call that fails counts for nothing (`failurePolicy: Ignore`)."""
    has_side_effects: bool
    """Also in a dry run."""
    is_reinvoked: bool
    rules: Sequence[JsonObject]
    namespaces: JsonObject
    objects: JsonObject
    conditions: bool

    def wants(self, attempt: Attempt, obj: JsonObject | None) -> bool:
        """Return whether it reviews an attempt; `obj` is the new object as it is by now."""
        if not any(_fits(rule, attempt) for rule in self.rules):
            return False
        if attempt.kind.resource.group == _EXEMPT:
            return False
        if not self._fits_namespace(attempt) or not self._fits_object(attempt, obj):
            return False
        if self.conditions:
            not_modelled(f"matchConditions, which the webhook {self.name} has")
        return True

    def _fits_namespace(self, attempt: Attempt) -> bool:
        if is_empty(self.namespaces):
            return True
        if attempt.kind.resource == NAMESPACES:
            shown = attempt.new or attempt.old or {}
            return matches(self.namespaces, labels_of(shown))
        # What belongs to the cluster is never exempted by it.
        return not attempt.namespace or matches(self.namespaces, attempt.namespace_labels)

    def _fits_object(self, attempt: Attempt, obj: JsonObject | None) -> bool:
        return is_empty(self.objects) or any(
            item is not None and matches(self.objects, labels_of(item))
            for item in (obj, attempt.old)
        )


def read_hooks(configurations: Sequence[JsonObject]) -> tuple[RegisteredHook, ...]:
    """Return the webhooks of configurations in the order in which they are called."""
    in_order = sorted(configurations, key=name_of)
    return tuple(_read_hook(hook) for item in in_order for hook in children(item, "webhooks"))


def _read_hook(hook: JsonObject) -> RegisteredHook:
    address, path, service = _target(child(hook, "clientConfig"))
    versions = hook.get("admissionReviewVersions")
    if not isinstance(versions, list) or "v1" not in versions:
        not_modelled(f"the webhook {text(hook, 'name')}, which does not take AdmissionReview v1")
    return RegisteredHook(
        name=text(hook, "name"),
        address=address,
        path=path,
        service=service,
        timeout=timedelta(seconds=number(hook, "timeoutSeconds")),
        is_ignored=hook.get("failurePolicy") == "Ignore",
        has_side_effects=hook.get("sideEffects") not in ("None", "NoneOnDryRun"),
        is_reinvoked=hook.get("reinvocationPolicy") == "IfNeeded",
        rules=children(hook, "rules"),
        namespaces=child(hook, "namespaceSelector"),
        objects=child(hook, "objectSelector"),
        conditions=bool(hook.get("matchConditions")),
    )


def _target(config: JsonObject) -> tuple[str, str, str]:
    service = child(config, "service")
    if service:
        name, namespace = text(service, "name"), text(service, "namespace")
        host = f"https://{name}.{namespace}.svc:{number(service, 'port', default=443)}"
        return host, text(service, "path") or "/", f"{namespace}/{name}"
    url = urlsplit(text(config, "url"))
    return f"{url.scheme}://{url.netloc}", url.path or "/", url.netloc


def _fits(rule: JsonObject, attempt: Attempt) -> bool:
    resource = attempt.kind.resource
    return (
        _fits_scope(text(rule, "scope"), attempt)
        and _names(rule, "operations", attempt.operation)
        and _names(rule, "apiGroups", resource.group)
        and _names(rule, "apiVersions", resource.version)
        and any(_fits_resource(resource, attempt) for resource in _texts(rule, "resources"))
    )


def _fits_scope(scope: str, attempt: Attempt) -> bool:
    return scope in ("", "*") or (scope == "Namespaced") is attempt.kind.resource.is_namespaced


def _fits_resource(pattern: str, attempt: Attempt) -> bool:
    plural, _, subresource = pattern.partition("/")
    return plural in ("*", attempt.kind.resource.plural) and (
        subresource in ("*", attempt.subresource)
    )


def _names(rule: JsonObject, key: str, wanted: str) -> bool:
    listed = _texts(rule, key)
    return "*" in listed or wanted in listed


def _texts(rule: JsonObject, key: str) -> list[str]:
    found = rule.get(key)
    return [path for path in found if isinstance(path, str)] if isinstance(found, list) else []


_VERSION: Final = "admission.k8s.io/v1"
_KIND: Final = "AdmissionReview"
_OPTIONS: Final = {"CREATE": "CreateOptions", "UPDATE": "UpdateOptions", "DELETE": "DeleteOptions"}
# What a subresource is a form of.
_FORMS: Final = {
    "scale": {"group": "autoscaling", "version": "v1", "kind": "Scale"},
    "eviction": {"group": "policy", "version": "v1", "kind": "Eviction"},
}
_LEAST_REFUSAL: Final = 400
# Of a refusal, beside causes and hint: these are strings.
_DETAILS: Final = ("name", "group", "kind", "uid")


class CallFailed(Exception):
    """A webhook could not be called; the text says what."""


class HookAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A useful answer of a webhook."""

    is_allowed: bool
    status: JsonObject
    """Of a refusal, empty where it says nothing."""
    patch: Sequence[JsonObject] = ()
    warnings: tuple[str, ...] = ()


def make_uid(rng: random.Random) -> str:
    """Return a random UUID (version 4) from this random source."""
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))


def encode_review(attempt: Attempt, obj: JsonObject | None, uid: str) -> bytes:
    """Return the question about an attempt; `obj` is the new object as it is by now."""
    resource = attempt.kind.resource
    named = {
        "group": resource.group,
        "version": resource.version,
        "resource": resource.plural,
    }
    kind = _FORMS.get(attempt.subresource) or {
        "group": resource.group,
        "version": resource.version,
        "kind": resource.kind,
    }
    # Left out where empty, as Go does.
    optional = {
        "subResource": attempt.subresource,
        "requestSubResource": attempt.subresource,
        "name": attempt.name,
        "namespace": attempt.namespace,
    }
    request = {
        "uid": uid,
        "kind": kind,
        "resource": named,
        "requestKind": kind,
        "requestResource": named,
        **{key: value for key, value in optional.items() if value},
        "operation": attempt.operation,
        "userInfo": {"username": attempt.user, "groups": ["system:authenticated"]},
        "object": obj,
        "oldObject": attempt.old,
        "dryRun": attempt.dry_run,
        "options": {
            **attempt.options,
            "kind": _OPTIONS[attempt.operation],
            "apiVersion": "meta.k8s.io/v1",
        },
    }
    return msgspec.json.encode({"kind": _KIND, "apiVersion": _VERSION, "request": request})


def decode_answer(body: bytes, uid: str, *, is_mutating: bool) -> HookAnswer:
    """Return what a webhook answered. Raises NotModelled where it is no useful answer."""
    try:
        review = msgspec.json.decode(body, type=JsonObject)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        not_modelled(f"a webhook that answers no review: {error}")
    response = child(review, "response")
    expect_one_of((_VERSION,), "apiVersion of a review", review.get("apiVersion"))
    expect_one_of((_KIND,), "kind of a review", review.get("kind"))
    expect_one_of((uid,), "response.uid", response.get("uid"))
    coded, kind = response.get("patch"), response.get("patchType")
    expect_one_of((None, "JSONPatch") if is_mutating else (None,), "response.patchType", kind)
    expect(bool(coded) is (kind is not None), "response.patch", coded)
    patch: Sequence[JsonObject] = ()
    if coded:
        try:
            patch = msgspec.json.decode(base64.b64decode(str(coded)), type=list[JsonObject])
        except ValueError as error:  # no base64, or no list of steps
            not_modelled(f"a webhook's patch that is none: {error}")
    warnings = response.get("warnings")
    return HookAnswer(
        is_allowed=response.get("allowed") is True,
        status=child(response, "status"),
        patch=patch,
        warnings=tuple(map(str, warnings)) if isinstance(warnings, list) else (),
    )


def denial(hook: RegisteredHook, status: JsonObject) -> ApiRefusal:
    """Return the refusal that a webhook's denial becomes, worded as the real server words it."""
    code, denied = status.get("code"), f'admission webhook "{hook.name}" denied the request'
    said = text(status, "message") or text(status, "reason")
    details = child(status, "details")
    causes, seconds = details.get("causes"), details.get("retryAfterSeconds")
    return ApiRefusal(
        code if isinstance(code, int) and code >= _LEAST_REFUSAL else _LEAST_REFUSAL,
        text(status, "reason"),
        f"{denied}: {said}" if said else f"{denied} without explanation",
        causes=causes if isinstance(causes, list) else (),
        retry_after=seconds if isinstance(seconds, int) else 0,
        details={key: details[key] for key in _DETAILS if details.get(key)},
    )


def internal_error(why: str) -> ApiRefusal:
    """Return the refusal of a server that could not do it."""
    causes: list[JsonObject] = [{"message": why}]
    return ApiRefusal(500, "InternalError", f"Internal error occurred: {why}", causes=causes)


class HookCall(msgspec.Struct, frozen=True, kw_only=True):
    """One question that is sent to a webhook."""

    path: str
    """With the query, as in `/admission/no-downscale?timeout=10s`."""
    service: str
    """`namespace/name` of the Service, or the host and port of the URL."""
    body: bytes
    """An AdmissionReview v1."""
    timeout: timedelta
    taken_by: list[str] = []
    """For the callee to write its name: shown in the history."""


class HookCaller(Protocol):
    """The way to all webhooks."""

    async def __call__(self, call: HookCall) -> bytes:
        """Return the AdmissionReview that was answered. Raises OSError, TimeoutError."""
        ...


class AdmissionApi(Protocol):
    """What admission needs of the API server."""

    @property
    def history(self) -> History: ...

    @property
    def hooks(self) -> HookCaller | None: ...

    @property
    def elapsed(self) -> Callable[[], timedelta]: ...

    @property
    def rng(self) -> random.Random: ...

    def get(self, resource: Resource, namespace: str, name: str) -> JsonObject | None: ...

    def list(self, resource: Resource, namespace: str) -> Sequence[JsonObject]: ...


_CONFIGURATIONS: Final = (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)


class Admission:
    """Has webhooks review writes."""

    def __init__(self, api: AdmissionApi) -> None:
        self._api = api
        self._known: dict[Resource, tuple[RegisteredHook, ...]] = {}
        self._warnings: dict[int, list[str]] = {}

    @property
    def has_webhooks(self) -> bool:
        """Return whether there is any webhook, matching or not."""
        return any(map(self._hooks, _CONFIGURATIONS))

    def see(self, commit: Commit) -> None:
        """Read the webhooks of a kind anew once one of its configurations has changed."""
        self._known.pop(commit.resource, None)

    def take_warnings(self, call: int) -> tuple[str, ...]:
        """Return the warnings that webhooks gave about a request, and forget them."""
        return tuple(self._warnings.pop(call, ()))

    async def mutate(self, attempt: Attempt) -> JsonObject:
        """Return the new object as the mutating webhooks leave it; empty for a deletion.

        Never changes what it is given. Raises Refusal, and NotModelled as `validate` does.
        """
        found = self._prepare(attempt)
        if found is None:
            return attempt.new or {}
        mutation = _Mutation(found)
        for hook in self._hooks(MUTATING_WEBHOOKS):
            if hook.wants(found, mutation.obj):
                await self._mutate_by(hook, mutation)
        return mutation.obj or {}

    async def validate(self, attempt: Attempt) -> None:
        """Call the validating webhooks, all at the same time.

        Waits for all of them; of several refusals the first counts. Raises Refusal, and NotModelled
        where the caller cannot wait for them.
        """
        found = self._prepare(attempt)
        if found is None:
            return
        wanting = [
            hook for hook in self._hooks(VALIDATING_WEBHOOKS) if hook.wants(found, found.new)
        ]
        refusals: list[ApiRefusal] = []
        if len(wanting) == 1:
            await self._validate_by(wanting[0], found, refusals)
        elif wanting:
            await gather_all(self._validate_by(hook, found, refusals) for hook in wanting)
        if refusals:
            raise refusals[0]

    def _prepare(self, attempt: Attempt) -> Attempt | None:
        """Return an attempt with all that webhooks decide by, None where none is to review it."""
        if not self.has_webhooks:
            return None
        namespace = attempt.namespace and self._api.get(NAMESPACES, "", attempt.namespace)
        found = replace(attempt, namespace_labels=labels_of(namespace or {}))
        hooks = (hook for resource in _CONFIGURATIONS for hook in self._hooks(resource))
        if not any(hook.wants(found, found.new) for hook in hooks):
            return None
        if not attempt.may_wait:
            target = f"{attempt.operation} of {attempt.kind.resource.plural}/{attempt.name}"
            not_modelled(f"webhooks on the {target} by {attempt.user!r}, who cannot wait for them")
        return found

    def _hooks(self, resource: Resource) -> tuple[RegisteredHook, ...]:
        hooks = self._known.get(resource)
        if hooks is None:
            hooks = self._known[resource] = read_hooks(self._api.list(resource, ""))
        return hooks

    async def _mutate_by(self, hook: RegisteredHook, mutation: "_Mutation") -> None:
        try:
            answer = await self._call_checked(
                hook, mutation.attempt, mutation.obj, is_mutating=True
            )
        except CallFailed as error:
            if not hook.is_ignored:
                raise _failed(hook, error) from error
        else:
            mutation.apply(hook, answer)
        mutation.record(hook)

    async def _validate_by(
        self, hook: RegisteredHook, attempt: Attempt, refusals: list[ApiRefusal]
    ) -> None:
        try:
            await self._call_checked(hook, attempt, attempt.new, is_mutating=False)
        except CallFailed as error:
            if not hook.is_ignored:
                refusals.append(_failed(hook, error))
        except ApiRefusal as refusal:
            refusals.append(refusal)

    async def _call_checked(
        self, hook: RegisteredHook, attempt: Attempt, obj: JsonObject | None, *, is_mutating: bool
    ) -> HookAnswer:
        """Return an answer that allows. Raises Refusal for a denial, CallFailed for no answer."""
        if attempt.dry_run and hook.has_side_effects:
            text = f'admission webhook "{hook.name}" does not support dry run'
            raise ApiRefusal(400, "BadRequest", text)
        uid = make_uid(self._api.rng)
        call = self._call(hook, attempt, encode_review(attempt, obj, uid))
        entry = _Question(self._api, call, attempt)
        try:
            answer = decode_answer(await self._send(hook, call), uid, is_mutating=is_mutating)
            refusal = None if answer.is_allowed else denial(hook, answer.status)
            entry.record(refusal)
        except CallFailed as error:
            entry.record(error)
            raise
        finally:
            entry.close()
        if answer.warnings:
            self._warnings.setdefault(attempt.call, []).extend(answer.warnings)
        if refusal is not None:
            raise refusal
        return answer

    def _call(self, hook: RegisteredHook, attempt: Attempt, body: bytes) -> HookCall:
        timeout = min(hook.timeout, attempt.deadline - self._api.elapsed())
        seconds = math.ceil(timeout.total_seconds())
        return HookCall(
            path=f"{hook.path}?timeout={seconds}s",
            service=hook.service,
            body=body,
            timeout=timeout,
        )

    async def _send(self, hook: RegisteredHook, call: HookCall) -> bytes:
        try:
            if self._api.hooks is None:
                raise ConnectionRefusedError(
                    f"dial tcp {call.service}: connect: connection refused"
                )
            async with asyncio.timeout(call.timeout.total_seconds()):
                return await self._api.hooks(call)
        except TimeoutError:
            why = "context deadline exceeded"
        except OSError as error:
            why = str(error) or "EOF"
        target = f'Post "{hook.address}{call.path}"'
        raise CallFailed(f"failed to call webhook: {target}: {why}")


class _Mutation:
    """A new object on its way through the mutating webhooks; none is called a second time."""

    def __init__(self, attempt: Attempt) -> None:
        self.attempt = attempt
        # Only objects have defaults; a Scale or an Eviction is shown as it is.
        self._has_defaults = attempt.subresource in ("", "status")
        self.obj = attempt.new if attempt.new is None else self._defaulted(copy_json(attempt.new))
        self._reinvoked = ""

    def record(self, hook: RegisteredHook) -> None:
        if hook.is_reinvoked:
            self._reinvoked = hook.name

    def apply(self, hook: RegisteredHook, answer: HookAnswer) -> None:
        """Apply the patch of an answer. Raises NotModelled for a second round."""
        if not answer.patch:
            return
        if self.obj is None:
            not_modelled(f"the patch of {hook.name} to a deletion")
        try:
            changed = self._defaulted(patched(self.obj, answer.patch))
        except (ValueError, ApiRefusal) as error:
            not_modelled(f"the patch of {hook.name}, which does not apply: {error}")
        if self._reinvoked and changed != self.obj:
            not_modelled(f"a second call of {self._reinvoked}, after {hook.name}")
        self.obj = changed

    def _defaulted(self, obj: JsonObject) -> JsonObject:
        if self._has_defaults:
            self.attempt.kind.default(obj)
        return obj


class _Question:
    """One question on its way into the history, also where no request waits for the answer."""

    def __init__(self, api: AdmissionApi, call: HookCall, attempt: Attempt) -> None:
        self._api = api
        self._call = call
        self._attempt = attempt
        self._begun = api.elapsed()
        self._allowed = False
        self._status = -1
        self._message = "the request was given up"

    def record(self, outcome: ApiRefusal | CallFailed | None) -> None:
        """Record what came of it; None for an answer that allows."""
        self._allowed = outcome is None
        self._message = "" if outcome is None else str(outcome)
        if outcome is None:
            self._status = 0
        elif isinstance(outcome, ApiRefusal):
            self._status, self._message = outcome.status, outcome.message

    def close(self) -> None:
        attempt, taken_by = self._attempt, self._call.taken_by
        self._api.history.add(
            Reviewed(
                at=self._api.elapsed(),
                begun=self._begun,
                call=attempt.call,
                actor=taken_by[-1] if taken_by else self._call.service,
                path=self._call.path.partition("?")[0],
                namespace=attempt.namespace,
                name=attempt.name,
                resource=attempt.target,
                dry_run=attempt.dry_run,
                allowed=self._allowed,
                status=self._status,
                message=self._message,
            )
        )


def _failed(hook: RegisteredHook, error: CallFailed) -> ApiRefusal:
    return internal_error(f'failed calling webhook "{hook.name}": {error}')
