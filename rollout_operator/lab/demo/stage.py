"""One story on a simulated world in real time: acts, waits, and the picture that is shown.

What is told is decided in `scenarios`, what is worth a line in `log`; how the operator and
the world are put together, in `lab.world`.
"""

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Final

import msgspec

from rollout_operator.aio.clock import LoopClock
from rollout_operator.kube.api import LEASES, PODS, STATEFULSETS, JsonObject
from rollout_operator.lab.demo.flags import DemoSettings
from rollout_operator.lab.demo.log import (
    is_retried,
    measure_lease,
    read_lease,
    read_log,
    read_move,
    read_record,
    read_waits,
)
from rollout_operator.lab.demo.objects import (
    FIRST,
    NAMESPACE,
    PERSON,
    REPLICAS,
    cordon,
    create_webhook,
    create_zone,
    evict,
    set_up_nodes,
)
from rollout_operator.lab.demo.picture import (
    DemoNote,
    DemoReason,
    Picture,
    PodCell,
    ZoneRow,
    read_row,
)
from rollout_operator.lab.demo.screen import Screen
from rollout_operator.lab.demo.totals import Totals, add_up
from rollout_operator.lab.model.fields import controller_of, is_terminating, name_of, text
from rollout_operator.lab.model.history import Record
from rollout_operator.lab.model.request import ApiRequest
from rollout_operator.lab.nodes.behaviour import Behaviour, Choose, Response, StartKind, image_of
from rollout_operator.lab.nodes.nodes import node_of
from rollout_operator.lab.process import ACTOR, SimulatedProcess
from rollout_operator.lab.world import Sandbox
from rollout_operator.model.errors import OperatorError
from rollout_operator.planning.wording import count
from rollout_operator.telemetry import logs

# Between two looks at the world.
TICK: Final = timedelta(milliseconds=50)
# Pods of before a story are quick: nobody waits for what is not the story.
AT_ONCE: Final = timedelta(milliseconds=50)
# As `kubectl drain` waits five seconds: pods of a story are faster.
RETRY: Final = timedelta(seconds=2)
# A step that takes so much longer than the pods themselves will not come.
PATIENCE: Final = 5
SPARE: Final = timedelta(seconds=20)
_DOWN: Final = frozenset({PodCell.BROKEN, PodCell.ENDING, PodCell.GONE, PodCell.STARTING})
# The people of a story do not wait for the operator's turn at the API server.
_ARGS: Final = ("-kubernetes.client-qps=0",)
# What is shown of the log of an operator that is stuck.
TAIL_LINES: Final = 6


class StoryStuck(OperatorError):
    """What a story waits for does not come; the text says what, and how the operator's log ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """One story."""

    name: str
    title: str
    about: str
    """What will be seen, in plain words; two lines at the most."""
    play: Callable[["DemoRun"], Awaitable[None]]
    bad_version: str = ""
    """The version whose pods crash."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Of the StatefulSets."""
    is_chain: bool = False
    """Whether each zone follows the one before it."""
    webhook: str = ""
    """The review that the API server asks for."""
    has_nodes: bool = False
    """Whether the zones have nodes that can be drained, and a budget says how fast."""
    replicas: int = 1
    """Of the operator; of several one is elected to act."""
    why_lines: int = 5
    """The room that the operator's reasons usually need."""


@asynccontextmanager
async def open_stage(
    story: Story, settings: DemoSettings, screen: Screen
) -> AsyncIterator["DemoRun"]:
    """Give a world with whole zones and a ready operator, and end it. Raises StoryStuck."""
    sandbox = Sandbox(
        seed=settings.seed,
        choose=choose_behaviour(story, settings),
        namespace=NAMESPACE,
        epoch=LoopClock().now(),
    )
    is_asked = bool(story.webhook) or story.has_nodes
    replicas = tuple(
        sandbox.process(name, args=_ARGS, webhooks=is_asked, elects=story.replicas > 1)
        for name in REPLICAS[: story.replicas]
    )
    stage = DemoRun(
        story=story, settings=settings, screen=screen, sandbox=sandbox, replicas=replicas
    )
    logs.configure(format="json", write=stage.hear)
    try:
        async with sandbox:
            await stage.set_up()
            yield stage
            for process in replicas:
                await process.stop()
                # What it asked last may be on its way still.
                await process.link.ground()
    finally:
        logs.configure()


def choose_behaviour(story: Story, settings: DemoSettings) -> Choose:
    """Return how the pods of a story behave, by their version."""
    ready_after = settings.scale(settings.ready_after)
    usual = Behaviour(
        starts_after=ready_after / 4,
        ready_after=ready_after * 3 / 4,
        terminates_after=ready_after / 4,
        prepare=Response(after=ready_after / 4),
    )
    quick = replace(usual, starts_after=AT_ONCE, ready_after=AT_ONCE)
    bad = replace(usual, kind=StartKind.CRASH_LOOP, ready_after=ready_after / 4)

    def choose(pod: JsonObject) -> Behaviour:
        version = image_of(pod)
        if version == FIRST:
            return quick
        return bad if version == story.bad_version else usual

    return choose


@dataclass(slots=True, kw_only=True)
class DemoRun:
    """One story that is being played."""

    story: Story
    settings: DemoSettings
    screen: Screen
    sandbox: Sandbox
    replicas: tuple[SimulatedProcess, ...]
    address: str = ""
    """Where the operator's pages are served; empty for nowhere."""
    _clock: LoopClock = field(default_factory=LoopClock)
    _begun: timedelta = timedelta(0)
    _goal: str = FIRST
    _is_shown: bool = False
    """From when the world is set up."""
    _notes: list[DemoNote] = field(default_factory=list)
    _move: DemoReason | None = None
    """Why the last pod was taken."""
    _said: set[str] = field(default_factory=set)
    """What was said of evictions that are asked for again and again."""
    _tail: deque[str] = field(default_factory=lambda: deque(maxlen=TAIL_LINES))

    async def set_up(self) -> None:
        """Create the zones, wait until they are whole, and start the operator."""
        story, leading = self.story, ""
        if story.has_nodes:
            for request in set_up_nodes(self.settings.names, self.settings.limit):
                await self.sandbox.call(request)
        for name in self.settings.names:
            request = create_zone(
                self.settings, name, story.labels, leading, has_nodes=story.has_nodes
            )
            await self.sandbox.call(request)
            leading = name if self.story.is_chain else ""
        if self.story.webhook:
            await self.sandbox.call(create_webhook(self.story.webhook))
        await self.until("all pods ready", _is_whole)
        for process in self.replicas:
            process.start()
            await process.wait_ready()
            while len(self.replicas) > 1 and self.acting is None:
                await self._tick()
        self._begun = self.sandbox.elapsed()
        self.sandbox.history.listeners.append(self._note)
        self._is_shown = True

    @property
    def acting(self) -> SimulatedProcess | None:
        """Return the replica that acts."""
        return next((process for process in self.replicas if process.acts), None)

    def forget(self) -> None:
        """Drop what has happened: a demo that serves goes on for days."""
        self._notes.clear()
        self.sandbox.history.records.clear()
        self.sandbox.api.compact()
        # Whoever opens a watch again begins where nothing is forgotten.
        self.sandbox.api.send_bookmarks()
        self._begun = self.sandbox.elapsed()

    # What people do

    def aim(self, version: str) -> None:
        """Show from now on how many pods have this version."""
        self._goal = version

    def next_version(self) -> str:
        """Return a version that no pod has had yet."""
        return f"v{int(self._goal.removeprefix('v')) + 1}"

    async def act(self, what: str, *requests: ApiRequest) -> bool:
        """Send a person's requests and return whether all were done; a refusal is shown."""
        self.sandbox.say(PERSON, what)
        answers = [await self.sandbox.api.call(request) for request in requests]
        return all(answer.is_ok for answer in answers)

    async def drain(self, node: str) -> None:
        """Cordon a node and evict its pods, as `kubectl drain` does: again where it is refused."""
        await self.act(f"drain {node}", cordon(node))
        while pods := self._list_on(node):
            for name in pods:
                await self.sandbox.api.call(evict(name))
            await self.rest(RETRY)
        self.sandbox.say(PERSON, f"{node} is drained")

    def fail_pod(self, name: str) -> None:
        """Let a pod die and stay down."""
        self.sandbox.say("a fault", f"{name} dies")
        self.sandbox.cluster.fail_pod(name)

    def mend_pod(self, name: str) -> None:
        """Let a pod that was made to die come back."""
        self.sandbox.say("a fault", f"{name} can run again")
        self.sandbox.cluster.mend_pod(name)

    def lose_operator(self) -> None:
        """Let the replica that acts die, for good."""
        process = self.acting
        assert process is not None, "wait until one acts"
        self.sandbox.say("a fault", f"{process.name} dies with its node")
        process.crash()

    def lease_age(self) -> timedelta:
        """Return how long ago the Lease of the replicas was renewed."""
        return measure_lease(self._find_lease(), self.sandbox.clock().now())

    # What is waited for

    async def rest(self, span: timedelta) -> None:
        """Go on showing for a while, so that the reader can follow."""
        end = self._clock.elapsed() + self.settings.scale(span)
        while self._clock.elapsed() < end:
            await self._tick()

    async def until(
        self, what: str, holds: Callable[[Picture], bool], spare: timedelta = SPARE
    ) -> None:
        """Go on showing until something holds; `spare` is for what pods have no part in.

        Raises StoryStuck.
        """
        end = self._clock.elapsed() + spare + self._patience
        while not holds(self.picture()):
            if self._clock.elapsed() > end:
                raise StoryStuck("\n".join([f"waited in vain for {what}", *self._tail]))
            await self._tick()

    @property
    def _patience(self) -> timedelta:
        pods = self.settings.zones * self.settings.pods
        return PATIENCE * pods * self.settings.scale(self.settings.ready_after)

    def _list_on(self, node: str) -> list[str]:
        """Return the pods of a node that have not been told to end yet."""
        pods = self.sandbox.api.list(PODS, NAMESPACE)
        return [name_of(one) for one in pods if node_of(one) == node and not is_terminating(one)]

    async def _tick(self) -> None:
        if self._is_shown:
            self.screen.show(self.picture())
        await self._clock.sleep(TICK)

    # What there is to see

    def picture(self) -> Picture:
        """Return what is to be seen now."""
        rows = tuple(self._read_rows())
        return Picture(
            title=self._title(),
            about=self._about(),
            elapsed=self._since(),
            goal=self._goal,
            rows=rows,
            whys=tuple(self._list_whys(rows)),
            why_lines=self.story.why_lines,
            notes=tuple(self._notes),
        )

    def totals(self) -> Totals:
        """Return the figures of the story so far."""
        return add_up(self.sandbox.history.records, self._begun, self.settings.limit)

    def hear(self, line: bytes) -> None:
        """Take note of a line of the operator's log."""
        keys = msgspec.json.decode(line, type=dict[str, object])
        self._tail.append(line.decode("utf-8", "replace").rstrip())
        self._move = read_move(keys) or self._move
        who = ACTOR.get() if len(self.replicas) > 1 else "operator"
        self._add(read_log(keys, self._since(), who))

    def _note(self, record: Record) -> None:
        note = read_record(record, self._begun)
        if note is not None and is_retried(record):
            # Who asks every other second is refused in the same words: once is enough.
            is_known, said = note.text in self._said, note.text
            self._said.add(said)
            note = None if is_known else note
        self._add(note)

    def _add(self, note: DemoNote | None) -> None:
        if note is not None and self._is_shown:
            self._notes.append(note)

    def _title(self) -> str:
        settings = self.settings
        zones = f"{count(settings.zones, 'zone')} of {count(settings.pods, 'pod')}"
        return f"{self.story.title}: {zones}, at most {settings.limit} down in a zone"

    def _since(self) -> float:
        return (self.sandbox.elapsed() - self._begun).total_seconds()

    def _about(self) -> str:
        pages = f" Pages: {self.address} {self.address}metrics {self.address}ready"
        return f"{self.story.about}{pages if self.address else ''}"

    def _find_lease(self) -> JsonObject:
        return next(iter(self.sandbox.api.list(LEASES, NAMESPACE)))

    def _read_rows(self) -> Iterator[ZoneRow]:
        pods: dict[str, dict[str, JsonObject]] = {}
        for pod in self.sandbox.api.list(PODS, NAMESPACE):
            pods.setdefault(text(controller_of(pod), "name"), {})[name_of(pod)] = pod
        for sts in self.sandbox.api.list(STATEFULSETS, NAMESPACE):
            yield read_row(sts, pods.get(name_of(sts), {}))

    def _list_whys(self, rows: Iterable[ZoneRow]) -> Iterator[DemoReason]:
        """Yield why the last pod was taken, as long as its zone is not whole, then the waits."""
        short = [row.name for row in rows if any(cell.state in _DOWN for cell in row.cells)]
        if self._move is not None and self._move.zone in short:
            yield self._move
        acting = self.acting
        if acting is not None:
            yield from read_waits(acting.entries())
        elif len(self.replicas) > 1 and self._is_shown:
            yield read_lease(self._find_lease(), self.sandbox.clock().now())


def _is_whole(now: Picture) -> bool:
    states = {cell.state for cell in now.cells}
    return states == {PodCell.NEW} and all(row.ready == len(row.cells) for row in now.rows)
