"""Events on their way to the API server: how many, which go on, and what is lost."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from rollout_operator.aio.tasks import TaskStack
from rollout_operator.config.flags import get_flag
from rollout_operator.kube.api import JsonObject, Resource
from rollout_operator.kube.events import (
    ATTEMPTS,
    BURST,
    MAX_NOTE,
    MOST_WAITING,
    REFILL,
    REFUSALS_BURST,
    REFUSALS_REFILL,
    SERIES_LASTS,
    EventLimits,
    EventSender,
    cut_note,
)
from rollout_operator.kube.rate_limit import Priority, RateLimiter
from rollout_operator.model.budget import EventAction, EventKind, EventRecord, Regarding
from rollout_operator.model.names import (
    ApiError,
    Conflict,
    Denied,
    NotFound,
    Refused,
    Throttled,
    TooManyRequests,
    Uid,
    UnknownOutcome,
    Unreachable,
)
from rollout_operator.model.outcome import Severity
from rollout_operator.telemetry.metrics import EVENT_OUTCOMES, Metrics
from tests.virtual_time import EPOCH, VirtualClock, in_virtual_time

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


class StoredEvents:
    """An API server that knows of Events only; implements `EventApi`."""

    def __init__(self) -> None:
        self.events: dict[str, dict[str, Any]] = {}
        self.fails: list[ApiError] = []
        """What the next calls raise."""
        self.always: ApiError | None = None
        self.loses_answer = False
        """Whether the next event is stored, and its answer lost."""
        self.hangs = False
        self.limits = RateLimiter(0, 0)
        self.calls: list[str] = []

    async def create(self, resource: Resource, namespace: str, body: JsonObject) -> bytes:
        await self._record("create")
        event = msgspec.convert(body, dict[str, Any])
        name = event["metadata"]["name"]
        if name in self.events:
            raise Conflict("it exists")
        self.events[name] = event
        if self.loses_answer:
            self.loses_answer = False
            raise UnknownOutcome("no answer")
        return b"{}"

    async def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        patch: JsonObject | Sequence[JsonObject],
        *rest: object,
        **how: object,
    ) -> bytes:
        await self._record("patch")
        if name not in self.events:
            raise NotFound("it has expired")
        assert isinstance(patch, dict)
        self.events[name] |= patch
        return b"{}"

    @property
    def notes(self) -> list[str]:
        return [event["note"] for event in self.events.values()]

    async def _record(self, call: str) -> None:
        await self.limits.take("events.k8s.io", Priority.RECORD, MINUTE)
        self.calls.append(call)
        if self.hangs:
            await asyncio.Event().wait()
        if self.always is not None:
            raise self.always
        if self.fails:
            raise self.fails.pop(0)


class Desk:
    """A sender at work."""

    def __init__(self) -> None:
        self.api = StoredEvents()
        self.metrics = Metrics()
        clock = VirtualClock()
        self.sender = EventSender(
            self.api, instance="operator-1", now=clock.now, clock=clock, metrics=self.metrics
        )

    async def report(self, *events: EventRecord, wait: timedelta = timedelta(0)) -> None:
        for event in events:
            self.sender.record(event)
        await asyncio.sleep(wait.total_seconds() or 0.001)

    @property
    def counts(self) -> dict[str, int]:
        """Return how many events came to what, without zeros."""
        name = "rollout_operator_events_total"
        found = {
            outcome: self.metrics.registry.get_sample_value(name, {"outcome": outcome})
            for outcome in EVENT_OUTCOMES
        }
        return {outcome: int(value) for outcome, value in found.items() if value}


@asynccontextmanager
async def working() -> AsyncIterator[Desk]:
    desk = Desk()
    async with TaskStack() as tasks:
        tasks.start("events", desk.sender.run())
        yield desk


def event(note: str = "zone-a waits", name: str = "zone-a", **changes: Any) -> EventRecord:
    plain = EventRecord(
        regarding=Regarding(EventKind.STATEFULSET, "prod", name, Uid(f"uid-{name}")),
        action=EventAction.WAIT,
        reason="ZoneNotReady",
        note=note,
    )
    return replace(plain, **changes)


@in_virtual_time
async def test_an_event_is_as_the_api_has_it() -> None:
    async with working() as desk:
        await desk.report(event(severity=Severity.WARN))

        ((name, found),) = desk.api.events.items()
        assert found == {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": "prod"},
            "eventTime": f"{EPOCH:%Y-%m-%dT%H:%M:%S}.000000Z",
            "reportingController": "rollout-operator",
            "reportingInstance": "operator-1",
            "action": "Wait",
            "reason": "ZoneNotReady",
            "regarding": {
                "apiVersion": "apps/v1",
                "kind": "StatefulSet",
                "namespace": "prod",
                "name": "zone-a",
                "uid": "uid-zone-a",
            },
            "note": "zone-a waits",
            "type": "Warning",
        }
        assert name.startswith("zone-a.")
        assert desk.counts == {"written": 1}


@pytest.mark.parametrize(
    ("kind", "version"),
    [
        (EventKind.POD, "v1"),
        (EventKind.STATEFULSET, "apps/v1"),
        (EventKind.BUDGET, "rollout-operator.grafana.com/v1"),
    ],
)
@in_virtual_time
async def test_each_kind_has_its_version(kind: EventKind, version: str) -> None:
    async with working() as desk:
        await desk.report(event(regarding=Regarding(kind, "prod", "it", Uid("u"))))
        (found,) = desk.api.events.values()
        assert (found["regarding"]["apiVersion"], found["regarding"]["kind"]) == (version, kind)
        assert found["type"] == "Normal"


@in_virtual_time
async def test_the_same_again_is_a_series() -> None:
    """As client-go does: within six minutes of the last time."""
    async with working() as desk:
        await desk.report(event(), wait=MINUTE)
        await desk.report(event(), wait=MINUTE)
        await desk.report(event(), event("another sentence"), wait=SERIES_LASTS - SECOND)

        first, second = desk.api.events.values()
        at = EPOCH + 2 * MINUTE
        assert first["series"]["count"] == 3
        assert first["series"]["lastObservedTime"].startswith(f"{at:%Y-%m-%dT%H:%M:%S}")
        assert "series" not in second
        await desk.report(event(), wait=SERIES_LASTS + SECOND)
        assert first["series"]["count"] == 4
        await desk.report(event())
        assert desk.api.notes == ["zone-a waits", "another sentence", "zone-a waits"]
        assert desk.counts == {"written": 3, "repeated": 3}


@in_virtual_time
async def test_a_series_that_the_api_server_has_forgotten_begins_anew() -> None:
    async with working() as desk:
        await desk.report(event())
        desk.api.events.clear()
        await desk.report(event())
        (found,) = desk.api.events.values()
        assert "series" not in found


@in_virtual_time
async def test_an_object_has_few_at_once_and_one_a_minute() -> None:
    async with working() as desk:
        await desk.report(*(event(f"{number}") for number in range(BURST * 2)))
        assert len(desk.api.events) == BURST
        await desk.report(event("of another object", "zone-b"), wait=REFILL)
        await desk.report(*(event(f"later {number}") for number in range(3)))
        assert desk.api.notes[BURST:] == ["of another object", "later 0"]
        assert desk.counts == {"written": BURST + 2, "limited": BURST + 2}
        await desk.report(event("it has stopped", severity=Severity.WARN))
        assert desk.api.notes[-1] == "it has stopped"


@in_virtual_time
async def test_a_held_pod_is_reported_now_and_then() -> None:
    spaced = event(action=EventAction.REFUSE_EVICTION)
    async with working() as desk:
        for number in range(6):
            await desk.report(replace(spaced, note=f"{number}"), event(f"other {number}"))
            await asyncio.sleep(MINUTE.total_seconds())
        assert [note for note in desk.api.notes if "other" not in note] == ["0", "5"]


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


@in_virtual_time
async def test_what_is_too_much_is_dropped_and_no_caller_waits() -> None:
    async with working() as desk:
        desk.api.hangs = True
        await desk.report(*(event(name=f"zone-{number}") for number in range(MOST_WAITING + 7)))
        assert desk.counts == {"dropped": 7}


@in_virtual_time
async def test_where_there_is_no_room_routine_gives_way() -> None:
    """That a bake has ended is not dropped for gates that pass."""
    desk = Desk()
    routine = [
        event("gates pass", name=f"app-{number}", is_routine=True) for number in range(MOST_WAITING)
    ]
    ends = [event("bake passed", name=f"app-{number}") for number in range(100)]
    for one in (*routine, *ends, event("gates pass", name="last", is_routine=True)):
        desk.sender.record(one)
    assert desk.counts == {"dropped": 101}
    await desk.sender.flush()
    assert desk.counts == {"dropped": 101, "written": MOST_WAITING}
    assert desk.api.notes.count("bake passed") == 100


@in_virtual_time
async def test_releases_have_all_their_events_by_the_default_limits() -> None:
    """D-84: a hundred of three zones with a pod each have eighteen Events in a minute."""
    qps, burst = (get_flag(f"kubernetes.client-{name}").default for name in ("qps", "burst"))
    async with working() as desk:
        desk.api.limits = RateLimiter(float(qps), int(burst))
        for number in range(18):
            for release in range(100):
                # Seven of them are of the Rollout, the others of its zones and pods.
                name = f"app-{release}" if number % 3 == 0 else f"zone-{release}-{number % 3}"
                desk.sender.record(event(f"{number}", name))
            await asyncio.sleep(60 / 18)
        await asyncio.sleep(10)
        assert desk.counts == {"written": 1800}


@pytest.mark.parametrize("error", [Denied("no verb create"), NotFound("no such API")])
@in_virtual_time
async def test_without_the_right_there_is_one_line_and_then_silence(
    error: ApiError, lines: list[str]
) -> None:
    """It is tried again ever more seldom, and works as soon as the right is there."""
    async with working() as desk:
        desk.api.always = error
        for number in range(60):
            await desk.report(event(f"{number}", f"zone-{number}"), wait=MINUTE)
        warned = [line for line in lines if "Events are not written" in line]
        assert len(warned) == 1
        assert "level=warn" in warned[0]
        assert str(error) in warned[0]
        assert len(desk.api.calls) <= 11
        assert desk.counts == {"denied": 60}
        desk.api.always = None
        await asyncio.sleep(10 * 60)
        await desk.report(event("the right is there"), event("for good"))
        assert desk.api.notes == ["the right is there", "for good"]


@pytest.mark.parametrize(
    "error", [Unreachable("gone"), TooManyRequests("slow down"), Throttled("later")]
)
@in_virtual_time
async def test_what_passes_is_tried_again(error: ApiError) -> None:
    async with working() as desk:
        desk.api.fails = [error] * (ATTEMPTS - 1)
        await desk.report(event(), wait=MINUTE)
        assert desk.counts == {"written": 1}
        desk.api.fails = [error] * ATTEMPTS
        await desk.report(event("given up"), event("the next one"), wait=MINUTE)
        assert desk.api.notes == ["zone-a waits", "the next one"]
        assert desk.counts == {"written": 2, "failed": 1}


@in_virtual_time
async def test_an_event_whose_answer_was_lost_is_not_written_twice() -> None:
    async with working() as desk:
        desk.api.loses_answer = True
        await desk.report(event(), wait=MINUTE)
        assert desk.api.notes == ["zone-a waits"]
        assert desk.counts == {"written": 1}


@in_virtual_time
async def test_what_the_api_server_refuses_is_given_up() -> None:
    async with working() as desk:
        desk.api.fails = [Refused("the namespace is being terminated")]
        await desk.report(event(), event("the next one"))
        assert desk.api.notes == ["the next one"]
        assert desk.counts == {"written": 1, "failed": 1}


@in_virtual_time
async def test_what_is_left_is_written_at_the_end() -> None:
    """Also what was on its way when the task was stopped, once."""
    desk = Desk()
    desk.api.hangs = True
    async with TaskStack() as tasks:
        tasks.start("events", desk.sender.run())
        await desk.report(event(), event("the second"))
    desk.api.hangs = False
    await desk.sender.flush()
    assert desk.api.notes == ["zone-a waits", "the second"]


@in_virtual_time
async def test_the_end_does_not_wait_for_long() -> None:
    desk = Desk()
    desk.api.hangs = True
    began = VirtualClock().elapsed()
    desk.sender.record(event())
    desk.sender.record(event("the second"))
    await desk.sender.flush()
    assert VirtualClock().elapsed() - began <= SECOND * 1.5
    assert desk.counts == {"dropped": 2}


@in_virtual_time
async def test_long_names_leave_room_for_the_name_of_the_event() -> None:
    names = ["a" * 253, f"{'b' * 219}.{'c' * 30}"]
    async with working() as desk:
        await desk.report(*(event(name=name) for name in names))
        for found in desk.api.events:
            assert len(found) <= 253
            assert ".." not in found


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("zone-a waits", "zone-a waits", id="as it is"),
        pytest.param("a\nb\x1b[31m", "a\\nb\\x1b[31m", id="on one line, without colours"),
        pytest.param("half \ud83d", "half \\ud83d", id="half a character"),
        pytest.param("ü" * 512, "ü" * 512, id="just as many bytes"),
        pytest.param("x" * 2000, f"{'x' * 1021}...", id="cut"),
        pytest.param("ü" * 1000, f"{'ü' * 510}...", id="cut between characters"),
        pytest.param("x" + "🙂" * 300, f"x{'🙂' * 255}...", id="cut before half a character"),
    ],
)
def test_a_note_is_one_printable_line_of_a_kilobyte(text: str, shown: str) -> None:
    assert cut_note(text) == shown
    assert len(shown.encode()) <= MAX_NOTE
