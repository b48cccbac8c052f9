"""The judge of recorded revisions: histories that break the promise, and that nearly do."""

from typing import Any

import pytest

from rollout_operator.kube.api import STATEFULSETS
from tests.simulation.chronicle import OPERATOR, Chronicle
from tests.simulation.chronicle_deletes import Story, judge


def rolled(told: Chronicle) -> None:
    """Have all pods of a zone at the update revision, as another's work."""
    for ordinal in range(3):
        told.pod(1, f"zone-a-{ordinal}", uid=f"new-{ordinal}", revision="new")


def record(told: Chronicle, at: float, **parts: Any) -> None:
    """Have the operator record the update revision, or what `parts` say."""
    how = {"current_revision": "new", "actor": OPERATOR, **parts}
    told.zone(at, "zone-a", call=told.number + 1, **how)
    told.call(at, "update", STATEFULSETS, "zone-a", subresource="status")


def whole(told: Chronicle) -> None:
    rolled(told)
    record(told, 10)


def outdated(told: Chronicle) -> None:
    rolled(told)
    told.pod(2, "zone-a-1", uid="old-1")
    record(told, 10)


def short(told: Chronicle) -> None:
    rolled(told)
    told.pod(4, "zone-a-1", uid="new-1", revision="new", ready=False)
    record(told, 10)


def hidden(told: Chronicle) -> None:
    """Nothing tells that the pod fell: its event is lost, and the set counts it still."""
    told.zone(0.5, "zone-a", ready=3)
    told.fault(4, "drop_event", "event 7 of pods: MODIFIED zone-a-1")
    short(told)


def hidden_from_the_watch(told: Chronicle) -> None:
    """The event is lost, but the set counts two."""
    told.fault(4, "drop_event", "event 7 of pods: MODIFIED zone-a-1")
    rolled(told)
    told.pod(4, "zone-a-1", uid="new-1", revision="new", ready=False)
    told.zone(4.5, "zone-a", ready=2)
    record(told, 10)


def just_short(told: Chronicle) -> None:
    rolled(told)
    told.pod(6, "zone-a-1", uid="new-1", revision="new", ready=False)
    record(told, 10)


def missing(told: Chronicle) -> None:
    rolled(told)
    told.zone(4, "zone-a", replicas=4)
    record(told, 10)


def other_zone_short(told: Chronicle) -> None:
    told.pod(4, "zone-b-1", ready=False)
    whole(told)


def late(told: Chronicle) -> None:
    rolled(told)
    told.fault(2, "slow", "call 3: update statefulsets/zone-a/status: 0:00:20")
    told.pod(4, "zone-a-1", uid="new-1", revision="new", ready=False)
    record(told, 22)


def other_revision(told: Chronicle) -> None:
    rolled(told)
    told.zone(9.9, "zone-a", update_revision="newer")
    record(told, 10)


def by_the_controller(told: Chronicle) -> None:
    record(told, 10, actor="statefulset-controller")


def something_else(told: Chronicle) -> None:
    record(told, 10, current_revision="old", annotations={"a": "b"})


@pytest.mark.parametrize(
    ("story", "broken"),
    [
        pytest.param(whole, [], id="all pods are ready at it"),
        pytest.param(outdated, ["ROLL-39"], id="a pod is at the revision before"),
        pytest.param(short, ["ROLL-39"], id="a pod has not been ready for 6 s"),
        pytest.param(hidden, [], id="nothing tells that a pod is not ready"),
        pytest.param(hidden_from_the_watch, ["ROLL-39"], id="the set tells of it"),
        pytest.param(just_short, [], id="a pod has not been ready for 4 s"),
        pytest.param(missing, ["ROLL-39"], id="a pod is not there yet"),
        pytest.param(other_zone_short, [], id="a pod of another zone is not ready"),
        pytest.param(late, [], id="a pod fell while the write was on its way"),
        pytest.param(other_revision, ["ROLL-39"], id="it is to have another one by now"),
        pytest.param(by_the_controller, [], id="the controller recorded it"),
        pytest.param(something_else, [], id="another field was written"),
    ],
)
def test_a_revision_is_recorded_once_all_pods_are_ready_at_it(
    story: Story, broken: list[str]
) -> None:
    """ROLL-39: not while a pod of the zone is missing, not ready, or at another revision."""
    assert judge(story) == broken
