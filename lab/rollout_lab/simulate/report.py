"""A simulation as it is shown: as text for people, two side by side, and as JSON for machines.

The text tells how it ends, what is taken for granted, and what happens. `docs/simulate.schema.json`
is the schema of the JSON: a field is added freely, and none is renamed or removed without a new
version. Times there are seconds since the start.
"""

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import zip_longest
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from rollout_lab.admission.registrations import REGISTRATIONS
from rollout_lab.model.fields import child, name_of, number
from rollout_lab.model.history import Called, History, Lived, Record
from rollout_lab.simulate.changes import map_declared
from rollout_lab.simulate.dump import Dump, FoundSet
from rollout_lab.simulate.figures import (
    Figures,
    SimulatedBatch,
    SimulatedCrossing,
    SimulatedEviction,
    SimulatedOverlap,
    find_shortest_pause,
    to_seconds,
)
from rollout_lab.simulate.flags import SimulateSettings, show_time
from rollout_lab.simulate.gates import GateOutcome
from rollout_lab.simulate.objects import WEBHOOKS, is_filled_in, list_hooks
from rollout_lab.simulate.policies import FoundPolicy, choose_policy_phase
from rollout_lab.simulate.times import LEAST, PodTimes
from rollout_lab.simulate.world import PERSON, Play
from rollout_lab.trace.lines import list_lines
from rollout_lab.trace.trace import WIDTH, render_story
from rollout_operator.gates.plan import find_name
from rollout_operator.kube.api import NATIVE_BUDGETS, ZONE_BUDGETS
from rollout_operator.model.description import Description, GroupDescription, Phase
from rollout_operator.model.diagnosis import FindingCode
from rollout_operator.model.names import DOWNSCALE_DELAY, MAX_UNAVAILABLE, PAUSED, ExitCode
from rollout_operator.model.objects import Pod, StatefulSet
from rollout_operator.model.outcome import Code
from rollout_operator.model.policy import PolicyPhase
from rollout_operator.model.units import format_duration, quote
from rollout_operator.planning.doctor import EXPLANATIONS
from rollout_operator.planning.readiness import choose_limit
from rollout_operator.planning.wording import count, format_json, join_names

INDENT: Final = "  "
# The objects of the input are put into the world in its first instant.
FIRST_STEP: Final = timedelta(microseconds=1)
_BUDGET: Final = (
    *("maxUnavailable", "maxUnavailablePercentage", "minAvailable", "podNamePartitionRegex"),
    "crossZoneEvictionDelay",
)
# A drain past all budgets crosses one with nearly each of its pods.
MOST_CROSSINGS: Final = 5
_PASSING: Final = frozenset({"started", "ready"})


class SimulationRun(msgspec.Struct, frozen=True, kw_only=True):
    dump: Dump
    settings: SimulateSettings
    times: PodTimes
    epoch: datetime
    play: Play
    figures: Figures

    def records(self) -> list[Record]:
        """Return what happened, from the first instant until the operator was told to stop."""
        return [record for record in self.play.history.records if self._is_reported(record)]

    @property
    def exit_code(self) -> ExitCode:
        """Return how it ends, as the exit code that a script wants."""
        if self.figures.crossings:
            return ExitCode.BOUND_CROSSED
        phases = {group.phase for group in self.play.description.groups}
        phases.update(map(choose_policy_phase, self.play.description.list_policies()))
        if phases == {Phase.ROLLED_OUT} and not self.play.undone:
            return ExitCode.DONE
        may_go_on = self.play.is_cut and Phase.HELD not in phases
        return ExitCode.TIMED_OUT if may_go_on else ExitCode.NEEDS_A_PERSON

    def _is_reported(self, record: Record) -> bool:
        if isinstance(record, Lived) and record.what in _PASSING:
            return False
        if isinstance(record, Called) and _is_said(record):
            return False
        return record.at < self.play.ended_at


def _is_said(called: Called) -> bool:
    """Return whether it says once more what the change itself says."""
    is_delete = called.request.verb == "delete"
    return is_delete and called.actor == PERSON and called.status < 400


def render_text(run: SimulationRun, width: int = WIDTH) -> Iterator[str]:
    """Yield the lines, each at most so many columns wide unless a name is longer."""
    for line in _list_lines(run, width):
        indent = " " * (len(line) - len(line.lstrip()))
        yield from wrap_words(line, width, f"{indent}{INDENT}") or [""]


def _list_lines(run: SimulationRun, width: int) -> Iterator[str]:
    yield "Nothing is sent anywhere: all of this happens on a copy of the input."
    yield ""
    yield f"In the end{_when(run)}:"
    yield from _indent((*list_ends(run.play), *list_sums(run)))
    yield ""
    yield from _render_groups(run.dump, _list_quiet(run))
    yield ""
    yield "Assumptions:"
    yield from _indent(_list_assumptions(run))
    yield ""
    yield "What happens:"
    rows = render_story(History(records=run.records()), begin=FIRST_STEP, width=width)
    yield from rows or [f"{INDENT}nothing"]
    holds = tuple(_list_blockers(run.play.description))
    if holds:
        yield ""
        yield "What holds it in the end, and what would help:"
        yield from _indent(holds)


def list_ends(play: Play) -> Iterator[str]:
    """Yield what the operator says of each group in the end."""
    for group in play.description.groups:
        if group.code is not Code.DRIVEN_BY_POLICY:
            yield f"{group.name}: {group.phase}: {group.headline}"
    for policy in play.description.list_policies():
        yield f"policy {policy.name}: {choose_policy_phase(policy)}: {policy.headline}"
    yield from play.undone
    if play.is_cut:
        yield f"it was cut off after {show_span(play.ended_at)}: more may follow"


def _list_blockers(description: Description) -> Iterator[str]:
    """Yield why groups and budgets do not go on, each with what a person can do."""
    groups = [(group.name, group.waits + group.problems) for group in description.groups]
    budgets = [(f"budget {budget.name}", budget.waits) for budget in description.budgets]
    policies = [(f"policy {policy.name}", policy.waits) for policy in description.list_policies()]
    for name, waits in groups + budgets + policies:
        for wait in waits:
            # What the policy waits for is told of itself.
            if wait.code is Code.DRIVEN_BY_POLICY:
                continue
            yield f"{name}: {wait.text} [{wait.code}]"
            if wait.remedy:
                yield f"{INDENT}{wait.remedy}"
    for policy in description.list_policies():
        if policy.phase == PolicyPhase.INVALID:
            yield f"policy {policy.name}: {policy.headline} [{policy.reason}]"
            yield f"{INDENT}{EXPLANATIONS[FindingCode.POLICY_REFUSED].remedy}"


def list_sums(run: SimulationRun) -> Iterator[str]:
    figures = run.figures
    again = len(figures.deletes) - len(set(figures.deletes))
    twice = f", {again} of them a second time" if again else ""
    yield f"{count(len(figures.deletes), 'delete')} by the operator{twice}"
    downs = [f"{down} of {zone}" for zone, down in figures.most_down.items() if down]
    yield f"most pods down at a time: {join_names(downs, shown=20) or 'none'}"
    for policy in run.dump.policies:
        yield from _sum_batches(policy.name, figures)
    if not figures.overlaps:
        of = "policy" if run.dump.obeys and run.dump.policies else "group"
        yield f"pods of two zones of a {of} were never down together"
    for overlap in figures.overlaps:
        lasting = "to the end" if overlap.is_open else f"for {_show_seconds(overlap.seconds)}"
        begin = _show_seconds(overlap.at)
        yield f"pods of {join_names(overlap.zones)} down together {lasting}, from {begin} on"
    for crossing in figures.crossings[:MOST_CROSSINGS]:
        yield f"past a bound at {_show_seconds(crossing.at)}, by {crossing.by}: {crossing.text}"
    hidden = len(figures.crossings) - MOST_CROSSINGS
    if hidden > 0:
        yield f"and past a bound {count(hidden, 'more time')}"
    if run.settings.changes:
        yield f"{count(len(figures.refusals), 'request')} refused"
    for eviction in figures.evictions:
        waited = _show_seconds(eviction.waited)
        if eviction.is_open:
            yield f"the eviction of {eviction.pod} was never allowed, in {waited} to the end"
        elif eviction.waited >= LEAST.total_seconds():
            yield f"the eviction of {eviction.pod} waits for {waited}"


def _sum_batches(policy: str, figures: Figures) -> Iterator[str]:
    if batches := figures.list_batches_of(policy):
        pause = find_shortest_pause(batches)
        apart = "" if pause is None else f", {show_span(pause)} apart at least"
        noun = "batch" if len(batches) == 1 else "batches"
        yield f"{len(batches)} {noun} of policy {policy}{apart}"


def _list_quiet(run: SimulationRun) -> Mapping[str, str]:
    """Return a line for each group and policy that no change is about, and that is at rest."""
    deeds = [change.deed for _, change in run.settings.changes]
    dump, names = run.dump, run.dump.names()
    named = [names.list_zones(deed) for deed in deeds]
    if not all(named):
        return {}
    quiet: dict[str, str] = {}
    for unit, zones in dump.units.items():
        pods = [pod for zone in zones for pod in dump.pods_of(zone)]
        sets = [sts.decoded for sts in dump.sets if sts.decoded.name in zones]
        revisions = {sts.name: sts.update_revision for sts in sets}
        wanted = sum(sts.replicas for sts in sets)
        ready = [
            pod
            for pod in pods
            if pod.decoded.is_ready and pod.decoded.revision == revisions[pod.zone]
        ]
        is_touched = any(not deed_zones.isdisjoint(zones) for deed_zones in named)
        if named and not is_touched and len(ready) == len(pods) == wanted:
            size = f"{count(len(zones), 'StatefulSet')}, {count(wanted, 'pod')}"
            quiet[unit] = f"{size}, all ready at the update revision; no change is about it"
    return quiet


def _render_groups(dump: Dump, quiet: Mapping[str, str]) -> Iterator[str]:
    titles = {policy.title for policy in dump.policies}
    for policy in dump.policies:
        if policy.title in quiet:
            yield f"MultiAZRollout {policy.name}: {quiet[policy.title]}"
        else:
            yield from _render_policy(dump, policy)
    for group, zones in dump.units.items():
        if group in titles:
            continue
        if group in quiet:
            yield f"Rollout group {group}: {quiet[group]}"
            continue
        yield f"Rollout group {group} in namespace {dump.namespace}:"
        members = [sts for sts in dump.sets if sts.decoded.name in zones]
        width = max(len(member.decoded.name) for member in members)
        for member in members:
            yield f"{INDENT}{member.decoded.name:{width}}  {', '.join(_describe(dump, member))}"
    for each in dump.templates:
        yield f"ReplicaTemplate {name_of(each)}: {number(each, 'spec', 'replicas')} replicas wanted"
    for each in dump.others_of(ZONE_BUDGETS, NATIVE_BUDGETS):
        said = [f"{key} {value}" for key, value in child(each, "spec").items() if key in _BUDGET]
        yield f"{each['kind']} {name_of(each)}: {', '.join(said)}"
    yield from dump.left_out


def _render_policy(dump: Dump, found: FoundPolicy) -> Iterator[str]:
    head = f"MultiAZRollout {found.name} in namespace {dump.namespace}"
    policy, members = found.policy, dump.units.get(found.title, ())
    if not dump.obeys:
        yield f"{head} is not obeyed"
    elif policy is None:
        yield f"{head} is not in service"
        yield from _indent(found.refusals)
    else:
        pause, order = format_duration(policy.interval), policy.pod_order.lower()
        limit = f"at most {policy.max_unavailable} down in a zone"
        yield f"{head}: {limit}, a pause of {pause}, pods {order}:"
    homes = {sts.name: (zone.name, sts.source) for zone in found.zones for sts in zone.sets}
    width = max(map(len, members), default=0)
    for name in (*homes, *(member for member in members if member not in homes)):
        zone, source = homes.get(name, ("", ""))
        [found_set] = [sts for sts in dump.sets if sts.decoded.name == name]
        where = [f"zone {zone} ({source})"] if zone else []
        yield f"{INDENT}{name:{width}}  {', '.join((*where, *_describe(dump, found_set)))}"


def _describe(dump: Dump, found: FoundSet) -> Iterator[str]:
    sts = found.decoded
    pods = dump.pods_of(sts.name)
    ready = sum(pod.decoded.is_ready for pod in pods)
    yield f"{ready} of {count(sts.replicas, 'pod')} ready"
    outdated = sum(pod.decoded.revision != sts.update_revision for pod in pods)
    if outdated:
        yield f"{outdated} outdated"
    ending = sum(pod.decoded.is_terminating for pod in pods)
    if ending:
        yield f"{ending} terminating"
    if dump.unit_of[sts.name] == found.group:
        yield _describe_limit(sts)
    if PAUSED in sts.annotations:
        yield f"{PAUSED}={sts.annotations[PAUSED]}"


def _describe_limit(sts: StatefulSet) -> str:
    given = sts.annotations.get(MAX_UNAVAILABLE, "1")
    limit, problem = choose_limit(sts)
    if problem is None:
        return f"at most {given} down"
    return f"at most {limit} down ({MAX_UNAVAILABLE}={quote(given)} cannot be used)"


def _list_assumptions(run: SimulationRun) -> Iterator[str]:
    manifests = [sts.decoded.name for sts in run.dump.sets if is_filled_in(sts.obj)]
    if manifests:
        shown = join_names(manifests, shown=20)
        yield f"what the manifests of {shown} say is applied, and all pods are ready"
    for group, time in run.times.ready.items():
        of = f" (median of {count(time.pods, 'pod')})" if time.pods else ""
        yield f"a new pod of {group} is ready after {show_span(time.span)}{of}"
    yield f"a pod ends within {show_span(run.settings.terminates_after)}"
    for pod, left in run.times.list_left(run.dump):
        state = "gone" if pod.decoded.is_terminating else "ready"
        yield f"{pod.decoded.name} is {state} after {show_span(left)}"
    for pod in run.times.stuck:
        end = "" if pod.decoded.is_terminating else " until it is replaced"
        why = f"{pod.decoded.why_not_ready}{_show_age(pod.decoded, run)}"
        yield f"{pod.decoded.name} stays as it is{end}: {why}"
    yield f"it begins at {show_time(run.epoch)}"
    yield from _list_hooks(run)
    for gate, outcome in _map_gates(run).items():
        yield f"gate {gate} is {outcome} at the start: no server is asked"
    bound = {find_name(sts.decoded) for sts in run.dump.sets} - {""}
    for gate in sorted(bound - run.dump.names().gates.keys()):
        yield f"gate {gate} is not in the input: zones are begun without it (kubectl get rhc)"
    yield "pods agree when they are called to prepare"
    if any(DOWNSCALE_DELAY in sts.decoded.annotations for sts in run.dump.sets):
        yield "pods are prepared for a delayed downscale since they are called here, none before"


def _show_age(pod: Pod, run: SimulationRun) -> str:
    """Return how old a pod is that would be starting if it were younger."""
    if not pod.is_starting or pod.created is None:
        return ""
    return f", {show_span(run.epoch - pod.created)} after it was created"


def _list_hooks(run: SimulationRun) -> Iterator[str]:
    there = list_hooks(run.dump.others_of(*WEBHOOKS))
    untold = list_hooks(run.dump.list_untold_hooks())
    if len(untold) < len(REGISTRATIONS):
        yield f"registered webhooks of the operator, as in the input: {', '.join(there) or 'none'}"
    if untold:
        state = "are registered" if run.settings.webhooks else "are not registered"
        yield f"webhooks that the input does not tell of {state}: {', '.join(untold)}"


def _map_gates(run: SimulationRun) -> Mapping[str, GateOutcome]:
    """Return what each RolloutHealthCheck that a StatefulSet names comes to at the start."""
    declared = map_declared(run.settings.changes)
    bound = [gate for gate, zones in run.dump.names().gates.items() if zones]
    return {gate: declared.get(gate, GateOutcome.PASSING) for gate in bound}


def _when(run: SimulationRun) -> str:
    took = run.play.moved_at
    return f", after {show_span(took)}" if took >= LEAST else ""


def show_span(span: timedelta) -> str:
    """Return a span without fractions that no one could foresee."""
    return format_duration(timedelta(seconds=round(span.total_seconds())))


def _show_seconds(seconds: float) -> str:
    return show_span(timedelta(seconds=seconds))


def _indent(sentences: Iterable[str]) -> Iterator[str]:
    return (f"{INDENT}{sentence}" for sentence in sentences)


def wrap_words(text: str, width: int, indent: str = "") -> list[str]:
    """Wrap text at blanks only; `indent` begins all lines but the first."""
    return textwrap.wrap(
        text,
        width,
        subsequent_indent=indent,
        break_on_hyphens=False,
        break_long_words=False,
    )


_GAP: Final = "  "


def render_comparison(change: SimulationRun, versus: SimulationRun, width: int) -> Iterator[str]:
    """Yield the lines of a table, at most so many columns wide unless a name is longer."""
    left, right = dict(_list_cells(change)), dict(_list_cells(versus))
    first = max(map(len, left))
    room = (width - first - 2 * len(_GAP)) // 2
    yield "Nothing is sent anywhere: all of this happens on two copies of the input."
    yield ""
    for label in left:
        cells = [_wrap(side[label], room) for side in (left, right)]
        for place, (cell, other) in enumerate(zip_longest(*cells, fillvalue="")):
            head = "" if place else label
            yield f"{head:{first}}{_GAP}{cell:{room}}{_GAP}{other}".rstrip()


def _list_cells(run: SimulationRun) -> Iterator[tuple[str, str]]:
    figures = run.figures
    changes = "\n".join(change.text for _, change in run.settings.changes)
    yield "changes", changes or "none"
    yield "in the end", "\n".join(list_ends(run.play))
    yield "last move after", show_span(run.play.moved_at)
    yield "deletes by the operator", str(len(figures.deletes))
    for policy in run.dump.policies:
        batches = figures.list_batches_of(policy.name)
        yield f"batches of {policy.name}", str(len(batches))
        pause = find_shortest_pause(batches)
        yield f"shortest pause of {policy.name}", "none" if pause is None else show_span(pause)
    for zone, down in figures.most_down.items():
        yield f"most down of {zone}", str(down)
    together = sum(overlap.seconds for overlap in figures.overlaps)
    yield "zones down together", f"for {together:.0f}s" if figures.overlaps else "never"
    yield "requests refused", str(len(figures.refusals))
    yield "evictions", _describe_evictions(figures)
    crossings = figures.crossings
    first = f"{count(len(crossings), 'time')}, first: {crossings[0].text}" if crossings else "never"
    yield "past a bound", first


def _describe_evictions(figures: Figures) -> str:
    if not figures.evictions:
        return "none"
    longest = max(eviction.waited for eviction in figures.evictions)
    refused = sum(eviction.is_open for eviction in figures.evictions)
    more = f", {refused} not allowed in the end" if refused else ""
    pods = count(len(figures.evictions), "pod")
    return f"of {pods}, waited {_show_seconds(longest)} at most{more}"


def _wrap(text: str, room: int) -> Sequence[str]:
    lines = text.splitlines()
    wrapped = (wrap_words(line, room) for line in lines)
    return [row for rows in wrapped for row in rows] or [""]


SIMULATION_SCHEMA: Final = 1


class SimulatedStep(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One line of the story."""

    at: float
    who: str
    what: str
    """The pod or webhook that it is about; empty where it is about none."""
    text: str


class SimulatedZone(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A zone of a policy, as the input has it."""

    name: str
    stateful_sets: Sequence[str]


class SimulatedPolicy(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A MultiAZRollout."""

    name: str
    is_obeyed: bool
    zones: Sequence[SimulatedZone]
    """In the order of their updates; none where it is not in service, or they cannot be known."""
    refusals: Sequence[str]
    """Why it is not in service from the start."""
    phase: str
    """In the end, as the other phases here; empty where it is not obeyed."""
    text: str
    """The headline then; `end` has more of it."""
    batches: Sequence[SimulatedBatch]


class SimulationDocument(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What `rollout-operator simulate -o json` prints."""

    schema_version: int = SIMULATION_SCHEMA
    exit_code: int
    """As `-exit-code` has it for these changes."""
    changes: Sequence[str]
    namespace: str
    groups: Mapping[str, Sequence[str]]
    """The zones of each rollout group."""
    left_out: Sequence[str]
    begins: str
    ready_after: Mapping[str, float]
    stuck: Sequence[str]
    terminates_after: float
    steps: Sequence[SimulatedStep]
    ends: Mapping[str, Sequence[str]]
    """What is said of each group in the end; `end` has more of it."""
    end: Description
    """As `/status.json` of the operator would be then."""
    undone: Sequence[str]
    """What of the changes was not done in the end."""
    seconds: float
    """When something moved for the last time."""
    is_cut_off: bool
    deletes: Sequence[str]
    most_down: Mapping[str, int]
    down_together: Sequence[SimulatedOverlap]
    refusals: Sequence[str]
    evictions: Sequence[SimulatedEviction]
    crossings: Sequence[SimulatedCrossing]
    policies: Sequence[SimulatedPolicy] | UnsetType = UNSET
    """Absent where the input has none."""
    gates: Mapping[str, str] | UnsetType = UNSET
    """What each RolloutHealthCheck comes to at the start; absent where no StatefulSet names one."""
    versus: "SimulationDocument | None" = None
    """The same for the changes of `-versus`."""


def render_json(run: SimulationRun, versus: SimulationRun | None = None) -> str:
    """Return it as JSON, indented for people."""
    document = _describe_run(run)
    if versus is not None:
        document = msgspec.structs.replace(document, versus=_describe_run(versus))
    return format_json(document)


def _describe_run(run: SimulationRun) -> SimulationDocument:
    figures, play = run.figures, run.play
    return SimulationDocument(
        exit_code=run.exit_code,
        changes=[change.text for _, change in run.settings.changes],
        namespace=run.dump.namespace,
        groups=run.dump.groups,
        left_out=run.dump.left_out,
        begins=show_time(run.epoch),
        ready_after={group: to_seconds(stats.span) for group, stats in run.times.ready.items()},
        stuck=[pod.decoded.name for pod in run.times.stuck],
        terminates_after=to_seconds(run.settings.terminates_after),
        steps=list(_list_steps(run)),
        ends={group.name: _list_reasons(group) for group in play.description.groups},
        end=play.description,
        undone=play.undone,
        seconds=to_seconds(play.moved_at),
        is_cut_off=play.is_cut,
        deletes=figures.deletes,
        most_down=figures.most_down,
        down_together=figures.overlaps,
        refusals=figures.refusals,
        evictions=figures.evictions,
        crossings=figures.crossings,
        policies=[_describe_policy(run, policy) for policy in run.dump.policies] or UNSET,
        gates=_map_gates(run) or UNSET,
    )


def _describe_policy(run: SimulationRun, found: FoundPolicy) -> SimulatedPolicy:
    described = {policy.name: policy for policy in run.play.description.list_policies()}
    end = described.get(found.name)
    return SimulatedPolicy(
        name=found.name,
        is_obeyed=run.dump.obeys,
        zones=[
            SimulatedZone(name=zone.name, stateful_sets=[sts.name for sts in zone.sets])
            for zone in found.zones
        ],
        refusals=found.refusals,
        phase="" if end is None else choose_policy_phase(end),
        text="" if end is None else end.headline,
        batches=run.figures.list_batches_of(found.name),
    )


def _list_reasons(group: GroupDescription) -> Sequence[str]:
    steps = [step.text for step in group.steps]
    waits = [wait.text for wait in group.waits + group.problems]
    return list(dict.fromkeys([group.headline, *steps, *waits]))


def _list_steps(run: SimulationRun) -> Iterator[SimulatedStep]:
    for line in list_lines(run.records()):
        if line.at >= FIRST_STEP:
            at = to_seconds(line.at)
            yield SimulatedStep(at=at, who=line.who, what=line.what, text=line.text)
