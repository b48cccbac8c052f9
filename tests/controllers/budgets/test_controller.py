"""What was granted and did not happen is released, by whichever replica; not while it is decided on
(LI-07, SI-17, FP-22, D-65).
"""

from datetime import timedelta

import msgspec
import pytest

from rollout_operator.controllers.budgets import (
    LIVE_READ_LIMIT,
    LONGEST,
    REQUEUE_AFTER,
    RETRY,
    RETRY_FORBIDDEN,
    UNTOUCHED_FOR,
    DisruptionController,
)
from rollout_operator.guards.grants import QUARANTINE, RECORD_COUNTS, GrantState
from rollout_operator.model.budget import DisruptionSource, Record
from rollout_operator.model.names import ApiError, Denied, Uid, UnknownOutcome, Unreachable
from tests.guards.arbiter_bench import Hold, Process, World, failing, name_of, world
from tests.virtual_time import elapsed, in_virtual_time

MOMENT = timedelta(milliseconds=1)
FORBIDDEN = Denied("patch pods: forbidden", status=403)


class Bench:
    """One process and its controller."""

    def __init__(self, here: World, process: Process) -> None:
        self.here, self.process = here, process
        self.controller = DisruptionController(
            pods=process.pods,
            in_flight=process.in_flight,
            recorder=process.recorder,
            client=here.client,
            clock=process.clock,
            metrics=process.metrics.disruptions,
        )

    async def reconcile(self, pod: str = "a-0", *, sync: bool = True) -> timedelta | None:
        """Reconcile one pod, with an up-to-date cache, and return when the next is due."""
        if sync:
            self.process.sync()
        return (await self.controller.reconcile(("test", name_of(pod)))).again

    async def wait(self, span: timedelta) -> None:
        """Let time pass."""
        await self.process.clock.sleep(span)

    async def reconcile_late(self) -> timedelta | None:
        """Reconcile one pod once it has stayed untouched for long enough."""
        await self.wait(UNTOUCHED_FOR)
        return await self.reconcile("a-0")

    async def is_released(self) -> bool:
        """Reconcile a pod until it has proven untouched; return whether nothing is left."""
        assert await self.reconcile() == UNTOUCHED_FOR
        return await self.reconcile_late() is None and not self.here.recorded() and not self.grants

    @property
    def grants(self) -> int:
        """Return how many grants are remembered."""
        return len(self.process.in_flight)


def start(here: World | None = None, name: str = "x") -> Bench:
    """Start a process."""
    here = here or world()
    return Bench(here, here.start(name))


async def granted(pod: str = "a-0") -> Bench:
    """Return a process that has just granted a pod."""
    made = start()
    assert await made.process.evict(pod) == "allowed"
    made.here.client.calls.clear()
    return made


def record(pod: str, here: World, **changes: object) -> str:
    """Return a record of another process on a pod."""
    plain = Record(uid=here.live(pod).uid, by="y", at=here.now(), engine=DisruptionSource.EVICTION)
    return msgspec.json.encode(msgspec.structs.replace(plain, **changes)).decode()


@in_virtual_time
async def test_li07_an_untouched_pod_is_free_again_after_eight_seconds() -> None:
    """FP-22: another webhook refused the eviction after us. Within ten, live and by version."""
    made = await granted()
    assert await made.reconcile() == UNTOUCHED_FOR
    await made.wait(UNTOUCHED_FOR - MOMENT)
    assert await made.reconcile() == MOMENT
    assert made.here.client.calls == []
    await made.wait(MOMENT)
    assert await made.reconcile() is None
    assert made.here.client.verbs() == ["get", "patch"]
    assert made.here.recorded() == []
    assert made.grants == 0
    made.process.sync()
    assert await made.process.evict("b-0") == "allowed"


@in_virtual_time
async def test_li07_a_review_that_may_take_longer_is_given_longer() -> None:
    """The API server acts upon the answer until its own time is over; but not for ever."""
    for lasts, span in ((12, timedelta(seconds=12)), (3600, LONGEST), (1, UNTOUCHED_FOR)):
        here = world()
        here.annotate("a-0", record("a-0", here, lasts=timedelta(seconds=lasts)))
        assert await start(here).reconcile() == span


@in_virtual_time
async def test_li07_a_doubtful_grant_is_settled_alike() -> None:
    """SI-18: its record was written without an answer."""
    made = start()
    made.here.client.lost.add("patch pods/ingester-zone-a-0")
    await made.process.evict("a-0")
    made.here.client.lost.clear()
    assert await made.is_released()


@in_virtual_time
async def test_li07_a_doubtful_grant_whose_record_never_arrived() -> None:
    made = start()
    grant = made.process.in_flight.reserve(
        made.process.cached("a-0"), DisruptionSource.EVICTION, "ingester"
    )
    made.process.in_flight.doubt(grant)
    assert await made.reconcile_late() is None
    assert made.here.client.verbs() == ["get"]
    assert made.grants == 0


@pytest.mark.parametrize("at", [timedelta(0), -RECORD_COUNTS, RECORD_COUNTS * 1000])
@in_virtual_time
async def test_li07_a_record_of_a_process_that_died_is_released(at: timedelta) -> None:
    """FP-40: by any process, after as long, although its memory holds nothing. What counts is
    for how long it has been seen here: the time in it may be wrong.
    """
    here = world()
    here.annotate("a-0", record("a-0", here, at=here.now() + at))
    assert await start(here).is_released()


@in_virtual_time
async def test_si17_a_record_that_was_renewed_by_another_process_counts_from_then_on() -> None:
    """Its answer may still be under way when the first is old."""
    here = world()
    here.annotate("a-0", record("a-0", here))
    made = start(here)
    await made.reconcile()
    await made.wait(UNTOUCHED_FOR - MOMENT)
    here.annotate("a-0", record("a-0", here))
    assert await made.reconcile() == UNTOUCHED_FOR
    await made.wait(MOMENT)
    assert await made.reconcile() == UNTOUCHED_FOR - MOMENT
    assert here.recorded() == ["a-0"]


@in_virtual_time
async def test_si17_a_record_that_another_process_put_over_ours_is_not_taken_with_ours() -> None:
    made = await granted()
    await made.wait(UNTOUCHED_FOR - MOMENT)
    made.here.annotate("a-0", record("a-0", made.here))
    await made.reconcile()
    await made.wait(MOMENT)
    assert await made.reconcile() == UNTOUCHED_FOR - MOMENT
    assert made.here.recorded() == ["a-0"]


@in_virtual_time
async def test_si17_a_record_that_only_the_live_read_shows_is_not_taken() -> None:
    """The cache lags: it was granted anew a moment ago."""
    here = world()
    here.annotate("a-0", record("a-0", here))
    made = start(here)
    await made.reconcile()
    await made.wait(UNTOUCHED_FOR)
    here.annotate("a-0", record("a-0", here))
    assert await made.reconcile(sync=False) == UNTOUCHED_FOR
    assert here.recorded() == ["a-0"]


@pytest.mark.parametrize("change", ["terminate", "replace", "remove"])
@in_virtual_time
async def test_li07_what_the_cache_shows_to_go_is_forgotten_at_once(change: str) -> None:
    """Without a call. What only the live read shows stays counted until then: the pod of the cache
    still looks ready.
    """
    made = await granted()
    await made.wait(UNTOUCHED_FOR)
    getattr(made.here, change)("a-0")
    assert await made.reconcile(sync=False) is None
    assert (made.here.client.verbs(), made.grants) == (["get"], 1)
    assert await made.reconcile() is None
    made.process.in_flight.forget_seen()
    assert (made.here.client.verbs(), made.grants) == (["get"], 0)


@in_virtual_time
async def test_si17_a_pod_that_changes_while_it_is_read_is_read_again() -> None:
    made = await granted()
    made.here.client.before = lambda call: (
        made.here.change("a-0", labels={}) if call.startswith("patch") else None
    )
    assert await made.reconcile_late() == REQUEUE_AFTER
    assert made.here.recorded() == ["a-0"]
    assert made.grants == 1


@pytest.mark.parametrize(
    ("call", "error"),
    [("get", Unreachable("refused")), ("get", FORBIDDEN), ("patch", UnknownOutcome("no answer"))],
)
@in_virtual_time
async def test_li07_what_fails_is_tried_again(call: str, error: ApiError) -> None:
    made = await granted()
    made.here.client.before = failing(call, error)
    assert await made.reconcile_late() == RETRY
    assert made.grants == 1
    made.here.client.before = lambda call: None
    assert await made.reconcile() is None
    assert made.grants == 0


@pytest.mark.parametrize("call", ["get", "patch"])
@in_virtual_time
async def test_li07_what_hangs_is_tried_again(call: str) -> None:
    """A connection that died without a word must not keep the budget for long."""
    made = await granted()
    made.here.client.pause = Hold(call)
    assert await made.reconcile_late() == REQUEUE_AFTER
    assert elapsed() == UNTOUCHED_FOR + LIVE_READ_LIMIT
    assert made.grants == 1


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("{", id="no JSON"),
        pytest.param('{"uid":"uid-ingester-zone-a-0-old"}', id="no time"),
        pytest.param("[" * 9999, id="too deep"),
    ],
)
@in_virtual_time
async def test_fp40_an_unreadable_record_ends_too(text: str, lines: list[str]) -> None:
    """It counts until then, and the log names pod and annotation."""
    here = world()
    here.annotate("a-0", text)
    made = start(here)
    assert (await made.process.evict("b-0")).startswith("429 disruption_budget_used")
    assert await made.is_released()
    assert [line for line in lines if "cannot be read" in line and "ingester-zone-a-0" in line]


@in_virtual_time
async def test_d10_a_copy_of_the_record_of_another_pod_is_removed_at_once() -> None:
    """A template may carry it; it never meant anything."""
    here = world()
    here.annotate("a-0", record("a-0", here, uid=Uid("another")))
    made = start(here)
    assert await made.process.evict("b-0") == "allowed"
    assert await made.reconcile() is None
    assert here.recorded() == ["b-0"]


@in_virtual_time
async def test_fp40_where_it_may_not_be_removed_it_is_tried_later() -> None:
    """Memory is freed; the record itself ends by its time, and the role may be mended."""
    made = await granted()
    made.here.client.before = failing("patch", FORBIDDEN)
    assert await made.reconcile_late() == RETRY_FORBIDDEN
    assert made.grants == 0
    assert made.here.recorded() == ["a-0"]
    made.here.client.before = lambda call: None
    await made.wait(RETRY_FORBIDDEN)
    assert await made.is_released()


@in_virtual_time
async def test_fp40_a_grant_in_memory_only_ends_without_a_write() -> None:
    here = world()
    here.client.before = failing("patch", FORBIDDEN)
    made = start(here)
    made.process.clock.ahead = QUARANTINE
    assert await made.process.evict("a-0") == "allowed"
    here.client.calls.clear()
    assert await made.reconcile("a-1") is None, "a pod that is not granted costs nothing"
    assert await made.reconcile_late() is None
    assert here.client.verbs() == ["get"]
    assert made.grants == 0


@in_virtual_time
async def test_a_pod_that_cannot_be_read_live_is_read_again() -> None:
    made = await granted()
    await made.wait(UNTOUCHED_FOR)
    held = made.here.client.objects["pods", name_of("a-0")]
    made.here.client.put("pods", {**held, "status": {"phase": 7}})
    assert await made.reconcile(sync=False) == RETRY
    assert made.process.state("a-0") is GrantState.GRANTED


@in_virtual_time
async def test_si17_a_grant_that_is_still_decided_on_is_left_alone() -> None:
    """SI-17: its record is minutes in the queue of the rate limiter, or its read: whichever calls
    settles it, and that wakes us.
    """
    made = start()
    made.process.in_flight.reserve(
        made.process.cached("a-0"), DisruptionSource.EVICTION, "ingester"
    )
    await made.wait(LONGEST)
    assert await made.reconcile() == UNTOUCHED_FOR
    assert made.here.client.calls == []
    assert made.grants == 1


@in_virtual_time
async def test_si17_a_grant_that_is_decided_on_anew_while_we_read_is_left_alone() -> None:
    """SI-17: an old record is there, and the pod is requested once more before our read ends."""
    here = world()
    here.annotate("a-0", record("a-0", here))
    made = start(here)
    await made.reconcile()
    await made.wait(UNTOUCHED_FOR)
    in_flight, pod = made.process.in_flight, made.process.cached("a-0")

    def request(call: str) -> None:
        if call.startswith("get"):
            in_flight.reserve(pod, DisruptionSource.EVICTION, "ingester")

    here.client.before = request
    assert await made.reconcile() == UNTOUCHED_FOR
    assert here.recorded() == ["a-0"]
    assert made.grants == 1


@pytest.mark.parametrize("kind", ["pods", "patch pods"])
@in_virtual_time
async def test_d65_the_time_limit_of_a_live_read_begins_when_it_is_sent(kind: str) -> None:
    """D-65, LI-07: under our own rate limits each read would be given up before it was sent."""
    made = await granted()

    async def wait(of: str) -> None:
        if of == kind:
            await made.wait(LIVE_READ_LIMIT * 2)

    made.here.client.turn = wait
    assert await made.reconcile_late() is None
    assert elapsed() == UNTOUCHED_FOR + LIVE_READ_LIMIT * 2
    assert made.here.recorded() == []
    assert made.grants == 0
