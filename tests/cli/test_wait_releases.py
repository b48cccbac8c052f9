"""`wait` for Rollouts of releases: each end and its exit code (D-76), on a simulated cluster."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from rollout_operator.cli.access import Named, read_named
from rollout_operator.cli.wait import await_release
from rollout_operator.kube.api import ROLLOUT_GATES, ROLLOUTS
from rollout_operator.model.description import ReleasePhase
from rollout_operator.model.names import ExitCode, InvalidInput
from tests.cli.test_wait import Wait
from tests.controllers.releases.world import ReleaseSandbox
from tests.lab.releasing import create_release, create_zones
from tests.operator.diagnosis.inspected import observe_sandbox
from tests.virtual_time import in_virtual_time
from tests.web.status.descriptions import release

pytestmark = pytest.mark.thorough


@asynccontextmanager
async def playing(**bake: Any) -> AsyncIterator[ReleaseSandbox]:
    """Play releases over three zones, of which none is announced yet."""
    async with ReleaseSandbox.opened() as world:
        await create_zones(world)
        world.sandbox.start_flux()
        await create_release(world, **bake)
        await world.sleep(30)
        await world.start()
        yield world


def wait_for(world: ReleaseSandbox, *, tag: str = "", name: str = "app", **how: Any) -> Wait:
    return Wait(observe_sandbox(world.sandbox), named=Named(release=name, tag=tag), **how)


@in_virtual_time
async def test_d_76_it_ends_with_0_when_a_version_is_through_and_not_before() -> None:
    async with playing(bakeTime="1m") as world:
        await world.sandbox.flux.announce("default", "app", "1.0.0")
        wait = wait_for(world)
        assert await wait.end() is ExitCode.DONE
        assert any("baking" in line for line in wait.reported)
        assert wait.reported[-1].startswith("Rollout default/app: deployed, 1.0.0 deployed")
        status = await world.get_status(ROLLOUTS, "app")
        assert status["history"][0]["bakeStatus"] == "Succeeded"


@in_virtual_time
async def test_d_76_a_version_that_is_not_announced_yet_is_waited_for_by_its_tag() -> None:
    """Whatever was deployed before is through, which says nothing of what was just pushed."""
    async with playing() as world:
        await world.sandbox.flux.announce("default", "app", "1.0.0")
        assert await wait_for(world).end() is ExitCode.DONE
        short = timedelta(seconds=5)
        late = wait_for(world, tag="2.0.0", timeout=short)
        assert await late.end() is ExitCode.TIMED_OUT
        assert late.reported[-1] == "not deployed within 5s"
        await world.sandbox.flux.announce("default", "app", "2.0.0")
        assert await wait_for(world, tag="2.0.0").end() is ExitCode.DONE
        assert await wait_for(world, tag="1.0.0", timeout=short).end() is ExitCode.DONE


@in_virtual_time
async def test_d_76_a_version_that_is_selected_is_waited_for_before_an_operator_sees_it() -> None:
    async with playing() as world:
        await world.sandbox.flux.announce("default", "app", "1.0.0")
        assert await wait_for(world).end() is ExitCode.DONE
        await world.sandbox.flux.announce("default", "app", "2.0.0")
        wait = wait_for(world)
        assert await wait.end() is ExitCode.DONE
        assert "no operator has decided on 2.0.0 yet" in wait.reported[0]
        assert wait.reported[-1].startswith("Rollout default/app: deployed, 2.0.0 deployed")


@in_virtual_time
async def test_d_76_a_closed_gate_is_no_end_but_that_of_the_time() -> None:
    async with playing() as world:
        await world.sandbox.flux.announce("default", "app", "1.0.0")
        assert await wait_for(world).end() is ExitCode.DONE
        await world.create(ROLLOUT_GATES, "g", {"rolloutRef": {"name": "app"}, "passing": False})
        await world.sleep(5)
        await world.sandbox.flux.announce("default", "app", "2.0.0")
        await world.sleep(5)
        wait = wait_for(world, timeout=timedelta(minutes=5))
        assert await wait.end() is ExitCode.TIMED_OUT
        assert "not passing: g [SomeGatesBlocking]" in wait.reported[0]


@in_virtual_time
async def test_d_76_it_ends_with_4_where_a_person_has_to_act() -> None:
    async with playing() as world:
        await world.patch(ROLLOUTS, "app", {"spec": {"wantedVersion": "no tag"}})
        await world.sleep(5)
        wait = wait_for(world)
        assert await wait.end() is ExitCode.NEEDS_A_PERSON
        assert wait.reported[-1] == "a person has to change something for Rollout app"
        with pytest.raises(InvalidInput, match=r"rollout ap not found in .* did you mean app"):
            await wait_for(world, name="ap").end()


@in_virtual_time
async def test_rollouts_are_waited_for_only_by_name() -> None:
    """One that waits for its hours would hold every script that waits for pods."""
    async with playing() as world:
        assert await Wait(observe_sandbox(world.sandbox)).end() is ExitCode.DONE


def test_what_is_requested_counts_before_it_has_had_an_effect() -> None:
    through = replace(release("app", ReleasePhase.DEPLOYED), next="", waits=())
    retried = replace(through, is_retry_requested=True)
    forced = replace(through, next="0.9.0")
    spare = replace(through, requests=("rollout.kuberik.com/unblock-failed: true",))
    reached = [await_release(one).is_reached for one in (through, retried, forced, spare)]
    assert reached == [True, False, False, True]


def test_a_rollout_is_named_as_for_explain() -> None:
    assert read_named(["rollout/app"]) == read_named(["Rollouts", "app"]) == Named(release="app")
    assert read_named(["rollout/app"], tag="1") == Named(release="app", tag="1")
