"""The cluster as a whole: the lives of pods (FP-27) as a text, rollouts, what these cost, a cache
that lags."""

import asyncio
import random
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from typing import Any, Final

import pytest
from rollout_lab.apiserver.api import SimulatedApi
from rollout_lab.cluster import Cluster
from rollout_lab.controllers.members import ready_since
from rollout_lab.model.fields import child, children, moment_of, name_of, number, text, uid_of
from rollout_lab.model.history import Called, Commit, History
from rollout_lab.model.request import MERGE_PATCH, ApiRequest
from rollout_lab.nodes.behaviour import DEFAULT, Behaviour, Choose, StartKind, always
from rollout_lab.schemas.kinds import CONTROLLER_REVISIONS
from rollout_lab.virtual_loop.pace import StepTimes
from rollout_lab.zones import ZoneSpec, statefulset, three_zones

from rollout_operator.kube.api import PODS, STATEFULSETS, JsonObject, Resource
from rollout_operator.model.names import REVISION_LABEL
from tests.stories import Steps, check_stories
from tests.telemetry.test_families import counted_calls
from tests.virtual_time import EPOCH, elapsed, in_virtual_time

NAMESPACE: Final = "default"
PATIENCE: Final = 30 * 60.0
ZONES: Final = [zone.name for zone in three_zones()]
# Calls of functions, twice as many as it takes: they are the same ones on every machine.
CALLS_LIMIT: Final = 260_000
BEHIND: Final = StepTimes(controller_cache=(timedelta(milliseconds=1), timedelta(seconds=2)))


class ClusterStage(Steps):
    """An API server with a cluster around it, and no client: what a test moves, it moves."""

    def __init__(self, seed: int = 0, pace: StepTimes | None = None) -> None:
        self.choose: Choose = DEFAULT
        self.pace = pace or StepTimes()
        self.errors: list[object] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, about: self.errors.append(about))
        self.uids: dict[str, str] = {}
        self.stack.callback(self.end)
        self.begin(seed)

    def begin(self, seed: int) -> None:
        rng = random.Random(seed)
        self.history = History()
        self.api = SimulatedApi(self.history, elapsed=elapsed, epoch=EPOCH, rng=rng)
        self.cluster = Cluster(
            self.api, rng=rng, elapsed=elapsed, choose=lambda pod: self.choose(pod), pace=self.pace
        )
        self.cluster.start()

    def look(self) -> list[str]:
        return [f"failed: {about}" for about in self.errors]

    def end(self) -> None:
        self.cluster.stop()
        assert not self.errors

    # What a person does

    async def do_behave(self, *words: str) -> None:
        """Let pods that are created from now on behave so."""
        fields = dict(word.split("=") for word in words)
        spans: Any = {
            key: timedelta(seconds=float(one)) for key, one in fields.items() if key != "kind"
        }
        self.choose = always(Behaviour(kind=StartKind[fields.get("kind", "NORMAL")], **spans))

    async def do_create(self, name: str, replicas: str = "3") -> None:
        zone = ZoneSpec(name=name, replicas=int(replicas))
        self.call(verb="create", body=statefulset(zone, NAMESPACE))

    async def do_replicas(self, name: str, replicas: str) -> None:
        self.patch(name, {"spec": {"replicas": int(replicas)}})

    async def do_image(self, name: str, image: str) -> None:
        containers = [{"name": "app", "image": image}]
        self.patch(name, {"spec": {"template": {"spec": {"containers": containers}}}})

    async def do_delete(self, pod: str) -> None:
        self.call(verb="delete", resource=PODS, name=pod)

    async def do_fail(self, pod: str) -> None:
        self.cluster.fail_pod(pod)

    async def do_mend(self, pod: str) -> None:
        self.cluster.mend_pod(pod)

    async def do_lag(self, seconds: str) -> None:
        """Let the StatefulSet controller see all so much later."""
        self.cluster.lag_controller(timedelta(seconds=float(seconds)))

    async def do_copy(self) -> None:
        """Go on in another world, with all that there is in this one."""
        kinds: tuple[Resource, ...] = (CONTROLLER_REVISIONS, STATEFULSETS, PODS)
        found = [one for kind in kinds for one in self.api.list(kind, NAMESPACE)]
        self.cluster.stop()
        self.begin(seed=5)
        for one in found:
            self.api.put(one, actor="person")

    def patch(self, name: str, body: JsonObject) -> None:
        self.call(verb="patch", name=name, body=body, content_type=MERGE_PATCH)

    def call(self, **request: Any) -> None:
        """Act as a person, and expect no refusal."""
        whole = {"resource": STATEFULSETS, "namespace": NAMESPACE, "user": "person", **request}
        answer = self.api.call_now(ApiRequest(**whole))
        assert answer.is_ok, answer.message

    # What there is

    def get_set(self, name: str) -> JsonObject:
        return self.api.get(STATEFULSETS, NAMESPACE, name) or {}

    def get_pod(self, name: str) -> JsonObject:
        return self.api.get(PODS, NAMESPACE, name) or {}

    def list_pods(self, sts: str = "") -> list[JsonObject]:
        return [one for one in self.api.list(PODS, NAMESPACE) if name_of(one).startswith(sts)]

    def list_commits(self, actor: str = "") -> list[Commit]:
        commits = self.history.list_all(Commit)
        return [one for one in commits if one.resource == PODS and actor in ("", one.actor)]

    def list_states(self, pod: str) -> list[str]:
        """Return what became of a pod in words, each change once."""
        words: list[str] = []
        for one in self.list_commits():
            if one.name == pod and (word := name_state(one.after)) not in words[-1:]:
                words.append(word)
        return words

    def is_whole(self, name: str) -> bool:
        """Return whether all pods of a set are ready, and its status has caught up."""
        sts, pods = self.get_set(name), self.list_pods(f"{name}-")
        wanted = number(sts, "spec", "replicas")
        counts = [number(sts, "status", key) for key in ("replicas", "availableReplicas")]
        observed = number(sts, "status", "observedGeneration")
        is_seen = observed == number(sts, "metadata", "generation")
        return is_seen and counts == [wanted] * 2 and sum(map(is_ready, pods)) == wanted

    def is_rolled(self, name: str) -> bool:
        target = text(self.get_set(name), "status", "updateRevision")
        pods = self.list_pods(f"{name}-")
        are_new = all(text(one, "metadata", "labels", REVISION_LABEL) == target for one in pods)
        return are_new and self.is_whole(name)

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds after a record."""
        found = asyncio.get_running_loop().create_future()

        def check(_: object) -> None:
            if not found.done() and holds():
                found.set_result(None)

        self.history.listeners.append(check)
        check(None)
        async with asyncio.timeout(PATIENCE):
            await found
        self.history.listeners.remove(check)

    async def do_ready(self, *names: str) -> str:
        """Wait until sets are whole; show when that is."""
        await self.until(lambda: all(map(self.is_whole, names)))
        return f"ready at {elapsed().total_seconds():.0f}s"

    async def do_until(self, pod: str, state: str, times: str = "1") -> str:
        """Wait until a pod has been in a state so often; show all its states."""
        await self.until(lambda: self.list_states(pod).count(state) == int(times))
        return " ".join(self.list_states(pod))

    async def do_gone(self, pod: str) -> str:
        """Wait until a pod that was deleted just now has gone; show how long that takes."""
        begun = elapsed()
        await self.until(lambda: "gone" in self.list_states(pod))
        return f"gone after {(elapsed() - begun).total_seconds():.0f}s"

    async def do_restarts(self, pod: str, times: str) -> str:
        """Wait until a container was restarted so often; show the pauses, and how it has ended."""
        await self.until(
            lambda: number(container_of(self.get_pod(pod)), "restartCount") == int(times)
        )
        starts = [
            one.at
            for one in self.list_commits()
            if name_container_state(one.after or {}) == "running"
            and name_container_state(one.before or {}) != "running"
        ]
        pauses = [f"{(later - one).total_seconds():.0f}" for one, later in pairwise(starts)]
        ended = child(container_of(self.get_pod(pod)), "lastState", "terminated")
        return f"{' '.join(pauses)} s, exit code {ended['exitCode']}"

    async def do_times(self, pod: str) -> str:
        """Show when a pod started, and since when it is ready."""
        found = self.get_pod(pod)
        stamps = text(found, "status", "startTime"), ready_since(found) or ""
        started, ready = ((moment_of(one) - EPOCH).total_seconds() for one in stamps)
        return f"started at {started:.0f}s, ready since {ready:.0f}s"

    async def do_pod(self, *names: str) -> str:
        """Show the state of pods, how often they were restarted, and whether others were there."""
        shown = []
        for name in names:
            pod = self.get_pod(name)
            is_same = self.uids.setdefault(name, uid_of(pod)) == uid_of(pod)
            restarts = number(container_of(pod), "restartCount")
            shown.append(f"{name_state(pod)} restarts {restarts}{'' if is_same else ', another'}")
        return "; ".join(shown)

    async def do_wrote(self, actor: str) -> str:
        """Show of which pods somebody has written."""
        return " ".join(sorted({one.name for one in self.list_commits(actor)})) or "none"

    async def do_status(self, name: str) -> str:
        observed = number(self.get_set(name), "status", "observedGeneration")
        return f"generation {observed} observed, {len(self.list_pods(f'{name}-'))} pods"


def name_state(pod: JsonObject | None) -> str:
    if pod is None:
        return "gone"
    phase = text(pod, "status", "phase")
    if child(pod, "metadata").get("deletionTimestamp") and phase != "Succeeded":
        return "terminating"
    state = name_container_state(pod)
    parts = [phase, *([state] if state in ("waiting", "terminated") else [])]
    parts += ["ready"] * is_ready(pod) + ["unbound"] * (not text(pod, "spec", "nodeName"))
    return "/".join(parts)


def is_ready(pod: JsonObject) -> bool:
    """Return whether a pod is ready and not on its way out."""
    return ready_since(pod) is not None and "deletionTimestamp" not in child(pod, "metadata")


def container_of(pod: JsonObject) -> JsonObject:
    return next(iter(children(pod, "status", "containerStatuses")), {})


def name_container_state(pod: JsonObject) -> str:
    """Return `running`, `waiting` or `terminated`; empty for a container that has no status."""
    return next(iter(child(container_of(pod), "state")), "")


test_story = in_virtual_time(check_stories(__file__, cluster=ClusterStage))


async def begin(stage: ClusterStage) -> None:
    for name in ZONES:
        await stage.do_create(name)
    await stage.do_ready(*ZONES)


async def roll_out(stage: ClusterStage) -> None:
    """Replace all pods by hand, zone after zone."""
    for name in ZONES:
        await stage.do_image(name, "v2")
    for name in ZONES:
        await roll_zone(stage, name)


async def roll_zone(stage: ClusterStage, name: str) -> None:
    before = text(stage.get_set(name), "status", "currentRevision")
    await stage.until(
        lambda: text(stage.get_set(name), "status", "updateRevision") not in ("", before)
    )
    for ordinal in range(3):
        await stage.do_delete(f"{name}-{ordinal}")
    await stage.until(lambda: stage.is_rolled(name))


def test_a_rollout_of_three_zones_is_cheap() -> None:
    spent = 0

    @in_virtual_time
    async def scenario() -> None:
        nonlocal spent
        stage = ClusterStage()
        await begin(stage)
        with counted_calls() as calls:
            await roll_out(stage)
        spent = calls[0]
        assert len(stage.list_commits()) > 90
        stage.end()

    scenario()
    assert spent < CALLS_LIMIT


@pytest.mark.parametrize("seed", range(12))
@in_virtual_time
async def test_a_lagging_cache_only_delays(seed: int) -> None:
    """FP-01, FP-02 in the controller itself: what it does twice is refused and comes right."""
    stage = ClusterStage(seed, BEHIND)
    await begin(stage)
    await roll_out(stage)
    await stage.do_replicas(ZONES[0], "1")
    await stage.until(lambda: len(stage.list_pods(f"{ZONES[0]}-")) == 1)
    await stage.do_ready(ZONES[0])
    stage.end()


@pytest.mark.parametrize("seed", range(6))
@in_virtual_time
async def test_each_status_write_of_a_lagging_controller_survives_a_busy_co_writer(
    seed: int,
) -> None:
    """FP-11: conflicts of the status are tried again over what is newest."""
    stage, written = ClusterStage(seed, BEHIND), 0

    def write(commit: Commit) -> None:
        """Write to a set's metadata after each of its pods' changes."""
        nonlocal written
        if commit.resource == PODS and written < 10:
            written += 1
            stage.patch("web", {"metadata": {"annotations": {"busy": str(written)}}})

    await stage.do_create("web")
    stage.api.on_commit(write)
    await stage.do_ready("web")
    assert text(stage.get_set("web"), "metadata", "annotations", "busy") == "10"
    calls = [one for one in stage.history.list_all(Called) if one.reason == "Conflict"]
    refused = [(one.actor, one.request.subresource) for one in calls]
    assert ("statefulset-controller", "status") in refused, "there was no conflict to get over"
    stage.end()
