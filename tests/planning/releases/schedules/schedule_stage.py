"""The commands of stories of schedules: what people write, what becomes of gates, what is held.

A schedule is of the namespace prod, over all Rollouts, denies, and is active in the first
two hours, or always. Times are minutes from the start.
"""

from datetime import timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo

from msgspec.structs import replace

from rollout_operator.model import names
from rollout_operator.model.names import Uid
from rollout_operator.model.outcome import Severity
from rollout_operator.releases.model.releases import (
    KUBERIK,
    OURS,
    CorrectGate,
    CreateGate,
    DeleteGate,
    GatedRollout,
    OwnerReference,
    ReleaseGate,
    ScheduleObject,
    SchedulePlan,
    ScheduleRule,
    ScheduleSnapshot,
    ScheduleStatus,
    WantedGate,
)
from rollout_operator.releases.planning.schedules import (
    KnownSchedules,
    choose_schedule_events,
    list_holds,
    plan_schedule,
    read_schedule,
    render_schedule_status,
)
from tests import stories
from tests.planning.releases.builders import START, gate, head, read_selector, show_minutes
from tests.planning.releases.schedules.schedule_builders import (
    ALLOW,
    DENY,
    MORNING,
    gated,
    schedule,
)

SPACES: Final = {"prod": {"env": "prod"}, "dev": {"env": "dev"}}


class ScheduleStage(stories.Steps):
    """A Rollout, and no schedule or gate yet."""

    def __init__(self) -> None:
        self.now = START
        self.compat = OURS
        self.schedules: dict[str, ScheduleObject] = {}
        self.rollouts: dict[str, GatedRollout] = {"prod/app": gated()}
        self.gates: dict[str, ReleaseGate] = {}
        self.failed: dict[str, str] = {}
        self.lacks: dict[str, Any] = {}
        self.notes: list[str] = []

    async def do_wait(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    async def do_as(self, who: str) -> None:
        assert who == "kuberik"
        self.compat = KUBERIK

    async def do_schedule(self, name: str, *words: str) -> None:
        """Write one; the last that was written is the one that is planned."""
        given = _split(words)
        namespace = "" if "cluster" in words else given.get("namespace", "prod")
        one = schedule(
            name,
            action=ALLOW if "allow" in words else DENY,
            rules=(ScheduleRule(name="always"),) if "always" in words else (MORNING,),
            time_zone=given.get("zone", "UTC"),
            namespace=namespace,
            rollouts=read_selector(given.get("rollouts", "all")),
            namespaces=read_selector(given.get("namespaces", "none")),
            pretty_name=given.get("pretty"),
            description=given.get("description"),
        )
        own = replace(
            one.head, is_terminating="going" in words, uid=Uid(given.get("uid", f"uid-{name}"))
        )
        one = replace(one, head=own)
        if "problem" in given:
            one = replace(one, schedule=None, problem=given["problem"])
        before = self.schedules.pop(name, one)
        self.schedules[name] = replace(one, status=before.status)

    async def do_rollout(self, name: str, *words: str) -> None:
        """Write one: `rollout b namespace=dev tier=web`."""
        labels = _split(words)
        namespace = labels.pop("namespace", "prod")
        going = "going" in words
        one = gated(name, namespace, labels=labels, is_terminating=going)
        self.rollouts[f"{namespace}/{name}"] = one

    async def do_delete(self, key: str) -> None:
        (self.rollouts if key in self.rollouts else self.gates).pop(key)

    async def do_gate(self, name: str, *words: str) -> None:
        self.gates[f"prod/{name}"] = gate(name, rollout=_split(words).get("rollout", "app"))

    async def do_edit(self, key: str, *words: str) -> None:
        """Change a gate: `edit prod/nights-app open owner=x`, or copy it: `name=y too`."""
        one, given = self.gates[key], _split(words)
        if "too" not in words:
            del self.gates[key]
        origin = one.origin
        if "labels" in given:
            gone = given["labels"].split(",")
            labels = {
                name: text for name, text in origin.labels.items() if name.split("/")[1] not in gone
            }
            origin = replace(origin, labels={} if gone == ["none"] else labels)
        if "owner" in given:
            owner = OwnerReference(
                api_version="v1",
                kind="ConfigMap",
                name="x",
                uid=Uid("u"),
                controller="controls" in words or None,
            )
            origin = replace(origin, owners=() if given["owner"] == "none" else (owner,))
        if "description" in given:
            origin = replace(origin, description=given["description"])
        own = replace(one.head, name=given.get("name", one.head.name))
        self.gates[f"{own.namespace}/{own.name}"] = replace(
            one,
            head=replace(own, is_terminating="going" in words),
            rollout=given.get("rollout", one.rollout),
            is_passing=(one.is_passing or "open" in words) and "closed" not in words,
            allowed_versions=tuple(given["allowed"].split(",")) if "allowed" in given else None,
            origin=origin,
        )

    async def do_failing(self, key: str, text: str) -> None:
        self.failed[key] = text

    async def do_lack(self, *words: str) -> None:
        """What may not be read: `lack namespaces_lack="Namespace: 403"`."""
        self.lacks = dict(_split(words))
        if "lacks" in self.lacks:
            self.lacks["lacks"] = (self.lacks["lacks"],)
        else:
            self.lacks["namespaces"] = {}

    async def do_pass(self, *names: str) -> str:
        """Plan each of these, or the last one, and act; return what was done, and what is said."""
        found: list[str] = []
        for name in names or [*self.schedules][-1:]:
            found += self._step(self.schedules[name])
        return "; ".join(found)

    async def do_say(self) -> str:
        """The sentences of the last events."""
        return " / ".join(self.notes)

    async def do_show(self, key: str) -> str:
        """All that a gate says of itself."""
        one = self.gates[key]
        labels = [f"{name}={text}" for name, text in one.origin.labels.items()]
        owners = [
            f"owner {owner.kind} {owner.name} {owner.uid} of {owner.api_version}"
            f"{' controls' * bool(owner.controller)}{' blocks' * bool(owner.block_owner_deletion)}"
            for owner in one.origin.owners
        ]
        texts = [one.origin.pretty_name or "", one.origin.description or ""]
        return "\n".join([*labels, *owners, *filter(None, texts)])

    async def do_holds(self, *labels: str) -> str:
        """What schedules say against a new version of the Rollout that no gate says."""
        known = KnownSchedules(
            **{
                "schedules": tuple(self.schedules.values()),
                "namespaces": SPACES,
                "compat": self.compat,
                **self.lacks,
            }
        )
        held = list_holds(
            known,
            gated(labels=_split(labels)),
            tuple(self.gates.values()),
            lambda each: read_schedule(each, self.now, ZoneInfo),
        )
        return " / ".join(held) or "none"

    def _step(self, one: ScheduleObject) -> list[str]:
        snapshot = ScheduleSnapshot(
            schedule=one,
            now=self.now,
            rollouts=tuple(self.rollouts.values()),
            gates=tuple(self.gates.values()),
            namespaces=SPACES,
            compat=self.compat,
        )
        plan = plan_schedule(snapshot, ZoneInfo)
        found = [self._act(action) for action in plan.actions]
        status = render_schedule_status(snapshot, plan, self.failed)
        events = choose_schedule_events(one.status, status)
        self.notes = [each.note for each in events]
        assert choose_schedule_events(status, status) == ()
        old, new = _show_status(one.status), _show_status(status)
        found += [part for part in new if part not in old]
        assert (status == one.status) is (old == new)
        found += [f"event {each.reason}{'!' * (each.severity is Severity.WARN)}" for each in events]
        self.schedules[one.head.name] = replace(one, status=status)
        return [*found, *_show_plan(plan)]

    def _act(self, action: CreateGate | CorrectGate | DeleteGate) -> str:
        if isinstance(action, DeleteGate):
            del self.gates[action.head.key]
            return f"delete {action.head.key}"
        wanted = action.wanted
        before = self.gates.get(wanted.key)
        own = head(wanted.name, wanted.namespace) if before is None else before.head
        if wanted.key not in self.failed:
            self.gates[wanted.key] = ReleaseGate(
                head=own,
                rollout=wanted.rollout,
                is_passing=wanted.is_passing,
                allowed_versions=before.allowed_versions if before else None,
                origin=wanted.origin,
            )
        word = "create" if isinstance(action, CreateGate) else "correct"
        return f"{word} {_show_gate(wanted)}"


def _show_gate(wanted: WantedGate) -> str:
    owners = " ".join(f"{one.kind} {one.uid}" for one in wanted.origin.owners)
    assert wanted.origin.labels[names.MANAGED_BY]
    return (
        f"{wanted.key} {'open' if wanted.is_passing else 'closed'} for {wanted.rollout} of {owners}"
    )


def _show_status(status: ScheduleStatus) -> list[str]:
    if not status.conditions:
        return []
    [ready] = status.conditions
    assert status.observed_generation == ready.observed_generation == 1
    rules = f" ({' '.join(status.active_rules)})" if status.active_rules else ""
    then = show_minutes(status.next_transition)
    text = "" if ready.message == "the gates are as they should be" else f": {ready.message}"
    return [
        f"{'active' if status.active else 'at rest'}{rules}{f' until {then}' * bool(then)}",
        f"gates {' '.join(status.managed_gates) or 'none'} of {status.matching_rollouts}",
        f"Ready={ready.status} {ready.reason}{text}",
    ]


def _show_plan(plan: SchedulePlan) -> list[str]:
    again = plan.requeue_after
    return [
        *[f"problem {plan.problem}"] * bool(plan.problem),
        *([f"again in {again.total_seconds() / 60:.6g}"] if again is not None else []),
    ]


def _split(words: tuple[str, ...]) -> dict[str, str]:
    return dict(word.split("=", 1) for word in words if "=" in word)
