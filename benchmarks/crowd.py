"""Many groups due at once under the default rate limits: how long it takes, and how many requests.

On a simulated cluster in virtual time, where nothing but the limits, the pods and the network's few
milliseconds takes time: figures do not depend on the machine. Against the same without limits, and
with those of grafana/rollout-operator, 5 a second and 10 at once.
"""

import asyncio
from datetime import timedelta
from typing import Final

import msgspec
from rollout_lab.model.history import Called
from rollout_lab.model.request import STRATEGIC_PATCH, ApiRequest
from rollout_lab.virtual_loop.loop import VirtualTimeLoop
from rollout_lab.world import Sandbox
from rollout_lab.zones import ZoneSpec, statefulset

from benchmarks.figures import Figure, Result
from rollout_operator.kube.api import PODS, STATEFULSETS, ZONE_BUDGETS, JsonObject
from rollout_operator.model.names import GROUP_LABEL

GROUPS: Final = 60
FEW_GROUPS: Final = 5
ZONES: Final = "abc"
PODS_OF_A_ZONE: Final = 2
UNLIMITED: Final = ("-kubernetes.client-qps=0",)
FEWER: Final = ("-kubernetes.client-qps=5", "-kubernetes.client-burst=10")
READY: Final = timedelta(minutes=2)
LIMIT: Final = timedelta(minutes=10)
NEW: Final[JsonObject] = {
    "spec": {"template": {"spec": {"containers": [{"name": "app", "image": "v2"}]}}}
}


class Run(msgspec.Struct, frozen=True):
    """One rollout of all groups: seconds until the last delete, and requests, watches apart."""

    seconds: float
    deletes: int
    requests: int


async def measure(*, small: bool) -> Result:
    """Measure with the default limits, with fewer, and without any."""
    groups = FEW_GROUPS if small else GROUPS
    limited = await asyncio.to_thread(_run, groups)
    fewer = await asyncio.to_thread(_run, groups, FEWER)
    free = await asyncio.to_thread(_run, groups, UNLIMITED)
    budgeted = await asyncio.to_thread(_run, groups, has_budgets=True)
    figures = [
        Figure(
            name="limited_s",
            value=limited.seconds,
            means="virtual time from the change of all templates to the last delete",
        ),
        Figure(
            name="limited_to_unlimited",
            value=limited.seconds / free.seconds,
            at_most=1.1,
            means="that time against the same without rate limits",
        ),
        Figure(
            name="budgeted_to_unlimited",
            value=budgeted.seconds / free.seconds,
            at_most=1.1,
            means="the same with a budget for each group, against none and no rate limits",
        ),
        Figure(
            name="fewer_s",
            value=fewer.seconds,
            means="the same with 5 requests a second and 10 at once",
        ),
        Figure(name="unlimited_s", value=free.seconds, means="the same without rate limits"),
        Figure(
            name="limited_requests_per_delete",
            value=limited.requests / limited.deletes,
            means="requests for each deleted pod, watches apart, until a minute after the last",
        ),
        Figure(
            name="unlimited_requests_per_delete",
            value=free.requests / free.deletes,
            means="the same without rate limits",
        ),
    ]
    setting = {"groups": groups, "zones": len(ZONES), "pods_of_a_zone": PODS_OF_A_ZONE}
    return Result(benchmark="crowd", setting=setting, figures=figures)


def _run(groups: int, args: tuple[str, ...] = (), *, has_budgets: bool = False) -> Run:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(_roll_out(groups, args, has_budgets))


async def _roll_out(groups: int, args: tuple[str, ...], has_budgets: bool) -> Run:
    zones = [
        ZoneSpec(
            name=f"g{number:03}-{zone}",
            group=f"g{number:03}",
            replicas=PODS_OF_A_ZONE,
            pod_labels={GROUP_LABEL: f"g{number:03}"},
        )
        for number in range(groups)
        for zone in ZONES
    ]
    wanted = len(zones) * PODS_OF_A_ZONE
    async with Sandbox() as sandbox:
        with sandbox.listening("error"):
            for zone in zones:
                await _call(sandbox, verb="create", body=statefulset(zone, sandbox.namespace))
            for name in sorted({f"{zone.group}" for zone in zones if has_budgets}):
                await _call(sandbox, verb="create", resource=ZONE_BUDGETS, body=_budget(name))
            await asyncio.sleep(READY.total_seconds())
            process = sandbox.process(args=args)
            process.start()
            await process.wait_ready()
            await asyncio.sleep(READY.total_seconds())
            begun = sandbox.elapsed()
            for zone in zones:
                await _call(
                    sandbox, verb="patch", name=zone.name, content_type=STRATEGIC_PATCH, body=NEW
                )
            while len(_list_deletes(sandbox, begun)) < wanted:
                if sandbox.elapsed() - begun > LIMIT:
                    raise TimeoutError(f"not rolled out within {LIMIT}")
                await asyncio.sleep(1)
            await asyncio.sleep(60)
            deletes = _list_deletes(sandbox, begun)
            requests = [one for one in _list_calls(sandbox, begun) if one.request.verb != "watch"]
    last = max(one.begun for one in deletes)
    return Run((last - begun).total_seconds(), len(deletes), len(requests))


def _budget(group: str) -> JsonObject:
    return {
        "apiVersion": "rollout-operator.grafana.com/v1",
        "kind": "ZoneAwarePodDisruptionBudget",
        "metadata": {"name": group},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {GROUP_LABEL: group}}},
    }


def _list_calls(sandbox: Sandbox, since: timedelta) -> list[Called]:
    return [
        one
        for one in sandbox.history.list_all(Called)
        if one.actor.startswith("operator") and one.begun >= since
    ]


def _list_deletes(sandbox: Sandbox, since: timedelta) -> list[Called]:
    calls = _list_calls(sandbox, since)
    return [one for one in calls if (one.request.verb, one.request.resource) == ("delete", PODS)]


async def _call(sandbox: Sandbox, **how: object) -> None:
    request = ApiRequest(**{"resource": STATEFULSETS, "namespace": sandbox.namespace, **how})  # type: ignore[arg-type]  # fields of a Request
    await sandbox.call(request)
