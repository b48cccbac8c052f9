"""What goes wrong between the API server and its webhooks, and a webhook that comes after ours.

Stands in front of the caller that the sandbox has: repeats a review under another UID, loses its
answer, does not get through, sends a forged one first (SEC-09), or lets the request be refused by
somebody else in the end.
"""

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Final, cast

import msgspec

from rollout_operator.kube.api import VALIDATING_WEBHOOKS, JsonObject
from rollout_operator.lab.admission.registrations import no_downscale, pod_eviction
from rollout_operator.lab.admission.webhooks import HookCall, HookCaller
from rollout_operator.lab.model.history import Fault, History
from rollout_operator.lab.model.request import ApiRequest
from tests.forgeries import forge
from tests.judge.downscales import FORGED, tell_asked
from tests.simulation.doses import HookFaults
from tests.simulation.virtual import now

# Behind those of calls and events, and behind the blows.
FIRST_HOOK_FAULT: Final = 200_001
LATER_PATH: Final = "/later"
# Validating webhooks are called in the order of their configurations' names, all at a time.
LATER_NAME: Final = "zz-later"


def later_webhook(
    namespace: str,
    *,
    name: str = LATER_NAME,
    path: str = LATER_PATH,
    policy: str = "Ignore",
    evictions: bool = False,
) -> ApiRequest:
    """Return the request that registers a webhook of somebody else, for the same changes.

    They are changes of replicas, or `evictions`.
    """
    body = pod_eviction(namespace) if evictions else no_downscale(namespace)
    (ours,) = cast(list[JsonObject], body["webhooks"])
    service: JsonObject = {"namespace": namespace, "name": name, "path": path}
    theirs = {
        **ours,
        "name": f"{name}.example.com",
        "clientConfig": {"service": service},
        "failurePolicy": policy,
    }
    body = {**body, "metadata": {"name": name}, "webhooks": [theirs]}
    return ApiRequest(verb="create", resource=VALIDATING_WEBHOOKS, body=body, user="someone")


class FaultyHooks:
    """A `HookCaller` around another one."""

    def __init__(
        self,
        inner: HookCaller,
        history: History,
        faults: HookFaults,
        rng: random.Random,
        may_strike: Callable[[int], bool],
    ) -> None:
        self._inner = inner
        self._history = history
        self._faults = faults
        self._rng = rng
        self._may_strike = may_strike
        self._calls = 0
        self._is_over = False

    def heal(self) -> None:
        """Let everything through from now on."""
        self._is_over = True

    async def __call__(self, call: HookCall) -> bytes:
        self._calls += 1
        # Every call draws as much, whatever comes of it: what strikes later stays the same.
        draws = [self._rng.random() for _ in range(5)]
        if call.path.startswith(LATER_PATH):
            return self._answer_later(call, draws[0])
        if draws[0] < self._faults.unreachable and self._strikes("hook_unreachable", call):
            raise ConnectionRefusedError(f"{call.service} refused the connection")
        if draws[1] < self._faults.repeated and self._strikes("hook_repeated", call):
            await self._inner(_renamed(call, self._rng))
        if draws[3] < self._faults.forged:
            await self._forge(call, random.Random(draws[4]))
        begin = now()
        answer = await self._inner(call)
        if draws[2] < self._faults.timed_out and self._strikes("hook_timed_out", call):
            left = call.timeout - (now() - begin)
            await asyncio.sleep(max(left.total_seconds(), 0))
            raise TimeoutError(f"{call.path} gave no answer within {call.timeout}")
        return answer

    async def _forge(self, call: HookCall, rng: random.Random) -> None:
        """Have a review with lies in it answered, whoever that reaches."""
        forged = replace(call, body=forge(call.body, rng), taken_by=[])
        if self._strikes(FORGED, call, f": {tell_asked(forged.body)}"):
            with suppress(OSError, TimeoutError):
                await self._inner(forged)

    def _answer_later(self, call: HookCall, draw: float) -> bytes:
        review = cast(JsonObject, msgspec.json.decode(call.body))
        request = cast(JsonObject, review["request"])
        response: JsonObject = {"uid": request["uid"], "allowed": True}
        if draw < self._faults.refused_later and self._strikes("hook_refused_later", call):
            response |= {"allowed": False, "status": {"code": 403, "message": "the quota is used"}}
        return msgspec.json.encode({**review, "request": None, "response": response})

    def _strikes(self, kind: str, call: HookCall, what: str = "") -> bool:
        number = FIRST_HOOK_FAULT + self._calls
        if self._is_over or not self._may_strike(number):
            return False
        fault = Fault(
            at=now(), number=number, kind=kind, actor="api-server", text=f"at {call.path}{what}"
        )
        self._history.add(fault)
        return True


def _renamed(call: HookCall, rng: random.Random) -> HookCall:
    """Return the same review under another UID, as the API server asks it again."""
    review = cast(JsonObject, msgspec.json.decode(call.body))
    request = cast(JsonObject, review["request"])
    number = f"{rng.getrandbits(128):032x}"
    uid = "-".join((number[:8], number[8:12], number[12:16], number[16:20], number[20:]))
    body = msgspec.json.encode({**review, "request": {**request, "uid": uid}})
    return replace(call, body=body, taken_by=[])
