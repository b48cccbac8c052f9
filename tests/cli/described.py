"""A description in literal form, for tests of what is shown of one."""

from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from rollout_operator.model.description import (
    BudgetDescription,
    Description,
    GroupDescription,
    Phase,
    PodDescription,
    PodState,
    Step,
    Waiting,
    ZoneDescription,
)
from rollout_operator.model.outcome import Code

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
_STATES = {
    "#": (PodState.READY, True),
    "o": (PodState.READY, False),
    "~": (PodState.STARTING, True),
    "!": (PodState.NOT_READY, False),
    "x": (PodState.GOING, False),
    ".": (PodState.MISSING, False),
}


def zone(name: str, pods: str, **changes: object) -> ZoneDescription:
    """Return a zone whose pods are given by their marks."""
    states = [_STATES[mark] for mark in pods]
    made = ZoneDescription(
        name=name,
        desired=len(pods),
        ready=sum(state is PodState.READY for state, _ in states),
        updated=sum(is_updated for _, is_updated in states),
        outdated=pods.count("o"),
        max_unavailable=1,
        current_revision=f"{name}-1",
        update_revision=f"{name}-2",
        pods=tuple(
            PodDescription(
                name=f"{name}-{ordinal}",
                ordinal=ordinal,
                state=state,
                is_updated=is_updated,
                revision=f"{name}-1",
                why="" if state is PodState.READY else "CrashLoopBackOff",
                since=NOW - timedelta(seconds=90),
            )
            for ordinal, (state, is_updated) in enumerate(states)
        ),
    )
    return replace(made, **changes)


def group(*zones: ZoneDescription, **changes: object) -> GroupDescription:
    """Return a group that rolls out and waits for a zone."""
    text = "zone-b has 2 of 3 pods ready (zone-b-1: CrashLoopBackOff); zone-c waits"
    made = GroupDescription(
        name="ingester",
        phase=Phase.WAITING,
        headline=text,
        code=Code.ZONE_NOT_READY,
        since=NOW - timedelta(minutes=3),
        looked=NOW,
        desired=sum(one.desired for one in zones),
        ready=sum(one.ready for one in zones),
        updated=sum(one.updated for one in zones),
        zones=zones,
        steps=(Step(code=Code.POD_OUTDATED, text="zone-b-2 is old", is_waiting=True),),
        waits=(
            Waiting(code=Code.ZONE_NOT_READY, text=text, remedy="look at the pod's log"),
            Waiting(code=Code.ANOTHER_ZONE_FIRST, text="zone-c waits for zone-b"),
        ),
    )
    return replace(made, **changes)


def describe(*groups: GroupDescription, **changes: object) -> Description:
    """Return the description of namespace mimir, with a budget."""
    used = (
        "1 pod not ready in zone-b (zone-b-1: CrashLoopBackOff); budget ingester: max unavailable 1"
    )
    why = Waiting(code=Code.DISRUPTION_BUDGET_USED, text=used, remedy="see why they are down")
    budget = BudgetDescription(
        name="ingester",
        is_valid=True,
        maximum="1",
        zones=3,
        pods=9,
        unavailable=1,
        allowed=0,
        text=used,
        waits=(why,),
    )
    made = Description(namespace="mimir", now=NOW, groups=groups, budgets=(budget,))
    return replace(made, **changes)


ZONES = (zone("zone-a", "###"), zone("zone-b", "#!o", is_busy=True), zone("zone-c", "ooo"))
EXAMPLE = describe(group(*ZONES))
