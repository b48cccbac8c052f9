"""Downscales on the real API server, by what the pods do: who must confirm, and who cannot."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

import pytest
from rollout_lab.zones import ZoneSpec

from tests.system.guarded import guard, is_called, prepared_zone
from tests.world.api import Json
from tests.world.clients import Route
from tests.world.kubelet import NORMAL, Choose, Kind
from tests.world.kubelet import Behaviour as PodLife
from tests.world.sets import Missing, Snapshot, condition
from tests.world.webpods import BROKEN, Behaviour, Hang, Reset, WebPods, redirect
from tests.world.world import World

pytestmark = pytest.mark.controlplane

# Short, so that a pod that hangs has hung long enough soon, and is un-prepared a second time soon.
POD_LIMIT: Final = "-pods.client-timeout=1s"
# By which the operator knows a pod that has been ready: its condition changed so long after.
READY_FOR: Final = timedelta(seconds=3)


# How pod 2 of a set of that name answers, and the words of the refusal.
DOUBTFUL: Final[Mapping[str, tuple[Behaviour, str]]] = {
    "broken": (BROKEN, "HTTP status 500"),
    "hangs": (Hang(), "no answer within 1s"),
    "reset": (Reset(is_done=True), ""),
    "redirect": (redirect("http://127.0.0.1:1/"), "HTTP status 307"),
}


async def test_seed092_one_pod_of_four_does_not_confirm(world: World) -> None:
    """SEED-092, T-07 row 4, FP-25, PREP-22, LI-05: refused, and all four are un-prepared.

    A pod that listens no more is un-prepared as soon as it listens again.
    """
    pods = await world.serve_pods()
    for name, (behaviour, _) in DOUBTFUL.items():
        pods.behave(f"{name}-2", behaviour, method="POST")
    names = (*DOUBTFUL, "deaf")
    zones = [prepared_zone(pods, ZoneSpec(name=name, group=name, replicas=5)) for name in names]
    guarded = await guard(world, *zones, pods=pods, flags=(POD_LIMIT,))
    await pods.refuse("deaf-2")
    for name in names:
        answer = await guarded.workload(name).scale(1, Route.SCALE_PUT_FRESH)
        _, why = DOUBTFUL.get(name, (None, ""))
        start = f"one or more pods failed to prepare for shutdown. POST {name}-2: {why}"
        assert answer.message.startswith(guarded.refusal(name, (5, 1), start)), answer
        assert await guarded.workload(name).replicas() == 5
    assert "deaf-2" not in [call.pod for call in pods.calls]
    assert "deaf-2" in await guarded.list_recorded(), "it is still to be un-prepared"
    await pods.listen("deaf-2")
    # All that might have been prepared are un-prepared twice, late calls being what they are.
    await guarded.wait_unrecorded(*names)
    for name in names:
        for pod in (f"{name}-{ordinal}" for ordinal in range(1, 5)):
            assert is_called(pods.calls_to(pod)), pods.describe()
            assert not pods.is_prepared(pod)
        assert not pods.calls_to(f"{name}-0")
        answer = await guarded.workload(name).scale(4, Route.MERGE)
        assert answer.status == 200, answer
        assert pods.calls_to(f"{name}-4")[-1].method == "POST", "called anew, whatever was before"
    await guarded.assert_judged()


async def test_seed106_pods_that_were_never_ready_need_not_confirm(world: World) -> None:
    """SEED-106, D-26: a downscale right after an upscale, whatever becomes of its pods."""
    pods = await world.serve_pods()
    names = ("fine", "never", "pending", "missing")
    guarded = await guard(world, *(_one_pod(pods, name) for name in names), pods=pods)
    for pod in ("never-1", "never-2"):
        await pods.refuse(pod)  # what never was ready may well not listen
    world.kubelet.choose = _choose(
        {"never": Kind.NEVER_READY, "pending": Kind.PENDING, "missing": Kind.PENDING}
    )
    for name in names:
        await world.set_replicas(name, 3)
    await world.wait_until(_check_upscaled)
    answers = {name: await guarded.workload(name).scale(1, Route.MERGE) for name in names}

    assert {name: answer.status for name, answer in answers.items()} == dict.fromkeys(names, 200)
    # Both at a time: which of them arrives first is left to the machine.
    assert sorted(call.pod for call in pods.calls) == ["fine-1", "fine-2"]
    assert answers["fine"].warnings == ()
    called = {
        "never": ("never-2 was never ready", "never-1 was never ready"),
        "pending": ("pending-2 does not run (phase Pending)", "pending-1 does not run"),
        "missing": ("1 pod of the range", "missing-1 does not run (phase Pending)"),
    }
    for name, words in called.items():
        (warning,) = answers[name].warnings
        assert warning.startswith("not prepared: ")
        assert all(each in warning for each in words), warning
    await guarded.wait_recorded(*names)
    await guarded.assert_judged()


def _one_pod(pods: WebPods, name: str) -> ZoneSpec:
    """Return a set of one pod; that of `missing` makes no pod before the last is ready."""
    management = "OrderedReady" if name == "missing" else "Parallel"
    return prepared_zone(
        pods, ZoneSpec(name=name, group=name, replicas=1, pod_management=management)
    )


def _choose(kinds: dict[str, Kind]) -> Choose:
    """Return a choice by the name of a pod's set; the first pod of each is well."""

    def choose(pod: Json) -> PodLife:
        name, _, ordinal = pod["metadata"]["name"].rpartition("-")
        return NORMAL if ordinal == "0" else PodLife(kind=kinds.get(name, Kind.NORMAL))

    return choose


def _check_upscaled(now: Snapshot) -> Missing:
    counts = {name: len(now.pods_of(name)) for name in ("fine", "never", "pending", "missing")}
    if counts != {"fine": 3, "never": 3, "pending": 3, "missing": 2}:
        return f"pods: {counts}"
    ready = sorted(name for name, pod in now.pods.items() if condition(pod, "Ready") == "True")
    unready = [name for name, pod in now.pods.items() if condition(pod, "Ready") == "False"]
    wanted = ["fine-0", "fine-1", "fine-2", "missing-0", "never-0", "pending-0"]
    return "" if ready == wanted and len(unready) == 2 else f"ready: {ready}, unready: {unready}"
