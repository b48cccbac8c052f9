"""Releases from a tag to the last pod, with Flux's own controllers, and what these write meanwhile.

An image policy announces a tag; only that is scripted. This operator writes the tag,
source-controller fetches the manifests from a real registry, kustomize-controller applies three
zones, this operator rolls them one after the other, and the release bakes.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import yaml
from rollout_lab.zones import statefulset, three_zones

from tests.flux.artifacts import push_manifests
from tests.flux.record import map_managers, normalise, show_conditions
from tests.flux.waits import is_failing, is_requested_again, request_again, wait_calm, wait_flux
from tests.oci.registries import NAME
from tests.system.releasing import (
    CHECKS,
    LIMIT,
    ON,
    ROLLOUTS,
    SELECTED,
    annotate,
    announce,
    create,
    create_pull_secret,
    create_targets,
    prepare,
    read_tags,
    wait_history,
    wait_message,
    wait_tags,
)
from tests.system.waits import wait_true
from tests.world.api import Json, Resource
from tests.world.flux import KUSTOMIZATIONS, OCI_REPOSITORIES
from tests.world.world import World

KINDS: Final = {"OCIRepository": OCI_REPOSITORIES, "Kustomization": KUSTOMIZATIONS}
GROUP: Final = "db"
_CHECK: Final = "healthcheck.kuberik.com/"
_BROKEN: Final = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: nowhere}\n"
_NOT_YAML: Final = "apiVersion: v1\nkind: [\n"


@dataclass(slots=True)
class Play:
    """One play, and what is seen in it."""

    world: World
    host: str
    names: dict[str, str] = field(default_factory=dict)
    moments: dict[str, dict[str, Json]] = field(default_factory=dict)
    passing: dict[str, set[str]] = field(default_factory=lambda: {kind: set() for kind in KINDS})
    managers: dict[str, dict[str, list[str]]] = field(default_factory=dict)

    def push(self, tag: str, **more: str) -> None:
        """Push the zones as a release, perhaps with more files."""
        zones = three_zones(GROUP, replicas=2, image="app:${version}")
        text = yaml.safe_dump_all([statefulset(one, self.world.namespace) for one in zones])
        files = {"zones.yaml": text, **{f"{name}.yaml": body for name, body in more.items()}}
        self.names[push_manifests(self.host, tag, files)] = f"sha256:{tag}"

    async def note(self, moment: str) -> None:
        """Keep what the objects of Flux say now."""
        bodies = {kind: await self.world.get(resource, "app") for kind, resource in KINDS.items()}
        self.moments[moment] = {kind: normalise(body, self.names) for kind, body in bodies.items()}
        self.managers = {kind: map_managers(body) for kind, body in bodies.items()}

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """Keep what passes, too."""
        async with asyncio.TaskGroup() as tasks:
            started = [
                tasks.create_task(self._follow(kind, resource), name=f"follow-{kind}")
                for kind, resource in KINDS.items()
            ]
            yield
            for one in started:
                one.cancel()

    async def _follow(self, kind: str, resource: Resource) -> None:
        async for event in self.world.api.follow(resource, self.world.namespace):
            self.passing[kind].add(show_conditions(event.object))


Step = Callable[[Play], Awaitable[None]]


async def play_releases(world: World, host: str, *more: Step) -> Play:
    """Play all of it. Raises AssertionError and TimeoutError where something goes another way."""
    play = Play(world, host, {world.namespace: "NAMESPACE", host: "HOST"})
    await prepare(world, image=f"{host}/{NAME}")
    for component in ("releases-registries", "releases-inventory"):
        await world.grant(component)
    await create_pull_secret(world, host)
    url = f"oci://{host}/{NAME}"
    async with play.following():
        await create_targets(world, url=url, insecure=True, secretRef={"name": "pull"})
        await wait_flux(world, OCI_REPOSITORIES, is_failing("OCIArtifactPullFailed"))
        await wait_flux(world, KUSTOMIZATIONS, is_failing("ArtifactFailed"))
        await play.note("there is no such tag yet")
        await _create_checks(world)
        operator = await world.operator(ON)
        for step in (_release, _fail_and_roll_back, _mistype, _correct, *more):
            await step(play)
        assert await operator.terminate() == 0
    await world.judge.assert_clean()
    await world.assert_permitted()
    return play


async def _create_checks(world: World) -> None:
    for name, of, about in (("zones", "rollout-group", GROUP), ("app", "kustomization", "app")):
        notes = {
            f"{_CHECK}{of}": about,
            f"{_CHECK}requeue-interval": "5s",
            f"{_CHECK}failure-grace": "5s",
        }
        await create(
            world,
            CHECKS,
            "HealthCheck",
            name,
            {"class": of},
            labels={"app": "app"},
            annotations=notes,
        )


async def _release(play: Play) -> None:
    """Two releases: the zones are created, and then rolled one after the other."""
    world = play.world
    play.push("1.0.0")
    await announce(world, "1.0.0")
    spec = {
        "releasesImagePolicy": {"name": "app"},
        "bakeTime": "1s",
        "healthCheckSelector": SELECTED,
    }
    await create(world, ROLLOUTS, "Rollout", "app", spec)
    await wait_history(world, "1.0.0 Succeeded")
    await play.note("the first release is applied")
    play.push("1.1.0")
    await announce(world, "1.1.0")
    await wait_history(world, "1.1.0 Succeeded, 1.0.0 Succeeded")
    zones = [f"{GROUP}-zone-{letter}" for letter in "abc"]
    found = await world.wait_rolled(zones)
    images = {
        one["spec"]["template"]["spec"]["containers"][0]["image"] for one in found.sets.values()
    }
    assert images == {"app:1.1.0"}
    await play.note("the next release is applied")


async def _fail_and_roll_back(play: Play) -> None:
    """Manifests that the API server refuses: the bake fails, also after a retry; then back."""
    world = play.world
    play.push("1.2.0", broken=_BROKEN)
    await announce(world, "1.2.0")
    before = "1.1.0 Succeeded, 1.0.0 Succeeded"
    await wait_history(world, f"1.2.0 Failed, {before}")
    await wait_flux(world, KUSTOMIZATIONS, is_failing("ReconciliationFailed"))
    await play.note("the API server refuses manifests")
    await annotate(world, "app", retry="now")
    await wait_history(world, f"1.2.0 Deploying, {before}")
    for resource in KINDS.values():
        await wait_flux(world, resource, is_requested_again)
    await wait_history(world, f"1.2.0 Failed, {before}")
    await pin(world, "1.1.0")
    await wait_history(world, f"1.1.0 Succeeded, 1.2.0 Failed, {before}")
    await play.note("rolled back")
    play.push("1.3.0", broken=_NOT_YAML)
    await pin(world, "1.3.0")
    await wait_history(world, f"1.3.0 Failed, 1.1.0 Succeeded, 1.2.0 Failed, {before}")
    await wait_flux(world, KUSTOMIZATIONS, is_failing("BuildFailed"))
    await play.note("manifests cannot be read")


async def _mistype(play: Play) -> None:
    """A tag that the registry does not have: Flux says so, and goes on when it comes."""
    world = play.world
    await pin(world, "1.4.0")
    await wait_tags(world, "1.4.0")
    await wait_flux(world, OCI_REPOSITORIES, is_failing("OCIArtifactPullFailed"))
    await wait_message(world, "MANIFEST_UNKNOWN")
    await wait_flux(world, KUSTOMIZATIONS, is_failing("BuildFailed"))
    await play.note("the registry does not have the tag")
    play.push("1.4.0")
    await wait_flux(world, OCI_REPOSITORIES, lambda body: show_conditions(body).count("True") == 2)

    async def is_through() -> bool:
        found = (await world.get(ROLLOUTS, "app"))["status"]["history"][0]
        return (found["version"]["tag"], found["bakeStatus"]) == ("1.4.0", "Succeeded")

    await wait_true("1.4.0 Succeeded", is_through, LIMIT)


async def _correct(play: Play) -> None:
    """A tag that a person changes comes back; Flux may have applied the other one meanwhile."""
    world = play.world
    before = await read_tags(world)
    by_hand = {"spec": {"ref": {"tag": "1.0.0"}}}
    await world.patch(OCI_REPOSITORIES, "app", by_hand)
    await wait_tags(world, before[0])
    await wait_calm(world, [*KINDS.values()])
    # Where the right tag came back at once, Flux may miss it until its interval has passed.
    for resource in KINDS.values():
        await request_again(world, resource, "app", "after the tag by hand")
    await wait_calm(world, [*KINDS.values()])
    await play.note("a tag by hand is put right")


async def pin(world: World, tag: str) -> None:
    await world.patch(ROLLOUTS, "app", {"spec": {"wantedVersion": tag}})
