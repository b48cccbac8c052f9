"""A rollout group and its health check, as the planner sees them: pods change by command alone."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from rollout_operator.gates.model import (
    Answer,
    FlawedHealthCheck,
    GroupStatus,
    HealthCheck,
    NoData,
    Number,
    QueryError,
    Status,
    decode_health_check,
)
from rollout_operator.gates.plan import Answers, Question, compose_success, judge_group, plan_check
from rollout_operator.model.names import HEALTH_CHECK, HEALTH_CHECK_BYPASS, PAUSED, Revision, Uid
from rollout_operator.model.objects import Deletion, Group, Pod, StatefulSet, Zone
from rollout_operator.model.outcome import Plan, RecordRevision
from rollout_operator.planning.explain import explain_pod
from rollout_operator.planning.rollout import plan_group
from tests.builders import NOW, group, pod, sts
from tests.gates.trees import health_check_tree
from tests.stories import Steps

BOUND: Final = "ingester-health"
_BAD: Final[Mapping[str, Answer]] = {"nodata": NoData(), "error": QueryError("connection refused")}


class PlanStage(Steps):
    def __init__(self) -> None:
        self.now = self._start = NOW
        self._spec: dict[str, Any] = {}
        self._names = {BOUND}
        self._status, self._deletions = Status(), dict[Uid, Deletion]()
        self._generation = 1
        self._sets: dict[str, StatefulSet] = {}
        self._pods: dict[str, Pod] = {}
        self._answers = ["0.1", "0.1", "1"]
        self._asked: list[str] = []
        self._gates = ""
        self._why_not_written = ""
        for letter in "abc":
            self._add_set(letter, 2)
        self._act()

    async def do_check(self, *changes: str) -> None:
        """Change the first check: `interval=1m`, `range=`, `baseline=`, `http=URL`, `disabled=`,
        `failures=`, `successes=`, `exceeded=`, `errors=`, `exhausted=`, `query=` ..."""
        tree = self._get_check()
        for name, value in (change.split("=", 1) for change in changes):
            match name:
                case "interval" | "failures" | "successes" | "exceeded":
                    field = {
                        "interval": "reevaluationInterval",
                        "failures": "consecutiveFailures",
                        "successes": "consecutiveSuccesses",
                        "exceeded": "exceededAction",
                    }[name]
                    tree.setdefault("failurePolicy", {})[field] = _read(value)
                case "errors" | "exhausted":
                    for policy in ("errorPolicy", "noDataPolicy"):
                        field = "maxAttempts" if name == "errors" else "exhaustedAction"
                        tree.setdefault(policy, {})[field] = _read(value)
                case "http":
                    tree.pop("query"), tree.pop("successQuery")
                    tree["http"] = {"url": value}
                case "range" | "baseline":
                    field = {"range": "currentRange", "baseline": "baselineRange"}[name]
                    tree[field] = value
                case _:
                    tree[name] = _read(value)
        self._generation += 1

    async def do_spec(self, *changes: str) -> None:
        """Change the health check: `onMisconfigured=Pause firstZonePods=1`."""
        for name, value in (change.split("=", 1) for change in changes):
            self._spec[name] = _read(value)
        self._generation += 1

    async def do_select(self, label: str) -> None:
        """Have the health check select StatefulSets of another group."""
        self._spec["selector"] = {"matchLabels": {"rollout-group": label}}

    async def do_lose(self) -> None:
        """Delete the health check."""
        self._names.clear()

    async def do_annotate(self, zones: str, value: str = "") -> None:
        """Bind zones to another health check, or to none."""
        self._change(zones, {HEALTH_CHECK: value.encode().decode("unicode_escape")})

    async def do_bypass(self, zone: str, minutes: str) -> None:
        """Waive the check of a zone until so many minutes from the start, or until a text."""
        try:
            until = f"{self._start + timedelta(minutes=float(minutes)):%Y-%m-%dT%H:%M:%SZ}"
        except ValueError:
            until = minutes
        self._change(zone, {HEALTH_CHECK_BYPASS: until})

    async def do_pause(self, zones: str, value: str = "true") -> None:
        self._change(zones, {PAUSED: value})

    async def do_roll(self, zones: str, revision: str) -> None:
        """Set the update revision of zones."""
        for letter in zones:
            sts = self._sets[letter]
            self._sets[letter] = replace(sts, update_revision=Revision(revision))

    async def do_replace(self, *names: str) -> None:
        """Have pods deleted, created anew and ready within this second."""
        for name in names:
            letter, _, ordinal = name.partition("-")
            sts = self._sets[letter]
            times: Any = {"created": self.now, "ready_since": self.now}
            anew = pod(letter, int(ordinal), revision=sts.update_revision, **times)
            self._pods[name] = replace(anew, is_ready=True, why_not_ready="")
            self._finish(letter)

    async def do_crash(self, *names: str) -> None:
        """Have pods crash again and again."""
        for name in names:
            down = {"is_ready": False, "ready_since": None, "is_crash_looping": True}
            self._pods[name] = replace(self._pods[name], **down, why_not_ready="CrashLoopBackOff")

    async def do_unanswered(self, *names: str) -> None:
        self._deletions = {self._pods[name].uid: Deletion.UNKNOWN for name in names}

    async def do_recover(self, *names: str) -> None:
        for name in names:
            up = {"is_ready": True, "is_crash_looping": False, "why_not_ready": ""}
            self._pods[name] = replace(self._pods[name], **up, ready_since=self.now)

    async def do_writes(self, *why_not: str) -> None:
        """Have statuses not written, for a reason, or written: `writes forbidden`, `writes`."""
        self._why_not_written = " ".join(why_not)

    async def do_answers(self, *answers: str) -> None:
        """Say what Prometheus answers: current, baseline and success, or `nodata`, `error`."""
        self._answers = [*answers, *["1"] * (3 - len(answers))]

    async def do_say(self, letter: str) -> str:
        """Show what is said of a zone."""
        texts = [*self._plan().waits, *self._plan().problems]
        said = [each.text for each in texts if each.zone == f"zone-{letter}"]
        return "\n".join(said) or "nothing"

    async def do_explain(self, name: str) -> str:
        """Show what has to happen before a pod goes."""
        told = explain_pod(self._observe(), self._plan(), f"zone-{name}")
        assert told is not None, "a pod of the group"
        return "\n".join([told.answer, *(f"{one.code}: {one.text}" for one in told.conditions)])

    async def do_queries(self) -> str:
        """Show what would be asked now."""
        check = self._load()
        assert isinstance(check, HealthCheck), "a valid one"
        entries = tuple(replace(one, checks=()) for one in self._status.groups)
        check = replace(check, status=replace(self._status, groups=entries))
        questions = plan_check(check, [self._observe()])
        return "\n".join(
            f"{each.current} at {self._show(each.at)}\n{each.baseline} at"
            f" {self._show(each.baseline_at)}\n"
            + compose_success(each.check, Number(0.25), Number(-0.5))
            for each in questions.questions
        )

    async def do_status(self) -> str:
        [entry] = self._status.groups or [GroupStatus(group="none")]
        sets = [
            f"{one.name} {one.update_revision} from {one.stable_revision or 'unknown'}"
            f" at {self._show(one.seen_at)}"
            + (f" passed at {self._show(one.passed_at)}" if one.passed_at else "")
            for one in entry.stateful_sets
        ]
        return "\n".join([*sets, *(msgspec.json.encode(one).decode() for one in entry.checks)])

    async def do_crowd(self, many: str, checks: str) -> str:
        """Record so many such groups, update zone a of each, and have so many checks fail with long
        texts: show how many are recorded, and what is said of the last one."""
        tree = self._get_check()
        self._spec["checks"] = [{**tree, "name": f"errors-{at}"} for at in range(int(checks))]
        own, names = self._load(), sorted(f"ingester-{number}" for number in range(int(many)))
        assert isinstance(own, HealthCheck), "a valid one"
        found = [_rename(self._observe(), name) for name in names]
        status = plan_check(own, found).status
        await self.do_replace("a-0", "a-1")
        self.now += timedelta(minutes=6)
        later = [_rename(self._observe(), name) for name in names]
        while (plan := plan_check(replace(own, status=status), later)).questions:
            bad = [(one, Answers(QueryError("<" * 1000))) for one in plan.questions]
            status = plan_check(replace(own, status=plan.status), later, (), bad).status
        self._status = status
        check = self._load()
        assert isinstance(check, HealthCheck), "a valid one"
        outcome = "read back" if check.status == status else "lost"
        gates = judge_group(later[-1], lambda _: check).values()
        said = next((one.text for one in gates if one.text), "waits for nothing")
        return f"{len(status.groups)} recorded and {outcome}; the last {said}"

    async def do_wipe(self) -> None:
        """Have somebody empty the status, or create the health check anew."""
        self._status = Status()

    async def do_forge(self, *changes: str) -> None:
        """Write a status as any client may, of zone b or of the check: `seenAt=TIME`."""
        tree = msgspec.json.decode(msgspec.json.encode(self._status))
        [entry] = tree["groups"]
        for name, value in (change.split("=", 1) for change in changes):
            is_of_set = name in ("seenAt", "passedAt")
            text = value.encode().decode("unicode_escape")
            for each in entry["statefulSets"][1:2] if is_of_set else entry.get("checks", ()):
                each[name] = text
        self._status = msgspec.convert(tree, Status)

    async def do_wait(self, seconds: float) -> None:
        end = self.now + timedelta(seconds=seconds)
        while (again := self._act()) is not None and self.now + again <= end:
            self.now += again
        self.now = end

    def look(self) -> list[str]:
        self._act()
        asked, self._asked = self._asked, []
        gates = self._show_gates()
        news = [gates] if gates != self._gates else []
        self._gates = gates
        return [*asked, *news]

    def _act(self, answers: Sequence[tuple[Question, Answers]] = ()) -> timedelta | None:
        """Do what is due, as the controller does; return when to do so again."""
        check = self._load()
        if not isinstance(check, HealthCheck) or self._why_not_written:
            return None
        plan = plan_check(check, [self._observe()], (), answers)
        self._status = plan.status
        found = self._load()
        assert isinstance(found, HealthCheck), "a valid one"
        assert found.status == plan.status, "read as written"
        if not plan.questions:
            return plan.again
        return self._act([(question, self._answer(question)) for question in plan.questions])

    def _answer(self, question: Question) -> Answers:
        answers: list[Answer] = [_BAD.get(text) or Number(float(text)) for text in self._answers]
        if question.check.http or not isinstance(answers[0], Number):
            found = Answers(answers[0])
        elif not isinstance(answers[1], Number):
            found = Answers(answers[0], answers[1])
        else:
            found = Answers(*answers)
        self._asked.append(f"{self._show(question.at)} asked")
        return found

    def _show_gates(self) -> str:
        observed = self._observe()
        gates = {
            letter: observed.gates[sts.uid] for letter, sts in self._sets.items()
            if sts.uid in observed.gates
        }  # fmt: skip
        shown = [
            f"{letter} {gate.state}{f' room {gate.room}' if gate.room else ''}"
            for letter, gate in gates.items()
        ]
        going = [
            action.zone.name.removeprefix("zone-")
            for action in self._plan().actions
            if not isinstance(action, RecordRevision)
        ]
        return ", ".join([*shown, f"{' '.join(going) or 'none'} goes"])

    def _plan(self) -> Plan:
        return plan_group(self._observe())

    def _observe(self) -> Group:
        pods = self._pods.values()
        zones = [
            Zone(sts=sts, pods=tuple(one for one in pods if one.owner_uid == sts.uid))
            for sts in map(self._count, self._sets.values())
        ]
        seen = replace(group(*zones), now=self.now, deletions=self._deletions)
        backwards = replace(seen, zones=seen.zones[::-1])  # a policy has an order of its own
        return replace(seen, gates=judge_group(backwards, self._find, "", self._get_error))

    def _find(self, name: str) -> HealthCheck | FlawedHealthCheck | None:
        return self._load() if name in self._names else None

    def _get_error(self, name: str) -> str:
        return self._why_not_written

    def _load(self) -> HealthCheck | FlawedHealthCheck:
        tree = health_check_tree(BOUND, **self._spec)
        tree["metadata"]["generation"] = self._generation
        # As it is written and read back.
        tree["status"] = msgspec.to_builtins(self._status)
        return decode_health_check(msgspec.json.encode(tree))

    def _get_check(self) -> dict[str, Any]:
        self._spec.setdefault("checks", health_check_tree()["spec"]["checks"])
        found: dict[str, Any] = self._spec["checks"][0]
        return found

    def _count(self, base: StatefulSet) -> StatefulSet:
        ready = sum(one.is_ready for one in self._pods.values() if one.owner_uid == base.uid)
        return replace(base, ready_replicas=ready, available_replicas=ready)

    def _finish(self, letter: str) -> None:
        base = self._sets[letter]
        own = [one for one in self._pods.values() if one.owner_uid == base.uid]
        if all(one.revision == base.update_revision for one in own):
            self._sets[letter] = replace(base, current_revision=base.update_revision)

    def _add_set(self, letter: str, replicas: int) -> None:
        names = {"current_revision": Revision("R1"), "update_revision": Revision("R1")}
        annotations = {HEALTH_CHECK: BOUND}
        self._sets[letter] = sts(letter, replicas, annotations=annotations, **names)
        for ordinal in range(replicas):
            long_ago = NOW - timedelta(days=1)
            one = pod(letter, ordinal, revision=Revision("R1"), created=long_ago)
            self._pods[f"{letter}-{ordinal}"] = replace(one, ready_since=long_ago)

    def _change(self, zones: str, annotations: Mapping[str, str]) -> None:
        for letter in zones:
            base = self._sets[letter]
            kept = {key: text for key, text in {**base.annotations, **annotations}.items() if text}
            self._sets[letter] = replace(base, annotations=kept)

    def _show(self, at: datetime) -> str:
        return f"{(at - self._start).total_seconds():g}"


def _rename(seen: Group, name: str) -> Group:
    """Return a group of another name, whose StatefulSets have other names, too."""
    zones: list[Zone] = []
    for zone in seen.zones:
        own = f"{zone.sts.name}-{name}"
        pods = [replace(one, name=f"{own}{one.name[len(zone.sts.name) :]}") for one in zone.pods]
        zones.append(replace(zone, sts=replace(zone.sts, name=own), pods=tuple(pods)))
    return replace(seen, name=name, zones=tuple(zones))


def _read(text: str) -> object:
    return int(text) if text.isdigit() else {"true": True, "false": False}.get(text, text)
