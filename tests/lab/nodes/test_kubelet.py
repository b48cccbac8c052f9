"""Scheduler and kubelets: the life of a pod as its status shows it (FP-27)."""

from datetime import timedelta
from itertools import pairwise

import pytest
from rollout_lab.model.fields import child, children, moment_of, number, text, uid_of
from rollout_lab.model.history import Commit
from rollout_lab.nodes.behaviour import Behaviour, StartKind, always
from rollout_lab.zones import ZoneSpec

from rollout_operator.kube.api import JsonObject
from tests.lab.cluster_world import World, container_state, is_ready, world
from tests.virtual_time import EPOCH, in_virtual_time

ONE = ZoneSpec(name="web", replicas=1)


def condition(pod: JsonObject, kind: str) -> JsonObject:
    found = [one for one in children(pod, "status", "conditions") if one["type"] == kind]
    return found[0] if found else {}


def container(pod: JsonObject) -> JsonObject:
    return children(pod, "status", "containerStatuses")[0]


def states(rig: World) -> list[str]:
    """Return what became of a pod in words, each change once."""
    words: list[str] = []
    for one in rig.commits("pods"):
        if one.name == "web-0":
            word = name_state(one)
            if word not in words[-1:]:
                words.append(word)
    return words


def name_state(commit: Commit) -> str:
    pod = commit.after
    if pod is None:
        return "gone"
    if child(pod, "metadata").get("deletionTimestamp") and text(pod, "status", "phase") != (
        "Succeeded"
    ):
        return "terminating"
    waiting = {"waiting": "/waiting", "terminated": "/terminated"}.get(container_state(pod), "")
    ready = "/ready" if is_ready(pod) else ""
    node = "" if text(pod, "spec", "nodeName") else "/unbound"
    return f"{text(pod, 'status', 'phase')}{waiting}{ready}{node}"


@in_virtual_time
async def test_times_follow_the_behaviour() -> None:
    slow = Behaviour(
        starts_after=timedelta(seconds=10),
        ready_after=timedelta(seconds=60),
        terminates_after=timedelta(seconds=20),
    )
    with world(choose=always(slow)) as rig:
        rig.create(ONE)
        ready = await rig.until_ready("web")
        assert timedelta(seconds=70) < ready < timedelta(seconds=71)
        pod = rig.pod("web-0")
        since = moment_of(str(condition(pod, "Ready")["lastTransitionTime"]))
        started = moment_of(text(pod, "status", "startTime"))
        assert timedelta(seconds=69) <= since - started <= timedelta(seconds=71)
        assert started - EPOCH <= timedelta(seconds=1)
        begun = rig.api.now()
        rig.delete_pod("web-0")
        await rig.until(lambda: "gone" in states(rig))
        assert timedelta(seconds=20) < rig.api.now() - begun < timedelta(seconds=21)


@in_virtual_time
async def test_a_crash_loop_restarts_with_growing_pauses() -> None:
    with world(choose=always(Behaviour(kind=StartKind.CRASH_LOOP))) as rig:
        rig.create(ONE)
        await rig.until(
            lambda: (
                bool(rig.pods())
                and bool(children(rig.pod("web-0"), "status", "containerStatuses"))
                and number(container(rig.pod("web-0")), "restartCount") == 3
            )
        )
        starts = [
            one.at
            for one in rig.commits("pods")
            if one.after is not None
            and container_state(one.after) == "running"
            and container_state(one.before or {}) != "running"
        ]
        pauses = [later - sooner for sooner, later in pairwise(starts)]
        assert [round(one.total_seconds()) for one in pauses] == [13, 23, 43]
        ended = child(container(rig.pod("web-0")), "lastState", "terminated")
        assert ended["exitCode"] == 1


@in_virtual_time
async def test_a_flapping_pod_is_ready_and_not_in_turn() -> None:
    flapping = Behaviour(kind=StartKind.FLAPPING, period=timedelta(seconds=5))
    with world(choose=always(flapping)) as rig:
        rig.create(ONE)
        await rig.until(lambda: states(rig).count("Running/ready") == 3)
        assert states(rig)[3:] == ["Running", "Running/ready"] * 3


@in_virtual_time
async def test_a_failed_pod_stays_down_until_it_is_mended() -> None:
    with world() as rig:
        await rig.bring_up(ONE)
        uid = uid_of(rig.pod("web-0"))
        rig.cluster.fail_pod("web-0")
        assert container_state(rig.pod("web-0")) == "terminated"
        await rig.until(lambda: container_state(rig.pod("web-0")) == "waiting")
        with pytest.raises(TimeoutError):
            await rig.until(lambda: rig.is_ready("web"), timedelta(hours=1))
        rig.cluster.mend_pod("web-0")
        assert is_ready(rig.pod("web-0"))
        assert container(rig.pod("web-0"))["restartCount"] == 1
        assert uid_of(rig.pod("web-0")) == uid


@in_virtual_time
async def test_pods_that_ran_elsewhere_go_on_as_they_were() -> None:
    """For a world copied from a dump: ready pods are left alone, others become ready."""
    with world() as rig:
        await rig.bring_up(ZoneSpec(name="web", replicas=2))
        rig.cluster.fail_pod("web-1")
        await rig.until(lambda: container_state(rig.pod("web-1")) == "waiting")
        pods, sts, revisions = rig.pods(), rig.sts("web"), rig.revisions()
    with world(seed=5) as copy:
        for obj in (*revisions, sts, *pods):
            copy.api.put(obj, actor="person")
        await copy.until_ready("web")
        assert [uid_of(one) for one in copy.pods()] == [uid_of(one) for one in pods]
        writes = copy.commits("pods", "kubelet")
        assert {one.name for one in writes} == {"web-1"}
        copy.delete_pod("web-0")
        await copy.until_ready("web")
        assert uid_of(copy.pod("web-0")) != uid_of(pods[0])
