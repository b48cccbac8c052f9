"""The words in which sequences about the StatefulSet controller are written.

    -- a_deleted_pod_comes_back
    create replicas: 1; ready a-0; remove a-0; end a-0; rest the pod is gone

Timing differs between the worlds, so that a sequence compares what is there at rest, and how it
came to be where only one way is possible. At rest is a world where the controller has reconciled
each set once more, and nothing has changed.
"""

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any, Final

from rollout_lab.model.request import MERGE_PATCH, STRATEGIC_PATCH, ApiAnswer, ApiRequest

from rollout_operator.kube.api import STATEFULSETS, JsonObject, Resource
from tests.contract import controllers_pods as images
from tests.contract.bodies import config_map, delete_options, eviction, tree, version_of
from tests.contract.bodies import pod as a_pod
from tests.contract.controllers_pods import HELD
from tests.contract.controllers_seen import (
    REVISION_LABEL,
    WATCHED,
    Seen,
    is_going,
    is_observed,
    is_ready,
    versions_of,
)
from tests.contract.controllers_sets import PARALLEL, ROLLING, THREE, VERSION, web
from tests.contract.plays import Needs, Play, sequence
from tests.contract.sides import CONFIG_MAPS, PODS, REVISIONS
from tests.contract.world import World
from tests.virtual_time import elapsed

Json = Any

WAIT_LIMIT: Final = timedelta(seconds=30)
_STAYS: Final = "Retain"
_GOES: Final = "Delete"


class ControllerRig:
    """One world with controllers at work."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.seen = Seen()
        self.seen.on_change = self._wake
        self._changed = asyncio.Event()
        self._is_settled = False
        """Nothing was done or seen since things were last at rest."""
        self._is_held = True
        self._is_parallel = False
        self._retention = _STAYS
        self._clock: datetime | None = None
        """The server's time when the loop's clock was at 0."""

    def _wake(self) -> None:
        self._is_settled = False
        self._changed.set()

    async def follow(self, resource: Resource, opened: asyncio.Event) -> None:
        """Take in what happens to one kind, for ever."""
        request = ApiRequest(verb="watch", resource=resource, namespace=self.world.namespace)
        async with self.world.side.watch(request) as events:
            assert not isinstance(events, ApiAnswer), events.message
            opened.set()
            async for event in events:
                self.seen.take(resource.plural, event)
        raise AssertionError(f"the watch of {resource.plural} has ended")

    # Acts

    async def create(self, body: JsonObject) -> None:
        spec: Json = body["spec"]
        self._is_held &= spec["template"]["spec"]["containers"][0]["image"] == HELD
        self._is_parallel |= spec["podManagementPolicy"] == PARALLEL
        self._retention = _STAYS
        await self._until_brought(STATEFULSETS, await self.world.make(STATEFULSETS, body))

    async def whole(self, **spec: Any) -> None:
        """Bring up a set of three ready pods, and record how it is then."""
        await self.create(web(**spec))
        await self.ready(*THREE)
        await self.rest("whole", has_steps=False)

    async def make(self, resource: Resource, body: JsonObject, target: str = "") -> None:
        self._is_settled = False
        with self.world.quietly():
            answer = await self.world.create(resource, body, target)
        assert answer.is_ok, answer.message

    async def patch(
        self, resource: Resource, target: str, body: JsonObject, kind: str = MERGE_PATCH
    ) -> ApiAnswer:
        """PATCH what is there, and wait until the watches have brought it; 404 is fine."""
        self._is_settled = False
        with self.world.quietly():
            answer = await self.world.patch(resource, target, body, kind)
        assert answer.is_ok or answer.status == 404, answer.message
        if answer.is_ok:
            await self._until_brought(resource, answer)
        return answer

    async def delete(self, resource: Resource, name: str, **options: object) -> None:
        self._is_settled = False
        with self.world.quietly():
            answer = await self.world.delete(resource, name, delete_options(**options))
        assert answer.is_ok, answer.message

    async def delete_revision(self, field: str) -> None:
        """DELETE the revision that this field of the status of `a` names."""
        await self.delete(REVISIONS, self.seen.sets["a"]["status"][field])

    async def adopt(self) -> None:
        """Write the update revision as the current one, as another client may."""
        update = self.seen.sets["a"]["status"]["updateRevision"]
        await self.patch(STATEFULSETS, "a/status", {"status": {"currentRevision": update}})

    async def change(self, name: str = "a", **spec: object) -> None:
        await self.patch(STATEFULSETS, name, {"spec": spec})

    async def version(self, version: str, name: str = "a") -> None:
        """Give a set another template."""
        await self.change(name, template={"metadata": {"annotations": {VERSION: version}}})

    async def partition(self, partition: str) -> None:
        """Roll down to an ordinal."""
        await self._roll(partition=int(partition))

    async def at_a_time(self, most: str) -> None:
        """Roll so many pods at a time, or such a share of them."""
        await self._roll(maxUnavailable=int(most) if most.isdigit() else most)

    async def _roll(self, **rules: object) -> None:
        await self.change(updateStrategy={"type": ROLLING, "rollingUpdate": rules})

    async def label(self, pod: str, **labels: str | None) -> None:
        """Set labels of a pod, or remove them with None (use `**{"a/b": "c"}`)."""
        await self.patch(PODS, pod, {"metadata": {"labels": labels}})

    async def ready(self, *pods: str) -> None:
        """Make held pods ready, each once it runs and the controller has seen all before it."""
        for pod in pods:
            await self.until_started(pod)
            await self.settle()
            await self.write(pod, is_ready=True)

    async def write(self, pod: str, *, is_ready: bool = False, phase: str = "Running") -> None:
        """Write the status of a pod, as a kubelet does."""
        status = "True" if is_ready else "False"
        now = await self._now()
        conditions = [
            {"type": kind, "status": status, "lastTransitionTime": now}
            for kind in ("ContainersReady", "Ready")
        ]
        body: JsonObject = {"status": {"phase": phase, "conditions": conditions}}
        await self.patch(PODS, f"{pod}/status", body, STRATEGIC_PATCH)

    async def remove(self, *pods: str, **options: object) -> None:
        """DELETE pods; held ones stay until their end comes."""
        for pod in pods:
            await self.delete(PODS, pod, **options)

    async def end(self, *pods: str) -> None:
        """Let pods be gone, as kubelets do when containers have ended."""
        for pod in pods:
            uid = self.seen.pods[pod]["metadata"]["uid"]
            await self.remove(pod, gracePeriodSeconds=0)
            await self.until(f"{pod} gone", functools.partial(self._has_changed, pod, uid))

    async def renew(self, *pods: str) -> None:
        """Let pods that are going be gone, each followed at once by its successor, ready."""
        for pod in pods:
            await self.end(pod)
            await self.ready(pod)

    async def replace(self, *pods: str) -> None:
        """Delete each pod and make its successor ready, one after the other, with rest between."""
        for pod in pods:
            await self.remove(pod)
            await self.settle()
            await self.end(pod)
            await self.settle()
            await self.ready(pod)
            await self.settle()

    async def drop(self, name: str = "a", policy: str = "Background") -> None:
        await self.delete(STATEFULSETS, name, propagationPolicy=policy)

    async def evict(self, pod: str) -> None:
        await self.make(PODS, eviction(pod), f"{pod}/eviction")

    async def stray(self, name: str, label: str) -> None:
        """Create a held pod without an owner."""
        await self.make(PODS, a_pod(name, node="some-node", image=HELD, labels={"name": label}))

    # Waits

    async def until_going(self, *pods: str) -> None:
        """Wait until all of these pods are terminating, or all there are."""
        await self.until(
            "all going",
            lambda: all(
                is_going(pod) for name, pod in self.seen.pods.items() if name in (pods or (name,))
            ),
        )

    async def until_no_revisions(self) -> None:
        await self.until("no revisions", lambda: not self.seen.revisions)

    async def until_set_going(self) -> None:
        await self.until("going", lambda: is_going(self.seen.sets["a"]))

    async def until_owned(self, pod: str, *, is_owned: bool = True) -> None:
        """Wait until a pod has an owner, or has none."""
        await self.until(
            f"{pod} owned: {is_owned}",
            lambda: pod in self.seen.pods and is_owned is bool(self._owners(pod)),
        )

    async def until_disowned(self, pod: str) -> None:
        await self.until_owned(pod, is_owned=False)

    async def until_lives(self, pod: str, number: int) -> None:
        """Wait for the so manieth pod of a name."""
        await self.until(f"{pod} anew", lambda: self.seen.count_lives(pod) == number)

    async def until_trouble(self, number: str) -> None:
        """Wait until there are so many pods, each of which has got as far as it ever will."""
        await self.until(f"{number} made", lambda: len(self.seen.pods) == int(number))
        await self.until("in trouble", lambda: all(map(_shows_trouble, self.seen.pods.values())))

    async def until_status(self, **fields: int | None) -> None:
        def holds() -> bool:
            status = self.seen.sets["a"]["status"]
            return all(status.get(key) == value for key, value in fields.items())

        await self.until(f"status {fields}", holds)

    async def until(self, what: str, holds: Callable[[], bool]) -> None:
        """Wait until something was seen. Raises TimeoutError which says what is there instead."""
        try:
            async with asyncio.timeout(WAIT_LIMIT.total_seconds()):
                while not holds():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError as late:
            raise TimeoutError(f"not {what}: {self._describe()}") from late

    async def until_started(self, pod: str) -> None:
        """Wait until a pod is there and has a status of its kubelet."""
        await self.until(f"{pod} started", lambda: self._has_started(pod))

    async def until_whole(self, name: str = "a") -> None:
        """Wait until all pods of a set are there and available, and its status says so."""
        await self.until(f"{name} whole", lambda: self._is_whole(name))

    async def until_rolled(self, name: str = "a") -> None:
        """Wait until a set is whole, on its update revision."""

        def holds() -> bool:
            status = self.seen.sets[name]["status"]
            return self._is_whole(name) and status.get("updatedReplicas") == status["replicas"]

        await self.until(f"{name} rolled", holds)

    async def until_gone(self, name: str) -> None:
        await self.until(
            f"{name} gone", lambda: name not in self.seen.sets and name not in self.seen.pods
        )

    async def settle(self) -> None:
        """Wait until the controller has reconciled, and nothing comes of it any more."""
        while not self._is_settled:
            await self.until("all held pods started", self._have_all_started)
            before = self.seen.shape()
            for _ in range(2):  # a first read may not have had the newest pods in its cache
                await self._let_reconcile()
            if before == self.seen.shape():
                await self._catch_up()
                self._is_settled = before == self.seen.shape() and self._have_all_started()

    async def _let_reconcile(self) -> None:
        """Raise the generation of each set and wait until its status says that it was seen."""
        self._retention = _GOES if self._retention == _STAYS else _STAYS
        policy = {"whenScaled": self._retention}
        for name in list(self.seen.sets):
            patched = await self.patch(
                STATEFULSETS, name, {"spec": {"persistentVolumeClaimRetentionPolicy": policy}}
            )
            found: Json = patched.body
            wanted = found["metadata"]["generation"] if patched.is_ok else 0
            await self.until(f"{name} reconciled", functools.partial(self._is_seen, name, wanted))

    async def _catch_up(self) -> None:
        """Wait until the watches have brought all that there is; of sets, a read has shown it."""
        for resource in (PODS, REVISIONS):
            async with asyncio.timeout(WAIT_LIMIT.total_seconds()):
                while True:
                    self._changed.clear()
                    with self.world.quietly():
                        listed: Json = (await self.world.list(resource)).body
                    if versions_of(listed["items"]) == self.seen.versions(resource.plural):
                        break
                    await self._changed.wait()

    # Records

    async def rest(self, title: str, *, has_steps: bool = True) -> None:
        """Settle and record what is there.

        How it came is recorded too: statuses where pods are held, and the order of what happened
        to pods where they are, or where sets are ordered. Without `has_steps` chance decides on it.
        """
        await self.settle()
        is_ordered = has_steps and (self._is_held or not self._is_parallel)
        moves = self.seen.take_moves(is_ordered=is_ordered)
        statuses = self.seen.take_statuses()
        found: JsonObject = {
            "sets": self.seen.describe_sets(),
            "pods": self.seen.describe_pods(),
            "revisions": self.seen.describe_revisions(),
            "moves": moves,
        }
        if has_steps and self._is_held:
            found["statuses"] = statuses
        self.world.record(title, **found)

    async def show_pod(self, name: str) -> None:
        """Record all that a pod says, but for its node."""
        await self.until(f"{name} there", lambda: name in self.seen.pods)
        with self.world.quietly():
            pod = tree(await self.world.get(PODS, name))
        metadata = pod["metadata"]
        revision = metadata["labels"].pop(REVISION_LABEL)
        await self.settle()
        spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
        named = self.seen.call_revision(revision)
        self.world.record("the pod", revision=named, metadata=metadata, spec=spec)

    async def show_labels(self, name: str) -> None:
        found = self.seen.pods[name]["metadata"]["labels"]
        shown = {key: value for key, value in sorted(found.items()) if key != REVISION_LABEL}
        self.world.record("labels", found=shown)

    def describe(self, title: str) -> None:
        """Record what is there while the controller still tries, hence without waiting for rest."""
        found = {"sets": self.seen.describe_sets(), "pods": self.seen.describe_pods()}
        self.world.record(title, **found)

    def _describe(self) -> str:
        return (
            f"{self.seen.describe_sets()} {self.seen.describe_pods()}"
            f" {self.seen.describe_revisions()}"
        )

    # Reads

    def _has_changed(self, pod: str, uid: str) -> bool:
        found = self.seen.pods.get(pod)
        return found is None or bool(found["metadata"]["uid"] != uid)

    def _owners(self, name: str) -> Json:
        return self.seen.pods[name]["metadata"].get("ownerReferences")

    def _has_started(self, name: str) -> bool:
        pod = self.seen.pods.get(name)
        return pod is not None and not is_going(pod) and "startTime" in pod["status"]

    def _have_all_started(self) -> bool:
        held = [pod for pod in self.seen.pods.values() if _image(pod) == HELD]
        return all(is_going(pod) or "startTime" in pod["status"] for pod in held)

    def _is_seen(self, name: str, generation: int) -> bool:
        sts = self.seen.sets.get(name)
        return sts is None or bool(sts["status"].get("observedGeneration", 0) >= generation)

    def _is_whole(self, name: str) -> bool:
        sts = self.seen.sets.get(name)
        if sts is None or not is_observed(sts):
            return False
        wanted, status = sts["spec"]["replicas"], sts["status"]
        mine = [pod for pod in self.seen.pods.values() if pod["metadata"]["name"].startswith(name)]
        are_up = [is_ready(pod) and not is_going(pod) for pod in mine]
        counts = {status["replicas"], status.get("availableReplicas", 0), len(mine), sum(are_up)}
        return counts == {wanted}

    # Calls

    async def _now(self) -> str:
        """Return the server's time, read once and counted on from there."""
        if self._clock is None:
            with self.world.quietly():
                made = await self.world.create(CONFIG_MAPS, config_map("clock"), dryRun="All")
            stamp = datetime.fromisoformat(tree(made)["metadata"]["creationTimestamp"])
            self._clock = stamp - elapsed()
        return (self._clock + elapsed()).strftime("%Y-%m-%dT%H:%M:%SZ")

    async def _until_brought(self, resource: Resource, written: ApiAnswer) -> None:
        version = int(version_of(written))
        plural = resource.plural
        await self.until(f"write {version} brought", lambda: self.seen.newest[plural] >= version)


def _shows_trouble(pod: Json) -> bool:
    conditions = {one["type"]: one["status"] for one in pod["status"].get("conditions", ())}
    states = [one["state"] for one in pod["status"].get("containerStatuses", ())]
    phase = pod["status"].get("phase")
    match _image(pod):
        case images.PENDING:
            return True
        case images.CRASHING:
            return any("waiting" in state and phase == "Running" for state in states)
        case images.GATED:
            return conditions.get("ContainersReady") == "True"
        case images.CLAIMING:
            return conditions.get("Ready") == "True"
        case _:
            return bool(phase == "Running")


def _image(pod: Json) -> str:
    return str(pod["spec"]["containers"][0]["image"])


@asynccontextmanager
async def raised(world: World) -> AsyncIterator[ControllerRig]:
    """Give a scene whose watches are open."""
    rig = ControllerRig(world)
    opened = [asyncio.Event() for _ in WATCHED]
    async with asyncio.TaskGroup() as tasks:
        watches = [
            tasks.create_task(rig.follow(resource, event), name=f"watch-{resource.plural}")
            for resource, event in zip(WATCHED, opened, strict=True)
        ]
        for event in opened:
            await event.wait()
        yield rig
        for watch in watches:
            watch.cancel()


def staged(play: Callable[[ControllerRig], Awaitable[None]]) -> Play:
    """Return what plays a sequence about controllers in a world."""

    @functools.wraps(play)
    async def played(world: World) -> None:
        try:
            async with raised(world) as rig:
                await play(rig)
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None

    return played


def controlled(topic: str) -> Callable[[Callable[[ControllerRig], Awaitable[None]]], Play]:
    """Add the decorated function to the list of sequences."""
    return lambda play: sequence(topic, needs=Needs.CONTROLLERS)(staged(play))
