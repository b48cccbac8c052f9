"""A description as cards: what is told of a group, a policy or a release, and in which order.

Text, terminal and page are three writers of these cards: they lay out, and word nothing. Times stay
times, because a page that lives, a terminal and a file show them differently.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple, TypeAlias

import msgspec
from msgspec import UnsetType

from rollout_operator.model.budget import ConditionDescription
from rollout_operator.model.description import (
    BudgetDescription,
    DeploymentDescription,
    Description,
    GateDescription,
    GroupDescription,
    HealthCheckDescription,
    Phase,
    PolicyDescription,
    PolicySetDescription,
    PolicyZoneDescription,
    ReleaseDescription,
    ReleasePhase,
    ScheduleDescription,
    SelectedCheckDescription,
    Step,
    TargetDescription,
    Waiting,
    ZoneDescription,
)
from rollout_operator.model.outcome import Code, render_path
from rollout_operator.planning.describe_groups import list_worst_first, list_worst_releases
from rollout_operator.planning.describe_policies import has_stalled, is_held, list_worst_policies
from rollout_operator.planning.wording import count, join_names, one_line

_HEALTHY: Final = "Healthy"
GROUP_KIND: Final = "group"
POLICY_KIND: Final = "MultiAZRollout"
RELEASE_KIND: Final = "Rollout"
# An empty label makes a group like any other.
EMPTY_NAME: Final = '""'
_NAMES_SHOWN: Final = 20


class Form(StrEnum):
    """How a time is told."""

    FOR = "for"
    """As a span since then."""
    IN = "in"
    """As a span until then."""
    AT = "at"
    """As a date, but for a page that lives."""
    SINCE = "since"


class Moment(NamedTuple):
    time: datetime
    form: Form


class Strong(NamedTuple):
    text: str


class Reference(NamedTuple):
    """The code of a reason, and where it is explained; empty for nowhere."""

    code: str
    link: str = ""
    is_detail: bool = False
    """Whether it is left out where room is scarce."""


class Mention(NamedTuple):
    """The name of another card."""

    kind: str
    title: str

    @property
    def text(self) -> str:
        return f"{self.kind} {self.title}"


Span: TypeAlias = str | Strong | Moment | Mention
Text: TypeAlias = tuple[Span, ...]


class Item(NamedTuple):
    text: Text
    label: str = ""
    """One short word."""
    reference: Reference | None = None
    remedy: str = ""
    is_detail: bool = False
    """Whether it is left out where room is scarce."""


class Fact(NamedTuple):
    title: str
    items: tuple[Item, ...]


class Tone(StrEnum):
    """What a phase means to a person on call."""

    DONE = "done"
    MOVING = "moving"
    SCALING = "scaling"
    WAITING = "waiting"
    HELD = "held"


class Progress(NamedTuple):
    desired: int
    ready: int
    updated: int


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """One group, policy or release."""

    kind: str
    namespace: str = ""
    name: str
    phase: str
    tone: Tone
    since: datetime | None = None
    looked: datetime | None = None
    """When it was decided; a page that lives leaves it out."""
    progress: Progress | None = None
    """None where nothing was ever counted."""
    figures: tuple[Item, ...] = ()
    headline: Item
    """The sentence to read first, and what a person can do."""
    facts: tuple[Fact, ...] = ()
    zones: tuple[ZoneDescription, ...] = ()
    policy_zones: tuple[PolicyZoneDescription, ...] = ()
    is_detail: bool = False

    @property
    def title(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def heading(self) -> str:
        """Return kind and title, without the kind of groups, of which there are most."""
        title = self.title or EMPTY_NAME
        return title if self.kind == GROUP_KIND else f"{self.kind} {title}"


TONES: Final = {
    Phase.ROLLED_OUT: Tone.DONE,
    Phase.ROLLING_OUT: Tone.MOVING,
    Phase.SCALING: Tone.SCALING,
    Phase.WAITING: Tone.WAITING,
    Phase.HELD: Tone.HELD,
}
_POLICY_TONES: Final = {"Idle": Tone.DONE, "Progressing": Tone.MOVING}
_RELEASE_TONES: Final = {
    ReleasePhase.DEPLOYED: Tone.DONE,
    ReleasePhase.BAKING: Tone.MOVING,
    ReleasePhase.DEPLOYING: Tone.MOVING,
    ReleasePhase.WAITING: Tone.WAITING,
    ReleasePhase.HELD: Tone.HELD,
    ReleasePhase.FAILED: Tone.HELD,
}


def build_group(group: GroupDescription, kind: str = GROUP_KIND) -> Card:
    """Return the card of a group, or of an object of another kind that is described as one."""
    leading = _find_leading(group, (*group.waits, *group.problems))
    return Card(
        kind=kind,
        namespace=group.namespace,
        name=group.name,
        phase=group.phase,
        tone=TONES[group.phase],
        since=group.since,
        looked=group.looked,
        progress=Progress(group.desired, group.ready, group.updated),
        figures=tuple(_list_group_figures(group)),
        headline=_build_headline(group, leading),
        facts=_gather(_list_group_facts(group, leading)),
        zones=group.zones,
    )


def build_policy(policy: PolicyDescription) -> Card:
    leading = _find_leading(policy, policy.waits)
    is_counted = policy.desired or policy.zones
    return Card(
        kind=POLICY_KIND,
        namespace=policy.namespace,
        name=policy.name,
        phase=(policy.phase or "not decided") + (", stalled" if has_stalled(policy) else ""),
        tone=Tone.HELD if is_held(policy) else _POLICY_TONES.get(policy.phase, Tone.WAITING),
        progress=Progress(policy.desired, policy.ready, policy.updated) if is_counted else None,
        headline=_build_headline(policy, leading),
        facts=_gather(_list_policy_facts(policy, leading)),
        policy_zones=policy.zones,
    )


def build_release(release: ReleaseDescription) -> Card:
    remedy = release.waits[0].remedy if release.waits else ""
    return Card(
        kind=RELEASE_KIND,
        namespace=release.namespace,
        name=release.name,
        phase=release.phase,
        tone=_RELEASE_TONES[release.phase],
        figures=(Item(tuple(_list_versions(release))),),
        headline=Item((release.headline,), reference=_name_reason(release.reason), remedy=remedy),
        facts=_gather(_list_release_facts(release)),
    )


def build_gate(release: ReleaseDescription, gate: GateDescription) -> Card:
    """Return one gate of a Rollout."""
    return Card(
        kind="RolloutGate",
        name=gate.name,
        phase="open" if gate.is_passing else "closed",
        tone=Tone.DONE if gate.is_passing else Tone.WAITING,
        headline=Item(_explain_gate(gate)),
        facts=(Fact("Of", (Item((render_card(build_release(release)),), "of"),)),),
    )


def build_schedule(schedule: ScheduleDescription) -> Card:
    tone, state = (Tone.DONE, "open") if schedule.is_open else (Tone.WAITING, "closed")
    reason = schedule.reason if schedule.reason != "GatesInSync" else ""
    return Card(
        kind=schedule.kind,
        namespace=schedule.namespace,
        name=schedule.name,
        phase=state if schedule.reason else "not decided",
        tone=tone if schedule.action else Tone.HELD,
        figures=(Item((count(schedule.rollouts, "Rollout"),)),),
        headline=Item((schedule.text,), reference=_name_reason(reason)),
        facts=_gather(_list_schedule_facts(schedule)),
    )


def build_health_check(check: HealthCheckDescription) -> Card:
    is_healthy = check.status == _HEALTHY
    target = f"{check.check_class} {check.object}".strip() or "no class: written from outside"
    rollouts = join_names(check.rollouts, shown=_NAMES_SHOWN) or "no Rollout of this namespace"
    places = (Item((target,), "of", is_detail=True), Item((rollouts,), "for", is_detail=True))
    return Card(
        kind="HealthCheck",
        namespace=check.namespace,
        name=check.name,
        phase=check.status or "not evaluated yet",
        tone=Tone.DONE if is_healthy else Tone.WAITING,
        headline=Item((check.text,)),
        facts=(Fact("Of", places),),
        is_detail=is_healthy,
    )


def build_budget(budget: BudgetDescription) -> Card:
    first = budget.waits[0] if budget.waits else None
    tone = Tone.DONE if budget.allowed else Tone.WAITING
    down = f"{budget.unavailable} of {count(budget.pods, 'pod')} down"
    return Card(
        kind="budget",
        namespace=budget.namespace,
        name=budget.name,
        phase=f"{budget.allowed} may go" if budget.is_valid else "invalid",
        tone=tone if budget.is_valid else Tone.HELD,
        figures=tuple(
            Item((text,))
            for text in (f"at most {budget.maximum or '-'}", count(budget.zones, "zone"), down)
        ),
        headline=Item(
            (budget.text,),
            reference=None if first is None else _refer(first.code),
            remedy="" if first is None else first.remedy,
        ),
        facts=_gather([_state("Waits for", _list_waits(budget.waits[1:]))]),
    )


def list_cards(description: Description) -> Iterator[Card]:
    """Yield all cards, of each kind those first that do not go on."""
    yield from map(build_group, list_worst_first(description.groups))
    yield from map(build_policy, list_worst_policies(description.list_policies()))
    yield from map(build_release, list_worst_releases(description.list_releases()))
    yield from map(build_schedule, description.list_schedules())
    yield from map(build_health_check, description.list_checks())
    yield from map(build_budget, description.budgets)


def render_card(card: Card) -> str:
    """Return one line, which changes only when something happens."""
    parts = [card.phase]
    if card.progress is not None:
        parts += render_progress(card.progress)
    parts += [_join(figure.text) for figure in card.figures if not _has_time(figure.text)]
    reference, headline = card.headline.reference, _join(card.headline.text)
    text = f": {headline}" if headline else ""
    code = "" if reference is None else f" [{reference.code}]"
    return one_line(f"{card.kind} {card.title or EMPTY_NAME}: {', '.join(parts)}{text}{code}")


def render_progress(progress: Progress) -> list[str]:
    desired, ready, updated = progress
    return [f"{ready}/{desired} ready", f"{updated}/{desired} updated"]


def render_policy_set(sts: PolicySetDescription) -> str:
    numbers = f"{sts.updated} of {sts.desired} updated, {sts.unavailable} unavailable"
    return f"{sts.name}: {numbers}, zone by {sts.source}"


def _list_group_figures(group: GroupDescription) -> Iterator[Item]:
    if group.underway_since is not None:
        yield Item(("underway ", Moment(group.underway_since, Form.FOR)))
    if group.began is not None:
        yield Item(("began ", Moment(group.began, Form.AT)), is_detail=True)
    if group.expected_end is not None:
        yield Item(("expected end ", Moment(group.expected_end, Form.IN)))


def _list_group_facts(group: GroupDescription, leading: Waiting | None) -> Iterator[Fact]:
    if not isinstance(group.policy, UnsetType):
        by = Item((Mention(POLICY_KIND, group.policy),), "by", is_detail=True)
        yield _state("Replaced by", [by])
    if group.downscale is not None:
        text = _name_subject(group.downscale.zone, group.downscale.text)
        yield _state("Downscale", [Item(text, "scale")])
    # The headline has said it.
    steps = [step for step in group.steps if (step.code, step.text) != (group.code, group.headline)]
    now = [step for step in steps if not step.is_waiting]
    later = [step for step in steps if step.is_waiting]
    yield _state("Now", (_build_step(step, "now") for step in now))
    yield _state("Next", (_build_step(step, "next") for step in later))
    yield _state("Waits for", _list_waits(group.waits, leading))
    yield _state("Also odd", _list_waits(group.problems, leading, "odd"))


def _list_policy_facts(policy: PolicyDescription, leading: Waiting | None) -> Iterator[Fact]:
    yield _state("Batch", _list_batches(policy))
    if policy.unknown_zones:
        names = join_names(policy.unknown_zones, shown=_NAMES_SHOWN)
        yield _state("Order", [Item((f"no StatefulSet is in {names}, of azOrder",), "order")])
    if policy.groups:
        names = join_names(policy.groups, shown=_NAMES_SHOWN)
        yield _state("Replaces the pods of", [Item((names,), "group")])
    yield _state("Waits for", _list_waits(policy.waits, leading))
    yield _state("Conditions", _list_conditions(policy.conditions, policy.headline))


def _list_batches(policy: PolicyDescription) -> Iterator[Item]:
    batch = policy.batch
    if batch is not None:
        state: Text = (", open",)
        if batch.completed is not None:
            state = (", complete ", Moment(batch.completed, Form.AT))
        elif batch.began is not None:
            state = (", open ", Moment(batch.began, Form.SINCE))
        pods = join_names(batch.pods, shown=_NAMES_SHOWN)
        text = (f"batch {batch.number} in ", Strong(batch.zone), f": {pods}", *state)
        yield Item(text, "last", is_detail=batch.completed is not None)
    if policy.next_batch is not None:
        yield Item(("batch ", Moment(policy.next_batch, Form.IN)), "next")
    if policy.is_paused:
        yield Item(("paused",), "next")


def _list_versions(release: ReleaseDescription) -> Iterator[Span]:
    yield from (Strong(release.tag or "nothing"), " deployed")
    if release.next:
        yield from (", then ", Strong(release.next))
    if release.wanted:
        yield from (", pinned to ", Strong(release.wanted))
    if release.is_suspended:
        yield ", suspended"


def _list_release_facts(release: ReleaseDescription) -> Iterator[Fact]:
    others = (
        Item((wait.text,), "waits", _name_reason(wait.reason), wait.remedy)
        for wait in release.waits[1:]
    )
    yield _state("Waits for", others)
    yield _state("Requested", (Item((request,), "wants") for request in release.requests))
    yield _state("Bake", _list_bake(release))
    yield _state("Gates", map(_build_gate, release.gates))
    yield _state("Health", map(_build_check, release.checks))
    yield _state("Objects of Flux", (_build_target(each, release.tag) for each in release.targets))
    if release.policy:
        text = f"ImagePolicy {release.policy} announced {release.announced or 'nothing'}"
        yield _state("Image policy", [Item((text,), "from", is_detail=True)])
    if release.candidates:
        names = join_names(release.candidates, shown=_NAMES_SHOWN)
        yield _state("Newer versions", [Item((names,), "newer", is_detail=True)])
    yield _state("History", map(_build_deployment, release.history))
    yield _state("Conditions", _list_conditions(release.conditions, release.headline))


def _list_bake(release: ReleaseDescription) -> Iterator[Item]:
    if release.bake_ends is not None:
        ends = Moment(release.bake_ends, Form.IN)
        yield Item(("is over ", ends, ", if nothing fails"), "bake")
    if release.deadline is not None:
        yield Item(("has to start ", Moment(release.deadline, Form.IN)), "bake")
    for deployment in release.history[:1]:
        for text in deployment.failed_checks:
            yield Item((f"failed: {text}",), "bake")
        if deployment.retries:
            yield Item((f"tried again {deployment.retries} times",), "bake")


def _build_gate(gate: GateDescription) -> Item:
    """Return a gate; one that is open is a detail, unless it lets only some versions through."""
    state = f" {'open' if gate.is_passing else 'closed'}: "
    is_detail = gate.is_passing and gate.allowed is None
    return Item((Strong(gate.name), state, *_explain_gate(gate)), "gate", is_detail=is_detail)


def _explain_gate(gate: GateDescription) -> Text:
    text: list[Span] = [gate.text]
    if gate.allowed is not None:
        text.append(f", allows {join_names(gate.allowed) or 'none'}")
    if gate.schedule:
        problem = f": {gate.schedule_problem}" if gate.schedule_problem else ""
        text.append(f", kept by {gate.schedule}{problem}")
    if gate.opens is not None:
        text += [", opens ", Moment(gate.opens, Form.AT)]
    return tuple(text)


def _list_schedule_facts(schedule: ScheduleDescription) -> Iterator[Fact]:
    if schedule.changes is not None:
        what = "closes " if schedule.is_open else "opens "
        item = Item((what, Moment(schedule.changes, Form.IN)), "next", is_detail=True)
        yield _state("Next", [item])
    if schedule.time_zone:
        yield _state("Time zone", [Item((schedule.time_zone,), "clock", is_detail=True)])
    if schedule.gates:
        names = join_names(schedule.gates, shown=_NAMES_SHOWN)
        yield _state("Gates", [Item((names,), "gates", is_detail=True)])
    yield _state("Conditions", _list_conditions(schedule.conditions, schedule.text))


def _build_check(check: SelectedCheckDescription) -> Item:
    text = _render_health(check.status, check.text)
    return Item((f"{check.name} is {text}",), "check", is_detail=check.status == _HEALTHY)


def _build_target(target: TargetDescription, tag: str) -> Item:
    variable = f" ({target.variable})" if target.variable else ""
    waiting = f", {target.waiting_for}" if target.waiting_for else ""
    text = f"{target.kind} {target.name}{variable} has {target.tag or 'no tag'}{waiting}"
    is_done = not target.waiting_for and target.tag in (tag, None)
    return Item((text,), "flux", is_detail=is_done)


def _build_deployment(deployment: DeploymentDescription) -> Item:
    text: list[Span] = [Strong(deployment.tag), f" {deployment.status}".rstrip()]
    if deployment.began is not None:
        text += [" ", Moment(deployment.began, Form.AT)]
    if deployment.by:
        text.append(f" by {deployment.by}")
    text += [f", {one}" for one in (deployment.message, deployment.text) if one]
    return Item(tuple(text), "was", is_detail=True)


def _render_health(status: str, text: str) -> str:
    return f"{status or 'not evaluated yet'}{f': {text}' if text else ''}"


def _list_conditions(
    conditions: Iterable[ConditionDescription], headline: str = ""
) -> Iterator[Item]:
    """Yield conditions; a message that has been said is not repeated."""
    said = {"", headline}
    for condition in conditions:
        text: list[Span] = [Strong(condition.type), f" is {condition.is_true}, {condition.reason}"]
        if condition.since is not None:
            text += [" ", Moment(condition.since, Form.FOR)]
        if condition.message not in said:
            text.append(f": {condition.message}")
        said.add(condition.message)
        yield Item(tuple(text), is_detail=True)


def _state(title: str, items: Iterable[Item]) -> Fact:
    return Fact(title, tuple(items))


def _gather(facts: Iterable[Fact]) -> tuple[Fact, ...]:
    return tuple(fact for fact in facts if fact.items)


def _find_leading(
    described: GroupDescription | PolicyDescription, reasons: Sequence[Waiting]
) -> Waiting | None:
    """Return the wait that the headline shows, None where it shows an action."""
    headline = (described.code, described.headline)
    return next((reason for reason in reasons if (reason.code, reason.text) == headline), None)


def _build_headline(
    described: GroupDescription | PolicyDescription, leading: Waiting | None
) -> Item:
    reference = None if described.code is None else _refer(described.code)
    remedy = "" if leading is None else leading.remedy
    return Item((described.headline,), reference=reference, remedy=remedy)


def _list_waits(
    waits: Iterable[Waiting], leading: Waiting | None = None, label: str = "waits"
) -> Iterator[Item]:
    for wait in waits:
        if wait is not leading:
            text = _name_subject(wait.zone, wait.text)
            yield Item(text, label, Reference(wait.code, wait.link), wait.remedy)


def _build_step(step: Step, label: str) -> Item:
    # Nothing has to be looked up while a rollout goes on.
    reference = Reference(step.code, render_path(step.code), is_detail=True)
    return Item(_name_subject(step.pod or step.zone, step.text), label, reference)


def _name_subject(subject: str, text: str) -> Text:
    """Return a sentence after the name of its subject, unless it already names it."""
    return (text,) if subject in text else (Strong(subject), f" {text}")


def _refer(code: Code) -> Reference:
    return Reference(code, render_path(code))


def _name_reason(reason: str) -> Reference | None:
    return Reference(reason) if reason else None


def _has_time(text: Text) -> bool:
    return any(isinstance(span, Moment) for span in text)


def _join(text: Text) -> str:
    return "".join(
        span if isinstance(span, str) else "" if isinstance(span, Moment) else span.text
        for span in text
    )
