"""Rollouts that do not go on, each for another reason."""

from typing import Any, Final, cast

from rollout_operator.model.release_plan import OCI_REPOSITORY, FluxTarget
from rollout_operator.model.releases import RefusedRelease, ReleaseRollout
from rollout_operator.planning import candidates
from tests.planning.releases.builders import ALL_CHECKS, MINUTE, check, entry, gate, head
from tests.planning.releases.release_world import ReleaseWorld

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


def scheduled() -> ReleaseWorld:
    world = idle()
    text = "RolloutSchedule prod/nights is closed, and its gate does not say so yet"
    world.schedule_holds = (text,)
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
    world.targets = (FluxTarget(kind=OCI_REPOSITORY, name="app", tag="1.0.0", waiting_for=text),)
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
    world.targets = (FluxTarget(kind=OCI_REPOSITORY, name="app", tag="1.0.0"),)
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
    """What is deployed is a tag of a person."""
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


def overdue() -> ReleaseWorld:
    """A version that follows a failed one does not become healthy."""
    world = ReleaseWorld(known="1.0.0", **BAKE)
    world.checks = (check(),)
    world.set_status(history=(entry("0.9.0", "Failed", 0),))
    world.post(unblock_failed="true")
    world.step()
    world.step()
    world.wait(61)
    world.step()
    return world


def unanswered_pin() -> ReleaseWorld:
    world = idle()
    world.set_spec(wanted_version="9.9.9")
    world.verifies_wanted = True
    world.step()
    return world


def contested() -> ReleaseWorld:
    """Another writer sets its own tag again and again."""
    world = idle()
    for _ in range(6):
        world.wait(1)
        world.targets = (FluxTarget(kind=OCI_REPOSITORY, name="app", tag="mine"),)
        world.step()
    return world


def writing() -> ReleaseWorld:
    world = idle()
    world.targets = (FluxTarget(kind=OCI_REPOSITORY, name="app", tag="1.0.0"),)
    world.step("1.1.0")
    return world


def unannounced() -> ReleaseWorld:
    world = ReleaseWorld()
    world.step()
    return world


def refused() -> ReleaseWorld:
    world = ReleaseWorld()
    problem = "Rollout prod/app: spec.bakeTime: no duration"
    world.rollout = cast("ReleaseRollout", RefusedRelease(head=head(), problem=problem))
    world.step()
    return world


def _unobserved(reason: str) -> ReleaseWorld:
    world = idle()
    world.policy_problem, world.policy_reason = "it may not be listed", reason
    world.step()
    return world


def without_flux() -> ReleaseWorld:
    return _unobserved(candidates.NO_FLUX)


def without_gates() -> ReleaseWorld:
    return _unobserved(candidates.GATES_UNKNOWN)


def without_checks() -> ReleaseWorld:
    return _unobserved(candidates.CHECKS_UNKNOWN)
