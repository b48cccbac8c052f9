"""Every state in which a zone of a few pods may be found: its rollout ends from each of them.

The world is one zone, a StatefulSet controller and kubelets that do all they can between two reads.
Pods of the update revision become ready; none of another revision that is down ever recovers.
"""

import itertools
from collections.abc import Iterable
from functools import cache
from typing import Final, NamedTuple

import pytest

from rollout_operator.model.names import MAX_UNAVAILABLE, GroupName, Revision, Uid
from rollout_operator.model.objects import Group, Pod, StatefulSet, Zone
from rollout_operator.model.outcome import RecordRevision, ReplacePods
from rollout_operator.planning.rollout import plan_group
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


class World(NamedTuple):
    """What decides beside the pods."""

    is_ordered: bool
    limit: int
    current: str


@cache
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


def _observe(seats: Seats, world: World) -> Group:
    ready = sum(state.endswith("r") for state in seats)
    sts = StatefulSet(
        namespace="test",
        name="zone-a",
        uid=Uid("uid-a"),
        resource_version="1",
        strategy="OnDelete",
        replicas=len(seats),
        is_ordered=world.is_ordered,
        status_replicas=sum(state != NONE for state in seats),
        ready_replicas=ready,
        available_replicas=ready,
        current_revision=Revision(world.current),
        update_revision=Revision("n"),
        annotations={MAX_UNAVAILABLE: str(world.limit)},
    )
    pods = tuple(_pod(ordinal, state) for ordinal, state in enumerate(seats) if state != NONE)
    zone = Zone(sts=sts, pods=pods)
    return Group(name=GroupName("ingester"), zones=(zone,), now=NOW, deletions={})


def _settle(seats: Seats, world: World) -> Seats:
    """Let all other actors do all that they can."""
    after = [NONE if state.endswith("t") else state for state in seats]
    for ordinal, state in enumerate(after):
        if world.is_ordered and not all(below.endswith("r") for below in after[:ordinal]):
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


def _check_end(starts: Iterable[Seats], world: World) -> None:
    """Follow the rollout from each of these states to its end, as far as it was not followed yet.

    Nothing but the pods changes, hence every state has one state that comes after it.
    """
    ended: set[Seats] = set()
    for start in starts:
        path = [start]
        while path[-1] not in ended:
            after = _step(path[-1], world)
            if after is None:
                assert set(path[-1]) == {"nr"}, f"LI-10: from {start} to {path[-1]}"
                break
            path.append(after)
            assert len(path) <= LONGEST, f"LI-10: from {start} round in circles: {path[-3:]}"
        ended.update(path)


def _step(seats: Seats, world: World) -> Seats | None:
    """Return the state that comes next; None at the end, or where nothing moves."""
    plan = plan_group(_observe(seats, world))
    going = [
        int(one.pod.name[-1])
        for action in plan.actions
        if isinstance(action, ReplacePods)
        for one in action.going
    ]
    if not going and any(isinstance(action, RecordRevision) for action in plan.actions):
        return None
    after = _delete(seats, going, world.limit) if going else _settle(seats, world)
    return None if after == seats else after


WORLDS: Final = [
    pytest.param(
        World(is_ordered, limit, current),
        id=f"{order}-limit {limit}-{'correction' if current == 'c' else 'rollback'}",
    )
    for is_ordered, order in ((True, "ordered"), (False, "parallel"))
    for limit in (1, 2, 3)
    for current in "cn"
]


@pytest.mark.parametrize("world", WORLDS)
def test_a_rollout_ends_from_every_state_of_up_to_three_pods(world: World) -> None:
    """LI-10, LI-01, D-14, FP-30, SI-03, SI-07: whatever is up, down, absent or going."""
    for pods in range(1, 4):
        _check_end(itertools.product(STATES, repeat=pods), world)


@pytest.mark.prove
@pytest.mark.parametrize("world", WORLDS)
def test_a_rollout_ends_from_every_state_of_four_pods(world: World) -> None:
    """LI-10, LI-01, D-14, FP-30, SI-03, SI-07: of four pods, in the states that differ most."""
    _check_end(itertools.product(FEWER_STATES, repeat=4), world)
