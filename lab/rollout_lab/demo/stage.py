"""One story on a simulated world in real time: acts, waits, and the picture that is shown.

What is told is decided in `scenarios`, what is worth a line in `log`; how the operator and
the world are put together, in `lab.world`.
"""

import re
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

import msgspec
from msgspec.structs import replace

from rollout_lab.demo.flags import DemoSettings
from rollout_lab.demo.keys import Controls
from rollout_lab.demo.log import Journal, measure_lease, read_lease, read_waits
from rollout_lab.demo.objects import (
    FIRST,
    NAMESPACE,
    PERSON,
    change_version,
    create_template,
    create_webhook,
    create_zone,
    set_up_nodes,
)
from rollout_lab.demo.screen import Screen
from rollout_lab.demo.snapshot import (
    DemoReason,
    DemoSnapshot,
    PodCell,
    ZoneRow,
    is_at_rest,
    read_row,
)
from rollout_lab.demo.totals import Totals, add_up, draw_totals
from rollout_lab.model.fields import child, controller_of, name_of, number, text
from rollout_lab.model.request import ApiRequest
from rollout_lab.nodes.behaviour import image_of
from rollout_lab.process import ACTOR, SimulatedProcess
from rollout_lab.world import Sandbox
from rollout_operator.aio.clock import LoopClock
from rollout_operator.cli.render import BLANK, Line, Style
from rollout_operator.kube.api import LEASES, PODS, STATEFULSETS, JsonObject
from rollout_operator.model.names import OperatorError
from rollout_operator.model.outcome import Code
from rollout_operator.planning.wording import count

# Between two looks at the world.
TICK: Final = timedelta(milliseconds=50)
# A step that takes so much longer than the pods themselves will not come.
PATIENCE: Final = 5
SPARE: Final = timedelta(seconds=20)
FIRST_STEPS: Final = timedelta(seconds=1)
# Of the bars: ten minutes.
MOST_SAMPLES: Final = 12_000
_DOWN: Final = frozenset({PodCell.BROKEN, PodCell.ENDING, PodCell.GONE, PodCell.STARTING})


class TakenOver(Exception):
    """The reader wants something else than the story; `Controls.take` says what."""


class ScenarioStuck(OperatorError):
    """What a story waits for does not come; the text says what, and how the operator's log ends."""


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """One story."""

    name: str
    title: str
    about: str
    """What will be seen, in plain words; two lines at the most."""
    play: Callable[["DemoRun"], Awaitable[None]]
    proof: str
    """What has been seen in the end, in one sentence."""
    bad_version: str = ""
    """The version whose pods crash."""
    labels: Mapping[str, str] = {}
    """Of the StatefulSets."""
    is_chain: bool = False
    """Whether each zone follows the zone before it."""
    webhook: str = ""
    """The review that the API server sends."""
    is_mirror: bool = False
    """Whether the zones have the replicas of another object, and give pods up with a delay."""
    has_policy: bool = False
    """Whether a MultiAZRollout drives the zones."""
    has_pauses: bool = False
    """Whether the operator is to wait in between: no comparison is fair then."""
    args: tuple[str, ...] = ()
    """Flags of the operator."""
    list_objects: Callable[[DemoSettings], Iterable[ApiRequest]] = lambda settings: ()
    """What people create beside the zones."""
    begin: Callable[["DemoRun"], Awaitable[None]] | None = None
    """What has to happen before the story begins."""
    list_waits: Callable[[Sandbox], Iterable[DemoReason]] = lambda sandbox: ()
    """What something else than the group waits for now."""
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
    """Those whose pods crash."""
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
    """When the end was shown: time and bars stand from then on."""
    _history: dict[str, deque[int]] = field(default_factory=dict)
    """How many pods of each zone were down at each look."""
    _sampled_at: timedelta = -TICK
    """When pods were counted last."""
    _names: dict[str, str] = field(default_factory=dict)
    """The version of each revision."""
    _journal: Journal = field(default_factory=Journal)
    _is_shown: bool = False
    """From when the world is set up."""

    async def set_up(self) -> None:
        """Create the zones, wait until they are whole, and start the operator."""
        story, leading = self.story, ""
        for request in set_up_nodes(self.settings.names, self.settings.limit):
            await self.sandbox.call(request)
        if story.is_mirror:
            await self.sandbox.call(create_template(self.settings.pods))
        for name in self.settings.names:
            request = create_zone(self.settings, name, story.labels, leading)
            await self.sandbox.call(request)
            leading = name if self.story.is_chain else ""
        for request in story.list_objects(self.settings):
            await self.sandbox.call(request)
        if self.story.webhook:
            await self.sandbox.call(create_webhook(self.story.webhook))
        await self.until("all pods ready", is_at_rest)
        for process in self.replicas:
            process.start()
            await process.wait_ready()
            while len(self.replicas) > 1 and self.acting is None:
                await self.tick()
        if story.begin is not None:
            await story.begin(self)
        # What the operator does first of all is no part of the story.
        await self._clock.sleep(FIRST_STEPS)
        self._begun = self._counted = self.sandbox.elapsed()
        self.sandbox.history.listeners.append(
            lambda record: self._journal.record(record, self._begun)
        )
        self._journal.is_open = self._is_shown = True

    @property
    def acting(self) -> SimulatedProcess | None:
        """Return the replica that acts."""
        return next((process for process in self.replicas if process.acts), None)

    def forget(self) -> None:
        """Drop what has happened: a demo that serves goes on for days."""
        self._journal.entries.clear()
        self.sandbox.history.records.clear()
        self.sandbox.api.compact()
        # A client that opens a watch again begins where nothing is forgotten.
        self.sandbox.api.send_bookmarks()
        self._begun = self._counted = self.sandbox.elapsed()
        self._history.clear()
        self._end = ()

    def begin_anew(self) -> None:
        """Add figures up from now on: what follows is the reader's own story."""
        self._counted, self._end = self.sandbox.elapsed(), ()

    # What people do

    async def change_all(self, version: str) -> None:
        """Give all zones a new template, and show from now on how many pods have it."""
        self._versions.append(version)
        requests = [change_version(name, version) for name in self.settings.names]
        await self.act(f"new template for all zones: {version}", *requests)

    async def publish(self, name: str, version: str) -> None:
        """Have an image policy announce a version, and show how many pods have it."""
        self._versions.append(version)
        self.sandbox.say("registry", f"has {version}")
        await self.sandbox.flux.announce(NAMESPACE, name, version)

    def next_version(self) -> str:
        """Return a version that no pod has had yet."""
        return f"v{max(int(version.removeprefix('v')) for version in self._versions) + 1}"

    def last_good(self) -> str:
        """Return the version before the version that is wanted now; not a version that crashes."""
        now = self._versions[-1]
        good = [
            version
            for version in self._versions
            if version != now and version not in self.bad_versions
        ]
        return good[-1] if good else FIRST

    async def act(self, what: str, *requests: ApiRequest) -> bool:
        """Send a person's requests and return whether all were done; a refusal is shown."""
        self.sandbox.say(PERSON, what)
        answers = [await self.sandbox.api.call(request) for request in requests]
        return all(answer.is_ok for answer in answers)

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
        return measure_lease(self._get_lease(), self.sandbox.clock().now())

    # What is waited for

    async def rest(self, span: timedelta) -> None:
        """Go on showing for a while, so that the reader can follow."""
        end = self._clock.elapsed() + self.settings.scale(span)
        while self._clock.elapsed() < end:
            await self.tick()

    async def until(
        self, what: str, holds: Callable[[DemoSnapshot], bool], spare: timedelta = SPARE
    ) -> None:
        """Go on showing until something holds; `spare` is for what pods have no part in.

        Raises StoryStuck.
        """
        end = self._clock.elapsed() + spare + self._patience
        while not holds(self.snapshot()):
            if self._clock.elapsed() > end:
                raise ScenarioStuck("\n".join([f"waited in vain for {what}", *self._journal.tail]))
            await self.tick()

    @property
    def _patience(self) -> timedelta:
        pods = self.settings.zones * self.settings.pods
        return PATIENCE * pods * self.settings.scale(self.settings.ready_after)

    async def tick(self) -> None:
        """Show what is now and let a moment pass. Raises TakenOver while a story is told."""
        if self._is_shown:
            snapshot = self.snapshot()
            self._count(snapshot.rows)
            self.screen.show(snapshot)
            if self.controls is not None:
                self.controls.end_step(self.seen())
                if self.is_scripted and self.controls.has_command:
                    raise TakenOver
        await self._clock.sleep(TICK)

    def _count(self, rows: Iterable[ZoneRow]) -> None:
        """Keep how many pods are down: once a tick, however many callers there are."""
        if self._end or self.sandbox.elapsed() - self._sampled_at < TICK:
            return
        self._sampled_at = self.sandbox.elapsed()
        for row in rows:
            history = self._history.setdefault(row.name, deque(maxlen=MOST_SAMPLES))
            history.append(len(row.cells) - row.up)

    # What there is to see

    def seen(self) -> object:
        """Return what a step has to change: pods and entries."""
        return [(row.name, row.cells) for row in self._read_rows()], len(self._journal.entries)

    def show(self) -> None:
        """Show what is now, while time may stand."""
        if self._is_shown:
            self.screen.show(self.snapshot())

    def show_totals(self) -> None:
        """Show what it came to, until something else happens."""
        if not self._end:
            self._end, self._ended = tuple(draw_totals(self.totals())), self._since()

    def finish(self) -> None:
        """Show the end of the story."""
        self._end = ((self.story.proof, Style.BOLD),), *draw_totals(self.totals())
        self._ended = self._since()
        self.screen.finish(self.snapshot(), self._end)

    def announce(self, title: str) -> None:
        """Say below the end which story is next."""
        self._end = *self._end, BLANK, ((f"Next: {title}", Style.YELLOW),)

    def snapshot(self) -> DemoSnapshot:
        """Return what is to be seen now."""
        rows = tuple(self._read_rows())
        controls = self.controls
        return DemoSnapshot(
            title=self._title(),
            about=self._about(),
            elapsed=self._ended if self._end else self._since(),
            goal=self._versions[-1],
            rows=rows,
            whys=tuple(self._list_whys(rows)),
            entries=tuple(self._journal.entries),
            limit=self.settings.limit,
            pace=controls.pace if controls else 1.0,
            keys=controls.list_keys() if controls else (),
            is_help=controls is not None and controls.is_help,
            end=self._end,
        )

    def totals(self) -> Totals:
        """Return the figures of the story so far, or since the reader began to act."""
        totals = add_up(self.sandbox.history.records, self._counted, self.settings.limit)
        return replace(totals, has_pauses=self.story.has_pauses)

    def read_line(self, line: bytes) -> None:
        """Record a line of the operator's log."""
        who = ACTOR.get() if len(self.replicas) > 1 else "operator"
        self._journal.read_line(line, self._since(), who)

    def _title(self) -> str:
        settings = self.settings
        zones = f"{count(settings.zones, 'zone')} of {count(settings.pods, 'pod')}"
        return f"{self.story.title}: {zones}, at most {settings.limit} down in a zone"

    def _since(self) -> float:
        return (self.sandbox.elapsed() - self._begun).total_seconds()

    def _about(self) -> str:
        pages = f" Pages: {self.address} {self.address}metrics {self.address}ready"
        return f"{self.story.about}{pages if self.address else ''}"

    def _get_lease(self) -> JsonObject:
        return next(iter(self.sandbox.api.list(LEASES, NAMESPACE)))

    def _read_rows(self) -> Iterator[ZoneRow]:
        pods: dict[str, dict[str, JsonObject]] = {}
        for pod in self.sandbox.api.list(PODS, NAMESPACE):
            pods.setdefault(text(controller_of(pod), "name"), {})[name_of(pod)] = pod
        for sts in self.sandbox.api.list(STATEFULSETS, NAMESPACE):
            row = read_row(sts, pods.get(name_of(sts), {}))
            if number(sts, "status", "observedGeneration") == number(sts, "metadata", "generation"):
                revision = text(sts, "status", "updateRevision")
                self._names[revision] = image_of(child(sts, "spec", "template"))
            yield replace(row, history=tuple(self._history.get(row.name, ())))

    def _list_whys(self, rows: Iterable[ZoneRow]) -> Iterator[DemoReason]:
        """Yield why the last pod was taken, as long as its zone is not whole, then the waits.

        Once its zone wants another revision, that is no longer why.
        """
        short = {
            row.name: row.update for row in rows if any(cell.state in _DOWN for cell in row.cells)
        }
        move = self._journal.move
        if move is not None and move.zone in short and short[move.zone] in move.text:
            words = (self._names.get(word, word) for word in re.split(r"([\w-]+)", move.text))
            yield replace(move, text="".join(words))
        acting = self.acting
        if acting is not None and self.story.has_policy:
            yield from self._journal.policy_waits
        elif acting is not None:
            yield from self.story.list_waits(self.sandbox)
            yield from read_waits(acting.entries())
        elif len(self.replicas) > 1 and self._is_shown:
            yield read_lease(self._get_lease(), self.sandbox.clock().now())
        elif self._is_shown:
            text = (
                "the operator is down: until it is back no pod is replaced, and no eviction allowed"
            )
            yield DemoReason(zone="", code=Code.NOT_ELECTED, text=text)
