"""Bounds of schedules of releases, and which of them a gate or Rollout concerns."""

from zoneinfo import ZoneInfo

import msgspec
import pytest
from msgspec.structs import replace

from rollout_operator.model import names
from rollout_operator.model.names import Uid
from rollout_operator.model.objects import LabelSelector
from rollout_operator.model.releases import (
    CLUSTER_SCHEDULE,
    SCHEDULE,
    GateOrigin,
    OwnerReference,
    ReleaseGate,
    ScheduleObject,
)
from rollout_operator.planning.schedules import (
    MOST_LISTED,
    MOST_SCHEDULES,
    KnownSchedules,
    ScheduleReading,
    list_by_gate,
    list_by_rollout,
    list_holds,
    read_schedule,
    render_schedule_status,
)
from tests.planning.releases.builders import START, head
from tests.planning.releases.schedules.schedule_builders import (
    MORNING,
    gated,
    make_gates,
    plan,
    schedule,
    snapshot,
)

OWNER = OwnerReference(
    api_version="kuberik.com/v1alpha1", kind=SCHEDULE, name="nights", uid=Uid("1")
)
LABELS = {names.SCHEDULE_NAME: "freeze", names.SCHEDULE_KIND: CLUSTER_SCHEDULE}


def test_names_and_labels_have_room() -> None:
    """RELB-31 (h): 253 characters for a name, 63 for a label."""
    long = "r" * 250
    known = snapshot(schedule("s" * 80), gated(long + "a"), gated(long + "b"))
    gates = make_gates(known)

    assert len({one.head.name for one in gates}) == 2
    assert all(len(one.head.name) <= 253 for one in gates)
    assert all(len(text) <= 63 for one in gates for text in one.origin.labels.values())
    assert plan(replace(known, gates=gates)).actions == ()


@pytest.mark.parametrize(
    ("kind", "concerned"), [(SCHEDULE, ["nights"]), (CLUSTER_SCHEDULE, ["freeze"])]
)
def test_a_gate_concerns_those_that_it_names(kind: str, concerned: list[str]) -> None:
    """REL-101: its owner and its labels, each of the kind that is read."""
    origin = GateOrigin(labels=LABELS, owners=(OWNER,))
    gate = ReleaseGate(head=head("gate"), rollout="app", origin=origin)
    assert list(list_by_gate(kind, gate)) == concerned


def test_a_gate_names_a_schedule_once() -> None:
    labels = {names.SCHEDULE_NAME: "nights", names.SCHEDULE_KIND: SCHEDULE}
    origin = GateOrigin(labels=labels, owners=(OWNER,))
    gate = ReleaseGate(head=head("gate"), rollout="app", origin=origin)
    assert list(list_by_gate(SCHEDULE, gate)) == ["nights"]


def test_a_rollout_concerns_those_that_select_it() -> None:
    """REL-101: and those that cannot say what they select."""
    web = LabelSelector(labels={"tier": "web"})
    schedules = [
        schedule("web", rollouts=web),
        schedule("invalid", rollouts=None),
        schedule("all"),
    ]
    selected = gated(labels={"tier": "web"})
    assert list(list_by_rollout(schedules, [selected])) == ["web", "invalid", "all"]
    assert list(list_by_rollout(schedules, [gated()])) == ["invalid", "all"]


def test_a_status_has_room_for_any_number_of_rules_and_gates() -> None:
    """REL-100: an object of 1.5 MiB at most is stored, and tenants choose names."""
    rule_names = [*(f"rule-{number}" for number in range(20_000)), "n" * 300_000]
    rules = tuple(replace(MORNING, name=name) for name in reversed(rule_names))
    rollouts = [gated(f"{'app' * 60}-{number}") for number in range(3000)]
    known = snapshot(schedule(namespace="", rules=rules), *rollouts)
    status = render_schedule_status(known, plan(known), {})

    assert len(msgspec.json.encode(status)) < 512 * 1024
    assert status.matching_rollouts == 3000
    assert len(status.managed_gates) == MOST_LISTED
    assert 1000 < len(status.active_rules) < len(rules)
    assert status.active_rules[1:3] == ("rule-19999", "rule-19998")


def test_thousands_of_schedules_make_a_pass_no_longer() -> None:
    """RELB-42: what is not read holds, since a closed schedule may be among it."""
    read: list[str] = []

    def load(schedule: ScheduleObject) -> ScheduleReading:
        read.append(schedule.head.name)
        return read_schedule(schedule, START, ZoneInfo)

    many = tuple(schedule(f"s{number}", time_zone="Atlantis") for number in range(1000))
    holds = list_holds(KnownSchedules(schedules=many), gated(labels={}), (), load)

    assert len(read) == MOST_SCHEDULES
    assert len(holds) == MOST_SCHEDULES + 1
    assert holds[-1] == "900 schedules beyond the 100 that are read"
