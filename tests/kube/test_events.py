"""Events on their way to the API server: stories, and how many an object may have."""

import asyncio
import re
from collections import Counter
from datetime import timedelta
from typing import Any, Final

import msgspec
import pytest

from rollout_operator.aio.queue import Recent
from rollout_operator.config.flags import get_flag
from rollout_operator.kube.events import (
    BURST,
    EVICTION_SPACING,
    MAX_NOTE,
    MOST_OBJECTS,
    MOST_SERIES,
    REFILL,
    REFUSALS_BURST,
    REFUSALS_REFILL,
    ROUTINE_LEAVES,
    EventLimits,
    EventSender,
    cut_note,
)
from rollout_operator.kube.rate_limit import Priority, RateLimiter
from rollout_operator.model.budget import EventAction, EventKind, EventRecord, Regarding
from rollout_operator.model.names import (
    ApiError,
    Denied,
    NotFound,
    Refused,
    Throttled,
    TooManyRequests,
    Uid,
    Unreachable,
)
from rollout_operator.model.outcome import Severity
from rollout_operator.telemetry.metrics import Metrics
from tests import stories
from tests.controllers.fake_client import FakeClient
from tests.samples import read_samples
from tests.stories import check_stories
from tests.virtual_time import VirtualClock, elapsed, in_virtual_time

ERRORS: Final[dict[str, ApiError]] = {
    "denied": Denied("no verb create"),
    "missing": NotFound("no such API"),
    "unreachable": Unreachable("gone"),
    "busy": TooManyRequests("slow down"),
    "throttled": Throttled("later"),
    "refused": Refused("the namespace is being terminated"),
}
NAMES: Final = {"LONG": "a" * 253, "DOTTED": f"{'b' * 219}.{'c' * 30}"}


class StoredEvents(FakeClient):
    """An API server that knows of Events only."""

    def __init__(self) -> None:
        super().__init__([], [])
        self.fails: list[ApiError] = []
        """What the next calls raise."""
        self.always: ApiError | None = None
        self.loses_answer = False
        """Whether the next event is stored, and its answer lost."""
        self.hangs = False
        self.limits = RateLimiter(0, 0)
        self.pause = self._serve

    @property
    def events(self) -> dict[str, dict[str, Any]]:
        return {name: one for (_, name), one in self.objects.items()}

    async def _serve(self, call: str) -> None:
        await self.limits.take("events.k8s.io", Priority.RECORD, timedelta(minutes=1))
        if self.hangs:
            await asyncio.Event().wait()
        if self.always is not None:
            raise self.always
        if self.fails:
            raise self.fails.pop(0)
        self.lost, self.loses_answer = {call} if self.loses_answer else set(), False


def event(note: str = "waits", name: str = "zone-a", **changes: Any) -> EventRecord:
    kind = changes.pop("kind", EventKind.STATEFULSET)
    plain = EventRecord(
        regarding=Regarding(kind, "" if "Cluster" in kind else "prod", name, Uid(f"uid-{name}")),
        action=EventAction.WAIT,
        reason="ZoneNotReady",
        note=note,
    )
    return msgspec.structs.replace(plain, **changes)


class EventStage(stories.Steps):
    """A sender at work; `n*20` are twenty notes or names."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self.api = StoredEvents()
        self.metrics = Metrics()
        clock = VirtualClock()
        self.sender = EventSender(
            self.api, instance="operator-1", now=clock.now, clock=clock, metrics=self.metrics
        )

    async def set_up(self) -> None:
        self.task = self.start(self.sender.run())

    async def act(self, command: str) -> str:
        return await super().act(command.replace("\\", "\\\\"))

    async def do_stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    async def do_report(self, name: str, note: str, *words: str) -> None:
        how: dict[str, Any] = {}
        for word in words:
            key, _, value = word.partition("=")
            match key:
                case "warn":
                    how["severity"] = Severity.WARN
                case "routine":
                    how["is_routine"] = True
                case "kind":
                    how["kind"] = EventKind(value)
                case _:
                    how["action"] = EventAction[value]
        for one in _spread(name):
            for text in _spread(note):
                self.sender.record(event(text, NAMES.get(one, one), **how))
        await asyncio.sleep(0.001)

    async def do_minutes(self, count: str) -> None:
        """Report something of another object each minute."""
        for number in range(int(count)):
            await self.do_report(f"zone-{number}", f"{number}")
            await asyncio.sleep(60)

    async def do_flush(self) -> str:
        began = elapsed()
        await self.sender.flush()
        return f"after {(elapsed() - began).total_seconds():.1f}s"

    async def do_fails(self, error: str, times: str) -> None:
        self.api.fails = [ERRORS[error]] * int(times)

    async def do_always(self, error: str) -> None:
        self.api.always = ERRORS[error]

    async def do_hang(self) -> None:
        self.api.hangs = True

    async def do_lose(self) -> None:
        """Store the next event, and lose its answer."""
        self.api.loses_answer = True

    async def do_heal(self) -> None:
        self.api.always, self.api.hangs = None, False

    async def do_forget(self) -> None:
        """Have the API server forget all Events."""
        self.api.objects.clear()

    async def do_whole(self) -> str:
        """Show the last event."""
        name, found = list(self.api.events.items())[-1]
        head = found["metadata"]
        assert (head["name"], head["namespace"], len(head)) == (name, "prod", 4)
        assert name.startswith(f"{found['regarding']['name']}.")
        return msgspec.json.encode({**found, "metadata": {}}).decode()

    async def do_notes(self) -> str:
        """Show the notes, with the number of each series and the time of its last one."""
        shown = []
        for one in self.api.events.values():
            series = one.get("series")
            last = (
                f" x{series['count']} until {series['lastObservedTime'][11:19]}" if series else ""
            )
            shown.append(one["note"] + last)
        if len(shown) > 12:
            shown = [*shown[:2], f"... {len(shown) - 5} ...", *shown[-3:]]
        return ", ".join(shown)

    async def do_named(self, note: str) -> str:
        return f"{sum(one['note'] == note for one in self.api.events.values())} {note}"

    async def do_names(self) -> str:
        assert all(len(name) <= 253 and ".." not in name for name in self.api.events)
        return f"{len(self.api.events)} events"

    async def do_counts(self) -> str:
        found = read_samples(self.metrics, "events_total")
        return ", ".join(f"{' '.join(key)} {value:g}" for key, value in found.items() if value)

    async def do_calls(self) -> str:
        return f"{len(self.api.calls)} calls"

    async def do_log(self, *words: str) -> str:
        found = Counter(line.split()[0] for line in self.lines if " ".join(words) in line)
        return ", ".join(f"{level} x{count}" for level, count in found.items()) or "no line"

    async def do_note(self, *words: str) -> str:
        """Show how a note is cut, runs of a character by their length."""
        text = " ".join(words).encode("latin-1", "backslashreplace").decode("unicode_escape")
        if run := re.fullmatch(r"(.*)(.)\*(\d+)", text, re.DOTALL):
            text = run[1] + run[2] * int(run[3])
        shown = cut_note(text)
        assert len(shown.encode()) <= MAX_NOTE
        return re.sub(r"(.)\1{9,}", lambda found: f"{found[1]}*{len(found[0])}", shown)


def _spread(text: str) -> list[str]:
    stem, _, count = text.partition("*")
    return [f"{stem}-{number}" for number in range(int(count))] if count else [text]


test_story = in_virtual_time(check_stories(__file__, events=EventStage))


@in_virtual_time
async def test_releases_have_all_their_events_by_the_default_limits() -> None:
    """D-84: a hundred of three zones with a pod each have eighteen Events in a minute."""
    stage = EventStage([])
    qps, burst = (get_flag(f"kubernetes.client-{name}").default for name in ("qps", "burst"))
    stage.api.limits = RateLimiter(float(qps), int(burst))
    stage.task = asyncio.create_task(stage.sender.run())
    for number in range(18):
        for release in range(100):
            # Seven of them are of the Rollout, the others of its zones and pods.
            name = f"app-{release}" if number % 3 == 0 else f"zone-{release}-{number % 3}"
            stage.sender.record(event(f"{number}", name))
        await asyncio.sleep(60 / 18)
    await asyncio.sleep(10)
    assert await stage.do_counts() == "written 1800"
    await stage.do_stop()


@in_virtual_time
async def test_refusals_leave_room_for_what_the_operator_does() -> None:
    """Any client that reaches the webhooks may have reviews of any pod refused."""
    clock = VirtualClock()
    limits = EventLimits(clock)

    def count_admitted() -> int:
        pods = (Uid(f"uid-pod-{number}") for number in range(REFUSALS_BURST * 3))
        return sum(limits.admit(pod, EventAction.REFUSE_EVICTION) for pod in pods)

    assert count_admitted() == REFUSALS_BURST
    assert limits.admit(Uid("uid-zone-a"), EventAction.WAIT)
    await clock.sleep(REFUSALS_REFILL)
    assert count_admitted() == 1


@pytest.mark.parametrize(
    ("noise", "every", "left"),
    [
        pytest.param({"leaves": ROUTINE_LEAVES}, 1, (True, True), id="batches"),
        pytest.param({}, 1, (True, True), id="refusals"),
        pytest.param({"leaves": 0, "is_loud": True}, 10, (True, False), id="warnings"),
        pytest.param({"leaves": 0, "is_loud": True}, 1, (True, False), id="very many warnings"),
        pytest.param({"leaves": 0}, 1, (False, True), id="what changes each second"),
    ],
)
@in_virtual_time
async def test_nothing_crowds_out_the_other_type_nor_routine_the_end(
    noise: dict[str, Any], every: int, left: tuple[bool, bool]
) -> None:
    """After an hour of it, there may be a Normal Event and a Warning, in this order."""
    clock = VirtualClock()
    limits, action = EventLimits(clock), EventAction.REFUSE_DOWNSCALE
    for _ in range(3600 // every):
        limits.admit(Uid("u"), action, **noise)
        await clock.sleep(timedelta(seconds=every))
    for _ in range(BURST):
        limits.admit(Uid("u"), action, **noise)

    action = EventAction.ROLL_OUT
    assert left == tuple(limits.admit(Uid("u"), action, 0, is_loud=loud) for loud in (False, True))


@in_virtual_time
async def test_an_object_is_forgotten_once_it_may_have_as_many_events_as_a_new_one() -> None:
    clock = VirtualClock()
    limits = EventLimits(clock)
    known: list[int] = []
    for action, pause in (
        (EventAction.WAIT, REFILL / 2),
        (EventAction.WAIT, REFILL),
        (EventAction.REFUSE_EVICTION, EVICTION_SPACING / 2),
        (EventAction.WAIT, EVICTION_SPACING),
        (EventAction.WAIT, REFILL),
    ):
        limits.admit(Uid(f"uid-{len(known)}"), action)
        known.append(len(limits))
        await clock.sleep(pause)
    assert known == [1, 2, 1, 2, 1]


@in_virtual_time
async def test_what_is_remembered_is_bounded() -> None:
    limits, recent = EventLimits(VirtualClock()), Recent[int, int](MOST_SERIES)
    for number in range(MOST_OBJECTS + 10):
        limits.admit(Uid(f"uid-{number}"), EventAction.WAIT)
        recent.put(number, number)
    assert (len(limits), len(recent)) == (MOST_OBJECTS, MOST_SERIES)
    assert recent.get(0) is None
    assert recent.get(MOST_OBJECTS + 9) is not None
