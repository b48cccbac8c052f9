"""One Rollout as every outlet shows it."""

import msgspec
import pytest

from rollout_operator.model.description import (
    DeploymentDescription,
    HealthCheckDescription,
    ReleaseDescription,
    ReleasePhase,
    SelectedCheckDescription,
    TargetDescription,
)
from rollout_operator.model.names import Uid
from rollout_operator.model.objects import LabelSelector, Unreadable
from rollout_operator.model.release_plan import KUSTOMIZATION, FluxTarget, ReleaseObjects
from rollout_operator.model.releases import (
    CheckSelector,
    ConsumedIntent,
    FailedHealthCheck,
    RefusedRelease,
    ReleaseIntents,
    ReleaseStatus,
    TriggeredBy,
    TriggerKind,
)
from rollout_operator.planning.describe_releases import (
    MOST_DEPLOYMENTS,
    MOST_TAGS,
    describe_check,
    describe_release,
    describe_unreadable_release,
)
from rollout_operator.planning.text import list_release, render_health_check
from rollout_operator.planning.wording import MAX_LINE
from tests.planning.description.releases.held_releases import baking, deploying, failed, gated, idle
from tests.planning.releases.builders import (
    ALL_CHECKS,
    MINUTE,
    at,
    check,
    entry,
    gate,
    head,
    releases,
    rollout,
)
from tests.planning.releases.release_world import ReleaseWorld

TARGET = FluxTarget(kind=KUSTOMIZATION, name="app", variable="v", tag="1.0.0")

WIDE = CheckSelector(selector=LabelSelector(), namespaces=LabelSelector())


def shown(world: ReleaseWorld) -> ReleaseDescription:
    objects = ReleaseObjects(gates=world.gates, checks=world.checks)
    return describe_release(world.rollout, objects, world.targets)


def test_one_that_is_through_says_what_is_in_place() -> None:
    world = idle()
    world.targets = (TARGET,)
    world.step()
    found = shown(world)

    assert (found.title, found.phase, found.tag, found.next) == (
        *("prod/app", ReleasePhase.DEPLOYED, "1.0.0", ""),
    )
    assert found.headline == (
        "version 1.0.0 Succeeded; Automatic deployment; no bake is configured"
    )
    assert found.reason == "RolloutSucceeded"
    assert (found.policy, found.announced, found.waits) == ("prod/app", "1.0.0", ())
    assert found.targets == (
        TargetDescription(kind="Kustomization", name="app", variable="v", tag="1.0.0"),
    )
    assert [one.type for one in found.conditions][:3] == [
        "Ready",
        "ReleasesUpdated",
        "GatesPassing",
    ]


def test_gates_say_why_and_the_next_version_stands_beside() -> None:
    found = shown(gated())

    assert (found.next, found.candidates, found.headline) == (
        *("1.1.0", ("1.1.0",), "not passing: freeze"),
    )
    (one,) = found.gates
    assert (one.name, one.is_passing, one.text) == ("freeze", False, "the gate is not passing")


def test_a_bake_says_until_when_and_a_start_by_when() -> None:
    late = deploying()
    late.set_spec(deploy_timeout=7 * MINUTE)

    assert (shown(late).deadline, shown(late).bake_ends) == (at(7), None)
    assert (shown(baking()).deadline, shown(baking()).bake_ends) == (None, at(6))
    assert shown(baking()).checks == (
        SelectedCheckDescription(name="prod/check", status="Healthy"),
    )


def test_a_failed_one_names_what_failed_and_how_often_it_was_tried() -> None:
    found = shown(failed())

    assert found.history[0].failed_checks == ("prod/check: 503",)
    assert (found.history[0].status, found.bake_ends) == ("Failed", None)
    assert found.waits[0].remedy.startswith("look at the failed HealthChecks")


def test_the_history_is_short_and_names_the_claimed_requester() -> None:
    past = [entry(f"1.{number}.0", minutes=number) for number in range(9)]
    requested = entry(
        "2.0.0",
        triggered_by=TriggeredBy(kind=TriggerKind.USER, name="ann"),
        message="now",
        retries=2,
        id=7,
        failed_health_checks=(FailedHealthCheck(name="c", namespace="prod"),),
    )
    found = describe_release(rollout(status=ReleaseStatus(history=(requested, *past))))

    assert len(found.history) == MOST_DEPLOYMENTS
    assert found.history[0] == DeploymentDescription(
        tag="2.0.0",
        id=7,
        began=at(0),
        status="Succeeded",
        message="now",
        by="ann",
        retries=2,
        failed_checks=("prod/c",),
    )


def test_what_is_requested_stands_there_until_it_had_its_effect() -> None:
    done = ConsumedIntent(annotation="rollout.kuberik.com/retry", value="x")
    requesting = rollout(
        intents=ReleaseIntents(retry="x", bypass_gates="1.1.0"),
        status=ReleaseStatus(consumed_intents=(done,)),
    )

    described = describe_release(requesting)
    assert described.requests == ("rollout.kuberik.com/bypass-gates: 1.1.0",)
    assert not described.is_retry_requested
    again = msgspec.structs.replace(requesting, intents=ReleaseIntents(retry="y"))
    assert describe_release(again).is_retry_requested


def test_one_that_cannot_be_obeyed_says_why_and_what_is_in_place() -> None:
    refused = RefusedRelease(
        head=head(),
        problem="Rollout prod/app: spec.wantedVersion: no tag",
        status=ReleaseStatus(history=(entry("1.0.0"),)),
    )
    found = describe_release(refused)

    assert (found.phase, found.headline, found.tag) == (
        *(ReleasePhase.HELD, refused.problem, "1.0.0"),
    )


def test_a_pass_that_failed_comes_first() -> None:
    """What its status says is of before."""
    world = gated()
    found = describe_release(world.rollout, error="no answer")

    assert (found.reason, found.headline) == (
        "NotReconciled",
        "the last pass over it failed: no answer",
    )
    assert found.waits[1:] == shown(world).waits


def test_one_that_cannot_be_read_is_named() -> None:
    lost = Unreadable(
        kind="Rollout",
        namespace="prod",
        name="app",
        uid=Uid("1"),
        resource_version="1",
        error="Rollout prod/app: status.history: no list",
    )
    found = describe_unreadable_release(lost)

    assert (found.title, found.phase, found.headline) == (
        *("prod/app", ReleasePhase.HELD, lost.error),
    )


@pytest.mark.parametrize("year", [1, 9999])
def test_times_that_no_calendar_has_are_left_out(year: int) -> None:
    time = at(0).replace(year=year)
    odd = entry("1.0.0", "InProgress", bake_start_time=time, bake_end_time=time)
    odd = msgspec.structs.replace(odd, timestamp=time)
    found = describe_release(rollout(bake_time=MINUTE, status=ReleaseStatus(history=(odd,))))

    assert (found.history[0].began is None) == (year == 9999)
    assert (found.bake_ends is None) == (year == 9999)


def test_of_texts_and_lists_that_never_end_a_readable_part_is_kept() -> None:
    """A tenant may fill a status, and a registry names what it likes."""
    long = "x" * 10_000
    tags = " ".join(f"1.{number}.0" for number in range(100))
    status = ReleaseStatus(
        history=(entry(long, message=long, bake_status_message=long),),
        available_releases=releases(long),
        release_candidates=releases(tags),
    )
    many = tuple(check(f"check-{number}", message=long) for number in range(200))
    found = describe_release(rollout(status=status, checks=ALL_CHECKS), ReleaseObjects(checks=many))

    assert len(found.candidates) == MOST_TAGS
    assert len(msgspec.json.encode(found)) < 100 * MAX_LINE
    assert all(len(line) < 5 * MAX_LINE for line in list_release(found))


def test_the_lines_of_one_rollout() -> None:
    world = failed()
    world.gates, world.targets = (gate("some", allowed="1.1.0"),), (TARGET,)
    world.step()

    lines = [*list_release(shown(world))]
    assert [*lines[:1], *lines[2:]] == [
        "Rollout prod/app: failed, 1.0.0 deployed, then 1.1.0: a HealthCheck failed after the bake"
        " started: prod/check (503) [BakeTimeFailed]",
        "  also: unhealthy: prod/check (503) [UnhealthyHealthChecks]",
        "    look at the HealthChecks; `rollout.kuberik.com/force-deploy` with a tag deploys it all"
        " the same",
        "  gate some: the gate is passing, allows 1.1.0",
        "  health prod/check is Unhealthy: 503",
        "  failed: prod/check: 503",
        "  Kustomization app (v) has 1.0.0",
        "  was: 1.0.0 Failed at 2025-01-01T00:00:00Z by rollout-controller, Automatic deployment",
    ]


def test_it_says_what_it_found_and_what_requires_it() -> None:
    one = check(status="Unhealthy", message="503", change=1, error=2)
    one = msgspec.structs.replace(one, check_class="rollout-group", rollout_group="db")
    found = describe_check(one, [rollout(checks=ALL_CHECKS), rollout()], {})

    assert found == HealthCheckDescription(
        name="check",
        namespace="prod",
        status="Unhealthy",
        text="503",
        check_class="rollout-group",
        object="db",
        changed=at(1),
        failed=at(2),
        rollouts=("prod/app",),
    )
    assert render_health_check(found) == "HealthCheck prod/check: Unhealthy: 503"


@pytest.mark.parametrize("known", [{}, {"other": {}}])
def test_one_of_another_namespace_is_selected_where_that_is_known(
    known: dict[str, dict[str, str]],
) -> None:
    found = describe_check(check(namespace="other"), [rollout(checks=WIDE)], known)

    assert found.rollouts == (("prod/app",) if known else ())
    assert render_health_check(found) == "HealthCheck other/check: not evaluated yet"
