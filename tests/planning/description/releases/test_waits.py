"""Why a Rollout does not go on: the words of its status, the first that decides, and what to do."""

from collections.abc import Callable
from typing import Any, Final

import msgspec
import pytest

from rollout_operator.model.described.releases import ReleasePhase, ReleaseWait
from rollout_operator.model.releases.plan import FluxKind, FluxTarget
from rollout_operator.model.releases.rollout import RefusedRelease, ReleaseRollout
from rollout_operator.model.releases.status import ReleaseStatus
from rollout_operator.planning.description.releases.waits import (
    choose_next_tag,
    choose_release_phase,
    list_release_waits,
)
from tests.planning.releases.builders import ALL_CHECKS, MINUTE, check, entry, gate, head
from tests.planning.releases.builders import rollout as build_rollout
from tests.planning.releases.release_world import ReleaseWorld

# Time and Flux end these.
PASSING: Final = {"Deploying", "InProgress", "WritingTargets"}
BAKE: Final[dict[str, Any]] = {"bake_time": 5 * MINUTE, "checks": ALL_CHECKS}


def idle() -> ReleaseWorld:
    world = ReleaseWorld(known="1.0.0")
    world.step()
    world.step()
    return world


def gated() -> ReleaseWorld:
    world = idle()
    world.gates = (gate("freeze", passing=False),)
    world.step("1.1.0")
    return world


def none_allowed() -> ReleaseWorld:
    world = idle()
    world.gates = (gate("some", allowed="1.2.0"),)
    world.step("1.1.0")
    return world


def unhealthy() -> ReleaseWorld:
    world = ReleaseWorld(known="1.0.0", checks=ALL_CHECKS)
    world.checks = (check(status="Healthy", change=0),)
    world.step()
    world.step()
    world.checks = (check(status="Unhealthy", message="503"),)
    world.step("1.1.0")
    return world


def deploying() -> ReleaseWorld:
    world = ReleaseWorld(known="1.0.0", **BAKE)
    world.checks = (check(),)
    world.step()
    world.step()
    return world


def waiting_for_flux() -> ReleaseWorld:
    world = deploying()
    text = "it has fetched 0.9.0, not 1.0.0"
    world.targets = (
        FluxTarget(kind=FluxKind.OCI_REPOSITORY, name="app", tag="1.0.0", waiting_for=text),
    )
    world.step()
    return world


def baking() -> ReleaseWorld:
    world = deploying()
    world.checks = (check(status="Healthy", change=1),)
    world.wait(1)
    world.step()
    return world


def failed() -> ReleaseWorld:
    world = baking()
    world.wait(1)
    world.checks = (check(status="Unhealthy", change=2, error=2, message="503"),)
    world.step("1.1.0")
    return world


def suspended() -> ReleaseWorld:
    world = idle()
    world.set_spec(is_suspended=True)
    world.step("1.1.0")
    return world


def held_pin() -> ReleaseWorld:
    world = idle()
    world.set_spec(wanted_version="9.9.9")
    world.metadata, world.verifies_wanted = {"9.9.9": None}, True
    world.step()
    return world


def unreadable_policy() -> ReleaseWorld:
    world = idle()
    world.policy_problem = "ImagePolicy prod/app: there is none"
    world.step()
    return world


def refused_write() -> ReleaseWorld:
    world = idle()
    world.targets = (FluxTarget(kind=FluxKind.OCI_REPOSITORY, name="app", tag="1.0.0"),)
    world.write_problem = "cannot write OCIRepository app: forbidden"
    world.step("1.1.0")
    world.step()
    return world


def rolled_back() -> ReleaseWorld:
    """The version that failed is newer than the one in place."""
    world = ReleaseWorld(known="1.0.0 1.1.0")
    world.set_status(history=(entry("1.0.0", minutes=1), entry("1.1.0", "Failed")))
    world.step()
    return world


def incomparable() -> ReleaseWorld:
    """What is deployed is a tag of somebody's own."""
    world = ReleaseWorld(known="1.1.0 1.2.0")
    world.set_status(history=(entry("mine"),))
    world.step()
    return world


def comparable_again() -> ReleaseWorld:
    world = incomparable()
    world.set_status(history=(entry("1.2.0"),))
    world.step()
    assert world.reason("UpgradePathUnknown").startswith("False ")
    return world


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (idle, ("deployed", "", "", "")),
        (gated, ("waiting", "SomeGatesBlocking", "not passing: freeze", "1.1.0")),
        (
            none_allowed,
            ("waiting", "NoAllowedVersions", "the gates allow none of the candidates", "1.1.0"),
        ),
        (
            unhealthy,
            ("waiting", "UnhealthyHealthChecks", "unhealthy: prod/check (503)", "1.1.0"),
        ),
        (deploying, ("deploying", "Deploying", "waiting for health: prod/check", "")),
        (
            waiting_for_flux,
            (
                *("deploying", "Deploying"),
                "waiting for Flux: OCIRepository app: it has fetched 0.9.0, not 1.0.0",
                "",
            ),
        ),
        (
            baking,
            (
                *("baking", "InProgress"),
                "every HealthCheck is healthy; the bake has started,"
                " 5m0s until 2025-01-01T00:06:00Z",
                "",
            ),
        ),
        (
            failed,
            (
                *("failed", "BakeTimeFailed"),
                "a HealthCheck failed after the bake started: prod/check (503)",
                "1.1.0",
            ),
        ),
        (suspended, ("held", "Suspended", "spec.suspend is true", "1.1.0")),
        (
            held_pin,
            ("held", "WantedVersionNotFound", "the registry has no tag 9.9.9", "9.9.9"),
        ),
        (
            unreadable_policy,
            ("held", "RolloutFailed", "ImagePolicy prod/app: there is none", ""),
        ),
        (
            refused_write,
            ("held", "RolloutFailed", "cannot write OCIRepository app: forbidden", ""),
        ),
        (
            incomparable,
            ("waiting", "UpgradePathUnknown", "no release can be compared with mine", ""),
        ),
        (comparable_again, ("deployed", "", "", "")),
        (
            rolled_back,
            ("waiting", "Excluded", "1.1.0: it failed when it was deployed last", ""),
        ),
    ],
)
def test_relb06_the_reason_that_decides_first(
    build: Callable[[], ReleaseWorld], expected: tuple[str, str, str, str]
) -> None:
    world = build()
    waits = tuple(list_release_waits(world.rollout))
    first = waits[0] if waits else ReleaseWait(reason="", text="")

    found = (
        choose_release_phase(world.status, waits),
        first.reason,
        first.text,
        choose_next_tag(world.rollout),
    )
    assert found == expected
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


def test_a_contest_and_an_overdue_recovery_are_for_a_person() -> None:
    world = ReleaseWorld(known="1.0.0", **BAKE)
    world.checks = (check(),)
    world.set_status(history=(entry("0.9.0", "Failed", 0),))
    world.post(unblock_failed="true")
    world.step()
    world.step()
    world.wait(61)
    world.step()
    waits = tuple(list_release_waits(world.rollout))

    assert [wait.reason for wait in waits] == ["RecoveryTimeout", "Deploying"]
    assert choose_release_phase(world.status, waits) is ReleasePhase.HELD


def test_what_is_asked_for_by_name_comes_next_whatever_gates_say() -> None:
    world = gated()
    world.post(force_deploy="1.1.0")
    forced: ReleaseRollout = world.rollout

    assert choose_next_tag(forced) == "1.1.0"
    assert [wait.reason for wait in list_release_waits(forced)] == []
