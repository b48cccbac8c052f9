"""Blows that strike a whole process, a pod or the API server at random instants.

All are drawn before the run begins, so that leaving one out (`only`) changes none of the others.
Each is numbered and recorded in the history when it strikes.
"""

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, cast

import msgspec
from msgspec.structs import fields, replace
from rollout_lab.admission.registrations import no_downscale, pod_eviction
from rollout_lab.admission.webhooks import HookCall, HookCaller
from rollout_lab.model.fields import children, name_of
from rollout_lab.model.history import Fault, History
from rollout_lab.model.request import ApiRequest
from rollout_lab.virtual_loop.loop import VirtualTimeLoop
from rollout_lab.world import Sandbox

from rollout_operator.kube.api import PODS, VALIDATING_WEBHOOKS, JsonObject
from tests.forgeries import forge
from tests.judge.downscales import FORGED, describe_review
from tests.simulation.faults import Blows, HookFaults
from tests.simulation.runtime import Patient
from tests.virtual_time import elapsed as now

# The faults of calls and events are numbered from 1 as they strike.
FIRST_BLOW: Final = 100_001
# As many steps as an operator takes in the busy part of a rollout.
MOST_STEPS: Final = 20_000
MOST_OF_A_KIND: Final = 4
LEAST_LAG: Final = timedelta(seconds=1)
MOST_LAG: Final = timedelta(seconds=60)


class Blow(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    kind: str
    at: timedelta
    """After the beginning of the active part of a schedule."""
    lasts: timedelta
    size: float
    """From 0 to 1: how hard, or which of several, as the kind means it."""


def draw_blows(blows: Blows, rng: random.Random, within: timedelta) -> list[Blow]:
    """Return what will strike, in the order of time."""
    drawn = [
        Blow(
            number=0,
            kind=one.name,
            at=within * rng.random(),
            lasts=_draw_span(rng, one.name),
            size=rng.random(),
        )
        for one in fields(blows)
        for _ in range(_draw_count(rng, getattr(blows, one.name)))
    ]
    drawn.sort(key=lambda blow: blow.at)
    return [replace(blow, number=number) for number, blow in enumerate(drawn, FIRST_BLOW)]


@dataclass
class Chaos:
    """Lets the blows strike. `run` ends with the last of them."""

    _sandbox: Sandbox
    _patient: Patient
    _blows: list[Blow]
    _failed: list[str] = field(default_factory=list)
    _is_over: bool = False

    async def run(self) -> None:
        """Strike at each one's time; cancel it to spare the world the rest."""
        begin = now()
        async with asyncio.TaskGroup() as tasks:
            for blow in self._blows:
                await asyncio.sleep(max((begin + blow.at - now()).total_seconds(), 0))
                tasks.create_task(self._strike(blow))

    def heal(self) -> None:
        """Undo whatever still lasts: partitions, wrong rates, lags, pods that crash."""
        self._is_over = True
        process = self._patient().process
        process.link.heal()
        process.clock.rate = 1.0
        self._sandbox.cluster.lag_controller(timedelta(0))
        for name in self._failed:
            self._mend_pod(name)

    async def _strike(self, blow: Blow) -> None:
        process = self._patient().process
        match blow.kind:
            case "crash":
                self._record(blow, f"is gone for {_seconds(blow.lasts)}")
                self._patient().crash(blow.lasts)
            case "crash_at_step":
                self._crash_at_step(blow)
            case "stop":
                self._record(blow, f"is stopped, and comes back after {_seconds(blow.lasts)}")
                self._patient().terminate(blow.lasts)
            case "partition":
                self._record(blow, f"has no network for {_seconds(blow.lasts)}")
                process.link.is_cut = True
                await asyncio.sleep(blow.lasts.total_seconds())
                process.link.is_cut = False
            case "pods_cut":
                self._record(blow, f"reaches no pod for {_seconds(blow.lasts)}")
                process.link.cut_pods = True
                await asyncio.sleep(blow.lasts.total_seconds())
                process.link.cut_pods = False
            case "clock_jump":
                # From a second to six hours, each power of ten alike.
                span = timedelta(seconds=21_600 ** abs(2 * blow.size - 1))
                span = span if blow.size < 0.5 else -span
                self._record(blow, f"finds its clock moved by {_seconds(span)}")
                process.clock.offset += span
            case "clock_rate":
                process.clock.rate = 0.5 * 4**blow.size
                self._record(blow, f"has a clock that runs at {process.clock.rate:.2f}")
            case "pod_fails":
                await self._fail_pod(blow)
            case "compact":
                self._record(blow, "has no old versions any more", actor="api-server")
                self._sandbox.api.compact()
            case "controller_lags":
                await self._lag_controller(blow)
            case _:
                raise ValueError(f"no such blow: {blow.kind}")

    async def _lag_controller(self, blow: Blow) -> None:
        span = LEAST_LAG + (MOST_LAG - LEAST_LAG) * blow.size
        text = f"sees all {_seconds(span)} late, for {_seconds(blow.lasts)}"
        self._record(blow, text, actor="statefulset-controller")
        self._sandbox.cluster.lag_controller(span)
        await asyncio.sleep(blow.lasts.total_seconds())
        self._sandbox.cluster.lag_controller(timedelta(0))

    def _crash_at_step(self, blow: Blow) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        process = self._patient().process

        def crash() -> None:
            if not self._is_over and self._patient().process is process and process.is_running:
                self._record(blow, f"is gone between two steps, for {_seconds(blow.lasts)}")
                self._patient().crash(blow.lasts)

        loop.call_at_step(loop.steps + 1 + int(MOST_STEPS * blow.size**3), crash)

    async def _fail_pod(self, blow: Blow) -> None:
        pods = self._sandbox.api.list(PODS, self._sandbox.namespace)
        if not pods:
            return
        pod = pods[int(len(pods) * blow.size)]
        name = name_of(pod)
        if any(
            one.get("reason") == "Unschedulable" for one in children(pod, "status", "conditions")
        ):
            return  # nothing runs that could crash, and no node comes with it
        try:
            self._sandbox.cluster.fail_pod(name)
        except LookupError:
            return  # it is just going: what could fail?
        self._record(blow, f"crashes, and is well after {_seconds(blow.lasts)}", actor=name)
        self._failed.append(name)
        await asyncio.sleep(blow.lasts.total_seconds())
        self._failed.remove(name)
        self._mend_pod(name)

    def _mend_pod(self, name: str) -> None:
        with suppress(LookupError):  # replaced meanwhile, or about to be
            self._sandbox.cluster.mend_pod(name)

    def _record(self, blow: Blow, text: str, actor: str = "") -> None:
        actor = actor or self._patient().process.name
        self._sandbox.history.add(
            Fault(at=now(), number=blow.number, kind=blow.kind, actor=actor, text=text)
        )


def _draw_count(rng: random.Random, expected: float) -> int:
    """Return how many: as often one more as the expectation says, never very many."""
    count = 0
    while count < MOST_OF_A_KIND and rng.random() < expected / (1 + expected):
        count += 1
    return count


def _draw_span(rng: random.Random, kind: str) -> timedelta:
    match kind:
        case "partition" | "pods_cut" | "controller_lags":
            return timedelta(seconds=600 ** rng.random())
        case "crash" | "crash_at_step" | "stop":
            # Mostly at once, as a kubelet does; sometimes after its longest pauses.
            return timedelta(seconds=120 * rng.random() ** 3)
        case _:
            return timedelta(seconds=rng.uniform(1, 120))


def _seconds(span: timedelta) -> str:
    return f"{span.total_seconds():.1f} s"


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
    """Return the request that registers another webhook, for the same changes.

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
    return ApiRequest(verb="create", resource=VALIDATING_WEBHOOKS, body=body, user="person")


@dataclass
class FaultyHooks:
    """A `HookCaller` around another."""

    _inner: HookCaller
    _history: History
    _faults: HookFaults
    _rng: random.Random
    _may_strike: Callable[[int], bool]
    _calls: int = 0
    _is_over: bool = False

    def heal(self) -> None:
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
        """Have a review with lies in it answered, wherever that arrives."""
        forged = replace(call, body=forge(call.body, rng), taken_by=[])
        if self._strikes(FORGED, call, f": {describe_review(forged.body)}"):
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
    """Return the same review under another UID, as the API server sends it again."""
    review = cast(JsonObject, msgspec.json.decode(call.body))
    request = cast(JsonObject, review["request"])
    number = f"{rng.getrandbits(128):032x}"
    uid = "-".join((number[:8], number[8:12], number[12:16], number[16:20], number[20:]))
    body = msgspec.json.encode({**review, "request": {**request, "uid": uid}})
    return replace(call, body=body, taken_by=[])
