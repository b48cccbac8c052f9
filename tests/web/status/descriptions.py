"""Descriptions made by hand, in few words."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from rollout_operator.model.description import (
    BudgetDescription,
    Description,
    GroupDescription,
    HealthCheckDescription,
    OperatorDescription,
    PartReport,
    Phase,
    PodDescription,
    PodState,
    PolicyDescription,
    ReleaseDescription,
    ReleasePhase,
    ScheduleDescription,
    Step,
    Waiting,
    ZoneDescription,
)
from rollout_operator.model.outcome import Code

T = TypeVar("T")

TEMPLATES: Final = msgspec.yaml.decode(Path(__file__).with_suffix(".yaml").read_bytes())
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


def _fill(tree: Any, words: dict[str, str]) -> Any:
    if isinstance(tree, dict):
        return {key: _fill(value, words) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_fill(one, words) for one in tree]
    return words.get(tree, tree) if isinstance(tree, str) else tree


def _make(kind: str, made: type[T], **words: str) -> T:
    times = {
        "NOW": NOW,
        "LATER": NOW + MINUTE,
        "BEFORE": NOW - MINUTE,
        "LONG_BEFORE": NOW - 3 * MINUTE,
    }
    spelled = {key: time.isoformat() for key, time in times.items()}
    return msgspec.convert(_fill(TEMPLATES[kind], {**spelled, **words}), made)


def release(
    name: str = "app",
    phase: ReleasePhase = ReleasePhase.WAITING,
    *,
    text: str = "not passing: nights-app",
) -> ReleaseDescription:
    """Return a Rollout whose next version waits for a gate; `text` is all that others write."""
    return _make("release", ReleaseDescription, NAME=name, PHASE=phase, TEXT=text)


def release_schedule(text: str = "closed by night") -> ScheduleDescription:
    """Return a schedule that is closed for a minute more."""
    return _make("schedule", ScheduleDescription, TEXT=text)


def health_check(text: str = "200") -> HealthCheckDescription:
    """Return a HealthCheck that a Rollout selects."""
    return _make("health_check", HealthCheckDescription, TEXT=text)


def policy(
    name: str = "db",
    *,
    headline: str = "batch 2 of db-a is open",
    waits: tuple[Waiting, ...] = (),
    message: str = "batch 2 of db-a is open",
    zones: tuple[str, str] = ("us-west-2a", "us-west-2b"),
) -> PolicyDescription:
    """Return a MultiAZRollout that waits for a pod of its first zone."""
    words = {"NAME": name, "HEADLINE": headline, "TEXT": message}
    made = _make("policy", PolicyDescription, **words, ZONE_A=zones[0], ZONE_B=zones[1])
    return replace(made, waits=waits or made.waits)


def operator(
    *, missing: tuple[str, ...] = (), is_acting: bool = True, reports: tuple[PartReport, ...] = ()
) -> OperatorDescription:
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
    return Waiting(code=code, text=text, zone=name, remedy=remedy, link=f"/reasons#{code}")


def budget(name: str = "ingester", *, text: str = "one pod may go") -> BudgetDescription:
    """Return a budget with room for one pod."""
    return BudgetDescription(
        name=name, is_valid=True, maximum="1", zones=3, pods=9, unavailable=0, allowed=1, text=text
    )
