"""Why a Rollout does not go on: the words of its status, the first that decides, and what to do."""

from collections.abc import Callable
from typing import Final

import msgspec
import pytest

from rollout_operator.model.description import ReleasePhase
from rollout_operator.model.releases import RefusedRelease, ReleaseRollout, ReleaseStatus
from rollout_operator.planning.describe_releases import (
    choose_next_tag,
    choose_release_phase,
    list_release_waits,
)
from tests.planning.description.releases.held_releases import (
    baking,
    comparable_again,
    contested,
    deploying,
    failed,
    gated,
    held_pin,
    idle,
    incomparable,
    none_allowed,
    overdue,
    refused_write,
    rolled_back,
    suspended,
    unhealthy,
    unreadable_policy,
    waiting_for_flux,
)
from tests.planning.releases.builders import head
from tests.planning.releases.builders import rollout as build_rollout
from tests.planning.releases.release_world import ReleaseWorld

# Time and Flux end these.
PASSING: Final = {"Deploying", "InProgress", "WritingTargets"}


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (idle, "deployed"),
        (gated, "waiting SomeGatesBlocking: not passing: freeze; next 1.1.0"),
        (
            none_allowed,
            "waiting NoAllowedVersions: the gates allow none of the candidates; next 1.1.0",
        ),
        (unhealthy, "waiting UnhealthyHealthChecks: unhealthy: prod/check (503); next 1.1.0"),
        (deploying, "deploying Deploying: waiting for health: prod/check"),
        (
            waiting_for_flux,
            "deploying Deploying: waiting for Flux: OCIRepository app: it has fetched 0.9.0, not"
            " 1.0.0",
        ),
        (
            baking,
            "baking InProgress: every HealthCheck is healthy; the bake has started, 5m0s until"
            " 2025-01-01T00:06:00Z",
        ),
        (
            failed,
            "failed BakeTimeFailed: a HealthCheck failed after the bake started: prod/check (503);"
            " next 1.1.0",
        ),
        (suspended, "held Suspended: spec.suspend is true; next 1.1.0"),
        (held_pin, "held WantedVersionNotFound: the registry has no tag 9.9.9; next 9.9.9"),
        (unreadable_policy, "held RolloutFailed: ImagePolicy prod/app: there is none"),
        (refused_write, "held RolloutFailed: cannot write OCIRepository app: forbidden"),
        (incomparable, "waiting UpgradePathUnknown: no release can be compared with mine"),
        (comparable_again, "deployed"),
        (rolled_back, "waiting Excluded: 1.1.0: it failed when it was deployed last"),
    ],
)
def test_relb06_the_reason_that_decides_first(
    build: Callable[[], ReleaseWorld], expected: str
) -> None:
    """The phase, the first reason with its text, and the tag that comes next."""
    world = build()
    waits = tuple(list_release_waits(world.rollout))
    next_tag = choose_next_tag(world.rollout)

    found: str = choose_release_phase(world.status, waits)
    found += f" {waits[0].reason}: {waits[0].text}" if waits else ""
    assert found + (f"; next {next_tag}" if next_tag else "") == expected
    assert all(wait.remedy for wait in waits if wait.reason not in PASSING)


@pytest.mark.parametrize("build", [gated, none_allowed, unhealthy, suspended, unreadable_policy])
def test_the_texts_are_those_of_conditions(build: Callable[[], ReleaseWorld]) -> None:
    """D-75: every outlet says the same."""
    world = build()
    said = {(one.reason, one.message) for one in world.status.conditions}

    assert {(wait.reason, wait.text) for wait in list_release_waits(world.rollout)} <= said


def test_what_is_refused_or_goes_is_said_first_and_alone() -> None:
    refused = RefusedRelease(head=head(), problem="Rollout prod/app: spec.bakeTime: no duration")
    going = failed().rollout
    going = msgspec.structs.replace(
        going, head=msgspec.structs.replace(going.head, is_terminating=True)
    )

    (wrong,) = list_release_waits(refused)
    (gone,) = list_release_waits(going)
    assert (wrong.reason, wrong.text) == ("InvalidSpec", refused.problem)
    assert choose_release_phase(refused.status, (wrong,)) is ReleasePhase.HELD
    assert (gone.reason, gone.text) == ("Terminating", "it is being deleted: nothing is deployed")


def test_a_spec_that_no_operator_has_decided_on_is_said() -> None:
    newer = gated().rollout
    newer = msgspec.structs.replace(newer, head=head(generation=7))
    texts = [wait.text for wait in list_release_waits(newer)]

    assert [wait.reason for wait in list_release_waits(build_rollout())] == ["NotObserved"]
    assert texts == ["no operator has decided on its newest spec yet", "not passing: freeze"]


def test_an_error_of_this_process_goes_before_what_it_decided_last() -> None:
    waits = tuple(list_release_waits(gated().rollout, "cannot patch: timed out"))

    assert waits[0].text == "the last pass over it failed: cannot patch: timed out"
    assert choose_release_phase(ReleaseStatus(), waits) is ReleasePhase.HELD


@pytest.mark.parametrize("build", [gated, unhealthy])
def test_a_reason_that_another_writer_put_into_the_status_is_shown(
    build: Callable[[], ReleaseWorld],
) -> None:
    """RELB-06: people and kuberik's controller write statuses, in words of their own."""
    rollout = build().rollout
    conditions = tuple(
        msgspec.structs.replace(each, reason="WordOfAnother") for each in rollout.status.conditions
    )
    status = msgspec.structs.replace(rollout.status, conditions=conditions)
    waits = list(list_release_waits(msgspec.structs.replace(rollout, status=status)))

    assert ("WordOfAnother", "") in {(wait.reason, wait.remedy) for wait in waits}


def test_a_contest_and_an_overdue_recovery_are_for_a_person() -> None:
    for world, reasons in (
        (overdue(), ["RecoveryTimeout", "Deploying"]),
        (contested(), ["TargetConflict"]),
    ):
        waits = tuple(list_release_waits(world.rollout))
        assert [wait.reason for wait in waits] == reasons
        assert choose_release_phase(world.status, waits) is ReleasePhase.HELD


def test_what_is_requested_by_name_comes_next_whatever_gates_say() -> None:
    world = gated()
    world.post(force_deploy="1.1.0")
    forced: ReleaseRollout = world.rollout

    assert choose_next_tag(forced) == "1.1.0"
    assert [wait.reason for wait in list_release_waits(forced)] == []
