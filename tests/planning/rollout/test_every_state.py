"""Every state in which a zone of a few pods may be found: its rollout ends from each of them.

The world is one zone, a StatefulSet controller and kubelets that do all they can between two looks.
Pods of the update revision become ready; none of another revision that is down ever recovers.
"""

import itertools
from typing import Final

import pytest

from rollout_operator.model.group import Group, Zone
from rollout_operator.model.names import MAX_UNAVAILABLE, GroupName, Revision, Uid
from rollout_operator.model.objects import Pod, StatefulSet
from rollout_operator.model.outcome import RecordRevision, ReplacePods
from rollout_operator.planning.rollout.plan import plan_group
from tests.builders import NOW

pytestmark = pytest.mark.thorough

# Longer than any rollout of four pods: one that is not done by then goes round in circles.
LONGEST: Final = 60

# A revision and a condition each: c before the rollout, m given up in its midst, n wanted now;
# r ready, s starting, t terminating, and down for good: w was ready, n never was, u not known.
NONE: Final = "-"
STATES: Final = (
    NONE, "cr", "cw", "cn", "cu", "ct", "mr", "mw", "mn", "mu", "mt", "nr", "ns", "nt",
)  # fmt: skip
FEWER_STATES: Final = (NONE, "cr", "cw", "mn", "mw", "nr", "ns", "ct")
Seats = tuple[str, ...]


def _pod(ordinal: int, state: str) -> Pod:
    revision, condition = state[0], state[1]
    return Pod(
        namespace="test",
        name=f"zone-a-{ordinal}",
        uid=Uid(f"uid-a-{ordinal}"),
        resource_version="1",
        owner_uid=Uid("uid-a"),
        revision=Revision(revision),
        phase="Running",
        is_terminating=condition == "t",
        is_ready=condition == "r",
        was_ready=condition == "w",
        never_ready=condition == "n",
        why_not_ready="" if condition == "r" else "CrashLoopBackOff",
    )


def _observe(seats: Seats, *, is_ordered: bool, limit: int, current: str) -> Group:
    ready = sum(state.endswith("r") for state in seats)
    sts = StatefulSet(
        namespace="test",
        name="zone-a",
        uid=Uid("uid-a"),
        resource_version="1",
        strategy="OnDelete",
        replicas=len(seats),
        is_ordered=is_ordered,
        status_replicas=sum(state != NONE for state in seats),
        ready_replicas=ready,
        available_replicas=ready,
        current_revision=Revision(current),
        update_revision=Revision("n"),
        annotations={MAX_UNAVAILABLE: str(limit)},
    )
    pods = tuple(_pod(ordinal, state) for ordinal, state in enumerate(seats) if state != NONE)
    zone = Zone(sts=sts, pods=pods)
    return Group(name=GroupName("ingester"), zones=(zone,), now=NOW, deletions={})


def _settle(seats: Seats, *, is_ordered: bool) -> Seats:
    """Let everybody else do all that they can."""
    after = [NONE if state.endswith("t") else state for state in seats]
    for ordinal, state in enumerate(after):
        if is_ordered and not all(below.endswith("r") for below in after[:ordinal]):
            break
        after[ordinal] = "nr" if state == NONE else state
    return tuple("nr" if state == "ns" else state for state in after)


def _delete(seats: Seats, going: list[int], limit: int) -> Seats:
    """Carry out what was planned, and check that nothing is overdone."""
    after = list(seats)
    for ordinal in going:
        assert after[ordinal][0] != "n", f"SI-07: {seats}, {going}"
        after[ordinal] = f"{after[ordinal][0]}t"
    down = sum(not state.endswith("r") for state in after)
    was_up = any(seats[ordinal].endswith("r") for ordinal in going)
    assert not was_up or down <= limit, f"SI-03: {seats}, {going}"
    return tuple(after)


def _run(start: Seats, *, is_ordered: bool, limit: int, current: str) -> None:
    seats = start
    for _ in range(LONGEST):
        group = _observe(seats, is_ordered=is_ordered, limit=limit, current=current)
        plan = plan_group(group)
        going = [
            int(one.pod.name[-1])
            for action in plan.actions
            if isinstance(action, ReplacePods)
            for one in action.going
        ]
        if not going and any(isinstance(one, RecordRevision) for one in plan.actions):
            break
        after = _delete(seats, going, limit) if going else _settle(seats, is_ordered=is_ordered)
        if after == seats:
            break
        seats = after
    assert set(seats) == {"nr"}, f"LI-10: from {start} to {seats}: {plan.waits}"


WORLDS: Final = [
    pytest.param(
        is_ordered,
        limit,
        current,
        id=f"{order}-limit {limit}-{'correction' if current == 'c' else 'rollback'}",
    )
    for is_ordered, order in ((True, "ordered"), (False, "parallel"))
    for limit in (1, 2, 3)
    for current in "cn"
]


@pytest.mark.parametrize(("is_ordered", "limit", "current"), WORLDS)
def test_a_rollout_ends_from_every_state_of_up_to_three_pods(
    is_ordered: bool, limit: int, current: str
) -> None:
    """LI-10, LI-01, D-14, FP-30, SI-03, SI-07: whatever is up, down, absent or going."""
    for pods in range(1, 4):
        for start in itertools.product(STATES, repeat=pods):
            _run(start, is_ordered=is_ordered, limit=limit, current=current)


@pytest.mark.slow
@pytest.mark.parametrize(("is_ordered", "limit", "current"), WORLDS)
def test_a_rollout_ends_from_every_state_of_four_pods(
    is_ordered: bool, limit: int, current: str
) -> None:
    """LI-10, LI-01, D-14, FP-30, SI-03, SI-07: of four pods, in the states that differ most."""
    for start in itertools.product(FEWER_STATES, repeat=4):
        _run(start, is_ordered=is_ordered, limit=limit, current=current)
