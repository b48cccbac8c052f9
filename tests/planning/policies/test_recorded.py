"""Zones read back from a status are those that it was rendered from."""

from msgspec.structs import replace

from rollout_operator.model.condition import StatusCondition
from rollout_operator.model.placement import ZoneSource
from rollout_operator.model.policy.status import PolicySetStatus, PolicyStatus, PolicyZoneStatus
from rollout_operator.model.policy.zones import ZoneFindingCode, ZonesCode
from rollout_operator.planning.policies.plan import plan_policy
from rollout_operator.planning.policies.recorded import read_resolution
from rollout_operator.planning.policies.status import render_policy_status
from tests.builders import zone
from tests.planning.policies.snapshots import snapshot


def test_what_a_status_says_decides_as_what_was_resolved() -> None:
    given = snapshot(zone("a"), zone("b"))
    status = render_policy_status(given, plan_policy(given), before=PolicyStatus())
    read = read_resolution(status)

    assert [one.name for one in read.zones] == [one.name for one in given.resolution.zones]
    assert (read.sets, read.code) == (given.resolution.sets, given.resolution.code)


def test_a_set_that_spans_zones_keeps_its_sentence() -> None:
    condition = StatusCondition(
        type="ZonesResolved", status="False", reason="StatefulSetSpansZones", message="db spans"
    )
    read = read_resolution(PolicyStatus(conditions=(condition,)))

    assert read.code is ZonesCode.SPANS_ZONES
    assert [(one.code, one.text) for one in read.findings] == [
        (ZoneFindingCode.SPANS_ZONES, "db spans")
    ]


def test_what_a_client_wrote_by_hand_is_no_error() -> None:
    odd = PolicySetStatus(name="db", source="Guess")
    zones = tuple(
        PolicyZoneStatus(name=name, order=order, stateful_sets=sets)
        for name, order, sets in (
            ("b", 2, (odd,)),
            ("a", 1, (replace(odd, name="x"),)),
            ("c", 3, ()),
        )
    )
    condition = StatusCondition(type="ZonesResolved", status="True", reason="Odd")
    read = read_resolution(PolicyStatus(zones=zones, conditions=(condition,)))

    assert [one.name for one in read.zones] == ["a", "b"]
    assert {one.source for one in read.sets} == {ZoneSource.NONE}
    assert read.code is ZonesCode.ALL_RESOLVED
