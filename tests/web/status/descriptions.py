"""Descriptions made by hand, in few words."""

from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import UNSET, UnsetType

from rollout_operator.model.budget import ConditionDescription
from rollout_operator.model.description import (
    BatchDescription,
    BudgetDescription,
    DeploymentDescription,
    Description,
    GateDescription,
    GroupDescription,
    HealthCheckDescription,
    OperatorDescription,
    PartReport,
    Phase,
    PodDescription,
    PodState,
    PolicyDescription,
    PolicySetDescription,
    PolicyZoneDescription,
    ReleaseDescription,
    ReleasePhase,
    ReleaseWait,
    ScheduleDescription,
    SelectedCheckDescription,
    Step,
    TargetDescription,
    Waiting,
    ZoneDescription,
)
from rollout_operator.model.outcome import Code

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOSTILE = "<script>alert('x')</script>\"'&\u202etxt\u0000\nnext\x1b[31m"
"""What a tenant may write: mark-up, quotes, turned text, and what steers a terminal."""


def describe(
    *groups: GroupDescription,
    operator: OperatorDescription | None = None,
    budgets: tuple[BudgetDescription, ...] = (),
    policies: tuple[PolicyDescription, ...] | UnsetType = UNSET,
    **releases: Any,
) -> Description:
    """Return a namespace; `releases`, `schedules` and `health_checks` by their names."""
    return Description(
        **releases,
        namespace="prod",
        now=NOW,
        operator=operator,
        groups=groups,
        budgets=budgets,
        policies=policies,
    )


def release(
    name: str = "app",
    phase: ReleasePhase = ReleasePhase.WAITING,
    *,
    text: str = "not passing: nights-app",
) -> ReleaseDescription:
    """Return a Rollout whose next version waits for a gate; `text` is all that others write."""
    return ReleaseDescription(
        name=name,
        namespace="prod",
        phase=phase,
        headline=text,
        reason="SomeGatesBlocking",
        tag="1.0.0",
        next="1.1.0",
        candidates=("1.1.0",),
        announced="1.1.0",
        policy="prod/app",
        gates=(
            GateDescription(
                name="nights-app",
                is_passing=False,
                text=text,
                schedule="RolloutSchedule prod/nights",
                opens=NOW + MINUTE,
            ),
        ),
        checks=(SelectedCheckDescription(name="prod/web", status="Healthy", text=text),),
        targets=(TargetDescription(kind="OCIRepository", name="app", tag="1.0.0"),),
        history=(
            DeploymentDescription(
                tag="1.0.0", began=NOW - MINUTE, status="Succeeded", message=text, by="ann"
            ),
        ),
        waits=(
            ReleaseWait(reason="SomeGatesBlocking", text=text, remedy="`bypass-gates`"),
            ReleaseWait(reason="Excluded", text="0.9.0: it failed when it was deployed last"),
        ),
        conditions=(
            ConditionDescription(
                type="GatesPassing", is_true=False, reason="SomeGatesBlocking", message=text
            ),
        ),
    )


def release_schedule(text: str = "closed by night") -> ScheduleDescription:
    """Return a schedule that is closed for a minute more."""
    return ScheduleDescription(
        kind="RolloutSchedule",
        name="nights",
        namespace="prod",
        is_open=False,
        text=text,
        reason="GatesInSync",
        is_active=True,
        action="Deny",
        active_rules=("night",),
        changes=NOW + MINUTE,
        time_zone="UTC",
        rollouts=1,
        gates=("nights-app",),
    )


def health_check(text: str = "200") -> HealthCheckDescription:
    """Return a HealthCheck that a Rollout selects."""
    return HealthCheckDescription(
        name="web", namespace="prod", status="Healthy", text=text, rollouts=("prod/app",)
    )


def policy(
    name: str = "db",
    *,
    headline: str = "batch 2 of db-a is open",
    waits: tuple[Waiting, ...] = (),
    message: str = "batch 2 of db-a is open",
    zones: tuple[str, ...] = ("us-west-2a", "us-west-2b"),
) -> PolicyDescription:
    """Return a MultiAZRollout that waits for a pod of its first zone."""
    return PolicyDescription(
        name=name,
        namespace="prod",
        phase="Progressing",
        headline=headline,
        code=Code.BATCH_OPEN,
        reason="RollingOut",
        desired=6,
        updated=2,
        ready=5,
        began=NOW - 3 * MINUTE,
        groups=("db",),
        zones=tuple(
            PolicyZoneDescription(
                name=zone,
                order=place,
                state="Pending" if place > 1 else "Updating",
                sets=(
                    PolicySetDescription(
                        name=f"db-{zone[-1]}",
                        source="Label",
                        desired=3,
                        updated=2 if place == 1 else 0,
                        outdated=1 if place == 1 else 3,
                        unavailable=place % 2,
                    ),
                ),
            )
            for place, zone in enumerate(zones, start=1)
        ),
        batch=BatchDescription(
            number=2, zone=zones[0], stateful_set="db-a", pods=("db-a-1",), began=NOW - MINUTE
        ),
        waits=waits or (waiting(headline, Code.BATCH_OPEN, name="", remedy="look at the pods"),),
        conditions=(
            ConditionDescription(
                type="Ready", is_true=False, reason="RollingOut", message=message, since=NOW
            ),
        ),
    )


def operator(
    *, missing: tuple[str, ...] = (), is_acting: bool = True, reports: tuple[PartReport, ...] = ()
) -> OperatorDescription:
    """Return an operator."""
    return OperatorDescription(
        version="1.2.3", is_ready=not missing, is_acting=is_acting, missing=missing, reports=reports
    )


def group(
    name: str = "ingester",
    *,
    phase: Phase = Phase.WAITING,
    headline: str = "zone-b has 2 of 3 pods ready",
    code: Code | None = Code.ZONE_NOT_READY,
    zones: tuple[ZoneDescription, ...] | None = None,
    waits: tuple[Waiting, ...] = (),
    problems: tuple[Waiting, ...] = (),
    steps: tuple[Step, ...] = (),
) -> GroupDescription:
    """Return a group that waits for a pod of its second zone."""
    if zones is None:
        zones = (zone("zone-a"), zone("zone-b", states=(PodState.READY, PodState.NOT_READY)))
    return GroupDescription(
        name=name,
        phase=phase,
        headline=headline,
        code=code,
        since=NOW - 14 * MINUTE,
        looked=NOW,
        desired=sum(one.desired for one in zones),
        ready=sum(one.ready for one in zones),
        updated=sum(one.updated for one in zones),
        began=NOW - 20 * MINUTE,
        expected_end=NOW + 12 * MINUTE,
        zones=zones,
        steps=steps,
        waits=waits,
        problems=problems,
    )


def zone(
    name: str,
    *,
    states: tuple[PodState, ...] = (PodState.READY, PodState.READY),
    why: str = "container app: CrashLoopBackOff",
    updated: int | None = None,
) -> ZoneDescription:
    """Return a zone whose first `updated` pods, by default all, are at the update revision."""
    newest = len(states) if updated is None else updated
    pods = tuple(
        PodDescription(
            name=f"{name}-{ordinal}",
            ordinal=ordinal,
            state=state,
            revision=f"{name}-abc",
            is_updated=ordinal < newest,
            why="" if state is PodState.READY else why,
            since=NOW - 3 * MINUTE,
        )
        for ordinal, state in enumerate(states)
    )
    return ZoneDescription(
        name=name,
        desired=len(states),
        ready=sum(state is PodState.READY for state in states),
        updated=newest,
        outdated=len(states) - newest,
        max_unavailable=1,
        current_revision=f"{name}-abc",
        update_revision=f"{name}-abc",
        pods=pods,
    )


def waiting(
    text: str = "zone-b has 2 of 3 pods ready",
    code: Code = Code.ZONE_NOT_READY,
    *,
    name: str = "zone-b",
    remedy: str = "look at the pods that the message names",
) -> Waiting:
    """Return a reason."""
    return Waiting(code=code, text=text, zone=name, remedy=remedy, link=f"/reasons#{code}")


def budget(name: str = "ingester", *, text: str = "one pod may go") -> BudgetDescription:
    """Return a budget with room for one pod."""
    return BudgetDescription(
        name=name, is_valid=True, maximum="1", zones=3, pods=9, unavailable=0, allowed=1, text=text
    )
