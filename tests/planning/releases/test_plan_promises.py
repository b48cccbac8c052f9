"""Whatever happens in whatever order: one release at a time, gates hold, and it comes to rest."""

from random import Random

import msgspec
import pytest

from rollout_operator.kube.events import ROUTINE_LEAVES
from rollout_operator.model import names
from rollout_operator.model.outcome import Severity
from rollout_operator.releases.model.plan import KUSTOMIZATION, OCI_REPOSITORY, ApplyTag, FluxTarget
from rollout_operator.releases.model.releases import (
    KUBERIK,
    OURS,
    BakeStatus,
    PolicyOrder,
    ReleaseStatus,
    TagOrder,
)
from tests.planning.releases.builders import ALL_CHECKS, MINUTE, START, check, gate
from tests.planning.releases.stage import ReleaseStage

MOST_PASSES = 12


def change(world: ReleaseStage, rng: Random) -> None:
    """Let one thing happen, as people, clocks and clusters do."""
    tag = f"1.{rng.randrange(6)}.0"
    minutes = (world.now - START) / MINUTE
    match rng.randrange(14):
        case 0 | 1:
            world.latest = tag
        case 2:
            world.gates = tuple(
                gate(name, passing=rng.random() < 0.6, allowed=rng.choice([None, None, tag, ""]))
                for name in "ab"[: rng.randrange(3)]
            )
        case 3 | 4:
            status = rng.choice(["Healthy", "Healthy", "Unhealthy", "Pending", ""])
            error = minutes if status == "Unhealthy" and rng.random() < 0.7 else None
            world.checks = (check(status=status, change=minutes, error=error),)
        case 5 | 6:
            world.wait(rng.choice([0.1, 1, 5, 90]))
        case 7:
            world.set_spec(wanted_version=rng.choice([None, None, tag]))
        case 8:
            name = rng.choice(["force_deploy", "bypass_gates"])
            world.post(**{name: rng.choice([tag, "9.9.9", None])})
        case 9:
            name = rng.choice(["unblock_failed", "retry", "deploy_user", "deploy_message"])
            world.post(**{name: rng.choice(["true", None])})
        case 10:
            world.set_spec(
                bake_time=rng.choice([None, MINUTE]),
                deploy_timeout=rng.choice([None, 2 * MINUTE]),
                checks=rng.choice([None, ALL_CHECKS]),
            )
        case 11:
            world.set_spec(is_suspended=rng.random() < 0.3)
        case 12:
            world.write_problem = rng.choice(["", "", "forbidden"])
        case _:
            shown = rng.choice(["mine", world.latest])
            waiting = rng.choice(["", "", "it is suspended"])
            world.targets = (
                FluxTarget(kind=OCI_REPOSITORY, name="app", tag=shown, waiting_for=waiting),
            )


NORMAL = {
    *("AllGatesPassing", "GatesBypassed", "NoReleaseCandidates", "DeploymentSucceeded"),
    *("BakeTimeDeploying", "BakeTimeStarted", "BakeTimePassed", "BakeTimeCancelled"),
    *("RetryRequested", "ForceDeployNoop", "BypassGatesDropped"),
    "Suspended",
}
WARNINGS = {
    *("SomeGatesBlocking", "NoAllowedVersions", "HealthCheckBlocking", "BakeTimeFailed"),
    *("RolloutFailed", "NoReleasesAvailable"),
    *("WantedVersionNotFound", "WantedVersionNotVerified", "RecoveryTimeout", "UpgradePathUnknown"),
}
BOTH = {"TargetConflict", "DeploymentSucceeded"}
# By the status of an entry, what it may become in one pass. A retry makes it a new one.
NEXT = {
    "Deploying": {"Deploying", "InProgress", "Succeeded", "Failed", "Cancelled"},
    "InProgress": {"InProgress", "Succeeded", "Failed", "Cancelled"},
    "Succeeded": {"Succeeded"},
    "Failed": {"Failed"},
    "Cancelled": {"Cancelled"},
}


def check_events(world: ReleaseStage) -> None:
    """Check that each event has its severity."""
    for one in world.plan.events:
        known = NORMAL if one.severity is Severity.INFO else WARNINGS
        assert one.reason in known | BOTH, one


def check_entries(before: ReleaseStatus, after: ReleaseStatus, *, is_retry: bool) -> None:
    """Check what became of the entries of a history: only the newest one changes."""
    known = {(one.id, one.timestamp): one for one in after.history}
    for place, old in enumerate(before.history):
        new = known.get((old.id, old.timestamp))
        if new is None or (place == 0 and is_retry and old.has_failed):
            continue
        assert new.bake_status in NEXT[old.bake_status or ""]
        assert place == 0 or new == old
        if new.bake_status == BakeStatus.CANCELLED:
            assert after.history[0] != new


def check_step(world: ReleaseStage, before: ReleaseStatus, requested: set[str]) -> None:
    """Check what one pass did; `requested` are the tags that were requested by name."""
    status = world.status
    assert not any(one.is_active for one in status.history[1:])
    assert all(one.tag == world.current.version.tag for one in world.plan.actions if
               isinstance(one, ApplyTag))  # fmt: skip
    both = [status.has_condition(one) for one in ("Reconciling", "Stalled")]
    assert both != [True, True]
    assert msgspec.json.decode(msgspec.json.encode(status), type=ReleaseStatus) == status
    old = before.current
    new = status.current
    is_new = new is not None and (old is None or (new.id, new.timestamp) != (old.id, old.timestamp))
    if not is_new:
        return
    tag = world.current.version.tag
    assert not world.rollout.spec.is_suspended
    if old is None or tag in requested:
        return
    for one in world.gates:
        assert one.is_passing
        assert one.allowed_versions is None or tag in one.allowed_versions
    is_left_behind = before.has_condition("BakeFailureDisabled") or bool(world.write_problem)
    assert status.history[1].bake_status != BakeStatus.CANCELLED or is_left_behind


@pytest.mark.parametrize("seed", range(100))
def test_one_release_at_a_time_and_rest_in_the_end(seed: int) -> None:
    """REL-01, REL-52, RELB-10, RELB-21: also where the process dies between record and effect.

    REL-86 and REL-88 hold at each step: what an entry may become, and what events say.
    """
    rng = Random(seed)
    world = ReleaseStage(history_limit=50)
    kinds = (PolicyOrder.SEMVER, PolicyOrder.ALPHABETICAL)
    world.order = rng.choice([*(TagOrder(by=kind) for kind in kinds), None])
    world.compat = rng.choice([OURS, KUBERIK])
    for _ in range(60):
        change(world, rng)
        before, intents = world.status, world.rollout.intents
        requested = {
            *(intents.get(names.FORCE_DEPLOY), intents.get(names.BYPASS_GATES)),
            world.rollout.spec.wanted_version,
        }
        world.step(acts=rng.random() < 0.8)
        check_events(world)
        check_entries(before, world.status, is_retry=names.RETRY in intents)
        check_step(world, before, {one for one in requested if one})
    world.write_problem = ""
    passes = 0
    while True:
        before = world.status
        plan = world.step()
        passes += 1
        if world.status == before and not plan.actions and not plan.events:
            break
        assert passes < MOST_PASSES


def test_what_became_of_a_release_has_room_among_its_events() -> None:
    """RELB-06: one that fails, the way back, and the next, within a minute."""
    world = ReleaseStage(latest="1.0.0", bake_time=MINUTE / 60, checks=ALL_CHECKS)
    world.targets = (
        FluxTarget(kind=OCI_REPOSITORY, name="app"),
        FluxTarget(kind=KUSTOMIZATION, name="app", variable="app_version"),
    )
    for tag, error in (("1.0.0", False), ("1.1.0", True), ("1.0.0", False), ("1.2.0", False)):
        world.set_spec(wanted_version=tag)
        world.checks = (check(),)
        world.step()
        world.step()
        world.wait(0.1)
        minutes = (world.now - START) / MINUTE
        status = "Unhealthy" if error else "Healthy"
        found = check(status=status, change=minutes, error=minutes if error else None)
        world.checks = (found,)
        world.step()
        world.wait(0.1)
        world.step()

    assert world.history() == "1.2.0 Succeeded, 1.0.0 Succeeded, 1.1.0 Failed, 1.0.0 Succeeded"
    reported = [
        one for one in world.reported if one.severity is Severity.INFO and not one.is_routine
    ]
    assert [one.reason for one in reported].count("BakeTimePassed") == 3
    assert len(reported) <= ROUTINE_LEAVES
