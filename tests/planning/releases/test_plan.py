"""Which release a Rollout deploys: from pass to pass, with pins, gates, health and annotations."""

from typing import Any

import pytest
from msgspec.structs import replace

from rollout_operator.model.release_plan import RemoveIntents
from rollout_operator.model.releases import (
    KUBERIK,
    BakeStatus,
    ConsumedIntent,
    RefusedRelease,
    Release,
    ReleaseGate,
    ReleaseMetadata,
    ReleaseSpec,
    TriggeredBy,
)
from rollout_operator.model.releases import TriggerKind as Kind
from rollout_operator.planning.releases import plan_release
from tests.planning.releases.builders import ALL_CHECKS, MINUTE, at, check, entry, gate, releases
from tests.planning.releases.release_world import ReleaseWorld, deployed

CLOSED = gate(passing=False)


def ids(world: ReleaseWorld) -> list[int | None]:
    return [one.id for one in world.status.history]


def tags_of(found: object) -> str:
    assert isinstance(found, tuple)
    return " ".join(one.tag for one in found)


def test_the_newest_release_is_deployed_once() -> None:
    """RT-01, RT-02, REL-83."""
    world = deployed("0.1.0")
    assert "Automatic deployment" in (world.current.message or "")
    world.step("0.2.0")
    assert (world.tags(), ids(world)) == ("0.2.0 0.1.0", [2, 1])
    world.step()
    assert world.tags() == "0.2.0 0.1.0"
    world.step("0.3.0")
    assert ids(world) == [3, 2, 1]
    assert world.reason("Ready") == "True RolloutSucceeded"


def test_entries_without_a_number_stay_so() -> None:
    """RT-04, REL-83."""
    world = ReleaseWorld(known="2.0.0 1.0.0", latest="3.0.0")
    world.set_status(history=(entry("2.0.0", id=None), entry("1.0.0", id=None)))
    world.step()
    assert (world.tags(), ids(world)) == ("3.0.0 2.0.0 1.0.0", [1, None, None])


@pytest.mark.parametrize(("limit", "number"), [(2, 3), (3, 4), (10, 11)])
def test_the_history_is_cut(limit: int, number: int) -> None:
    """RT-03, RT-05, RT-06."""
    world = ReleaseWorld(history_limit=limit)
    for version in range(number):
        world.step(f"0.{version}.0")
    assert len(world.status.history) == limit
    assert world.current.id == number


def test_a_pin_goes_back_and_its_end_goes_on() -> None:
    """RT-07, RT-10."""
    world = ReleaseWorld(known="0.1.0 0.2.0 0.3.0", wanted_version="0.1.0")
    assert world.step().requeue_after is not None
    assert world.tags() == "0.1.0"
    world.set_spec(wanted_version=None)
    world.step()
    assert world.tags() == "0.3.0 0.1.0"
    world.set_spec(wanted_version="0.1.0")
    world.step()
    assert world.tags() == "0.1.0 0.3.0 0.1.0"


def test_a_pin_of_an_unknown_tag_is_deployed_unless_it_is_to_be_verified() -> None:
    """RT-09, RELB-23."""
    world = ReleaseWorld(known="0.1.0 0.2.0", wanted_version="0.3.0")
    world.metadata = {"0.3.0": None}
    world.verifies_wanted = True
    world.step()
    assert world.tags() == ""
    assert world.reason("DeploymentBlocked") == "True WantedVersionNotFound"
    assert world.reason("WantedVersionFound") == "False NotFound"
    world.verifies_wanted = False
    world.step()
    assert world.tags() == "0.3.0"
    world.set_spec(wanted_version=None)
    world.step()
    assert world.reason("WantedVersionFound") == ""


def test_a_pin_that_is_to_be_verified_waits_for_the_registry() -> None:
    """RELB-23: one that does not answer is no proof; what is deployed already needs none."""
    world = ReleaseWorld(known="0.1.0", wanted_version="0.3.0")
    world.verifies_wanted = True
    world.step()
    assert world.tags() == ""
    assert world.reason("DeploymentBlocked") == "True WantedVersionNotVerified"
    assert world.reason("WantedVersionFound") == "False NotVerified"
    world.metadata = {"0.3.0": ReleaseMetadata(digest="sha256:3")}
    world.step()
    assert world.tags() == "0.3.0"
    assert world.reason("WantedVersionFound") == "True Found"
    world.metadata = {}
    world.step()
    assert world.reason("DeploymentBlocked") == "False ManualDeployment"


def test_releases_are_listed_as_they_are_announced() -> None:
    """RT-11, RT-12: candidates are shown, and nothing is deployed."""
    world = ReleaseWorld(known="0.0.9")
    world.set_status(history=(entry("0.0.9"),))
    world.gates = (gate(allowed=""),)
    world.step("0.1.0")
    assert tags_of(world.status.available_releases) == "0.0.9 0.1.0"
    assert tags_of(world.status.release_candidates) == "0.1.0"
    world.step("0.2.0")
    assert tags_of(world.status.release_candidates) == "0.2.0 0.1.0"
    assert world.status.available_releases_count == 3
    assert world.tags() == "0.0.9"
    assert world.reason("GatesPassing") == "False NoAllowedVersions"


def test_a_tag_of_ones_own_that_cannot_be_compared() -> None:
    """RT-13, RELB-05."""
    world = ReleaseWorld(known="1.1.0 1.2.0")
    world.set_status(history=(entry("mine"),))
    world.step()
    assert world.status.release_candidates == ()
    assert world.reason("UpgradePathUnknown") == "True UpgradePathUnknown"
    ready = world.status.find_condition("Ready")
    assert ready is not None
    assert "no release can be compared with mine" in ready.message


@pytest.mark.parametrize("closed", [CLOSED, gate(allowed="9.9.9")])
def test_gates_hold_no_first_deployment_back(closed: object) -> None:
    """RT-23, RT-24, RT-25, REL-53: nor does health."""
    world = ReleaseWorld(latest="0.1.0", checks=ALL_CHECKS)
    world.gates = (closed,)  # type: ignore[assignment]  # one of two gates
    world.checks = (check(status="Unhealthy"),)
    world.step()
    assert world.tags() == "0.1.0"


def test_a_closed_gate_holds_the_next_release() -> None:
    """RT-17, RELB-06: it is reported once."""
    world = deployed("0.1.0")
    world.gates = (CLOSED,)
    world.step("0.2.0")
    assert world.events() == ["SomeGatesBlocking"]
    for _ in range(20):
        world.step()
        assert world.events() == []
    assert world.tags() == "0.1.0"
    world.gates = ()
    world.step()
    assert world.tags() == "0.2.0 0.1.0"


def test_gates_are_bypassed_by_name() -> None:
    """RT-26."""
    world = ReleaseWorld(known="0.1.0 0.2.0")
    world.gates = (CLOSED,)
    world.post(bypass_gates="0.2.0")
    world.step()
    assert world.tags() == "0.2.0"
    assert world.reason("GatesPassing") == "True GatesBypassed"
    assert world.current.message == "Automatic deployment, with gate bypass"
    ready = world.status.find_condition("Ready")
    assert ready is not None
    assert "with gate bypass" in ready.message
    assert world.rollout.intents.bypass_gates is None


def test_a_bypass_that_is_not_needed_is_none() -> None:
    """RELB-34: gates let the release through, so no person has a part in it."""
    world = deployed("0.1.0")
    world.post(bypass_gates="0.2.0")
    world.step("0.2.0")
    assert world.current.message == "Automatic deployment"
    assert world.current.triggered_by == TriggeredBy(kind=Kind.SYSTEM, name="rollout-controller")


def test_a_bypass_of_what_is_past_is_dropped_and_one_to_come_stays() -> None:
    """RT-27, RELB-11."""
    world = deployed("0.1.0")
    world.gates = (CLOSED,)
    world.post(bypass_gates="0.2.0")
    world.step("0.3.0")
    assert (world.tags(), world.reason("GatesPassing")) == ("0.1.0", "False SomeGatesBlocking")
    assert world.rollout.intents.bypass_gates == "0.2.0"
    world.post(bypass_gates="0.0.9")
    world.step()
    assert "BypassGatesDropped" in world.events()
    assert world.rollout.intents.bypass_gates is None


def test_an_unhealthy_check_holds_the_next_release() -> None:
    """RT-51, RT-76, RELB-20: the event names it, once for each release."""
    world = deployed("0.1.0", checks=ALL_CHECKS)
    world.checks = (check(status="Healthy", change=0),)
    world.step()
    world.checks = (check(status="Unhealthy", message="down"),)
    world.step("0.2.0")
    assert world.events()[0] == "HealthCheckBlocking"
    assert world.reason("DeploymentBlocked") == "True UnhealthyHealthChecks"
    world.step()
    assert (world.tags(), world.events()) == ("0.1.0", [])
    world.checks = (check(status="Pending"),)
    world.step()
    assert world.tags() == "0.2.0 0.1.0"


def test_health_is_reported_behind_a_closed_gate_too() -> None:
    """RT-76, RT-77, RT-78."""
    world = deployed("0.1.0", checks=ALL_CHECKS)
    world.gates = (CLOSED,)
    world.checks = (check(status="Healthy", change=0),)
    world.step("0.2.0")
    assert world.reason("DeploymentBlocked") == "False HealthChecksHealthy"
    world.set_spec(wanted_version="0.1.0")
    world.step()
    assert world.reason("DeploymentBlocked") == "False ManualDeployment"
    world.set_spec(wanted_version=None)
    world.checks = (check(status="Unhealthy", change=0),)
    world.step()
    assert "HealthCheckBlocking" not in world.events()
    world.gates = ()
    world.step()
    assert "HealthCheckBlocking" in world.events()


def test_a_failed_release_stops_the_next_until_it_is_unblocked() -> None:
    """RT-57, RT-58, RT-59, RELB-34."""
    world = ReleaseWorld(known="1.0.0", latest="1.1.0", bake_time=MINUTE)
    world.set_status(history=(entry("1.0.0", BakeStatus.FAILED),))
    world.step()
    assert world.tags() == "1.0.0"
    for shown in (world.status.release_candidates, world.status.gated_release_candidates):
        assert tags_of(shown) == "1.1.0"
    world.gates = (CLOSED,)
    world.post(unblock_failed="true", bypass_gates="1.1.0", deploy_user="ann")
    assert world.step().requeue_after is None
    assert world.history() == "1.1.0 Deploying, 1.0.0 Failed"
    assert world.current.triggered_by == TriggeredBy(kind=Kind.USER, name="ann")
    text = "Automatic deployment, with gate bypass, with failed bake unblock"
    assert world.current.message == text
    assert world.rollout.intents == ReleaseWorld().rollout.intents


def test_an_unblocking_that_is_not_needed_stays() -> None:
    """RELB-11."""
    world = deployed("1.0.0")
    world.post(unblock_failed="true")
    world.step("1.1.0")
    assert world.current.message == "Automatic deployment"
    assert world.rollout.intents.unblock_failed == "true"


@pytest.mark.parametrize("requests", [False, True])
def test_a_release_that_failed_is_not_deployed_again_after_a_pin(requests: bool) -> None:
    """RELB-24."""
    world = ReleaseWorld(known="1.0.0 2.0.0")
    world.set_status(history=(entry("1.0.0"), entry("2.0.0", BakeStatus.FAILED)))
    world.post(unblock_failed="true" if requests else None)
    world.step()
    assert world.tags().split()[0] == ("2.0.0" if requests else "1.0.0")
    assert [one.tag for one in world.status.excluded_releases] == ([] if requests else ["2.0.0"])
    world.compat = KUBERIK
    world.step()
    assert world.tags().split()[0] == "2.0.0"


def test_a_rollout_that_is_suspended_deploys_nothing() -> None:
    """RELB-33."""
    world = deployed("1.0.0")
    world.set_spec(is_suspended=True, wanted_version="0.9.0")
    world.step("2.0.0")
    assert world.tags() == "1.0.0"
    assert world.reason("DeploymentBlocked") == "True Suspended"


def test_what_had_its_effect_is_removed_after_a_crash_and_has_it_once() -> None:
    """RELB-10."""
    world = deployed("1.0.0")
    world.set_status(available_releases=releases("1.0.0 2.0.0"))
    world.gates = (CLOSED,)
    world.post(force_deploy="2.0.0")
    world.step("2.0.0", acts=False)
    world.set_spec(wanted_version="1.0.0")
    world.step(acts=False)
    world.set_spec(wanted_version=None)
    consumed = ConsumedIntent(annotation="rollout.kuberik.com/force-deploy", value="2.0.0")
    assert RemoveIntents(intents=(consumed,)) in world.step().actions
    assert world.tags() == "1.0.0 2.0.0 1.0.0"
    world.step()
    assert world.status.consumed_intents == ()


def test_nothing_is_known_to_deploy() -> None:
    """REL-40, RELB-08, REL-33."""
    world = ReleaseWorld()
    world.step()
    assert (world.reason("Ready"), world.events()) == (
        "False NoReleasesAvailable", ["NoReleasesAvailable"]
    )  # fmt: skip
    assert world.step().events == ()
    world.policy_problem = "it is not there"
    assert world.step("1.0.0").problem == "it is not there"
    assert world.reason("Ready") == "False RolloutFailed"
    world.policy_problem = ""
    world.step()
    assert world.tags() == "1.0.0"


def test_a_refused_rollout_says_why_and_keeps_its_status() -> None:
    """RELB-23, REL-87."""
    world = deployed("1.0.0")
    refused = RefusedRelease(head=world.rollout.head, problem="spec: no", status=world.status)
    snapshot = world.snapshot()
    plan = plan_release(type(snapshot)(rollout=refused, now=world.now))
    assert plan.status.history == world.status.history
    ready = plan.status.find_condition("Ready")
    assert ready is not None
    assert (ready.reason, ready.message) == ("InvalidSpec", "spec: no")
    assert [one.reason for one in plan.events] == ["InvalidSpec"]
    again = RefusedRelease(head=refused.head, problem="spec: no", status=plan.status)
    assert plan_release(type(snapshot)(rollout=again, now=world.now)).events == ()


@pytest.mark.parametrize(
    ("gates", "problem", "known", "candidates", "passing"),
    [
        pytest.param((), "", "1.0.0 2.0.0", "2.0.0", "True AllGatesPassing", id="open"),
        pytest.param(
            (CLOSED,), "", "1.0.0 2.0.0", "2.0.0", "False SomeGatesBlocking", id="a closed gate"
        ),
        pytest.param((), "no policy", "1.0.0", "", "True AllGatesPassing", id="no policy"),
    ],
)  # fmt: skip
def test_versions_and_gates_of_a_refused_rollout_stay_up_to_date(
    gates: tuple[ReleaseGate, ...], problem: str, known: str, candidates: str, passing: str
) -> None:
    """REL-35, REL-42: nothing is deployed, and no version is missed or forgotten."""
    world = deployed("1.0.0", least_available=1)
    world.latest, world.gates, world.policy_problem = "2.0.0", gates, problem
    refused = RefusedRelease(
        head=world.rollout.head,
        problem="spec: no",
        status=world.status,
        announced=replace(world.rollout, spec=ReleaseSpec(policy_name="app")),
    )
    plan = plan_release(replace(world.snapshot(), rollout=refused))
    assert (plan.actions, plan.status.history) == ((), world.status.history)
    assert tags_of(plan.status.available_releases) == known
    assert plan.status.available_releases_count == len(known.split())
    assert tags_of(plan.status.release_candidates) == candidates
    found = plan.status.find_condition("GatesPassing")
    assert found is not None
    assert f"{found.status} {found.reason}" == passing
    ready = plan.status.find_condition("Ready")
    assert ready is not None
    assert ready.reason == "InvalidSpec"
    again = replace(refused, status=plan.status)
    assert plan_release(replace(world.snapshot(), rollout=again)).status == plan.status


def test_no_version_is_forgotten_while_a_rollout_is_refused() -> None:
    """REL-84: for how long they are kept stands in the spec that cannot be read."""
    world = ReleaseWorld()
    old = tuple(Release(tag=f"1.{minor}.0", created=at(-60 * 24 * 60)) for minor in range(40))
    world.set_status(available_releases=old)
    refused = RefusedRelease(
        head=world.rollout.head, problem="no", status=world.status, announced=world.rollout
    )
    plan = plan_release(replace(world.snapshot(), rollout=refused))
    assert plan.status.available_releases == old


def test_an_odd_order_and_a_forced_release() -> None:
    """RT-60, RT-61."""
    world = ReleaseWorld(known="3.0.0 2.0.0 1.0.0", latest="3.0.0", bake_time=MINUTE)
    world.gates = (CLOSED,)
    world.step()
    assert world.tags() == "3.0.0"
    world.post(force_deploy="2.0.0")
    world.checks = ()
    world.step()
    assert world.history() == "2.0.0 Deploying, 3.0.0 Cancelled"
    assert world.current.message == "Manual deployment, with force deploy"
    assert world.rollout.intents.force_deploy is None


def test_an_unknown_release_cannot_be_forced() -> None:
    """RT-63."""
    world = deployed("1.0.0")
    world.post(force_deploy="3.0.0")
    plan = world.step()
    assert '"3.0.0"' in plan.problem
    assert world.reason("Ready") == "False RolloutFailed"
    assert world.events()[0] == "RolloutFailed"
    assert world.step().events == ()
    world.post(force_deploy=None)
    world.step()
    assert world.reason("Ready") == "True RolloutSucceeded"


def test_a_pin_hides_what_is_forced() -> None:
    """RT-64."""
    world = ReleaseWorld(known="1.0.0 2.0.0", wanted_version="1.0.0")
    world.post(force_deploy="2.0.0")
    world.step()
    assert (world.tags(), world.current.message) == ("1.0.0", "Manual deployment")
    assert world.rollout.intents.force_deploy == "2.0.0"


def test_to_force_what_is_deployed_is_done() -> None:
    """RELB-09: the next release is deployed."""
    world = deployed("1.0.0")
    world.post(force_deploy="1.0.0")
    world.step()
    assert world.events()[0] == "ForceDeployNoop"
    world.step("2.0.0")
    assert world.tags() == "2.0.0 1.0.0"


@pytest.mark.parametrize(
    ("gates", "more", "gated"),
    [
        pytest.param((), {}, "3.0.0 2.0.0", id="no gate"),
        pytest.param((gate(passing=False),), {}, "3.0.0 2.0.0", id="a closed gate"),
        pytest.param(
            (gate("a", passing=False), gate("b", allowed="2.0.0")), {}, "2.0.0",
            id="a closed gate, and versions of another",
        ),
        pytest.param(
            (gate(passing=False, allowed="2.0.0"),), {}, "3.0.0 2.0.0",
            id="versions of a closed gate",
        ),
        pytest.param((gate(allowed="9"),), {}, "", id="no version is left"),
        pytest.param((), {"schedule_holds": ("shut",)}, "3.0.0 2.0.0", id="a schedule holds"),
        pytest.param(
            (), {"checks": (check(status="Unhealthy"),)}, "3.0.0 2.0.0", id="health is bad"
        ),
    ],
)  # fmt: skip
def test_what_versions_leave_over_is_listed_whether_or_not_gates_pass(
    gates: tuple[ReleaseGate, ...], more: dict[str, Any], gated: str
) -> None:
    """REL-15: what shows candidates, such as kuberik's dashboard, reads them there."""
    world = ReleaseWorld(known="1.0.0 2.0.0 3.0.0", checks=ALL_CHECKS)
    world.set_status(history=(entry("1.0.0", BakeStatus.FAILED),))
    world.gates = gates
    for field, value in more.items():
        setattr(world, field, value)
    world.step()
    assert world.tags() == "1.0.0"
    assert " ".join(one.tag for one in world.status.gated_release_candidates) == gated
