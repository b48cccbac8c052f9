"""A golden scenario: a few zones, what people do, one thing that goes wrong; and its trace.

Nothing is drawn by chance: all ways take as long, pods start as their ordinal says, and whatever is
ready first runs first. So a trace changes only where the behaviour changes. The scenarios stand in
`traces_rollouts` and the modules beside it; `test_golden` compares their traces.
"""

import asyncio
import random
import textwrap
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec.structs import replace
from rollout_lab.flux import FluxTimes
from rollout_lab.model.fields import child, name_of, number
from rollout_lab.model.history import Called, Fault, History
from rollout_lab.network.faults import OUTCOME, FaultDecision, NoFaults, SentCall
from rollout_lab.nodes.behaviour import Behaviour, Response, StartKind, image_of
from rollout_lab.process import SimulatedProcess
from rollout_lab.trace.trace import WIDTH, render_story
from rollout_lab.virtual_loop.loop import VirtualTimeLoop
from rollout_lab.virtual_loop.pace import StepTimes
from rollout_lab.world import EPOCH, Sandbox
from rollout_lab.zones import ZoneSpec

from rollout_operator.kube.api import PODS, STATEFULSETS, JsonObject
from rollout_operator.model.names import DISRUPTION_RECORD
from rollout_operator.model.units import format_duration
from rollout_operator.planning.wording import count
from tests.judge.promises import Verdict
from tests.simulation.runs import LIMITS, End, judge
from tests.simulation.runtime import now
from tests.simulation.scenarios import name_unready, name_unrolled
from tests.simulation.scenarios_people import People

BAD: Final = "bad"
OPERATOR: Final = "operator-1"
# By then the pods of the beginning are ready; a round number to read the times from.
BEGIN: Final = timedelta(seconds=10)
# No scenario takes longer: pods need some seconds each.
PATIENCE: Final = timedelta(minutes=30)
# After rest, to show that nothing follows.
QUIET: Final = timedelta(minutes=10)
POLL_EVERY: Final = 0.1  # seconds
SPAN: Final = timedelta(milliseconds=20)
PACE: Final = StepTimes(
    controller=(SPAN, SPAN),
    status=(SPAN, SPAN),
    scheduler=(SPAN, SPAN),
    kubelet=(SPAN, SPAN),
)


FLUX_TIMES: Final = FluxTimes(
    fetch=(timedelta(seconds=2), timedelta(seconds=2)),
    apply=(timedelta(seconds=1), timedelta(seconds=1)),
)


class Mishap(msgspec.Struct, frozen=True, kw_only=True):
    """One call of the operator that goes wrong, once: the first of this verb for this pod."""

    verb: str
    pod: str
    outcome: FaultDecision
    kind: str
    text: str


class GoldenScenario(msgspec.Struct, frozen=True, kw_only=True):
    """One scenario, and what the reader of its trace is to know before."""

    name: str
    title: str
    about: str
    zones: Sequence[ZoneSpec]
    play: "Callable[[Director], Awaitable[None]]"
    mishap: Mishap | None = None
    has_webhooks: bool = False
    prepare: Callable[[People], Awaitable[None]] | None = None
    """What people set up before anything else: nodes and a budget, that evictions obey."""
    args: Sequence[str] = ()
    """Of the operator."""
    templates: Mapping[str, int] = {}
    """ReplicaTemplates by name, and how many replicas they want."""
    epoch: datetime = EPOCH
    """When it begins."""


class GoldenTrace(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a scenario that was played to its end."""

    text: str
    verdict: Verdict
    history: History


@dataclass(slots=True, kw_only=True)
class Director:
    """What a scenario is written with: people, the operator, and what can be waited for."""

    sandbox: Sandbox
    people: People
    process: SimulatedProcess

    def start(self) -> None:
        """Start the operator."""
        self.process.start()
        self.process.link.rng = _Even(0)

    async def roll(self, image: str) -> None:
        """Change the templates of all zones, as one apply of a person does."""
        for zone in self.sandbox.api.list(STATEFULSETS, self.sandbox.namespace):
            await self.people.set_image(name_of(zone), image)

    async def until_image(self, pod: str, image: str) -> None:
        """Wait until a pod of this image exists."""
        await self.until(lambda: self._image(pod) == image, f"{pod} at {image}")

    async def until_rolled(self) -> None:
        """Wait until every zone is whole and at its update revision."""
        await self.until(lambda: not name_unrolled(self.sandbox), "all zones rolled out")

    async def until_rolled_out(self, zone: str) -> None:
        """Wait until the status of one zone says that it is rolled out."""

        def holds() -> bool:
            sts = self.sandbox.api.get(STATEFULSETS, self.sandbox.namespace, zone) or {}
            status = child(sts, "status")
            seen = number(status, "observedGeneration") == number(sts, "metadata", "generation")
            return seen and status.get("currentRevision") == status.get("updateRevision")

        await self.until(holds, f"{zone} rolled out")

    async def until_whole(self) -> None:
        """Wait until every zone has as many pods available as it wants."""
        await self.until(lambda: not name_unready(self.sandbox), "all zones whole")

    async def until_counts(self, replicas: int) -> None:
        """Wait until every zone wants so many pods, and has them available."""

        def holds() -> bool:
            sets = self.sandbox.api.list(STATEFULSETS, self.sandbox.namespace)
            counts = {number(one, "spec", "replicas") for one in sets}
            return counts == {replicas} and not name_unready(self.sandbox)

        await self.until(holds, f"all zones with {replicas} pods")

    async def until_unmarked(self, pod: str) -> None:
        """Wait until nothing on a pod says any more that it may go."""
        await self.until(lambda: not self._is_marked(pod), f"{pod} without a record")

    async def until_dead(self) -> None:
        """Wait until the operator has crashed."""
        await self.until(lambda: not self.process.is_running, "the crash of the operator")

    def fail(self, pod: str) -> None:
        """Let a pod die and stay down."""
        self.sandbox.say("node", f"{pod} dies")
        self.sandbox.cluster.fail_pod(pod)

    def mend(self, pod: str) -> None:
        """Let a pod that has died come back."""
        self.sandbox.say("node", f"{pod} can run again")
        self.sandbox.cluster.mend_pod(pod)

    def _is_marked(self, pod: str) -> bool:
        found = self.sandbox.api.get(PODS, self.sandbox.namespace, pod)
        return found is not None and DISRUPTION_RECORD in child(found, "metadata", "annotations")

    def _image(self, pod: str) -> str:
        found = self.sandbox.api.get(PODS, self.sandbox.namespace, pod)
        return "" if found is None else image_of(found)

    async def until(self, holds: Callable[[], bool], what: str) -> None:
        """Wait until something holds."""
        limit = now() + PATIENCE
        while not holds():
            assert now() < limit, f"waited in vain for {what}"
            await asyncio.sleep(POLL_EVERY)


def play_scenario(scenario: GoldenScenario) -> GoldenTrace:
    """Play a scenario on a world of its own, from its first act to rest; return it as text."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        ends: list[GoldenTrace] = []
        # Taken, not returned: the runner would print all of the history where a test fails.
        runner.run(_play(scenario, ends.append))
    return ends[0]


async def _play(scenario: GoldenScenario, take: Callable[[GoldenTrace], None]) -> None:
    faults = _OneMishap(scenario.mishap)
    sandbox = Sandbox(
        choose=_choose, pace=PACE, faults=faults, epoch=scenario.epoch, flux=FLUX_TIMES
    )
    faults.record = sandbox.history.add
    people = People(sandbox=sandbox, rng=_Even(0))
    process = sandbox.process(
        OPERATOR, args=(*LIMITS, *scenario.args), webhooks=scenario.has_webhooks
    )
    director = Director(sandbox=sandbox, people=people, process=process)
    with sandbox.listening():
        async with sandbox:
            await _set_up(scenario, director)
            await scenario.play(director)
            rested_at = now()
            await asyncio.sleep(QUIET.total_seconds())
    assert not faults.is_waiting, f"{scenario.mishap} never came"
    end = End(history=sandbox.history, ended_at=now(), healed_at=rested_at, quiet=QUIET)
    take(
        GoldenTrace(
            text=_render(scenario, director, rested_at),
            verdict=judge(end),
            history=sandbox.history,
        )
    )


async def _set_up(scenario: GoldenScenario, director: Director) -> None:
    if scenario.prepare is not None:
        await scenario.prepare(director.people)
    for zone in scenario.zones:
        await director.people.create(zone)
    for name, replicas in scenario.templates.items():
        await director.people.create_template(name, replicas)
    await director.until_whole()
    if scenario.has_webhooks:
        await director.people.register_webhooks(evictions=scenario.prepare is not None)
    director.start()
    await director.process.wait_ready()
    assert now() < BEGIN
    await asyncio.sleep((BEGIN - now()).total_seconds())


def _render(scenario: GoldenScenario, director: Director, rested_at: timedelta) -> str:
    history = director.sandbox.history
    lines = render_story(history, begin=BEGIN)
    span = timedelta(seconds=round((rested_at - BEGIN).total_seconds()))
    end = (
        f"At rest after {format_duration(span)}, and nothing follows in the next ten minutes. "
        f"Deleted by the operator: {count(_count_deletes(history), 'pod')}."
    )
    about = textwrap.wrap(scenario.about, WIDTH, break_on_hyphens=False)
    return "\n".join([scenario.title, "=" * len(scenario.title), *about, "", *lines, "", end, ""])


def _count_deletes(history: History) -> int:
    """Return how many pods went because the operator wanted it."""
    return sum(
        call.status < 300 and (call.request.verb, call.request.resource) == ("delete", PODS)
        for call in history.list_all(Called)
        if call.actor == OPERATOR
    )


def _choose(pod: JsonObject) -> Behaviour:
    """Return pods that need 4, 5, 6, ... seconds by their ordinal; those of `bad` crash."""
    ordinal = int(name_of(pod).rpartition("-")[2])
    usual = Behaviour(
        starts_after=timedelta(seconds=1),
        ready_after=timedelta(seconds=3 + ordinal),
        terminates_after=timedelta(seconds=2),
        prepare=Response(after=timedelta(milliseconds=300)),
        cancel=Response(after=timedelta(milliseconds=100)),
    )
    return replace(usual, kind=StartKind.CRASH_LOOP) if image_of(pod) == BAD else usual


class _OneMishap(NoFaults):
    """A `Faults` that lets one call go wrong."""

    def __init__(self, mishap: Mishap | None) -> None:
        self._mishap = mishap
        self.record: Callable[[Fault], None] = lambda fault: None

    @property
    def is_waiting(self) -> bool:
        """Return whether it has not happened yet."""
        return self._mishap is not None

    def on_call(self, sent: SentCall) -> FaultDecision:
        mishap = self._mishap
        if mishap is None or (sent.verb, sent.plural) != (mishap.verb, PODS.plural):
            return OUTCOME
        if sent.name != mishap.pod:
            return OUTCOME
        self._mishap = None
        fault = Fault(at=now(), number=1, kind=mishap.kind, actor=sent.actor, text=mishap.text)
        self.record(fault)
        return mishap.outcome


class _Even(random.Random):
    """No chance at all: always the middle."""

    def random(self) -> float:
        return 0.5
