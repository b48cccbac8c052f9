"""The commands of stories of rollouts: those of budgets, and a process that rolls zones out.

Zone `a` of three is outdated; there are no budgets. `step` carries out what the caches call for,
`go` is a whole reconcile. The caches show what has changed since `see`.
"""

import asyncio
import json
from datetime import timedelta
from typing import Any, Final

from rollout_lab.schemas.patches import merge

from rollout_operator.controllers.executor import Report
from rollout_operator.controllers.rollout import RolloutController
from rollout_operator.model.names import GroupName
from rollout_operator.model.objects import Deletion, StatefulSet
from rollout_operator.model.outcome import Code, Reason
from rollout_operator.planning.rollout import plan_group
from rollout_operator.planning.wording import explain_actions
from tests.controllers.fake_client import pod_json, set_json
from tests.samples import read_samples
from tests.virtual_time import elapsed
from tests.web.budgets.stage import ZONES, BudgetStage, name_of

GROUP: Final = GroupName("ingester")
SET_UP: Final = {"replicas", "ready", "generation"}


class RolloutStage(BudgetStage):
    """Zones a, b and c of three pods, of which a rolls from old to new, one pod at a time."""

    def _build(self, pods: int = 3) -> None:
        super()._build(pods)
        self.budgets.clear()
        self.pods = pods
        self._put_set("a")
        self._start("x")
        self._read_grants()  # knows the pods by their UIDs from now on

    def _put_set(self, letter: str, **fields: Any) -> None:
        given: dict[str, Any] = {"replicas": self.pods, "update": "new" if letter == "a" else "old"}
        self.client.put("statefulsets", set_json(name_of(letter), **{**given, **fields}))

    def _start(self, name: str) -> None:
        super()._start(name)
        process = self.replicas[name]
        self.flights: dict[str, Deletion] = {}
        self.read = self.signs = 0
        self.context, self.group_states = process, process.group_states
        self.controller = RolloutController(process, process.budgets.arbiter)
        self.observer, self.executor = self.controller.observer, self.controller.executor
        self.others = self.controller.others

    def look(self) -> list[str]:
        reads = self.process.pods.reads
        found = [one.replace(ZONES, "").replace("statefulsets/", "") for one in super().look()]
        found += [f"relist: {why}" for why in dict.fromkeys(self.context.refreshed)]
        self.context.refreshed.clear()
        signs = int(
            sum(read_samples(self.context.metrics, "pods_deleted_by_others_total").values())
        )
        found += [f"signs {signs - self.signs}"] * (signs > self.signs)
        self.signs = signs
        now: dict[str, Deletion] = {
            self.uids[uid]: state
            for uid, state in self.observer.observe(GROUP).deletions.items()
            if uid in self.uids and state is not Deletion.GRANTED
        }
        for name in sorted({*now, *self.flights}):
            if now.get(name) != self.flights.get(name):
                found.append(f"{name} {now[name].name.lower() if name in now else 'settled'}")
        self.flights = now
        self.process.pods.reads = reads
        return found

    # Rollouts

    async def do_step(self) -> str:
        """Observe, plan and carry out every action; show what came of each."""
        group = self.observer.observe(GROUP)
        reports = [await self.executor.carry_out(group, one) for one in plan_group(group).actions]
        for one in reports:
            self.answer = {"text": one.held[0].reason.text if one.held else ""}
        return ", ".join(map(_render, reports)) or "nothing to do"

    async def do_go(self, group: str = GROUP) -> str:
        """Reconcile a group; show what it waits for, and when it is due again."""
        try:
            again = await self._go(group)
        except KeyError as bug:
            return f"{bug!r}"
        said = "" if again is None else f"again {again.total_seconds():g}s"
        return " ".join(filter(None, [self._say(group), said])) or "gone"

    async def do_on(self, times: str) -> str:
        """Reconcile the group so many times, each when it is due; show the pauses."""
        waits = []
        for _ in range(int(times)):
            again = await self._go(GROUP)
            assert again is not None
            waits.append(again.total_seconds())
            await asyncio.sleep(again.total_seconds())
        return f"{self._say(GROUP)} after {' '.join(f'{wait:g}' for wait in waits)}"

    async def _go(self, group: str) -> timedelta | None:
        return (await self.controller.reconcile(GroupName(group))).again

    def _say(self, group: str) -> str:
        state = self.group_states.find(GroupName(group))
        if state is None:
            return ""
        self.answer = {"text": state.plan.waits[0].text if state.plan.waits else ""}
        codes = [str(one.code) for one in state.plan.waits]
        loud = [f"{one.severity}" for one in state.plan.waits[:1] if one.severity == "warn"]
        counted = [
            f"{code} x{codes.count(code)}" if codes.count(code) > 1 else code
            for code in dict.fromkeys(codes)
        ]
        return " ".join([*loud, *counted, *["failed"] * state.plan.failed])

    async def do_state(self) -> str:
        """Show what pages say is being done."""
        state = self.group_states.find_newest(GROUP)
        if state is None:
            return "unknown"
        return ("underway: " if state.is_underway else "posted: ") + "; ".join(
            [*explain_actions(state.plan), *(one.code for one in state.plan.waits)]
        )

    async def do_metrics(self) -> str:
        """Show what is counted of the group, and when a reconcile last succeeded."""
        metrics = self.process.metrics
        found = []
        for name in (
            "group_reconciles_total", "group_reconciles_failed_total",
            "group_reconcile_duration_seconds_count", "pods_deleted_total", "group_waiting",
        ):  # fmt: skip
            for labels, number in read_samples(metrics, name).items():
                if number and GROUP in labels:
                    words = [one for one in labels if one != GROUP]
                    found.append(" ".join([name.removeprefix("group_"), *words, f"{number:g}"]))
        stamps = read_samples(metrics, "last_successful_group_reconcile_timestamp_seconds")
        stamp = stamps.get((GROUP,), 0)
        before = self.process.clock.now().timestamp() - stamp
        return ", ".join([*found, f"success {before:g}s ago" if stamp else "no success"])

    async def do_lists(self) -> str:
        """Show the lists until now in full."""
        return "; ".join(one.replace(ZONES, "") for one in self.client.calls if "list" in one)

    async def do_written(self) -> str:
        """Show what the last status that was written changes of the whole object."""
        [*_, body] = self.client.status_writes
        before = set_json(name_of("a"), update="new")
        status = {k: v for k, v in body["status"].items() if before["status"].get(k) != v}
        lost = {*before, *before["status"]} - {*body, *body["status"]}
        return f"{status}, {'the same' if body['spec'] == before['spec'] and not lost else 'lost'}"

    async def do_read_back(self) -> None:
        await self.executor.read_back(self.observer.observe(GROUP).owners)

    async def do_stop(self) -> None:
        self.context.process.stopping_since = elapsed()

    async def do_reads(self) -> str:
        """Show how often the pods of a zone were read for a decision."""
        before, self.read = self.read, self.process.pods.reads
        return f"{self.read - before}"

    async def do_refuse(self, pod: str, error: str = "refused", times: str = "1") -> None:
        """Have the next deletes of a pod fail."""
        await self.do_fail(error, f"delete pods/{name_of(pod)}", times)

    # Other operators

    async def do_acts(self) -> None:
        self.others.begin()

    async def do_others(self) -> str:
        """Show which pods another operator deleted last, and how long the group is left alone."""
        sets = [one for one in self.process.sets.list_group(GROUP) if isinstance(one, StatefulSet)]
        found = self.others.find(GROUP, sets)
        if found is None:
            return f"none of {len(self.others)}"
        pods = " ".join(one.removeprefix(ZONES) for one in found.pods)
        return f"{pods} for {found.left.total_seconds():g}s"

    async def do_own(self, *pods: str) -> None:
        """Have pods be known for deletes of this process."""
        for pod in pods:
            self.process.deletes.begin(self._cached(pod))

    # The world

    async def do_see(self, by: str = "") -> None:
        changes = self.process.sync(self.client)
        self.observer.observe(GROUP)  # as a reconcile may, before all changes have been told
        for old, new in changes:
            self.others.on_pod(old, new)

    async def do_zones(self, *words: str) -> None:
        await super().do_zones(*words)
        await self.do_see()

    async def do_set(self, letter: str, *words: str) -> None:
        """Store a zone with other fields of `set_json`: `limit=2`, `current=new`."""
        how: dict[str, Any] = dict(word.partition("=")[::2] for word in words)
        if "limit" in how:
            how["max_unavailable"] = how.pop("limit")
        for key in ("selector", "labels"):
            if key in how:
                how[key] = dict(pair.split(":") for pair in how[key].split(",") if pair)
        fields = {key: int(value) if key in SET_UP else value for key, value in how.items()}
        self._put_set(letter, **fields)

    async def do_pod(self, *words: str) -> None:
        """Store pods of the revision `new`, or of the old one; `unready` ones crash."""
        for name in words:
            if "-" in name:
                zone, _, ordinal = name_of(name).rpartition("-")
                revision = "new" if "new" in words else "old"
                one = pod_json(zone, int(ordinal), revision=revision, ready="unready" not in words)
                self.client.put("pods", one)

    async def do_rolled(self, letter: str) -> None:
        """Have all pods of a zone be new, also in the caches."""
        await self.do_pod("new", *(f"{letter}-{ordinal}" for ordinal in range(self.pods)))
        await self.do_see()

    async def do_edit(self, name: str, patch: str) -> None:
        """Have a pod or a StatefulSet be merged with this."""
        plural = "pods" if "-" in name else "statefulsets"
        held = self.client.objects[plural, name_of(name)]
        self.client.put(plural, merge(held, json.loads(patch)))

    async def do_empty(self) -> None:
        """Have all objects be gone."""
        self.client.objects.clear()


def _render(report: Report) -> str:
    held = {one.reason.code for one in report.held}
    words = [
        f"{report.deleted} deleted" if report.deleted else "",
        *(_shorten(one) for one in report.reasons),
        *(f"{len(report.held)} held by {code}" for code in sorted(held)),
        *([type(report.error).__name__] if report.error else []),
        "contradicted" * report.is_contradicted,
        "cut short" * report.is_cut_short,
    ]
    return " ".join(filter(None, words)) or "done"


def _shorten(reason: Reason) -> str:
    refused = reason.text.split()[0].removeprefix(ZONES)
    return f"{reason.code} {refused}" if reason.code is Code.DELETE_REFUSED else f"{reason.code}"
