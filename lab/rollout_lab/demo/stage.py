"""One story on a simulated world in real time: how it begins, acts, waits, and what is shown.

Beside it the keys: pace, steps and help take effect at once, also while time stands; what a person
does in the world waits in a line for the story. And the totals of a story, from its history.
"""

import asyncio
import os
import sys
import termios
import tty
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

import msgspec
from msgspec.structs import replace

from rollout_lab.controllers.members import ordinals_of
from rollout_lab.demo.flags import DemoSettings
from rollout_lab.demo.objects import (
    FIRST,
    NAMESPACE,
    OPERATOR,
    PERSON,
    change_version,
    create_webhook,
    create_zone,
    follow,
    is_operator,
    set_up_nodes,
)
from rollout_lab.demo.screen import Picture, Screen
from rollout_lab.flux import FluxTimes
from rollout_lab.model.fields import controller_of, is_terminating, name_of, number, text
from rollout_lab.model.history import Called, Commit, PodCalled, Record
from rollout_lab.model.request import ApiRequest
from rollout_lab.nodes.behaviour import Behaviour, Choose, Response, StartKind, image_of
from rollout_lab.process import SimulatedProcess
from rollout_lab.trace.lines import Storyteller, TraceLine, is_ready, is_whole
from rollout_lab.trace.trace import render_tail
from rollout_lab.virtual_loop.pace import PacedLoop
from rollout_lab.world import EPOCH, Sandbox
from rollout_operator.aio.clock import LoopClock
from rollout_operator.kube.api import LEASES, PODS, STATEFULSETS, JsonObject
from rollout_operator.model.description import Description
from rollout_operator.model.names import OperatorError
from rollout_operator.planning.text import BLANK, Line, Style
from rollout_operator.planning.wording import count

NEXT: Final = "n"
QUIT: Final = "q"
_STEP: Final = ("\x1b[C", ".")
# The interrupt is a key like others here: `make` would call a signal an error.
_QUITS: Final = (QUIT, "\x03", "\x04")
_FASTEST: Final = 16.0
_SLOWEST: Final = 0.125
SHORT: Final = ("space pause", "→ step", "+ - speed", "n next", "? do it yourself", "q quit")


class Controls(msgspec.Struct):
    set_pace: Callable[[float], None]
    acts: Mapping[str, str]
    """The keys by which a person acts in the world, and what each means."""
    speed: float = 1.0
    is_paused: bool = False
    is_help: bool = False
    on_press: Callable[[], None] = lambda: None
    """Shows the answer to a key also while time stands."""
    _commands: deque[str] = msgspec.field(default_factory=deque)
    _is_stepping: bool = False
    _before: object = None
    """What was to be seen when a step began, or at the last look; None for nothing yet."""

    @property
    def pace(self) -> float:
        """Return how fast time goes."""
        return 0.0 if self.is_paused else self.speed

    def list_keys(self) -> tuple[str, ...]:
        """Return what can be pressed, in short or with all that a reader can do."""
        acts = tuple(f"{key}   {text}" for key, text in self.acts.items())
        return (*acts, "?   back to the short list") if self.is_help else SHORT

    @property
    def has_command(self) -> bool:
        """Return whether the reader wants something else than the story."""
        return bool(self._commands)

    def take(self) -> Iterator[str]:
        """Yield what was requested since, each once."""
        while self._commands:
            yield self._commands.popleft()

    def press(self, key: str) -> None:
        """Take a key."""
        if key == "?":
            self.is_help = not self.is_help
        elif key == " ":
            self.is_paused = not self.is_paused
        elif key in _STEP:
            self._is_stepping, self._before, self.is_paused = True, None, False
        elif key in "+=":
            self.speed = min(self.speed * 2, _FASTEST)
        elif key == "-":
            self.speed = max(self.speed / 2, _SLOWEST)
        elif key in _QUITS or key == NEXT or key in self.acts:
            self._commands.append(QUIT if key in _QUITS else key)
            self.is_paused = self.is_help = False
        self.set_pace(self.pace)
        self.on_press()

    def end_step(self, seen: object) -> None:
        """Let time stand again as soon as a step has shown something new."""
        if self._is_stepping and self._before not in (None, seen):
            self._is_stepping, self.is_paused = False, True
            self.set_pace(0.0)
        self._before = seen


def split_keys(text: str) -> Iterator[str]:
    """Yield the keys of what a terminal sent; an arrow is a single key."""
    while text:
        size = 3 if text.startswith("\x1b[") else 1
        yield text[:size]
        text = text[size:]


@contextmanager
def reading_keys(controls: Controls) -> Iterator[None]:
    """Read keys from the terminal as they are pressed, without an echo, and leave it as it was."""
    loop, terminal = asyncio.get_running_loop(), sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    attributes = termios.tcgetattr(terminal)
    attributes[tty.LFLAG] &= ~(termios.ICANON | termios.ECHO | termios.ISIG)
    termios.tcsetattr(terminal, termios.TCSADRAIN, attributes)

    def read() -> None:
        # A terminal that is gone reads as its end for ever.
        for key in split_keys(os.read(terminal, 64).decode(errors="replace") or QUIT):
            controls.press(key)

    loop.add_reader(terminal, read)
    try:
        yield
    finally:
        loop.remove_reader(terminal)
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def set_loop_pace(pace: float) -> None:
    """Have the running loop's time go so fast; a loop that is not paced keeps its own."""
    loop = asyncio.get_running_loop()
    if isinstance(loop, PacedLoop):
        loop.pace = pace


class Totals(msgspec.Struct, kw_only=True):
    """The figures of one story, from `begin` on."""

    begin: timedelta
    limit: int
    """How many pods of a zone may be unavailable."""
    took: timedelta = timedelta(0)
    """Until the last replaced pod was ready."""
    replaced: int = 0
    deletes: int = 0
    """By the operator: a pod that never came up is deleted once more."""
    zones_taken: int = 0
    """The most zones of which the operator had pods down at the same time."""
    pods_down: int = 0
    """The most pods that one zone missed at the same time, whoever is to blame."""
    evicted: int = 0
    called: set[str] = set()
    """Pods that were called to prepare for their end."""
    refusals: list[str] = []
    """What the API server said to the requests of people that it turned away."""
    _wanted: dict[str, tuple[str, ...]] = {}
    """The places of each zone."""
    _ready: set[str] = set()
    _taken: dict[str, str] = {}
    """The zone of each pod that the operator deleted and that is not back yet."""

    @property
    def is_kept(self) -> bool:
        """Return whether pods of two zones were never taken at the same time."""
        return self.zones_taken <= 1

    def take(self, record: Record) -> None:
        """Move on by one record; those of most kinds change no figure."""
        match record:
            case Commit():
                self._move(record)
            case _ if record.at < self.begin:
                pass
            case Called(status=status) if record.actor == PERSON and status >= 400:
                self.refusals.append(record.message)
            case Called() if record.actor == PERSON:
                self.evicted += record.request.subresource == "eviction"
            case PodCalled(method="POST"):
                self.called.add(record.uid)

    def _move(self, record: Commit) -> None:
        if record.resource == STATEFULSETS:
            ordinals = ordinals_of(record.after) if record.after else ()
            self._wanted[record.name] = tuple(f"{record.name}-{number}" for number in ordinals)
        elif record.resource == PODS:
            self._move_pod(record)
        if record.at >= self.begin:
            down = (sum(pod not in self._ready for pod in pods) for pods in self._wanted.values())
            self.pods_down = max(self.pods_down, *down, 0)
            self.zones_taken = max(self.zones_taken, len({*self._taken.values()}))

    def _move_pod(self, record: Commit) -> None:
        before, after, is_late = record.before, record.after, record.at >= self.begin
        is_going = after is None or is_terminating(after)
        if before is not None and is_going and is_operator(record.actor) and is_late:
            self.deletes += not is_terminating(before)
            self._taken.setdefault(record.name, text(controller_of(before), "name"))
        if after is None or is_going or not is_ready(after):
            self._ready.discard(record.name)
            return
        self._ready.add(record.name)
        if self._taken.pop(record.name, ""):
            self.replaced += 1
            self.took = record.at - self.begin


def add_up(records: Iterable[Record], begin: timedelta, limit: int) -> Totals:
    """Return the figures of what has happened since `begin`."""
    totals = Totals(begin=begin, limit=limit)
    for record in records:
        totals.take(record)
    return totals


def draw_totals(totals: Totals) -> Iterator[Line]:
    """Yield the figures as sentences, a line each."""
    if totals.replaced:
        pods = count(totals.replaced, "pod")
        if totals.deletes > totals.replaced:
            pods = f"{pods} ({count(totals.deletes, 'delete')})"
        took = f"{pods} replaced in {totals.took.total_seconds():.1f} s"
        down = f"; at most {count(totals.pods_down, 'pod')} of a zone down at a time"
        yield ((took, Style.BOLD), (f"{down} ({totals.limit} allowed)", Style.PLAIN))
        if totals.is_kept:
            yield (("the operator never took pods of two zones at a time", Style.GREEN),)
        else:
            taken = f"the operator took pods of {totals.zones_taken} zones at a time"
            yield ((taken, Style.RED),)
    rest = (
        (totals.evicted, "pod", "evicted"),
        (len(totals.called), "pod", "called to prepare"),
        (len(totals.refusals), "request", "refused"),
    )
    for many, noun, what in rest:
        if many:
            yield ((f"{count(many, noun)} {what}", Style.BOLD),)
    # What is requested again every other second is refused in much the same words.
    for refusal in totals.refusals[:1]:
        yield ((refusal, Style.PLAIN),)
    if not totals.replaced and not any(many for many, _, _ in rest):
        yield (("nothing was replaced", Style.BOLD),)


# Between two looks at the world.
TICK: Final = timedelta(milliseconds=100)
# A line waits for what belongs to it: a pod may be seen to go before the operator's own word of it.
HOLD: Final = timedelta(milliseconds=200)
# A step that takes so much longer than the pods themselves will not come.
PATIENCE: Final = 5
SPARE: Final = timedelta(seconds=20)
FIRST_STEPS: Final = timedelta(seconds=1)
# Pods of the first version start fast: what comes before the story is no part of it.
AT_ONCE: Final = timedelta(milliseconds=50)
SET_UP_PACE: Final = 8.0
FETCH, APPLY = timedelta(milliseconds=800), timedelta(milliseconds=600)
TAIL_LINES: Final = 6
# The people of a story do not wait for the operator's turn at the API server.
_ARGS: Final = ("-kubernetes.client-qps=0",)
# Told by what comes of them.
_DULL: Final = ("Allowing disruption", "Readiness gained", "Revision is recorded already")
_DOWN: Final = "the operator is down: no pod is replaced, and no eviction allowed, until it is back"


class TakenOver(Exception):
    """The reader wants something else than the story; `Controls.take` says what."""


class ScenarioStuck(OperatorError):
    """What a story waits for does not come; the text says what, and what happened last."""


class Story(msgspec.Struct, frozen=True, kw_only=True):
    title: str
    about: str
    """What will be seen, in plain words; two lines at the most."""
    play: Callable[["DemoRun"], Awaitable[None]]
    proof: str
    """What has been seen in the end, in one sentence."""
    bad_version: str = ""
    """The version whose pods crash."""
    labels: Mapping[str, str] = {}
    """Of the StatefulSets, as the annotations."""
    annotations: Mapping[str, str] = {}
    is_chain: bool = False
    """Whether each zone follows the zone before it."""
    webhook: str = ""
    """The review that the API server sends, beside that of evictions."""
    has_evictions: bool = False
    """Whether the budget is of interest."""
    args: tuple[str, ...] = ()
    """Flags of the operator."""
    list_objects: Callable[[DemoSettings], Iterable[ApiRequest]] = lambda settings: ()
    """What people create beside the zones."""
    begin: Callable[["DemoRun"], Awaitable[None]] | None = None
    """What has to happen before the story begins."""
    replicas: int = 1
    """Of the operator; of several one is elected to act."""


@dataclass(slots=True, kw_only=True)
class DemoRun:
    """One story that is being played."""

    story: Story
    settings: DemoSettings
    screen: Screen
    sandbox: Sandbox
    replicas: tuple[SimulatedProcess, ...]
    controls: Controls | None = None
    """What the keys request; None where none are read."""
    bad_versions: set[str] = field(default_factory=set)
    is_scripted: bool = True
    """Whether a story is told, which a key ends; else the reader acts."""
    address: str = ""
    """Where the operator's pages are served; empty for nowhere."""
    _clock: LoopClock = field(default_factory=LoopClock)
    _begun: timedelta = timedelta(0)
    _counted: timedelta = timedelta(0)
    """From when on figures are added up."""
    _versions: list[str] = field(default_factory=lambda: [FIRST])
    """All that were wanted, the newest last."""
    _end: tuple[Line, ...] = ()
    _ended: float = 0.0
    """When the end was shown: time stands from then on."""
    _teller: Storyteller = field(default_factory=Storyteller)
    _untold: deque[Record] = field(default_factory=deque)
    _lines: list[TraceLine] = field(default_factory=list)
    _now: Description | None = None
    _is_shown: bool = False
    """From when the world is set up."""

    async def set_up(self) -> None:
        """Create the zones, wait until they are whole, and start the operator."""
        story, settings, leading = self.story, self.settings, ""
        requests = [*set_up_nodes(settings), *story.list_objects(settings)]
        for name in settings.names:
            annotations = {**story.annotations, **follow(leading)}
            requests.append(create_zone(settings, name, story.labels, annotations))
            leading = name if story.is_chain else ""
        if story.webhook:
            requests.append(create_webhook(story.webhook))
        for request in requests:
            await self.sandbox.call(request)
        self.sandbox.history.listeners.append(self._take)
        await self.until("all pods ready", self.is_at_rest)
        for process in self.replicas:
            process.start()
            await process.wait_ready()
            while self.acting is None:
                await self.tick()
        if story.begin is not None:
            await story.begin(self)
        # What the operator does first of all is no part of the story.
        await self._clock.sleep(FIRST_STEPS)
        self._untold.clear()
        self._begun = self._counted = self.sandbox.elapsed()
        self._is_shown = True

    def _take(self, record: Record) -> None:
        self._teller.note(record)
        self._untold.append(record)

    @property
    def acting(self) -> SimulatedProcess | None:
        return next((process for process in self.replicas if process.acts), None)

    def forget(self) -> None:
        """Drop what has happened: a demo that serves goes on for days."""
        self._teller, self._end = Storyteller(), ()
        self._lines.clear()
        self._untold.clear()
        self.sandbox.history.records.clear()
        self.sandbox.api.compact()
        # A client that opens a watch again begins where nothing is forgotten.
        self.sandbox.api.send_bookmarks()
        self._begun = self._counted = self.sandbox.elapsed()

    def begin_anew(self) -> None:
        """Add figures up from now on: what follows is the reader's own story."""
        self._counted, self._end = self.sandbox.elapsed(), ()

    # What people do

    async def change_all(self, version: str) -> None:
        """Give all zones a new template."""
        self._versions.append(version)
        requests = [change_version(name, version) for name in self.settings.names]
        await self.act(f"new template for all zones: {version}", *requests)

    async def publish(self, name: str, version: str) -> None:
        """Have an image policy announce a version."""
        self._versions.append(version)
        self.sandbox.say("registry", f"has {version}")
        await self.sandbox.flux.announce(NAMESPACE, name, version)

    def next_version(self) -> str:
        """Return a version that no pod has had yet."""
        return f"v{max(int(version.removeprefix('v')) for version in self._versions) + 1}"

    def last_good(self) -> str:
        """Return the version before the version that is wanted now; not a version that crashes."""
        bad = {self._versions[-1], *self.bad_versions}
        return next((each for each in reversed(self._versions) if each not in bad), FIRST)

    async def act(self, what: str, *requests: ApiRequest) -> None:
        """Send a person's requests; a refusal is shown."""
        self.sandbox.say(PERSON, what)
        for request in requests:
            await self.sandbox.api.call(request)

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

    # What is there

    def list_zones(self) -> list[JsonObject]:
        """Return the StatefulSets by name."""
        return list(self.sandbox.api.list(STATEFULSETS, NAMESPACE))

    def list_pods(self) -> list[JsonObject]:
        return list(self.sandbox.api.list(PODS, NAMESPACE))

    def list_up(self) -> list[str]:
        """Return the pods that are ready, by name."""
        pods = self.list_pods()
        return [name_of(pod) for pod in pods if is_ready(pod) and not is_terminating(pod)]

    def is_at_rest(self) -> bool:
        """Return whether all pods have what is wanted, and the StatefulSets say so."""
        return all(map(is_whole, self.list_zones()))

    def is_done(self, zone: str) -> bool:
        """Return whether a zone is rolled out: every pod, and the revision in its status."""
        return is_whole(self._get_zone(zone))

    def is_moving(self, zone: str) -> bool:
        sts = self._get_zone(zone)
        return number(sts, "status", "readyReplicas") < number(sts, "spec", "replicas")

    def _get_zone(self, zone: str) -> JsonObject:
        return self.sandbox.api.get(STATEFULSETS, NAMESPACE, zone) or {}

    def get_lease(self) -> JsonObject:
        return next(iter(self.sandbox.api.list(LEASES, NAMESPACE)))

    # What is waited for

    async def rest(self, span: timedelta) -> None:
        """Go on showing for a while, so that the reader can follow."""
        end = self._clock.elapsed() + self.settings.scale(span)
        while self._clock.elapsed() < end:
            await self.tick()

    async def until(
        self, what: str, holds: Callable[[], bool], spare: timedelta = timedelta(0)
    ) -> None:
        """Go on showing until something holds; `spare` is for what pods have no part in.

        Raises ScenarioStuck.
        """
        settings = self.settings
        pods = PATIENCE * settings.zones * settings.pods * settings.scale(settings.ready_after)
        end = self._clock.elapsed() + SPARE + spare + pods
        while not holds():
            if self._clock.elapsed() > end:
                tail = render_tail(self.sandbox.history, self.sandbox.elapsed(), TAIL_LINES)
                raise ScenarioStuck("\n".join([f"waited in vain for {what}", *tail]))
            await self.tick()

    async def tick(self) -> None:
        """Show what is now and let a moment pass. Raises TakenOver while a story is told."""
        if self._is_shown:
            await self._look()
            self.show()
            if self.controls is not None:
                self.controls.end_step((self._now and self._now.groups, len(self._lines)))
                if self.is_scripted and self.controls.has_command:
                    raise TakenOver
        await self._clock.sleep(TICK)

    # What there is to see

    async def _look(self, hold: timedelta = HOLD) -> None:
        """Take in how the operator describes the namespace, and what has happened."""
        living = [process for process in self.replicas if process.is_ready]
        if living:
            self._now = await (self.acting or living[0]).describe()
            if self.is_scripted and not self.story.has_evictions:
                self._now = replace(self._now, budgets=())
        end = self.sandbox.elapsed() - hold
        while self._untold and self._untold[0].at <= end:
            lines = self._teller.tell(self._untold.popleft())
            told = [line for line in lines if not line.text.startswith(_DULL)]
            self._lines += [replace(line, at=line.at - self._begun) for line in told]

    def show(self) -> None:
        """Show what is now, while time may stand."""
        if self._is_shown:
            self.screen.show(self.picture())

    def show_totals(self) -> None:
        """Show what it came to, until something else happens."""
        if not self._end:
            self._end, self._ended = tuple(draw_totals(self.totals())), self._since()

    async def finish(self) -> None:
        """Show the end of the story."""
        await self._look(timedelta(0))
        self._end = ((self.story.proof, Style.BOLD),), *draw_totals(self.totals())
        self._ended = self._since()
        self.screen.finish(self.picture())

    def announce(self, title: str) -> None:
        """Say below the end which story is next."""
        self._end = *self._end, BLANK, ((f"Next: {title}", Style.YELLOW),)

    def picture(self) -> Picture:
        settings, controls = self.settings, self.controls
        zones = f"{count(settings.zones, 'zone')} of {count(settings.pods, 'pod')}"
        pages = f" Pages: {self.address} {self.address}metrics {self.address}ready"
        return Picture(
            title=f"{self.story.title}: {zones}, at most {settings.limit} down in a zone",
            about=f"{self.story.about}{pages if self.address else ''}",
            elapsed=self._ended if self._end else self._since(),
            now=self._now,
            remarks=() if any(process.is_ready for process in self.replicas) else (_DOWN,),
            lines=tuple(self._lines),
            end=self._end,
            pace=controls.pace if controls else 1.0,
            keys=controls.list_keys() if controls else (),
            is_help=controls is not None and controls.is_help,
        )

    def totals(self) -> Totals:
        """Return the figures of the story so far, or since the reader began to act."""
        return add_up(self.sandbox.history.records, self._counted, self.settings.limit)

    def _since(self) -> float:
        return (self.sandbox.elapsed() - self._begun).total_seconds()


@asynccontextmanager
async def open_stage(
    story: Story, settings: DemoSettings, screen: Screen, controls: Controls | None = None
) -> AsyncIterator[DemoRun]:
    """Give a world with whole zones and a ready operator, and end it. Raises ScenarioStuck."""
    bad_versions = {story.bad_version}
    fetch, apply = settings.scale(FETCH), settings.scale(APPLY)
    sandbox = Sandbox(
        seed=settings.seed,
        choose=choose_behaviour(bad_versions, settings),
        namespace=NAMESPACE,
        # What is recorded is the same on any day.
        epoch=EPOCH if settings.record else LoopClock().now(),
        flux=FluxTimes(fetch=(fetch, fetch), apply=(apply, apply)),
    )
    names = [f"{OPERATOR}-{number + 1}" for number in range(story.replicas)]
    stage = DemoRun(
        story=story,
        settings=settings,
        screen=screen,
        sandbox=sandbox,
        replicas=tuple(
            sandbox.process(name, args=(*_ARGS, *story.args), webhooks=True, elects=len(names) > 1)
            for name in (names if len(names) > 1 else [OPERATOR])
        ),
        controls=controls,
        bad_versions=bad_versions,
    )
    with sandbox.listening():
        async with sandbox:
            set_loop_pace(SET_UP_PACE)
            await stage.set_up()
            set_loop_pace(controls.pace if controls else 1.0)
            yield stage
            for process in stage.replicas:
                await process.stop()
                # Its last call may be on its way still.
                await process.link.ground()


def choose_behaviour(bad_versions: Iterable[str], settings: DemoSettings) -> Choose:
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
        return bad if version in bad_versions else usual

    return choose
