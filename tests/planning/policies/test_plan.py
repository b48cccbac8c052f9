"""Which batch of a policy begins next, or what holds it; which sets are switched (MAZ-27)."""

from typing import Any

import msgspec.structs
import pytest
from msgspec import structs
from msgspec.structs import replace

from rollout_operator.model.names import GroupName, Uid
from rollout_operator.model.objects import Group, Newcomers, Underway, Zone
from rollout_operator.model.outcome import Code
from rollout_operator.model.policy import (
    PodOrder,
    PolicyPlan,
    PolicySnapshot,
    ZoneFinding,
    ZoneFindingCode,
    ZoneResolution,
    ZonesCode,
)
from rollout_operator.model.units import IntOrPercent
from rollout_operator.planning.policies import list_switchable, plan_policy
from rollout_operator.planning.readiness import SNAPSHOT_LIMIT, find_group_blocker
from tests.builders import NOW, prev, unreadable, with_pods, zone
from tests.planning.policies.snapshots import batch, outline, read_policy, seconds, snapshot
from tests.planning.tables import read_table

B = zone("b")
TWELVE = "p" * 12


def share(number: int) -> dict[str, Any]:
    return {"max_unavailable": IntOrPercent(number, is_percent=True)}


def most(number: int) -> dict[str, Any]:
    return {"max_unavailable": IntOrPercent(number)}


def plan(*zones: Zone, **fields: Any) -> PolicyPlan:
    return plan_policy(snapshot(*zones, **fields))


ORDER = """
MAZ-30 nothing is outdated
  zone a; zone b; zone c | up_to_date
MAZ-33 the first with outdated
  zone a; prev b; prev c | b-2
MT-22 the order of the zones
  prev c; prev a | c-2
MAZ-46 a begun one is finished
  prev a; prev b plp | b-2
MAZ-46 one that was scaled up in mid-rollout is not begun
  prev a; prev b; prev c ppl; initial a=3 b=3 c=2 | a-2
MAZ-46 nor one that was scaled up before any other was begun, or twice
  prev a; prev b ppll; prev c ppl; initial a=3 b=2 c=2 | a-2
MAZ-46 one that was scaled up and has lost an old pod is
  prev a; prev b; prev c lpl; initial a=3 b=3 c=2 | c-1
MAZ-46 one that has lost its last pod is
  prev a; prev b ppl; initial a=3 b=3 | b-1
MAZ-46 one that was scaled up, of several StatefulSets
  prev a; prev b; prev c; prev d ppl; shared one=ab two=cd; initial a=3 b=3 c=3 d=2 | a-2
MAZ-46 of two begun ones the last
  prev a plp; prev b ppl; batch b-2 completion=-60 | b-1
MAZ-46 only one StatefulSet of each zone has changed
  prev a; prev b; zone c; prev d plp; zone e; shared one=ac two=de three=b | d-2
MAZ-46 the first StatefulSet of a zone is done, the second is not begun
  prev a; prev b; zone c; prev d; shared one=ab two=cd | d-2
MT-25 MAZ-22 StatefulSets of a zone by name
  prev a; prev b; shared one=ab | a-2
MT-25 MAZ-33 the second waits for the last pod of the first
  prev a llL; prev b; shared one=ab; batch a-2; spec interval=0 max_unavailable=2 | batch_open
MAZ-26 a paused StatefulSet counts as done
  prev a paused=true; prev b | b-2
MAZ-26 its pods that are down block
  prev a ppP paused=true; prev b | paused_zone_not_ready
MAZ-26 a zone is not begun by one that is paused
  prev a; zone b paused=true; prev c; shared one=a two=bc | a-2
MAZ-26 nothing else is outdated
  prev a paused=true; zone b | paused
MAZ-49 a StatefulSet is rolled out
  zone a lll current=prev; prev b | b-2 record a
MAZ-37 StatefulSets of a zone share its budget: of 3 one is down in the other, so 2 go
  prev a ppppp; prev b llL; shared one=ab; spec max_unavailable=3 | a-4 a-3
MAZ-37 with 1 none does
  prev a ppppp; prev b llL; shared one=ab; spec max_unavailable=1 | budget_used zone_not_ready
MAZ-38 a broken pod goes although its zone has used the budget, ahead of healthy ones of the first
  prev a pppL; prev b ppP; shared one=ab; spec max_unavailable=3 | b-2
MAZ-22 MAZ-38 only broken ones do: the healthy ones of b wait until a is done
  prev a; prev b ppP; shared one=ab; spec max_unavailable=5 | b-2
broken ones first, then healthy ones for what the budget has left
  prev a pPpp; zone b; spec max_unavailable=3 | a-1 a-3 a-2
MAZ-38 a pause holds healthy pods beside broken ones
  prev a pPpl; zone b; batch a-3 completion=-40; spec interval=90 max_unavailable=3 | a-1
MT-40 MAZ-45 another zone is not whole
  prev a; zone b lLl ready=2 | zone_not_ready
MT-41 MAZ-45 several are not, and may recover
  prev a pwp; prev b pLp; zone c | several_zones_not_ready
D-88 MAZ-45 nothing but the template mends pods that crash: zone after zone
  prev a pPp; prev b pPp; zone c | a-1
D-88 those of the second once the first has nothing of the kind
  prev a plt; prev b pPp; zone c; batch a-2 | b-1
D-88 also while a zone is being scaled, which pods that crash keep from its number
  prev a ppP; prev b pn- status_replicas=2; zone c | a-2
D-88 also where the other zone is short by its scaling alone
  prev a ppP; zone b ll- status_replicas=2 ready=2 | a-2
D-88 the other one may recover and is left alone, with whatever is healthy
  prev a pwp; prev b pnp | b-1
D-88 a paused zone holds its own pods, and no others
  prev a pPp paused=true; prev b pPp | b-1
D-88 MAZ-11 a paused policy holds all
  prev a pPp; prev b pPp; spec is_paused=true | several_zones_not_ready
D-88 MAZ-22 also the second StatefulSet of a zone
  prev a pwp; prev b pPp; prev c pwp; shared one=ab two=c | b-1
D-88 MAZ-40 no pause holds them
  prev a pPp; prev b pPp; batch a-2 completion=-1 | a-1
SI-26 one that left while it was short, also in the middle of its batch
  prev a; zone b; left c llL ready=2; batch c-2 | zone_left_short
SI-26 one that left and is whole now
  prev a; zone b; left c | a-2
SI-26 beside another that is short, and may recover
  prev a pwp; zone b; left c llL ready=2 | zone_left_short several_zones_not_ready
SI-26 D-88 beside pods that crash
  prev a pPp; zone b; left c llL ready=2 | a-1
SI-26 a policy that is paused waits for it as well
  prev a; left c llL ready=2; spec is_paused=true | zone_left_short
MT-42 the short one
  prev a; prev b pPp; prev c | b-1
MT-43 all pods are gone
  prev b; prev a --- | zone_not_ready
MT-44 terminating
  prev b; prev a llt | zone_not_ready
MT-48 revisions are equal, a pod is older
  zone a lpl current=last; zone b | a-1
MT-51 MAZ-35 another zone scales
  prev a; zone b status_replicas=4 | zone_scaling
MAZ-35 the zone itself goes on
  prev a status_replicas=4; zone b | a-2
MAZ-34 status behind
  prev a observed_generation=0; zone b | status_behind
MAZ-34 no revision
  prev a update_revision=; zone b | revision_empty
MT-65 MAZ-27 another strategy
  prev a; zone b strategy=RollingUpdate | wrong_strategy
MAZ-11 a paused policy begins no batch
  prev a; spec is_paused=true | policy_paused
MAZ-11 nor a repair
  prev a pPp; spec is_paused=true | policy_paused
MAZ-46 an open batch goes on
  prev a; batch a-2 uids=same; spec is_paused=true | a-2
"""


@pytest.mark.parametrize(("case", "expected"), read_table(ORDER, read_policy))
def test_zones_and_stateful_sets_go_one_after_another(
    case: PolicySnapshot, expected: list[str]
) -> None:
    """And nothing moves unless all other zones are whole."""
    assert [outline(plan_policy(case))] == expected


def test_a_policy_without_stateful_sets() -> None:
    """MAZ-28."""
    assert outline(plan()) == "no_stateful_sets"


@pytest.mark.parametrize(
    ("pods", "budget", "expected"),
    [
        pytest.param("ppp", {}, "a-2", id="E1"),
        pytest.param("ppp", share(25), "a-2", id="E2 rounded down, at least one"),
        pytest.param("p" * 10, share(25), "a-9 a-8", id="E3"),
        pytest.param("p" * 9 + "L", share(25), "a-8", id="E4 an updated one is unavailable"),
        pytest.param("ppLL", share(50), "budget_used", id="E5"),
        pytest.param("ppp", share(100), "a-2 a-1 a-0", id="E6"),
        pytest.param("pPp", {}, "a-1", id="E7 MT-45 MAZ-38 a broken outdated one"),
        pytest.param("ppp", most(5), "a-2 a-1 a-0", id="E8"),
        pytest.param("ppt", most(2), "a-1", id="MT-44 a terminating one counts"),
        pytest.param("pp-", {}, "pods_starting", id="MAZ-32 a missing one counts"),
    ],
)
def test_the_budget_of_a_zone(pods: str, budget: dict[str, Any], expected: str) -> None:
    """MT-26, MAZ-36, MAZ-37."""
    assert outline(plan(prev("a", pods), B, **budget)) == expected


@pytest.mark.parametrize(
    ("a", "expected"),
    [
        pytest.param(prev("a", "pppL", replicas=3, ready=3), "a-2", id="beyond, down"),
        pytest.param(prev("a", "pppP", replicas=3, ready=3), "a-2", id="beyond, broken"),
        pytest.param(prev("a", "Lppp", replicas=3, ready=3, first_ordinal=1), "a-3", id="before"),
        pytest.param(prev("a", "-ppp", replicas=3, first_ordinal=1), "a-3", id="a start ordinal"),
    ],
)
def test_pods_of_no_desired_ordinal_neither_count_nor_go(a: Zone, expected: str) -> None:
    """MAZ-39: of its own zone and of another."""
    assert outline(plan(a, B)) == expected
    beyond = zone("b", "lllL", replicas=3, status_replicas=3, ready=3)
    assert outline(plan(a, beyond)) == expected


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        (PodOrder.DESCENDING, [f"zone-a-{ordinal}" for ordinal in range(11, -1, -1)]),
        (PodOrder.ASCENDING, [f"zone-a-{ordinal}" for ordinal in range(12)]),
    ],
)
def test_pods_go_by_number(order: PodOrder, expected: list[str]) -> None:
    """MT-32."""
    found = plan(prev("a", TWELVE), pod_order=order, **most(12))

    assert found.action is not None
    assert [one.pod.name for one in found.action.going] == expected


def test_a_pod_counts_once_it_is_ready_long_enough() -> None:
    """MAZ-32: `minReadySeconds` of a StatefulSet; the plan says when to plan again."""
    young = with_pods(zone("b", min_ready_seconds=30), ready_since=NOW - seconds(20))

    found = plan(prev("a"), young)
    assert (outline(found), found.requeue_after) == ("zone_not_ready", seconds(10))


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"snapshot_age": SNAPSHOT_LIMIT + seconds(1)}, id="a frozen view"),
        pytest.param({"unreadable": (unreadable("StatefulSet", "zone-x"),)}, id="unreadable"),
        pytest.param(
            {"downscale": Underway(zone="zone-b", replicas_from=3, replicas_to=2)},
            id="MAZ-35 a downscale underway",
        ),
    ],
)
def test_what_stops_a_label_group_stops_a_policy(changes: dict[str, Any]) -> None:
    """The batch stays as it was recorded: its outcome is unknown."""
    case = snapshot(prev("a"), B, batch=batch("a-2"))
    group = structs.replace(case.group, **changes)
    found = plan_policy(structs.replace(case, group=group))

    blocker = find_group_blocker(group)
    assert blocker is not None
    assert (found.waits, found.batch) == (blocker.reasons, case.batch)


def test_pods_in_several_zones_stop_everything() -> None:
    """MT-06, MAZ-20."""
    finding = ZoneFinding(
        code=ZoneFindingCode.SPANS_ZONES, text="StatefulSet x has pods in 2a and 2b"
    )
    spans = ZoneResolution(code=ZonesCode.SPANS_ZONES, findings=(finding,))
    found = plan_policy(structs.replace(snapshot(prev("a")), resolution=spans))

    assert (found.action, [one.text for one in found.waits]) == (None, [finding.text])


def test_a_stateful_set_without_a_zone_stops_everything() -> None:
    case = snapshot(prev("a"), B)
    found = plan_policy(structs.replace(case, resolution=snapshot(prev("a")).resolution))

    assert outline(found) == "zone_not_found"
    assert found.waits[0].text == "zone-b is in no zone yet"


def test_a_paused_policy_names_what_its_open_batch_waits_for() -> None:
    """MAZ-11, MAZ-44: the pause does not hide the pod by which a batch has stalled."""
    case = snapshot(prev("a", "pLp"), B, batch=batch("a-1"), is_paused=True)
    paused, is_open = plan_policy(case).waits

    assert (paused.code, is_open.code) == (Code.POLICY_PAUSED, Code.BATCH_OPEN)
    assert is_open.text.startswith("batch 4 of zone-a is open: ")
    assert "zone-a-1" in is_open.text


def test_new_pods_of_an_upscale_hold_nothing_and_are_reported() -> None:
    """D-67, MAZ-32: the policy is not up to date while they are not available."""
    seen = Newcomers(used=2, generation=1, pods=frozenset({Uid("uid-a-2")}))
    member = structs.replace(zone("a", "llL", ready=2), newcomers=seen)

    assert outline(plan(member, prev("b"))) == "b-2"
    assert outline(plan(member, B)) == "zone_not_ready"


def _under(strategy: str, one: Zone, **fields: object) -> Zone:
    return replace(one, sts=msgspec.structs.replace(one.sts, strategy=strategy, **fields))


@pytest.mark.parametrize(
    ("member", "expected"),
    [
        pytest.param(_under("RollingUpdate", zone("a", "lll")), ["zone-a"], id="up to date"),
        pytest.param(_under("RollingUpdate", zone("a", "pll")), [], id="an outdated pod"),
        pytest.param(_under("OnDelete", zone("a", "lll")), [], id="switched already"),
        pytest.param(
            _under("RollingUpdate", zone("a", "lll"), generation=9), [], id="status is behind"
        ),
    ],
)
def test_maz27_a_set_is_switched_once_it_is_up_to_date(member: Zone, expected: list[str]) -> None:
    group = Group(name=GroupName("db"), zones=(member,), now=NOW, deletions={})
    assert [one.name for one in list_switchable(group)] == expected
