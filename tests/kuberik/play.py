"""Scenarios played with one of the controllers, on a control plane of its own; Flux is scripted."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from tests.kuberik.peer import running_peer
from tests.kuberik.scenarios import Scenario
from tests.kuberik.state import State, list_differing, read_state
from tests.system.releasing import DIGEST, KINDS, ON, Actor
from tests.world.api import NAMESPACES, Api, ApiError, Json, Resource
from tests.world.assets import locate_assets
from tests.world.budgets import CRDS, FOLDER, install_kinds, wait_served
from tests.world.flux import (
    KUSTOMIZATIONS,
    OCI_REPOSITORIES,
    install_flux,
    render_applied,
    render_fetched,
)
from tests.world.kuberik import render_kinds
from tests.world.operatorproc import Launch, OperatorProcess
from tests.world.plane import ControlPlane

TOGETHER: Final = 20
LOOK: Final = timedelta(milliseconds=500)
# What is seen after a step has not changed for so long.
CALM: Final = timedelta(seconds=5)
# Both have changed nothing for so long, though they differ.
LIMIT: Final = timedelta(seconds=25)
Pair = tuple[State, State]
_ANNOUNCING: Final = (
    "make ImageRepository app {image: '127.0.0.1:1/app', insecure: true}",
    "make ImagePolicy app {imageRepositoryRef: {name: app}, policy: {semver: {range: '*'}}}",
)
_TARGETS: Final = (
    "make OCIRepository app {metadata: {annotations: {rollout.kuberik.com/rollout: app}}, "
    "spec: {url: 'oci://registry/app', ref: {tag: none}}}",
    "make Kustomization app {metadata: {annotations: "
    "{rollout.kuberik.com/substitute.version.from: app}}, spec: {sourceRef: "
    "{kind: OCIRepository, name: app}, postBuild: {substitute: {version: none, color: red}}}}",
)


async def play_all(scenarios: Sequence[Scenario], peer: Path) -> dict[str, list[Pair]]:
    """Return what both leave after each step of each scenario, the peer first."""
    async with AsyncExitStack() as stack:
        stages = [await stack.enter_async_context(_staged(program)) for program in (peer, None)]
        async with asyncio.TaskGroup() as tasks:
            looking = [tasks.create_task(stage.look_on()) for stage in stages]
            seen: dict[str, list[Pair]] = {}
            # A restart concerns all that are played: each is played alone.
            for restarts in (False, True):
                places = asyncio.Semaphore(1 if restarts else TOGETHER)
                own = [one for one in scenarios if ("restart" in f"{one.steps}") is restarts]
                plays = [tasks.create_task(_play(stages, one, places)) for one in own]
                found = await asyncio.gather(*plays)
                seen |= dict(zip([one.name for one in own], found, strict=True))
            for task in looking:
                task.cancel()
    return seen


class Stage:
    """All namespaces: what is in them, since when, and Flux, which applies what it finds."""

    def __init__(self, api: Api, restart: Callable[[], None]) -> None:
        self.api = api
        self.restart = restart
        """Kill the controller, and start it again, which takes a moment."""
        self.states: dict[str, tuple[State, float]] = {}

    async def look_on(self) -> None:
        """Look at everything again and again."""
        while True:
            began = asyncio.get_running_loop().time()
            lists = await asyncio.gather(*(self.api.items(one) for one in KINDS.values()))
            objects = dict(zip(KINDS, lists, strict=True))
            await self._run_flux(objects["OCIRepository"], objects["Kustomization"])
            spaces = {one["metadata"]["namespace"] for one in objects["ImagePolicy"]}
            for namespace in spaces | {*self.states}:
                own = {
                    kind: [one for one in found if _belongs(one, namespace)]
                    for kind, found in objects.items()
                }
                state = read_state(own)
                if self.states.get(namespace, (None, 0))[0] != state:
                    self.states[namespace] = (state, began)
            await asyncio.sleep(LOOK.total_seconds())

    def see(self, namespace: str, begin: float) -> tuple[State, float]:
        """Return the state of a namespace, and for how long it has not changed."""
        state, since = self.states.get(namespace, ({}, begin))
        return state, asyncio.get_running_loop().time() - max(since, begin)

    async def _run_flux(self, sources: Sequence[Json], applied: Sequence[Json]) -> None:
        tags = {_key(one): (one["spec"].get("ref") or {}).get("tag", "latest") for one in sources}
        async with asyncio.TaskGroup() as tasks:
            for one in sources:
                tasks.create_task(self._reconcile(OCI_REPOSITORIES, one, tags[_key(one)]))
            for one in applied:
                source = (one["spec"].get("sourceRef") or {}).get("name", "")
                tag = tags.get((one["metadata"]["namespace"], source), "latest")
                tasks.create_task(self._reconcile(KUSTOMIZATIONS, one, tag))

    async def _reconcile(self, resource: Resource, found: Json, tag: str) -> None:
        metadata, status = found["metadata"], found.get("status") or {}
        asked = (metadata.get("annotations") or {}).get("reconcile.fluxcd.io/requestedAt")
        revision = f"{tag}@{DIGEST}"
        is_source = resource is OCI_REPOSITORIES
        has = (
            (status.get("artifact") or {}).get("revision")
            if is_source
            else status.get("lastAppliedRevision")
        )
        known = (status.get("observedGeneration"), has, status.get("lastHandledReconcileAt"))
        if found["spec"].get("suspend") or known == (metadata["generation"], revision, asked):
            return
        render = render_fetched if is_source else render_applied
        new = render(revision, metadata["generation"], f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}")
        patch = {"status": {**new, **({"lastHandledReconcileAt": asked} if asked else {})}}
        with suppress(ApiError):  # it may be gone
            await self.api.patch(
                resource, metadata["namespace"], metadata["name"], patch, subresource="status"
            )


@asynccontextmanager
async def _staged(peer: Path | None) -> AsyncIterator[Stage]:
    """Run a control plane with the kinds and one of the controllers."""
    async with (
        ControlPlane(locate_assets(sys.stderr.write)).running() as plane,
        AsyncExitStack() as stack,
    ):
        api = await stack.enter_async_context(plane.api())
        await install_flux(api)
        if peer is None:
            await install_kinds(api, FOLDER / "releases")
            await plane.create_namespace(api, "operator")
            config = plane.kubeconfig(plane.folder / "operator.conf", api.token)
            launch = Launch(
                folder=plane.folder,
                url=plane.url,
                kubeconfig=config,
                namespace="",
                flags=(ON, "-releases.metadata=none", "-kubernetes.client-qps=0"),
                env={"WATCH_NAMESPACE": "", "POD_NAMESPACE": "operator"},
            )
            process = await stack.enter_async_context(OperatorProcess(launch))
            await process.wait_ready()

            def restart() -> None:
                process.kill()
                process.start()
        else:
            for crd in render_kinds():
                await api.create(CRDS, "", crd)
                await wait_served(api, crd)
            running = stack.enter_context(ExitStack())
            running.enter_context(running_peer(peer, plane, plane.folder))

            def restart() -> None:
                running.close()
                running.enter_context(running_peer(peer, plane, plane.folder))

        yield Stage(api, restart)


def _belongs(found: Json, namespace: str) -> bool:
    """Say whether an object is of a namespace; those of the cluster are named after one."""
    metadata = found["metadata"]
    own = str(metadata.get("namespace", metadata["name"]))
    return own.removesuffix("-far") == namespace


def _key(found: Json) -> tuple[str, str]:
    return found["metadata"]["namespace"], found["metadata"]["name"]


async def _play(
    stages: Sequence[Stage], scenario: Scenario, places: asyncio.Semaphore
) -> list[Pair]:
    async with places:
        namespace = f"s-{scenario.name}"
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        actors = [Actor(stage.api, namespace, stage.restart) for stage in stages]
        bare = scenario.steps[0] == "bare"
        for stage, actor in zip(stages, actors, strict=True):
            await stage.api.create(NAMESPACES, "", body)
            for operation in (*_ANNOUNCING, *(() if bare else _TARGETS)):
                await actor.do(operation)
        seen: list[Pair] = []
        for step in scenario.steps[bare:]:
            refusals = await asyncio.gather(*(actor.do_all(step) for actor in actors))
            peer, ours = await _wait_agreed(stages, namespace, scenario)
            seen.append(({**peer, **refusals[0]}, {**ours, **refusals[1]}))
        for actor in actors:
            await actor.leave()
        return seen


async def _wait_agreed(stages: Sequence[Stage], namespace: str, scenario: Scenario) -> Pair:
    """Return both states once they stay, and differ no more than is recorded, or after a while."""
    loop = asyncio.get_running_loop()
    begin = loop.time()
    while True:
        await asyncio.sleep(LOOK.total_seconds())
        (peer, one), (ours, other) = (stage.see(namespace, begin) for stage in stages)
        more = {*list_differing(scenario.name, peer, ours)} - scenario.differing
        limit = LIMIT if more else CALM
        if min(one, other) > limit.total_seconds():
            return peer, ours
