"""What processes of a simulated cluster say of the releases of their namespace."""

from typing import Final

import pytest
from msgspec import UNSET
from rollout_lab.world import Sandbox

from rollout_operator.kube.api import (
    CLUSTER_ROLLOUT_SCHEDULES,
    HEALTH_CHECKS,
    NAMESPACES,
    ROLLOUT_GATES,
    ROLLOUT_SCHEDULES,
    ROLLOUTS,
)
from rollout_operator.model.description import Description, ReleasePhase
from rollout_operator.operator.releases import RolloutReleases
from tests.controllers.releases.world import ReleaseSandbox
from tests.virtual_time import in_virtual_time

ALWAYS: Final = {"rolloutSelector": {}, "rules": [{"name": "always"}]}
SELECTED: Final = {"selector": {"matchLabels": {"app": "app"}}}


async def prepare(world: ReleaseSandbox) -> None:
    """Create a Rollout with a gate, a HealthCheck and schedules, and one that is refused."""
    policy = {"releasesImagePolicy": {"name": "app"}}
    await world.create(ROLLOUTS, "app", {**policy, "healthCheckSelector": SELECTED})
    await world.create(ROLLOUTS, "bad", {**policy, "wantedVersion": "no tag"})
    await world.create(HEALTH_CHECKS, "web", {}, labels={"app": "app"})
    await world.create(ROLLOUT_GATES, "freeze", {"rolloutRef": {"name": "app"}, "passing": False})
    await world.create(ROLLOUT_SCHEDULES, "nights", ALWAYS)
    await world.create(CLUSTER_ROLLOUT_SCHEDULES, "nights", ALWAYS)


def shown(description: Description) -> list[tuple[str, str, str]]:
    return [(one.title, one.phase, one.reason) for one in description.list_releases()]


@in_virtual_time
async def test_rollouts_schedules_and_checks_are_described() -> None:
    async with ReleaseSandbox.opened() as world:
        await prepare(world)
        process = await world.start()
        await world.sleep(5)
        found = await process.describe()

    assert shown(found) == [
        ("default/app", ReleasePhase.HELD, "RolloutFailed"),
        ("default/bad", ReleasePhase.HELD, "InvalidSpec"),
    ]
    app, bad = found.list_releases()
    assert [one.name for one in app.checks] == ["default/web"]
    assert app.headline == "ImagePolicy default/app: there is none"
    assert '"no tag" is no tag' in bad.headline
    assert [(one.title, one.is_open, one.rollouts) for one in found.list_schedules()] == [
        ("RolloutSchedule default/nights", False, 2),
        ("ClusterRolloutSchedule nights", False, 2),
    ]
    (check,) = found.list_checks()
    assert (check.title, check.status, check.rollouts) == ("default/web", "", ("default/app",))


@in_virtual_time
async def test_a_pass_that_failed_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RolloutReleases, "get_error", lambda releases, name: f"{name}: no answer")
    async with ReleaseSandbox.opened() as world:
        await prepare(world)
        process = await world.start()
        found = await process.describe()

    assert shown(found)[0] == ("default/app", ReleasePhase.HELD, "NotReconciled")
    assert found.list_releases()[0].headline.endswith("failed: app: no answer")


@in_virtual_time
async def test_a_schedule_of_another_namespace_is_not_its_own() -> None:
    async with ReleaseSandbox.opened() as world:
        await world.create(NAMESPACES, "other", {})
        await world.create(ROLLOUT_SCHEDULES, "others", ALWAYS, namespace="other")
        process = await world.start()
        await world.sleep(5)
        found = await process.describe()

    assert (found.releases, found.schedules, found.health_checks) == ((), (), ())


@in_virtual_time
async def test_without_the_flag_nothing_is_described() -> None:
    async with Sandbox() as sandbox:
        await prepare(ReleaseSandbox(sandbox))
        process = sandbox.process("operator-1")
        process.start()
        await process.wait_ready()
        found = await process.describe()

    assert (found.releases, found.schedules, found.health_checks) == (UNSET,) * 3
