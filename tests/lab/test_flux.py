"""Flux in a simulated cluster: what is fetched and applied, what is not, and a release by it."""

import asyncio
from typing import Any

import pytest

from rollout_operator.kube.api import PODS
from rollout_operator.kube.release_kinds import (
    HEALTH_CHECKS,
    KUSTOMIZATIONS,
    OCI_REPOSITORIES,
    ROLLOUT_GATES,
    ROLLOUTS,
)
from rollout_operator.lab.model.fields import condition_of, text
from rollout_operator.lab.model.history import Commit
from rollout_operator.lab.model.request import NotModelled
from tests.controllers.releases.world import ReleaseSandbox
from tests.lab.releasing import create_release, create_zones, map_images
from tests.virtual_time import in_virtual_time

SOURCE = OCI_REPOSITORIES[0]
APPLIED = KUSTOMIZATIONS[0]


async def set_tag(world: ReleaseSandbox, tag: str) -> None:
    await world.patch(SOURCE, "app", {"spec": {"ref": {"tag": tag}}})


def list_statuses(world: ReleaseSandbox) -> list[str]:
    """Return the statuses of the newest entry of the Rollout, in order."""
    found: list[str] = []
    for commit in world.sandbox.history.list_all(Commit):
        if commit.resource == ROLLOUTS and commit.after is not None:
            status: Any = commit.after.get("status") or {}
            newest = next(iter(status.get("history", [])), None)
            if newest is not None:
                found.append(f"{newest['version']['tag']} {newest['bakeStatus']}")
    return [one for one, before in zip(found, ["", *found], strict=False) if one != before]


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


@in_virtual_time
async def test_a_release_goes_through_gate_flux_zones_and_bake() -> None:
    """Zone after zone, and the bake begins only after the last of them."""
    async with ReleaseSandbox.opened() as world:
        await create_zones(world)
        world.sandbox.start_flux()
        await create_release(world, bakeTime="1m")
        await world.sleep(30)
        await world.start()
        await world.sandbox.flux.announce("default", "app", "1.0.0")
        await world.sleep(300)
        assert list_statuses(world)[-1] == "1.0.0 Succeeded"
        gate = {"rolloutRef": {"name": "app"}, "passing": False}
        await world.create(ROLLOUT_GATES, "closed", gate)
        await world.sleep(5)
        await world.sandbox.flux.announce("default", "app", "2.0.0")
        await world.sleep(60)
        assert list_statuses(world)[-1] == "1.0.0 Succeeded", "the gate is closed"
        await world.patch(ROLLOUT_GATES, "closed", {"spec": {"passing": True}})
        await world.sleep(300)

        assert list_statuses(world) == [
            f"{tag} {status}"
            for tag in ("1.0.0", "2.0.0")
            for status in ("Deploying", "InProgress", "Succeeded")
        ]
        assert set(map_images(world).values()) == {"app:2.0.0"}
        deletes = [
            commit.name
            for commit in world.sandbox.history.list_all(Commit)
            if commit.resource == PODS and commit.after is None
        ]
        assert deletes == ["web-a-0", "web-b-0", "web-c-0"] * 2
        healthy = (await world.get_status(HEALTH_CHECKS, "zones"))["status"]
        assert healthy == "Healthy"
        newest = (await world.get_status(ROLLOUTS, "app"))["history"][0]
        last = [one for one in world.sandbox.history.list_all(Commit) if one.resource == PODS][-1]
        assert newest["bakeStartTime"] >= text(last.after or {}, "metadata", "creationTimestamp")


@pytest.mark.parametrize("tag", ["", "1.0.0"])
@in_virtual_time
async def test_without_a_tag_nothing_is_fetched(tag: str) -> None:
    async with ReleaseSandbox.opened() as world:
        world.sandbox.start_flux()
        await create_release(world)
        await set_tag(world, tag)
        await world.sleep(30)
        assert ("artifact" in await world.get_status(SOURCE, "app")) is bool(tag)
