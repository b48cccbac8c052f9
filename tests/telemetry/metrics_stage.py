"""Metrics, and what writes them: each command shows which series came, went and changed.

Of more than three series of a family that come or go with the same value the number is shown; of
the reasons of a group `all`, or `the rest` beside some of another value: a new reason changes none.
"""

import re
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from rollout_operator.model.names import GroupName, Uid
from rollout_operator.model.objects import Webhook, WebhookConfiguration, list_failure_policies
from rollout_operator.model.outcome import (
    Action,
    Code,
    Plan,
    Reason,
    RecordRevision,
    Severity,
    ZoneProgress,
)
from rollout_operator.model.policy import PolicySetStatus, PolicyStatus, PolicyZoneStatus
from rollout_operator.telemetry import logs
from rollout_operator.telemetry.exposition import MetricFamily, Rebuilt
from rollout_operator.telemetry.metrics import WAIT_CODES, GroupState, GroupStates, Metrics, Subject
from rollout_operator.telemetry.policies import PolicyMetrics
from tests.builders import zone
from tests.fakes_clock import EPOCH, FakeClock
from tests.own_metrics import make_all_metrics
from tests.stories import Steps

MANY: Final = 3
CODES: Final = {str(code): code for code in Code}
REASONS: Final = ("Conflict", "MultipleZonesUnavailable")
# `[!]code[/severity][@zone]:text[~what stays the same]`; a problem, with `!`, holds nothing.
_REASON: Final = re.compile(
    r"(?P<is_problem>!?)(?P<code>\w+)(/(?P<severity>\w+))?(@(?P<zone>[\w-]+))?:(?P<text>[^~]+)"
    r"(~(?P<stable>.+))?"
)
_ZONE: Final = re.compile(r"[\w-]+:\d+,\d+")


class MetricsStage(Steps):
    """The metrics of a process, the states of its groups, and its log."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.process = self.metrics = Metrics()
        self.states = GroupStates(self.metrics, self.clock)
        self.policies: dict[str, PolicyMetrics] = {}
        self.hooks: list[WebhookConfiguration] = []
        self.is_hooked = False
        self.ages: dict[str, float] = {}
        self.lines: list[str] = []
        self.underway = ExitStack()
        self.seen = self._read()
        logs.configure(write=lambda line: self.lines.append(line.decode()))

    async def do_wait(self, seconds: float) -> None:
        self.clock.jump(timedelta(seconds=seconds))

    async def do_begin(self, group: str) -> None:
        self.metrics.begin_group(group)

    async def do_scale(self, group: str) -> None:
        self.metrics.begin_scaling(group)

    async def do_unscale(self, group: str) -> None:
        self.metrics.forget_scaling(group)

    async def do_forget(self, group: str) -> None:
        self.metrics.forget_group(group)
        self.states.forget(GroupName(group))

    async def do_inc(self, name: str, *labels: str) -> None:
        getattr(self.metrics, name).labels(*labels).inc()

    async def do_set(self, name: str, value: str) -> None:
        getattr(self.metrics, name).set(float(value))

    async def do_block(self, group: str, *codes: str) -> None:
        self.metrics.show_blockers(group, map(CODES.__getitem__, codes), self.clock.now())

    async def do_age(self, kind: str, value: str) -> None:
        self.ages[kind] = float(value)
        self.metrics.watch_age.labels(kind).set_function(lambda: self.ages[kind])

    async def do_namespace(self, name: str) -> None:
        """Go on in one of several namespaces."""
        self.metrics = self.process.for_namespace(name)

    async def do_types(self) -> str:
        """Show how many heads there are; each family has one."""
        heads = re.findall(r"^# TYPE (\S+)", self._render(), re.MULTILINE)
        assert len(heads) == len({*heads})
        return f"{len(heads)} types"

    async def do_families(self) -> str:
        """Show each family that there may be, with its labels, and its buckets."""
        found = set()
        for one in make_all_metrics().registry._collector_to_names:
            if isinstance(one, MetricFamily):
                labels = ",".join(one.label_names)
                bounds = [f"{bound:.12g}" for bound in getattr(one, "bounds", ())]
                found.add(f"{one.name} {one.kind} {{{labels}}} {' '.join(bounds)}".rstrip())
            elif isinstance(one, Rebuilt):
                found.add(f"{one._name} rebuilt {{{','.join(one._labels)}}}")
        return "\n".join(sorted(name.removeprefix("rollout_operator_") for name in found))

    # Zones of groups, such as `a:3,1` for three pods of which one is updated

    async def do_zones(self, group: str, *zones: str) -> None:
        progress = [_tell_progress(one) for one in zones]
        self.metrics.show_zones(group, progress, self.clock.now())

    # States of groups

    async def do_post(self, group: str, *words: str) -> str:
        """Post the plan of rollouts, or with `scaling` that of counts; show when to look again."""
        subject = Subject.SCALING if "scaling" in words else Subject.ROLLOUT
        due = self.states.post(_read_plan(group, words), subject)
        return f"due in {due.total_seconds():g}s" if due else ""

    async def do_carry(self, group: str, *words: str) -> None:
        plan = _read_plan(group, words, (_record(),))
        self.underway.enter_context(self.states.carrying_out(plan))

    async def do_carried(self) -> None:
        self.underway.close()

    async def do_newest(self, group: str) -> str:
        found = self.states.find_newest(GroupName(group))
        return self._tell(found) if found else "nothing"

    async def do_entries(self) -> str:
        return "; ".join(
            f"{one.plan.group}: {self._tell(one)}" for one in self.states.entries()
        ) or "none"  # fmt: skip

    def _tell(self, state: GroupState) -> str:
        waits = [f"{one.code}:{one.text}" for one in state.plan.waits]
        problems = [f"!{one.code}:{one.text}" for one in state.plan.problems]
        times = [f"{(at - EPOCH).total_seconds():g}" for at in (state.since, state.looked)]
        underway = " underway" if state.is_underway else ""
        return f"{', '.join([*waits, *problems]) or '-'} since {times[0]} at {times[1]}{underway}"

    # Policies, with zones such as `a:db-a,1` for a StatefulSet of three pods, one of them outdated

    def _policies(self, namespace: str = "prod") -> PolicyMetrics:
        if namespace not in self.policies:
            self.policies[namespace] = PolicyMetrics(self.metrics.registry, namespace, REASONS)
        return self.policies[namespace]

    async def do_policy(self, name: str, phase: str, *words: str) -> None:
        zones = [_read_policy_zone(word) for word in words if ":" in word]
        reasons = [word for word in words if ":" not in word]
        status = PolicyStatus(phase=phase, zones=tuple(zones))
        self._policies().show(name, status, reasons)

    async def do_batch(self, name: str, at: str) -> None:
        self._policies().count_batch(name, at)

    async def do_delete(self, name: str, at: str) -> None:
        self._policies().count_delete(name, at)

    async def do_took(self, name: str, seconds: str) -> None:
        self._policies().record_duration(name, timedelta(seconds=float(seconds)))

    async def do_completed(self, name: str) -> None:
        self._policies().show_completion(name, datetime(2026, 1, 1, tzinfo=UTC))

    async def do_drop(self, name: str) -> None:
        self._policies().forget(name)

    # Webhooks, of the operator in the namespace `ops`, such as `a=Fail`

    async def do_hooks(self, name: str, kind: str, labels: str, *hooks: str) -> None:
        """Have a configuration with these hooks; without any it is gone."""
        if not self.is_hooked:
            self.is_hooked = True
            self.metrics.failure_policies(lambda: list_failure_policies(self.hooks, "ops"))
        self.hooks = [one for one in self.hooks if one.name != name]
        if hooks:
            made = WebhookConfiguration(
                kind=f"{kind}WebhookConfiguration",
                name=name,
                uid=Uid(name),
                resource_version="1",
                labels=dict(one.split("=") for one in labels.split(",")),
                webhooks=tuple(
                    Webhook(name=one, failure_policy=policy)
                    for one, policy in (hook.split("=") for hook in hooks)
                ),
            )
            self.hooks.append(made)

    async def do_hook(self, hook: str) -> None:
        self.metrics.denials.begin(hook)

    async def do_deny(self, hook: str, user: str, *words: str) -> None:
        """Count `times=9` denials, of user `#` below `of`, `every=60` s, each with `others=333`."""
        how = dict(word.split("=") for word in words)
        times, every = int(how.get("times", 1)), timedelta(seconds=int(how.get("every", 0)))
        for number in range(times):
            now = self.clock.elapsed()
            name = user.replace("#", f"{number % int(how.get('of', times))}")
            self.metrics.denials.count(hook, name, now)
            for other in range(int(how.get("others", 0))):
                self.metrics.denials.count(hook, f"other-{number}-{other // 2}", now)
            self.clock.jump(every)

    def look(self) -> list[str]:
        before, self.seen = self.seen, self._read()
        lines, self.lines = self.lines, []
        return [*map(_tell_line, lines), *_list_changes(before, self.seen)]

    def _render(self) -> str:
        return b"".join(self.process.render()).decode()

    def _read(self) -> dict[str, str]:
        series = (
            line.removeprefix("rollout_operator_").rsplit(" ", 1)
            for line in self._render().splitlines()
            if not line.startswith(("#", "process_", "python_"))
        )
        return {name: value for name, value in series if "_bucket{" not in name}


def _list_changes(before: dict[str, str], after: dict[str, str]) -> list[str]:
    grouped: dict[tuple[str, str, str], list[str]] = {}
    families = dict.fromkeys(name.partition("{")[0] for name in (*after, *before))
    places = {family: place for place, family in enumerate(families)}
    # Of a family the order may be that of a set.
    for name in sorted({*after, *before}, key=lambda one: (places[one.partition("{")[0]], one)):
        if name not in after:
            key = ("-", name.partition("{")[0], "")
        elif name not in before:
            key = ("+", name.partition("{")[0], f" {after[name]}")
        elif before[name] != after[name]:
            key = ("", name.partition("{")[0], f" {after[name]}")
        else:
            continue
        labels = re.sub(r'(?<=[{,])\w+="([^"]*)"', r"\1", name)
        grouped.setdefault(key, []).append(labels)
    sizes = Counter((sign, family) for (sign, family, _), names in grouped.items() for _ in names)
    return [
        change
        for (sign, family, value), names in grouped.items()
        for change in (
            [f"{sign}{_count(family, len(names), sizes[sign, family])} of {family}{value}"]
            if sign and len(names) > MANY
            else [f"{sign}{name}{value}" for name in names]
        )
    ]


def _count(family: str, number: int, total: int) -> str:
    if family != "group_waiting" or total != len(WAIT_CODES):
        return f"{number}"
    return "all" if number == total else "the rest"


def _tell_line(line: str) -> str:
    """Return a line of the log, without its time and keys that stand in its message or text."""
    level, _, rest = line.rstrip("\n").split(" ", 2)
    message, _, why = rest.removeprefix("msg=").partition(" why=")
    return f"{level.removeprefix('level=')} {message}: {why}"


def _read_reasons(words: Sequence[str]) -> list[tuple[bool, Reason]]:
    found = []
    for word in words:
        match = None if _ZONE.fullmatch(word) else _REASON.fullmatch(word)
        if match:
            more: dict[str, Any] = {"stable_text": match["stable"]} if match["stable"] else {}
            reason = Reason(
                code=CODES[match["code"]],
                text=match["text"],
                zone=match["zone"] or "",
                severity=Severity(match["severity"] or "info"),
                **more,
            )
            found.append((bool(match["is_problem"]), reason))
    return found


def _read_plan(group: str, words: Sequence[str], actions: tuple[Action, ...] = ()) -> Plan:
    reasons = _read_reasons(words)
    progress = tuple(_tell_progress(word) for word in words if _ZONE.fullmatch(word))
    return Plan(
        group=GroupName(group),
        actions=actions,
        waits=tuple(one for is_problem, one in reasons if not is_problem),
        problems=tuple(one for is_problem, one in reasons if is_problem),
        progress=progress or None,
    )


def _record() -> Action:
    sts = zone("a").sts
    reason = Reason(Code.ROLLED_OUT, "r")
    return RecordRevision(zone=sts, revision=sts.update_revision, reason=reason)


def _tell_progress(word: str) -> ZoneProgress:
    name, numbers = word.split(":")
    desired, updated = map(int, numbers.split(","))
    return ZoneProgress(
        zone=name,
        uid=Uid(name),
        desired=desired,
        ready=2,
        updated=updated,
        outdated=desired - updated,
    )


def _read_policy_zone(word: str) -> PolicyZoneStatus:
    name, what = word.split(":")
    sts, _, outdated = what.partition(",")
    count = int(outdated or 0)
    one = PolicySetStatus(name=sts, replicas=3, updated_pods=3 - count, outdated_pods=count)
    return PolicyZoneStatus(name=name, stateful_sets=(one,))
