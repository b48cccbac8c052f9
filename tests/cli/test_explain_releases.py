"""`explain` and `status` of releases, from the objects alone (D-76)."""

import pytest
from rollout_lab.world import Sandbox

from rollout_operator.cli.access import Named, choose_named
from rollout_operator.cli.explain import draw_explanation, read_target
from rollout_operator.kube.api import CLUSTER_ROLLOUT_SCHEDULES, ROLLOUT_GATES, ROLLOUT_SCHEDULES
from rollout_operator.model.names import InvalidInput
from rollout_operator.operator.inspect import Inspection
from rollout_operator.planning.text import StatusLayout, render_line
from tests.controllers.releases.world import ReleaseSandbox
from tests.lab.releasing import create_release, create_zones
from tests.operator.diagnosis.inspected import observe_sandbox
from tests.virtual_time import in_virtual_time


async def explain(seen: Inspection, *words: str) -> str:
    lines = await draw_explanation(seen, read_target(words), StatusLayout(width=200))
    return "\n".join(render_line(line, 200, is_coloured=False) for line in lines)


async def prepare(world: ReleaseSandbox) -> Inspection:
    """Return a cluster in which version 2.0.0 waits for a schedule and a gate."""
    await create_zones(world)
    world.sandbox.start_flux()
    await create_release(world)
    await world.sleep(30)
    await world.start()
    await world.sandbox.flux.announce("default", "app", "1.0.0")
    await world.sleep(200)
    rules = [{"name": "all", "timeRange": {"start": "00:00", "end": "00:00"}}]
    for kind, name in ((ROLLOUT_SCHEDULES, "nights"), (CLUSTER_ROLLOUT_SCHEDULES, "freeze")):
        await world.create(kind, name, {"rolloutSelector": {}, "rules": rules})
    await world.create(ROLLOUT_GATES, "mine", {"rolloutRef": {"name": "app"}, "passing": False})
    await world.sleep(30)
    await world.sandbox.flux.announce("default", "app", "2.0.0")
    await world.sleep(30)
    return await observe_sandbox(world.sandbox).inspect()


@in_virtual_time
async def test_d_76_a_rollout_says_what_is_deployed_and_what_holds_the_next_version() -> None:
    async with Sandbox() as sandbox:
        seen = await prepare(ReleaseSandbox(sandbox))
        rollout = (await explain(seen, "rollout/app")).splitlines()
        gate = await explain(seen, "rolloutgate", "nights-app")
        schedule = await explain(seen, "rolloutschedule/nights")
        common = await explain(seen, "ClusterRolloutSchedules/freeze")
        check = await explain(seen, "healthcheck/zones")

    assert rollout[0] == "Rollout default/app  waiting  1.0.0 deployed, then 2.0.0"
    assert rollout[1].startswith("  not passing: cluster-freeze-app, mine and nights-app")
    assert "bypass-gates" in rollout[2]
    assert "  gate  mine closed: the gate is not passing" in rollout
    kept = "kept by RolloutSchedule default/nights"
    never = "its rules do not change that within 400 days"
    assert f"  gate  nights-app closed: the gate is not passing, {kept}: {never}" in rollout
    assert "  check default/zones is Healthy: " in "\n".join(rollout)
    assert "  from  ImagePolicy default/app announced 2.0.0" in rollout
    assert "  was   1.0.0 Succeeded at" in "\n".join(rollout)
    assert gate.startswith(f"RolloutGate nights-app  closed\n  the gate is not passing, {kept}")
    assert "of    Rollout default/app: waiting" in gate
    assert schedule.startswith("RolloutSchedule default/nights  closed  1 Rollout\n  closed by all")
    assert common.startswith("ClusterRolloutSchedule freeze  closed  1 Rollout\n  closed by all")
    assert check.startswith("HealthCheck default/zones  Healthy\n")
    assert "  of    rollout-group web" in check
    assert "  for   default/app" in check


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("rollout/ap",), "rollout ap not found in namespace default; did you mean app"),
        (("rolloutgate/x",), "rolloutgate x not found in namespace default"),
        (("rolloutschedule/freeze",), "rolloutschedule freeze not found"),
        (("healthcheck/x",), "healthcheck x not found"),
    ],
)
@in_virtual_time
async def test_what_is_not_there_is_said_so(words: tuple[str, ...], message: str) -> None:
    async with Sandbox() as sandbox:
        await ReleaseSandbox(sandbox).create_rollout()
        seen = await observe_sandbox(sandbox).inspect()
        with pytest.raises(InvalidInput, match=message):
            await explain(seen, *words)


@in_virtual_time
async def test_what_could_not_be_read_is_said_beside_it() -> None:
    """A gate that is closed by a schedule which may not be listed would else look like a hand's."""
    async with ReleaseSandbox.opened() as world:
        await world.create_rollout()
        world.sandbox.api.forbidden.add(("person", "list", "rolloutschedules"))
        seen = await observe_sandbox(world.sandbox).inspect()
        lines = await explain(seen, "rollout/app")

    assert "rolloutschedules are left out: " in lines


@in_virtual_time
async def test_of_one_group_there_are_no_releases() -> None:
    async with ReleaseSandbox.opened() as world:
        await create_zones(world)
        await world.create_rollout()
        await world.sleep(10)
        seen = await observe_sandbox(world.sandbox).inspect()

    assert choose_named(seen, Named(group="web")).description.list_releases() == ()
