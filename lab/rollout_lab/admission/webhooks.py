"""The webhooks of the simulated API server: which it calls for a write, and what comes of it.

Decides order, failure policies and the words of refusals, as the real server does: mutating
webhooks one after another, by the names of their configurations; validating webhooks at the same
time. What answers behind a webhook is the `HookCaller`'s part.
"""

import asyncio
import math
import random
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Protocol

import msgspec

from rollout_lab.admission.reviews import (
    CallFailed,
    HookAnswer,
    decode_answer,
    denial,
    encode_review,
    internal_error,
    make_uid,
)
from rollout_lab.admission.rules import Attempt, RegisteredHook, read_hooks
from rollout_lab.model.history import History, Reviewed
from rollout_lab.model.request import ApiRefusal, not_modelled
from rollout_lab.schemas.patches import patched
from rollout_lab.schemas.tidy import copy_json
from rollout_operator.aio.tasks import gather_all
from rollout_operator.kube.api import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS, JsonObject, Resource


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

    def list(self, resource: Resource, namespace: str) -> Sequence[JsonObject]: ...


class _WebhookCache(msgspec.Struct):
    """The webhooks of one kind of configuration, read anew only where a configuration changed."""

    configurations: Sequence[JsonObject] = ()
    hooks: tuple[RegisteredHook, ...] = ()


class Admission:
    """Has webhooks review writes."""

    def __init__(self, api: AdmissionApi) -> None:
        self._api = api
        self._known = {MUTATING_WEBHOOKS: _WebhookCache(), VALIDATING_WEBHOOKS: _WebhookCache()}
        self._warnings: dict[int, list[str]] = {}

    def matches(self, attempt: Attempt) -> bool:
        """Return whether any webhook is to review an attempt as it is now."""
        return any(
            hook.wants(attempt, attempt.new)
            for resource in self._known
            for hook in self._hooks(resource)
        )

    def take_warnings(self, call: int) -> tuple[str, ...]:
        """Return the warnings that webhooks gave about a request, and forget them."""
        return tuple(self._warnings.pop(call, ()))

    async def mutate(self, attempt: Attempt) -> JsonObject | None:
        """Return the new object as the mutating webhooks leave it; None for a deletion.

        Never changes what it is given. Raises Refusal.
        """
        mutation = _Mutation(attempt)
        for hook in self._hooks(MUTATING_WEBHOOKS):
            if hook.wants(attempt, mutation.obj):
                await self._mutate_by(hook, mutation)
        return mutation.obj

    async def validate(self, attempt: Attempt) -> None:
        """Call the validating webhooks, all at the same time.

        Waits for all of them; of several refusals the first counts. Raises Refusal.
        """
        wanting = [
            hook for hook in self._hooks(VALIDATING_WEBHOOKS) if hook.wants(attempt, attempt.new)
        ]
        refusals: list[ApiRefusal] = []
        if len(wanting) == 1:
            await self._validate_by(wanting[0], attempt, refusals)
        elif wanting:
            await gather_all(self._validate_by(hook, attempt, refusals) for hook in wanting)
        if refusals:
            raise refusals[0]

    def _hooks(self, resource: Resource) -> tuple[RegisteredHook, ...]:
        known, now = self._known[resource], self._api.list(resource, "")
        is_same = len(now) == len(known.configurations) and all(
            item is before for item, before in zip(now, known.configurations, strict=True)
        )
        if not is_same:
            known.configurations, known.hooks = tuple(now), read_hooks(now)
        return known.hooks

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
        timeout = hook.timeout
        if attempt.deadline is not None:
            timeout = min(timeout, attempt.deadline - self._api.elapsed())
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
        """Record a call that is over."""
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
        """Write it into the history."""
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
