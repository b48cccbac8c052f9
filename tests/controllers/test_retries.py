"""Failing attempts are repeated ever more rarely; another attempt goes at once (LI-11, W-46)."""

from datetime import timedelta
from typing import Final

import pytest

from rollout_operator.controllers.worker import RECHECK, Attempt, Attempts, Reconciles, name_attempt
from rollout_operator.model.names import (
    Conflict,
    DecodeError,
    NotFound,
    OperatorError,
    Refused,
    Revision,
    TooManyRequests,
    Uid,
)
from rollout_operator.model.objects import StatefulSet
from rollout_operator.model.outcome import Code, Reason, RecordRevision, ReplacePods
from tests.fakes_clock import FakeClock

NOTHING: Final = timedelta(0)
ROLL: Final[Attempt] = ("replace", "uid-a", "new")
NEWER: Final[Attempt] = ("replace", "uid-a", "newer")

FIRST = timedelta(milliseconds=100)
BUSY = timedelta(seconds=7)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def attempts(clock: FakeClock) -> Attempts:
    return Attempts(clock, longest=timedelta(seconds=5))


def test_attempts_are_named_by_kind_zone_and_revision() -> None:
    """LI-11: pods that flap do not make it another attempt."""
    zone = StatefulSet(
        namespace="test",
        name="a",
        uid=Uid("uid-a"),
        resource_version="1",
        update_revision=Revision("new"),
    )
    reason = Reason(code=Code.ROLLED_OUT, text="done")
    record = RecordRevision(zone=zone, revision=Revision("new"), reason=reason)
    assert name_attempt(ReplacePods(zone=zone, shares=())) == ROLL
    assert name_attempt(record) == ("record", "uid-a", "new")


def test_waits_double_up_to_the_longest_interval(attempts: Attempts) -> None:
    waits = [attempts.record_failure(ROLL, "no", at_least=NOTHING) for _ in range(8)]
    assert [wait.total_seconds() for wait in waits] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5, 5]


def test_after_five_minutes_two_attempts_a_minute(attempts: Attempts, clock: FakeClock) -> None:
    """LI-11: at most one attempt per 30 s and group."""
    late = 0
    while clock.elapsed() < timedelta(minutes=10, seconds=30):
        clock.jump(attempts.record_failure(ROLL, "no", at_least=NOTHING))
        late += clock.elapsed() > timedelta(minutes=5, seconds=30)
    assert late <= 11, "each 30 s, in five minutes"
    assert attempts.record_failure(ROLL, "no", at_least=NOTHING) == timedelta(seconds=30)


def test_a_failure_long_after_the_last_is_a_new_one(attempts: Attempts, clock: FakeClock) -> None:
    attempts.record_failure(ROLL, "no", at_least=NOTHING)
    clock.jump(timedelta(hours=1))
    assert attempts.record_failure(ROLL, "no", at_least=NOTHING) == timedelta(seconds=0.1)


def test_the_wait_runs_down_and_names_its_error(attempts: Attempts, clock: FakeClock) -> None:
    attempts.record_failure(ROLL, "pods are forbidden", at_least=timedelta(seconds=3))
    clock.jump(timedelta(seconds=1))
    assert attempts.wait_before(ROLL) == (timedelta(seconds=2), "pods are forbidden")
    clock.jump(timedelta(seconds=2))
    assert attempts.wait_before(ROLL) == (NOTHING, "pods are forbidden")


def test_another_attempt_goes_at_once(attempts: Attempts) -> None:
    """So does the same, before it fails and after a success."""
    assert attempts.wait_before(ROLL) == (NOTHING, "")
    attempts.record_failure(ROLL, "no", at_least=timedelta(seconds=3))
    assert attempts.wait_before(NEWER) == (NOTHING, "")
    attempts.record_success(ROLL)
    assert attempts.wait_before(ROLL) == (NOTHING, "")


def test_what_failed_together_does_not_come_back_together(clock: FakeClock) -> None:
    """Jitter takes up to a half of a wait away, and nothing of the last one (LI-11)."""
    rngs = iter([0.0, 0.5, 1.0])
    attempts = Attempts(clock, longest=timedelta(seconds=5), rng=lambda: next(rngs))
    waits = [attempts.record_failure((name,), "no", at_least=NOTHING) for name in "abc"]
    assert [wait.total_seconds() for wait in waits] == [0.05, 0.075, 0.1]


class Bench:
    """Reconciles that end as the test wants."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.error: OperatorError | None = None
        self.tried: list[str] = []
        self.warned: list[str] = []
        self._reconciles = Reconciles(
            kind="Thing",
            attempts=Attempts(self.clock, longest=timedelta(seconds=5)),
            once=self._once,
            name_keys=lambda name: {"thing": name},
            on_failure=lambda name, error: self.warned.append(f"{name}: {error}"),
        )

    async def _once(self, name: str) -> timedelta | None:
        self.tried.append(name)
        if self.error is not None:
            raise self.error
        return None

    async def step(self, name: str = "a") -> timedelta | None:
        return (await self._reconciles.reconcile(name)).again


@pytest.mark.parametrize(
    ("error", "again", "warned"),
    [
        pytest.param(None, None, [], id="no error"),
        pytest.param(NotFound("gone"), RECHECK, [], id="gone: until the cache shows it"),
        pytest.param(Conflict("newer"), FIRST, [], id="a conflict is no news"),
        pytest.param(Refused("no"), FIRST, ["a: no"], id="refused"),
        pytest.param(DecodeError("odd"), FIRST, ["a: odd"], id="an answer that cannot be read"),
        pytest.param(
            TooManyRequests("busy", retry_after=BUSY), BUSY, ["a: busy"], id="as the server says"
        ),
    ],
)
async def test_what_an_error_means(
    error: OperatorError | None, again: timedelta | None, warned: list[str]
) -> None:
    bench = Bench()
    bench.error = error
    assert await bench.step() == again
    assert bench.warned == warned


async def test_what_failed_is_not_tried_before_its_time() -> None:
    """LI-11: nor does it hold up another object."""
    bench = Bench()
    bench.error = Refused("no")
    assert [await bench.step(), await bench.step(), await bench.step("b")] == [FIRST] * 3
    assert bench.tried == ["a", "b"]
    bench.clock.jump(FIRST)
    assert await bench.step() == 2 * FIRST
    assert bench.tried == ["a", "b", "a"]


async def test_a_success_forgets_the_failures() -> None:
    bench = Bench()
    bench.error = Refused("no")
    await bench.step()
    bench.clock.jump(FIRST)
    bench.error = None
    assert await bench.step() is None
    bench.error = Refused("no")
    assert await bench.step() == FIRST
