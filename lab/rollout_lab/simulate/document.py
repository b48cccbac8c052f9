"""A simulation as one JSON object for machines; `docs/simulate.schema.json` is its schema.

A field is added freely, and none is renamed or removed without a new version. Times are seconds
since the start.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from rollout_lab.simulate.figures import (
    SimulatedBatch,
    SimulatedCrossing,
    SimulatedEviction,
    SimulatedOverlap,
    to_seconds,
)
from rollout_lab.simulate.flags import show_time
from rollout_lab.simulate.policies import FoundPolicy, choose_policy_phase
from rollout_lab.simulate.report import FIRST_STEP, SimulationRun
from rollout_lab.trace.lines import list_lines
from rollout_operator.model.description import Description, GroupDescription
from rollout_operator.planning.wording import format_json

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
    versus: "SimulationDocument | None" = None
    """The same for the changes of `-versus`."""


def render_json(run: SimulationRun, versus: SimulationRun | None = None) -> str:
    """Return it as JSON, indented for people."""
    document = _describe(run)
    if versus is not None:
        document = msgspec.structs.replace(document, versus=_describe(versus))
    return format_json(document)


def _describe(run: SimulationRun) -> SimulationDocument:
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
