"""Metrics of releases: a Rollout, HealthChecks and schedules, and what is counted of them.

A deployment is written `2/Succeeded bake=1-3 retries=1 by=User`, as far as that is so; several are
apart by `,`, the newest first.
"""

import re
from typing import Any, Final

from rollout_operator.model.budget import StatusCondition
from rollout_operator.releases.metrics import ReleaseCounters, show_releases, show_schedules
from rollout_operator.releases.model.plan import HealthCheck
from rollout_operator.releases.model.releases import (
    GateSummary,
    HistoryEntry,
    ReleaseRollout,
    ReleaseStatus,
    ScheduleObject,
    ScheduleStatus,
    TriggeredBy,
    TriggerKind,
)
from tests.planning.releases.builders import at, check, entry, releases, rollout
from tests.planning.releases.schedules.schedule_builders import schedule
from tests.telemetry.metrics_stage import MetricsStage

_ENTRY: Final = re.compile(
    r"(\S+?)(?:/(\w+))?(?: bake=(\d+)(?:-(\d+))?)?(?: end=(\d+))?(?: retries=(\d+))?(?: by=(\w+))?"
)


class ReleaseStage(MetricsStage):
    def __init__(self) -> None:
        super().__init__()
        self._rollouts: list[ReleaseRollout] = []
        self._checks: dict[str, HealthCheck] = {}
        self._schedules: list[ScheduleObject] = []
        self._status = ReleaseStatus()
        registry = self.metrics.registry
        show_releases(registry, lambda: self._rollouts, lambda: self._checks.values())
        show_schedules(registry, lambda: self._schedules)
        self._counters = ReleaseCounters(registry, "prod", ("ok", "denied"))
        self.seen = self._read()

    async def do_deployed(self, history: str = "") -> None:
        """Have the status of the Rollout record what was deployed, as a controller sees it."""
        entries = (_read_entry(one.strip()) for one in history.split(",") if one)
        before, self._status = self._status, ReleaseStatus(history=tuple(entries))
        self._counters.record("app", before, self._status)

    async def do_show(self, *words: str) -> None:
        """Show a Rollout: `raw=1,2` and `gated=1`, `gate=name:true`, `Ready=False:Reason`."""
        given: dict[str, Any] = {"history": self._status.history}
        conditions, gates = [], []
        for key, value in (one.split("=", 1) for one in words):
            first, _, second = value.partition(":")
            if key in {"raw", "gated"}:
                name = {"raw": "release_candidates", "gated": "gated_release_candidates"}[key]
                given[name] = releases(value.replace(",", " "))
            elif key == "gate":
                gates.append(GateSummary(name=first, passing=second == "true"))
            else:
                conditions.append(StatusCondition(type=key, status=first, reason=second))
        status = ReleaseStatus(conditions=tuple(conditions), gates=tuple(gates), **given)
        self._rollouts = [rollout(status=status)]

    async def do_gone(self) -> None:
        self._rollouts = []

    async def do_check(self, name: str, status: str = "") -> None:
        self._checks[name] = check(name, status=status)

    async def do_schedule(self, name: str, namespace: str = "", *words: str) -> None:
        """Have a schedule, `active`, that changes at so many minutes."""
        numbers = [at(float(word)) for word in words if word.isdigit()]
        status = ScheduleStatus(active="active" in words, next_transition=next(iter(numbers), None))
        self._schedules.append(schedule(name, namespace=namespace, status=status))

    async def do_request(self, result: str) -> None:
        self._counters.count_request(result)

    async def do_lost(self, name: str) -> None:
        self._counters.forget(name)


def _read_entry(text: str) -> HistoryEntry:
    match = _ENTRY.fullmatch(text)
    assert match, text
    tag, status, start, end, ended, retries, by = match.groups()
    more: dict[str, Any] = {"id": int(tag.split(".")[0])}
    if start:
        more["bake_start_time"] = at(int(start))
    if end or ended:
        more["bake_end_time"] = at(int(end or ended))
    if retries:
        more["retries"] = int(retries)
    if by:
        more["triggered_by"] = TriggeredBy(kind=TriggerKind(by), name="ann")
    return entry(tag, status, **more)
