"""Which schedules a change of a gate or of a Rollout concerns."""

import pytest

from rollout_operator.model import names
from rollout_operator.model.labels import LabelSelector
from rollout_operator.model.names import Uid
from rollout_operator.model.releases.gate import GateOrigin, OwnerReference, ReleaseGate
from rollout_operator.model.releases.schedule import CLUSTER_SCHEDULE, SCHEDULE
from rollout_operator.planning.releases.schedules.concern import list_by_gate, list_by_rollout
from tests.planning.releases.builders import head
from tests.planning.releases.schedules.schedule_builders import gated, schedule

OWNER = OwnerReference(
    api_version="kuberik.com/v1alpha1", kind=SCHEDULE, name="nights", uid=Uid("1")
)
LABELS = {names.SCHEDULE_NAME: "freeze", names.SCHEDULE_KIND: CLUSTER_SCHEDULE}


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
