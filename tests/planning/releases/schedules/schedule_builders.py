"""Schedules and what they select, in a line each."""

from typing import Any, Final
from zoneinfo import ZoneInfo

from rollout_operator.model.objects import LabelSelector
from rollout_operator.releases.model.releases import (
    CLUSTER_SCHEDULE,
    SCHEDULE,
    CreateGate,
    GatedRollout,
    MinuteRange,
    ReleaseGate,
    ReleaseSchedule,
    ScheduleAction,
    ScheduleObject,
    SchedulePlan,
    ScheduleRule,
    ScheduleSnapshot,
)
from rollout_operator.releases.planning.schedules import plan_schedule
from tests.planning.releases.builders import START, head

DENY, ALLOW = ScheduleAction.DENY, ScheduleAction.ALLOW
MORNING: Final = ScheduleRule(name="morning", times=MinuteRange(0, 120))
"""The two hours after `builders.START`."""


def schedule(
    name: str = "nights",
    *,
    action: ScheduleAction = DENY,
    rules: tuple[ScheduleRule, ...] = (MORNING,),
    time_zone: str = "UTC",
    namespace: str = "prod",
    **more: Any,
) -> ScheduleObject:
    """Return a schedule over all Rollouts; without a namespace it is one of the cluster."""
    fields = {
        "kind": SCHEDULE if namespace else CLUSTER_SCHEDULE,
        "head": head(name, namespace),
        "schedule": ReleaseSchedule(rules=rules, time_zone=time_zone, action=action),
        "rollouts": LabelSelector(),
    }
    return ScheduleObject(**{**fields, **more})


def gated(name: str = "app", namespace: str = "prod", **more: Any) -> GatedRollout:
    return GatedRollout(namespace=namespace, name=name, **more)


def snapshot(
    of: ScheduleObject | None = None, *rollouts: GatedRollout, **more: Any
) -> ScheduleSnapshot:
    """Return a snapshot of the first minute, with one Rollout unless others are given."""
    fields = {"schedule": of or schedule(), "now": START, "rollouts": rollouts or (gated(),)}
    return ScheduleSnapshot(**{**fields, **more})


def plan(of: ScheduleSnapshot) -> SchedulePlan:
    return plan_schedule(of, ZoneInfo)


def make_gates(of: ScheduleSnapshot) -> tuple[ReleaseGate, ...]:
    """Return the gates that a snapshot without gates leads to."""
    wanted = [one.wanted for one in plan(of).actions if isinstance(one, CreateGate)]
    return tuple(
        ReleaseGate(
            head=head(one.name, one.namespace),
            rollout=one.rollout,
            is_passing=one.is_passing,
            origin=one.origin,
        )
        for one in wanted
    )
