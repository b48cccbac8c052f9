"""Flux in a simulated cluster: what is fetched and applied, and what is not modelled."""

import asyncio
from typing import Any

from rollout_lab.model.fields import condition_of
from rollout_lab.model.request import NotModelled

from rollout_operator.kube.api import KUSTOMIZATIONS, OCI_REPOSITORIES
from tests.controllers.releases.world import ReleaseSandbox
from tests.lab.releasing import create_release, create_zones, map_images
from tests.virtual_time import in_virtual_time

SOURCE = OCI_REPOSITORIES[0]
APPLIED = KUSTOMIZATIONS[0]


async def set_tag(world: ReleaseSandbox, tag: str) -> None:
    await world.patch(SOURCE, "app", {"spec": {"ref": {"tag": tag}}})


@in_virtual_time
async def test_a_tag_is_fetched_and_then_applied() -> None:
    """Not at once, and again after each change or request; a missing tag is tried again."""
    async with ReleaseSandbox.opened() as world:
        await create_zones(world)
        world.sandbox.start_flux()
        await create_release(world)
        await world.sleep(30)
        assert map_images(world) == dict.fromkeys(("web-a", "web-b", "web-c"), "app:none")

        await set_tag(world, "1.0.0")
        assert "artifact" not in await world.get_status(SOURCE, "app")
        await world.sleep(30)
        status = await world.get_status(APPLIED, "app")
        assert set(map_images(world).values()) == {"app:1.0.0"}
        assert status["lastAppliedRevision"].startswith("1.0.0@sha256:")
        assert status["inventory"]["entries"][0] == {
            "id": "default_web-a_apps_StatefulSet",
            "v": "v1",
        }

        world.sandbox.flux.missing.add("2.0.0")
        await set_tag(world, "2.0.0")
        await world.sleep(30)
        ready = condition_of(await world.get(SOURCE, "app"), "Ready")
        assert (ready["status"], ready["reason"]) == ("False", "OCIArtifactPullFailed")
        world.sandbox.flux.missing.clear()
        await world.sleep(90)
        assert set(map_images(world).values()) == {"app:2.0.0"}

        request = {"metadata": {"annotations": {"reconcile.fluxcd.io/requestedAt": "now"}}}
        await world.patch(APPLIED, "app", {**request, "spec": {"suspend": True}})
        await set_tag(world, "3.0.0")
        await world.sleep(30)
        assert set(map_images(world).values()) == {"app:2.0.0"}, "it is suspended"
        await world.patch(APPLIED, "app", {"spec": {"suspend": False}})
        await world.sleep(30)
        assert set(map_images(world).values()) == {"app:3.0.0"}
        assert (await world.get_status(APPLIED, "app"))["lastHandledReconcileAt"] == "now"


@in_virtual_time
async def test_what_else_a_spec_requests_is_not_modelled() -> None:
    problems: list[Any] = []
    async with ReleaseSandbox.opened() as world:
        asyncio.get_running_loop().set_exception_handler(lambda loop, one: problems.append(one))
        await create_release(world)
        await world.patch(APPLIED, "app", {"spec": {"wait": True}})
        world.sandbox.start_flux()
        await world.sleep(30)
    assert isinstance(problems[0]["exception"], NotModelled)
    assert "a Kustomization with wait" in str(problems[0]["exception"])
