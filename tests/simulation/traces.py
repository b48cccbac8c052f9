"""Golden scenarios: a few zones, what people do, one thing that goes wrong; and their traces.

Nothing is drawn by chance: all ways take as long, pods start as their ordinal says, and whatever is
ready first runs first. So a trace changes only where the behaviour changes. `traces.txt` has the
scenarios, `test_golden` compares their traces.
"""

import asyncio
import random
import re
import shlex
import textwrap
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final, cast

import msgspec
from msgspec.structs import replace
from rollout_lab.admission.webhooks import HookCall, HookCaller
from rollout_lab.flux import FluxTimes
from rollout_lab.model.fields import child, name_of, number, text
from rollout_lab.model.history import Called, Fault, History
from rollout_lab.model.request import patch
from rollout_lab.network.faults import (
    AS_USUAL,
    CrashPoint,
    Failure,
    FaultOutcome,
    Occasion,
    OccasionKind,
)
from rollout_lab.nodes.behaviour import Behaviour, Response, StartKind, image_of
from rollout_lab.process import SimulatedProcess
from rollout_lab.releases import foreign_check, gate, schedule
from rollout_lab.schemas.kinds import REPLICA_TEMPLATES
from rollout_lab.trace.trace import WIDTH, render_story
from rollout_lab.virtual_loop.loop import VirtualTimeLoop
from rollout_lab.virtual_loop.pace import StepTimes
from rollout_lab.world import EPOCH, Sandbox
from rollout_lab.zones import ZoneSpec

from rollout_operator.kube.api import HEALTH_CHECKS, PODS, STATEFULSETS, JsonObject
from rollout_operator.model import names
from rollout_operator.model.units import format_duration, format_rfc3339
from rollout_operator.planning.wording import count
from tests.judge.promises import Verdict
from tests.simulation import scenarios_policies as policies
from tests.simulation import scenarios_releases as releases
from tests.simulation.chaos import later_webhook
from tests.simulation.runs import LIMITS, End, judge
from tests.simulation.scenarios import People, Route, Size, name_unready, name_unrolled
from tests.simulation.scenarios_drains import (
    ZONE_LABEL,
    Drainer,
    guard,
    node_name,
    set_up,
    unguard,
    zone_budget,
)
from tests.virtual_time import elapsed as now

QUOTA_PATH: Final = "/quota"


@dataclass
class Quota:
    """Another webhook behind ours: a `HookCaller` around the one to the operator."""

    _inner: HookCaller
    is_used_up: bool = True

    async def __call__(self, call: HookCall) -> bytes:
        if not call.path.startswith(QUOTA_PATH):
            return await self._inner(call)
        review = cast(JsonObject, msgspec.json.decode(call.body))
        response: JsonObject = {"uid": cast(JsonObject, review["request"])["uid"], "allowed": True}
        if self.is_used_up:
            response |= {"allowed": False, "status": {"code": 403, "message": "not today"}}
        return msgspec.json.encode({**review, "response": response})


LABELS: Final = {"app": "store"}
BY_ZONE: Final[JsonObject] = {"maxUnavailable": 1}
BY_PARTITION: Final[JsonObject] = {
    **BY_ZONE,
    "podNamePartitionRegex": "zone-[a-z]-([0-9]+)",
    "crossZoneEvictionDelay": "10s",
}


def zones(letters: str, pods: int) -> list[ZoneSpec]:
    """Return zones under the budget, each with two nodes."""
    return [
        ZoneSpec(
            name=f"zone-{letter}",
            replicas=pods,
            labels=LABELS,
            pod_labels=LABELS,
            node_selector={ZONE_LABEL: letter},
        )
        for letter in letters
    ]


def guarded(letters: str, pods: int, spec: JsonObject) -> Callable[[People], Awaitable[None]]:
    """Return people that set up the nodes and the budget of these zones."""
    return partial(set_up, zones=zones(letters, pods), budget=zone_budget("store", LABELS, **spec))


def drainer(director: "Director", letter: str) -> Drainer:
    return Drainer(people=director.people.split(f"drain-{letter}"))


FILE: Final = Path(__file__).with_suffix(".txt")
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
    controller=(SPAN, SPAN), status=(SPAN, SPAN), scheduler=(SPAN, SPAN), kubelet=(SPAN, SPAN)
)
FLUX_TIMES: Final = FluxTimes(
    fetch=(timedelta(seconds=2), timedelta(seconds=2)),
    apply=(timedelta(seconds=1), timedelta(seconds=1)),
)
_SPAN: Final = re.compile(r"(\d+)([sm])")
OUTCOMES: Final = {
    "crash": FaultOutcome(crash=CrashPoint.AFTER_COMMIT),
    "timeout": FaultOutcome(fails=Failure.TIMEOUT),
}
TEMPLATE: Final = "ingesters"
_CALLED: Final = {names.PREPARE_PATH: "ingester/prepare-shutdown", names.PREPARE_PORT: "80"}
_PREPARED: Final = {names.PREPARE_DOWNSCALE: "true"}
# Labels and annotations of zones, by the words of `traces.txt`.
TRAITS: Final[Mapping[str, tuple[Mapping[str, str], Mapping[str, str]]]] = {
    "no-downscale": ({names.NO_DOWNSCALE: "true"}, _CALLED),
    "prepared": (_PREPARED, _CALLED),
    "waiting": ({**_PREPARED, names.MIN_TIME_BETWEEN_DOWNSCALES: "5m"}, _CALLED),
    "delayed": (
        {},
        {names.DOWNSCALE_DELAY: "3m", names.DOWNSCALE_DELAY_URL: "http://pod/prepare-delayed"},
    ),
}
MIRRORS: Final = {
    names.MIRROR_NAME: TEMPLATE,
    names.MIRROR_KIND: REPLICA_TEMPLATES.kind,
    names.MIRROR_API_VERSION: f"{REPLICA_TEMPLATES.group}/{REPLICA_TEMPLATES.version}",
}
NIGHT: Final[JsonObject] = {
    "name": "night",
    "timeRange": {"start": "23:30", "end": "00:30"},
    "daysOfWeek": ["Friday"],
}
POLICY_PAUSE: Final = 30  # seconds


class Mishap(msgspec.Struct, frozen=True, kw_only=True):
    """One call of the operator that goes wrong, once: the first of this verb for this pod."""

    verb: str
    pod: str
    kind: str
    text: str


class GoldenScenario(msgspec.Struct, frozen=True, kw_only=True):
    """One scenario, and what the reader of its trace is to know before."""

    name: str
    title: str
    about: str
    zones: Sequence[ZoneSpec] = ()
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


class GoldenTrace(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a scenario that was played to its end."""

    text: str
    verdict: Verdict
    history: History


def read_scenarios() -> Iterator[GoldenScenario]:
    for block in FILE.read_text("utf-8").split("\n-- ")[1:]:
        head, *lines = block.splitlines()
        name, _, title = head.partition(": ")
        about = " ".join(line.strip() for line in lines if line.startswith("   "))
        commands = [line for line in lines if line and not line.startswith("   ")]
        found = GoldenScenario(name=name, title=title, about=about, play=partial(_tell, commands))
        for line in commands:
            word, *rest = shlex.split(line)
            found = GIVEN[word](found, *rest) if word in GIVEN else found
        yield found


async def _tell(lines: Sequence[str], director: "Director") -> None:
    for line in lines:
        if line.split()[0] not in GIVEN:
            await director.tell(line)


def _give_zones(scenario: GoldenScenario, letters: str, *traits: str) -> GoldenScenario:
    """Add zones with traits, such as `pods=5`; the first mirrors, or all but it follow."""
    sizes = {key: int(value) for key, _, value in (one.partition("=") for one in traits) if value}
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    for trait in traits:
        more, others = TRAITS.get(trait, ({}, {}))
        labels |= more
        annotations |= others
    found: list[ZoneSpec] = []
    for letter in letters:
        own = annotations
        if "mirroring" in traits and not found:
            own = {**own, **MIRRORS}
        if "chained" in traits and found:
            own = {**own, names.LEADING_ZONE: found[-1].name}
        found.append(
            ZoneSpec(
                name=f"zone-{letter}",
                replicas=sizes.get("pods", 3),
                max_unavailable=sizes.get("limit"),
                labels=labels,
                annotations=own,
            )
        )
    templates = {TEMPLATE: 3} if "mirroring" in traits else {}
    return replace(scenario, zones=[*scenario.zones, *found], templates=templates)


def _give_budget(
    scenario: GoldenScenario, letters: str, pods: str, way: str = ""
) -> GoldenScenario:
    spec = BY_PARTITION if way == "by-partition" else BY_ZONE
    return replace(
        scenario,
        zones=zones(letters, int(pods)),
        prepare=guarded(letters, int(pods), spec),
        has_webhooks=True,
    )


def _give_policy(scenario: GoldenScenario, *order: str) -> GoldenScenario:
    async def create(people: People) -> None:
        await policies.create_policy(people, policies.SAMPLE)
        update: JsonObject = {"maxUnavailable": 1, "intervalSeconds": POLICY_PAUSE}
        spec: JsonObject = {"azOrder": [*order], "rollingUpdate": update}
        await policies.change_policy(people, policies.SAMPLE, spec)

    found = [
        ZoneSpec(
            name=f"db-{letter}",
            group=None,
            replicas=2,
            labels={**policies.LABELS, policies.KEY: f"us-west-2{letter}"},
        )
        for letter in "abc"
    ]
    return replace(scenario, zones=found, prepare=create, args=policies.OBEYING)


def _give_release(scenario: GoldenScenario) -> GoldenScenario:
    """Have Flux, and the controller of alerts as another HealthCheck."""
    bake = {"bakeTime": "1m", "deployTimeout": "10m"}
    alerts = foreign_check("alerts", releases.APP)
    return replace(
        scenario,
        zones=releases.list_applied_zones(Size(3, 1), f"app:{releases.FIRST}"),
        prepare=lambda people: releases.create_release(people, bake, alerts),
        args=releases.RELEASING,
    )


def _give_mishap(kind: str, scenario: GoldenScenario, *words: str) -> GoldenScenario:
    verb, pod, said = words
    return replace(scenario, mishap=Mishap(verb=verb, pod=pod, kind=kind, text=said))


GIVEN: Final[Mapping[str, Callable[..., GoldenScenario]]] = {
    "zones": _give_zones,
    "webhooks": lambda scenario: replace(scenario, has_webhooks=True),
    "guarded": _give_budget,
    "policy": _give_policy,
    "release": _give_release,
    "begin": lambda scenario, at: replace(scenario, epoch=datetime.fromisoformat(at)),
    **{kind: partial(_give_mishap, kind) for kind in OUTCOMES},
}


@dataclass(slots=True, kw_only=True)
class Director:
    """What a scenario is told with: each command is a method of that name."""

    sandbox: Sandbox
    people: People
    process: SimulatedProcess
    _quota: Quota | None = field(init=False, default=None)

    async def tell(self, line: str) -> None:
        """Do what the commands of a line say: `roll v2; 10s; until-rolled`."""
        for command in line.split("; "):
            await self._do(*shlex.split(command))

    async def _do(self, word: str, *rest: str) -> None:
        if span := _SPAN.fullmatch(word):
            await asyncio.sleep(int(span[1]) * (60 if span[2] == "m" else 1))
        else:
            do: Callable[..., Awaitable[object]] = getattr(self, word.replace("-", "_"))
            await do(*rest)

    async def attempt(self, *words: str) -> None:
        """Try once what may be refused."""
        await self.people.attempt(partial(self._do, *words))

    # The operator and its pods

    async def start(self) -> None:
        self.process.start()
        self.process.link.rng = _Even(0)

    async def ready(self) -> None:
        await self.process.wait_ready()

    async def fail(self, pod: str) -> None:
        """Let a pod die and stay down."""
        self.sandbox.say("node", f"{pod} dies")
        self.sandbox.cluster.fail_pod(pod)

    async def mend(self, pod: str) -> None:
        self.sandbox.say("node", f"{pod} can run again")
        self.sandbox.cluster.mend_pod(pod)

    async def slow(self, pod: str) -> None:
        """Have a pod take as long as it may to say that it may go."""
        answer = Response(after=timedelta(seconds=4))
        self.sandbox.cluster.endpoints.answer(pod, "POST", answer)

    # People

    async def roll(self, image: str) -> None:
        """Change the templates of all zones, as one apply of a person does."""
        for zone in self._list_sets():
            await self.people.set_image(name_of(zone), image)

    async def end(self, pod: str) -> None:
        await self.people.end_pod(pod)

    async def pause(self, zone: str, value: str | None = None) -> None:
        await self.people.annotate(zone, names.PAUSED, value)

    async def scale(self, zone: str, replicas: str, route: str = Route.SCALE_MERGE) -> None:
        await self.people.scale(zone, int(replicas), Route(route))

    async def rehearse(self, zone: str, replicas: str) -> None:
        await self.people.scale(zone, int(replicas), Route.SCALE_MERGE, is_dry_run=True)

    async def autoscale(self, replicas: str) -> None:
        await self.people.scale_template(TEMPLATE, int(replicas))

    async def use_up_quota(self) -> None:
        """Have another webhook behind ours refuse."""
        assert self.sandbox.api.hooks is not None
        self.sandbox.api.hooks = self._quota = Quota(self.sandbox.api.hooks)
        namespace = self.sandbox.namespace
        await self.sandbox.call(
            later_webhook(namespace, name="quota", path=QUOTA_PATH, policy="Fail")
        )

    async def free_quota(self) -> None:
        assert self._quota is not None
        self._quota.is_used_up = False

    async def drain(self, letters: str) -> None:
        async with asyncio.TaskGroup() as tasks:
            for letter in letters:
                node = node_name(f"zone-{letter}", 0)
                tasks.create_task(drainer(self, letter).drain(node))

    async def evict(self, pod: str) -> None:
        await drainer(self, "a").evict(pod)

    async def guard(self) -> None:
        await guard(drainer(self, "a").people, "native", LABELS)

    async def unguard(self) -> None:
        await unguard(drainer(self, "a").people, "native")

    # Releases

    async def announce(self, tag: str) -> None:
        await releases.announce(self.people, tag)

    async def deploy(self, tag: str) -> None:
        """Release a version that is good, to its end."""
        await self.announce(tag)
        await self.prove(tag)

    async def prove(self, tag: str) -> None:
        """Have a version be deployed and found healthy."""
        await self.until_status(f"{tag} Deploying")
        await self.heal()
        await self.until_status(f"{tag} Succeeded")

    async def fail_bake(self, tag: str) -> None:
        """Release a version by which an alert fires while it bakes."""
        await self.announce(tag)
        await self.until_status(f"{tag} Deploying")
        await self.heal()
        await self.until_status(f"{tag} InProgress")
        await asyncio.sleep(20)
        await self._set_health("Unhealthy", "5% of requests fail")
        await self.until_status(f"{tag} Failed")

    async def heal(self) -> None:
        await self._set_health("Healthy", "no alert fires")

    async def close_gate(self) -> None:
        freeze = gate(releases.GATE, releases.APP, is_passing=False)
        await releases.create(self.people, freeze)

    async def open_gate(self) -> None:
        await releases.open_gate(self.people, releases.GATE, is_open=True)

    async def unblock(self) -> None:
        what = "lets the next version go on"
        await releases.request(self.people, what, unblock_failed="true")

    async def retry(self, tag: str) -> None:
        await releases.request(self.people, f"tries {tag} again", retry="true")

    async def pin(self, tag: str | None = None) -> None:
        await releases.pin(self.people, tag)

    async def add_nights(self) -> None:
        nights = schedule("nights", [NIGHT], timezone="Europe/Berlin")
        await releases.create(self.people, nights)

    async def _set_health(self, status: str, message: str) -> None:
        """Write what the controller of alerts finds."""
        at = format_rfc3339(self.sandbox.api.now())
        found: JsonObject = {"status": status, "message": message, "lastChangeTime": at}
        if status == "Unhealthy":
            found["lastErrorTime"] = at
        body: JsonObject = {"status": found}
        place = self.sandbox.namespace, "person"
        await self.sandbox.call(patch(HEALTH_CHECKS, "alerts", body, *place, subresource="status"))

    # What is waited for

    async def until_image(self, pod: str, image: str) -> None:
        def holds() -> bool:
            found = self._find_pod(pod)
            return found is not None and image_of(found) == image

        await self.until(holds, f"{pod} at {image}")

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
        await self.until(lambda: not name_unready(self.sandbox), "all zones whole")

    async def until_counts(self, replicas: str) -> None:
        """Wait until every zone wants so many pods, and has them available."""

        def holds() -> bool:
            counts = {number(one, "spec", "replicas") for one in self._list_sets()}
            return counts == {int(replicas)} and not name_unready(self.sandbox)

        await self.until(holds, f"all zones with {replicas} pods")

    async def until_unmarked(self, pod: str) -> None:
        """Wait until nothing on a pod says any more that it may go."""

        def holds() -> bool:
            annotations = child(self._find_pod(pod) or {}, "metadata", "annotations")
            return names.DISRUPTION_RECORD not in annotations

        await self.until(holds, f"{pod} without a record")

    async def until_dead(self) -> None:
        await self.until(lambda: not self.process.is_running, "the crash of the operator")

    async def until_status(self, shown: str) -> None:
        """Wait until the newest entry of the history is such as `1.0.0 Succeeded`."""

        def holds() -> bool:
            entry = releases.get_newest(self.sandbox)
            return f"{text(entry, 'version', 'tag')} {text(entry, 'bakeStatus')}" == shown

        await self.until(holds, shown)

    async def until(self, holds: Callable[[], bool], what: str) -> None:
        limit = now() + PATIENCE
        while not holds():
            assert now() < limit, f"waited in vain for {what}"
            await asyncio.sleep(POLL_EVERY)

    def _list_sets(self) -> Sequence[JsonObject]:
        return self.sandbox.api.list(STATEFULSETS, self.sandbox.namespace)

    def _find_pod(self, name: str) -> JsonObject | None:
        return self.sandbox.api.get(PODS, self.sandbox.namespace, name)


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
    process = sandbox.process(
        OPERATOR, args=(*LIMITS, *scenario.args), webhooks=scenario.has_webhooks
    )
    people = People(sandbox=sandbox, rng=_Even(0))
    director = Director(sandbox=sandbox, people=people, process=process)
    with sandbox.listening():
        async with sandbox:
            await _set_up(scenario, director)
            await scenario.play(director)
            rested_at = now()
            await asyncio.sleep(QUIET.total_seconds())
    assert not faults.is_waiting, f"{scenario.mishap} never came"
    end = End(history=sandbox.history, ended_at=now(), healed_at=rested_at, quiet=QUIET)
    page = _render(scenario, sandbox.history, rested_at)
    take(GoldenTrace(text=page, verdict=judge(end), history=sandbox.history))


async def _set_up(scenario: GoldenScenario, director: Director) -> None:
    people = director.people
    if scenario.prepare is not None:
        await scenario.prepare(people)
    for zone in scenario.zones:
        await people.create(zone)
    for name, replicas in scenario.templates.items():
        await people.create_template(name, replicas)
    await director.until_whole()
    if scenario.has_webhooks:
        await people.register_webhooks(evictions=scenario.prepare is not None)
    await director.start()
    await director.ready()
    assert now() < BEGIN
    await asyncio.sleep((BEGIN - now()).total_seconds())


def _render(scenario: GoldenScenario, history: History, rested_at: timedelta) -> str:
    lines = render_story(history, begin=BEGIN)
    span = timedelta(seconds=round((rested_at - BEGIN).total_seconds()))
    deletes = sum(
        call.status < 300 and (call.request.verb, call.request.resource) == ("delete", PODS)
        for call in history.list_all(Called)
        if call.actor == OPERATOR
    )
    end = (
        f"At rest after {format_duration(span)}, and nothing follows in the next ten minutes. "
        f"Deleted by the operator: {count(deletes, 'pod')}."
    )
    about = textwrap.wrap(scenario.about, WIDTH, break_on_hyphens=False)
    return "\n".join([scenario.title, "=" * len(scenario.title), *about, "", *lines, "", end, ""])


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


class _OneMishap:
    """A `Faults` that lets one call go wrong."""

    def __init__(self, mishap: Mishap | None) -> None:
        self._mishap = mishap
        self.record: Callable[[Fault], None] = lambda fault: None

    @property
    def is_waiting(self) -> bool:
        return self._mishap is not None

    def decide(self, sent: Occasion) -> FaultOutcome:
        one = self._mishap
        if one is None or sent.kind is not OccasionKind.CALL:
            return AS_USUAL
        if (sent.verb, sent.plural, sent.name) != (one.verb, PODS.plural, one.pod):
            return AS_USUAL
        self._mishap = None
        self.record(Fault(at=now(), number=1, kind=one.kind, actor=sent.actor, text=one.text))
        return OUTCOMES[one.kind]


class _Even(random.Random):
    """No chance at all: always the middle."""

    def random(self) -> float:
        return 0.5
