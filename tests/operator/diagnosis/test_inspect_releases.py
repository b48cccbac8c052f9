"""Releases as a person with a kubeconfig sees them: as the operator does, by reads only (D-76)."""

from typing import Final

import pytest
from msgspec import UNSET
from msgspec.structs import replace
from rollout_lab.model.history import Called
from rollout_lab.world import Sandbox

from rollout_operator.kube.api import (
    CLUSTER_ROLLOUT_SCHEDULES,
    HEALTH_CHECKS,
    NAMESPACES,
    OCI_REPOSITORIES,
    ROLLOUT_GATES,
    ROLLOUT_SCHEDULES,
    ROLLOUTS,
)
from rollout_operator.model.description import Description, ReleasePhase
from rollout_operator.model.names import ApiError, Denied, NotFound, Uid, Unreachable
from rollout_operator.model.objects import Unreadable
from rollout_operator.model.release_plan import ReleaseObjects
from rollout_operator.model.releases import RefusedRelease
from rollout_operator.operator.inspect import Inspector, ObservedReleases, list_namespaces
from tests.controllers.releases.world import ReleaseSandbox
from tests.lab.releasing import create_release, create_zones
from tests.operator.diagnosis.inspected import observe_sandbox
from tests.operator.diagnosis.test_inspect import Partial
from tests.planning.releases.builders import head, rollout
from tests.planning.releases.schedules.schedule_builders import schedule
from tests.virtual_time import in_virtual_time

NIGHTS: Final = {"rolloutSelector": {}, "rules": [{"name": "always"}]}
ANYWHERE: Final = {
    "selector": {"matchLabels": {"app": "app"}},
    "namespaceSelector": {"matchLabels": {"team": "a"}},
}


async def prepare(world: ReleaseSandbox) -> None:
    """Create zones, Flux, a Rollout, schedules of both kinds, and an operator."""
    await create_zones(world)
    world.sandbox.start_flux()
    await create_release(world, bakeTime="1m")
    await world.create(ROLLOUT_SCHEDULES, "nights", {**NIGHTS, "action": "Allow"})
    await world.create(CLUSTER_ROLLOUT_SCHEDULES, "days", {**NIGHTS, "action": "Allow"})
    await world.sleep(30)


def releases_of(one: Description) -> tuple[object, ...]:
    return one.releases, one.schedules, one.health_checks


@in_virtual_time
async def test_d_75_it_says_what_the_operator_says() -> None:
    async with ReleaseSandbox.opened() as world:
        await prepare(world)
        process = await world.start()
        await world.sandbox.flux.announce("default", "app", "1.0.0")
        observed = observe_sandbox(world.sandbox)
        phases = set()
        for step in range(30):
            if step == 20:
                await world.create(
                    ROLLOUT_GATES, "freeze", {"rolloutRef": {"name": "app"}, "passing": False}
                )
            if step == 21:
                await world.sandbox.flux.announce("default", "app", "2.0.0")
            # Never at the moment at which something changes: between the two reads it would.
            await world.sleep(8.7)
            mine, theirs = (await observed.inspect()).description, await process.describe()
            assert releases_of(mine) == releases_of(theirs)
            phases |= {one.phase for one in mine.list_releases()}

        assert {one.title for one in mine.list_schedules()} == {
            "RolloutSchedule default/nights",
            "ClusterRolloutSchedule days",
        }
        assert observed.collect_verbs() == {"list"}
    assert phases >= {ReleasePhase.BAKING, ReleasePhase.DEPLOYED, ReleasePhase.WAITING}


@in_virtual_time
async def test_without_rollouts_nothing_more_is_requested() -> None:
    """Off is off: with the kinds and without them, there is not a byte of releases."""
    async with Sandbox() as sandbox:
        observed = observe_sandbox(sandbox)
        seen = await observed.inspect()
        absent = Inspector(
            Partial(observed, rollouts=NotFound("no such kind")),  # type: ignore[arg-type]  # all that is used
            "default",
            sandbox.clock(),
            service="",
            lease="",
        )
        assert releases_of((await absent.inspect()).description) == (UNSET,) * 3
        requested = {one.request.resource for one in sandbox.history.list_all(Called)}

    assert releases_of(seen.description) == (UNSET,) * 3
    assert seen.remarks == ()
    assert ROLLOUTS in requested
    assert not requested & {ROLLOUT_GATES, HEALTH_CHECKS, *OCI_REPOSITORIES}


@pytest.mark.parametrize(
    ("plural", "error", "remark"),
    [
        pytest.param("rollouts", Denied("no right"), None, id="most people have no right"),
        pytest.param("rollouts", Unreachable("no answer"), "Rollouts are left out", id="no answer"),
        pytest.param("rolloutgates", Denied("no right"), "rolloutgates are left out", id="gates"),
        pytest.param(
            "ocirepositories", Denied("no right"), "ocirepositories are left out", id="Flux"
        ),
        pytest.param("clusterrolloutschedules", Denied("no right"), None, id="the cluster's"),
        pytest.param("kustomizations", NotFound("no kind"), None, id="Flux is not there"),
    ],
)
@in_virtual_time
async def test_what_may_not_be_read_is_left_out(
    plural: str, error: ApiError, remark: str | None
) -> None:
    async with ReleaseSandbox.opened() as world:
        await prepare(world)
        client = Partial(observe_sandbox(world.sandbox), **{plural: error})
        inspector = Inspector(
            client,  # type: ignore[arg-type]  # all that is used of it
            "default",
            world.sandbox.clock(),
            service="",
            lease="",
        )
        seen = await inspector.inspect()

    assert [one.name for one in seen.description.list_releases()] == (
        [] if plural == "rollouts" else ["app"]
    )
    assert [one.partition(":")[0] for one in seen.remarks] == ([] if remark is None else [remark])


@in_virtual_time
async def test_checks_of_other_namespaces_are_read_where_they_are_selected() -> None:
    async with ReleaseSandbox.opened() as world:
        await world.create(NAMESPACES, "other", {}, labels={"team": "a"})
        await world.create(HEALTH_CHECKS, "near", {})
        await world.create(HEALTH_CHECKS, "far", {}, namespace="other", labels={"app": "app"})
        await world.create(
            ROLLOUTS,
            "app",
            {"releasesImagePolicy": {"name": "app"}, "healthCheckSelector": ANYWHERE},
        )
        process = await world.start()
        await world.sleep(20)
        mine = (await observe_sandbox(world.sandbox).inspect()).description
        theirs = await process.describe()

    assert [one.name for one in mine.list_releases()[0].checks] == ["other/far"]
    assert [one.title for one in mine.list_checks()] == ["default/near"]
    assert (mine.releases, mine.health_checks) == (theirs.releases, theirs.health_checks)


def test_rollouts_are_shown_by_name_and_schedules_of_the_cluster_last() -> None:
    """Those that cannot be read or obeyed, too."""
    lost = Unreadable(
        kind="Rollout",
        namespace="prod",
        name="b",
        uid=Uid("b"),
        resource_version="1",
        error="status: no object",
    )
    refused = RefusedRelease(head=head("c"), problem="spec: no object")
    objects = ReleaseObjects(
        rollouts=(refused, replace(rollout(), head=head("a"))),
        schedules=tuple(schedule(namespace=namespace) for namespace in ("", "prod")),
        unreadable=(lost,),
    )
    observed = ObservedReleases(objects, "prod")
    shown, schedules = observed.describe_releases(), observed.describe_schedules()

    assert shown is not UNSET
    assert schedules is not UNSET
    assert [one.namespace for one in schedules] == ["prod", ""]
    assert [(one.name, one.reason) for one in shown] == [
        ("a", "NotObserved"),
        ("b", "InvalidSpec"),
        ("c", "InvalidSpec"),
    ]


@in_virtual_time
async def test_all_namespaces_are_those_with_rollouts_as_well() -> None:
    async with ReleaseSandbox.opened() as world:
        client = observe_sandbox(world.sandbox).client
        await world.create_rollout()
        assert await list_namespaces(client) == [world.sandbox.namespace]


@in_virtual_time
async def test_rollouts_that_the_operator_does_not_make_are_shown_all_the_same() -> None:
    """It may be reported by the process that answers, and made by another, or by none."""
    async with ReleaseSandbox.opened() as world:
        await world.create_rollout()
        process = world.sandbox.process("operator-1")
        process.start()
        await process.wait_ready()
        seen = await observe_sandbox(world.sandbox).inspect()
        own = await process.describe()

    assert own.releases is UNSET
    best = replace(seen, own=own).best
    (found,) = best.list_releases()
    assert (found.reason, found.phase) == ("NotObserved", ReleasePhase.WAITING)
    assert best.operator == own.operator
