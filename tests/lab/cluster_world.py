"""A simulated API server with a cluster around it, and no client: what a test moves, it moves."""

import asyncio
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

from rollout_lab.apiserver.api import SimulatedApi
from rollout_lab.cluster import Cluster
from rollout_lab.controllers.members import ready_since
from rollout_lab.model.fields import child, children, name_of, number, text
from rollout_lab.model.history import Called, Commit, History
from rollout_lab.model.request import MERGE_PATCH, ApiAnswer, ApiRequest, Verb
from rollout_lab.nodes.behaviour import DEFAULT, Choose
from rollout_lab.schemas.kinds import CONTROLLER_REVISIONS
from rollout_lab.virtual_loop.pace import StepTimes
from rollout_lab.zones import ZoneSpec, statefulset

from rollout_operator.kube.api import PODS, STATEFULSETS, JsonObject
from rollout_operator.model.names import REVISION_LABEL
from tests.virtual_time import EPOCH, elapsed

NAMESPACE = "default"
PATIENCE = timedelta(minutes=30)


@dataclass(slots=True)
class World:
    """One world, on the running loop."""

    history: History
    api: SimulatedApi
    cluster: Cluster

    def call(
        self, verb: Verb, name: str, body: JsonObject | None = None, *, subresource: str = ""
    ) -> ApiAnswer:
        """Act on a StatefulSet as a person, and expect no refusal."""
        answer = self.api.call_now(
            ApiRequest(
                verb=verb,
                resource=STATEFULSETS,
                namespace=NAMESPACE,
                name=name,
                subresource=subresource,
                body=body,
                content_type=MERGE_PATCH if verb == "patch" else "application/json",
                user="person",
            )
        )
        assert answer.is_ok, answer.message
        return answer

    def create(self, zone: ZoneSpec, **spec: object) -> None:
        sts = statefulset(zone, NAMESPACE)
        self.call("create", "", {**sts, "spec": {**child(sts, "spec"), **spec}})

    async def bring_up(self, zone: ZoneSpec, **spec: object) -> None:
        """Create a set and wait until all its pods are ready."""
        self.create(zone, **spec)
        await self.until_ready(zone.name)

    def patch(self, name: str, spec: JsonObject) -> None:
        self.call("patch", name, {"spec": spec})

    def set_image(self, name: str, image: str) -> None:
        containers = [{"name": "app", "image": image}]
        self.patch(name, {"template": {"spec": {"containers": containers}}})

    def delete_pod(self, name: str, **options: object) -> ApiAnswer:
        body: JsonObject = {"kind": "DeleteOptions", "apiVersion": "v1", **options}
        return self.api.call_now(
            ApiRequest(
                verb="delete",
                resource=PODS,
                namespace=NAMESPACE,
                name=name,
                body=body,
                user="person",
            )
        )

    def sts(self, name: str) -> JsonObject:
        found = self.api.get(STATEFULSETS, NAMESPACE, name)
        assert found is not None, f"no statefulset {name}"
        return found

    def status(self, name: str) -> JsonObject:
        return child(self.sts(name), "status")

    def pod(self, name: str) -> JsonObject:
        found = self.api.get(PODS, NAMESPACE, name)
        assert found is not None, f"no pod {name}"
        return found

    def pods(self, sts: str = "") -> list[JsonObject]:
        found = self.api.list(PODS, NAMESPACE)
        return [one for one in found if name_of(one).startswith(sts)]

    def revisions(self) -> list[JsonObject]:
        return list(self.api.list(CONTROLLER_REVISIONS, NAMESPACE))

    def commits(self, plural: str = "", actor: str = "") -> list[Commit]:
        return [
            one
            for one in self.history.list_all(Commit)
            if plural in ("", one.resource.plural) and actor in ("", one.actor)
        ]

    def called(self, actor: str) -> list[Called]:
        return [one for one in self.history.list_all(Called) if one.actor == actor]

    async def until(self, holds: Callable[[], bool], limit: timedelta = PATIENCE) -> timedelta:
        """Wait until something holds after a commit; return when it was."""
        found = asyncio.get_running_loop().create_future()

        def check(_: object) -> None:
            if not found.done() and holds():
                found.set_result(None)

        self.history.listeners.append(check)
        check(None)
        try:
            async with asyncio.timeout(limit.total_seconds()):
                await found
        finally:
            self.history.listeners.remove(check)
        return elapsed()

    async def until_ready(self, *names: str) -> timedelta:
        return await self.until(lambda: all(map(self.is_ready, names)))

    async def until_rolled(self, name: str) -> timedelta:
        return await self.until(lambda: self.is_rolled(name))

    async def until_revised(self, name: str, before: object) -> timedelta:
        """Wait until a set's update revision is another than before."""
        return await self.until(lambda: self.status(name).get("updateRevision") != before)

    def is_ready(self, name: str) -> bool:
        """Return whether all pods of a set are ready, and its status has caught up."""
        sts = self.sts(name)
        wanted = number(sts, "spec", "replicas")
        observed = number(sts, "status", "observedGeneration")
        return (
            observed == number(sts, "metadata", "generation")
            and number(sts, "status", "availableReplicas") == wanted
            and number(sts, "status", "replicas") == wanted
            and sum(map(is_ready, self.pods(f"{name}-"))) == wanted
        )

    def is_rolled(self, name: str) -> bool:
        target = text(self.sts(name), "status", "updateRevision")
        found = [text(one, "metadata", "labels", REVISION_LABEL) for one in self.pods(f"{name}-")]
        return self.is_ready(name) and all(one == target for one in found)


@contextmanager
def world(
    *, seed: int = 0, choose: Choose = DEFAULT, pace: StepTimes | None = None, starts: bool = True
) -> Iterator[World]:
    """A world on the running loop, whose cluster works until the end of the block."""
    rng = random.Random(seed)
    history = History()
    api = SimulatedApi(history, elapsed=elapsed, epoch=EPOCH, rng=rng)
    cluster = Cluster(api, rng=rng, elapsed=elapsed, choose=choose, pace=pace or StepTimes())
    errors: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, about: errors.append(about))
    if starts:
        cluster.start()
    try:
        yield World(history, api, cluster)
    finally:
        cluster.stop()
    assert not errors, f"steps have failed: {errors}"


def is_ready(pod: JsonObject) -> bool:
    """Return whether a pod is ready and not on its way out."""
    return ready_since(pod) is not None and "deletionTimestamp" not in child(pod, "metadata")


def container_state(pod: JsonObject) -> str:
    """Return `running`, `waiting` or `terminated`, of the first container; empty for none."""
    statuses = children(pod, "status", "containerStatuses")
    return next(iter(child(statuses[0], "state")), "") if statuses else ""
