"""How often a configuration is written (LI-11, FP-34, W-25)."""

from datetime import timedelta

import pytest

from rollout_operator.model.errors import (
    Conflict,
    Denied,
    OperatorError,
    TooManyRequests,
    Unreachable,
)
from rollout_operator.pki.bundle import BURST, PAUSE, WriteRate

NOTHING = timedelta(0)
MINUTE = timedelta(minutes=1)
START = timedelta(days=40)


def attempts(span: timedelta, error: OperatorError | None = None, rng: float = 0.0) -> int:
    """Return how many attempts there are within `span`, each made as soon as it may be."""
    pace, now, count = WriteRate(), START, 0
    while now <= START + span:
        wait = pace.wait(now)
        if wait:
            now += wait
            continue
        pace.note_attempt(now)
        count += 1
        if error is None:
            pace.note_success()
        else:
            pace.note_failure(error, now, rng)
        now += timedelta(milliseconds=10)
    return count


def test_the_first_attempt_goes_at_once() -> None:
    assert WriteRate().wait(START) == NOTHING


def test_fp_34_writes_that_are_undone_at_once_are_bounded() -> None:
    assert attempts(MINUTE) == BURST + 2
    assert attempts(11 * MINUTE) - attempts(MINUTE) == 20, "one each 30 s"


@pytest.mark.parametrize("rng", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("error", [Unreachable("x"), Conflict("x"), Denied("x")], ids=repr)
def test_li_11_failing_attempts_are_bounded(error: OperatorError, rng: float) -> None:
    after_five = attempts(15 * MINUTE, error, rng) - attempts(5 * MINUTE, error, rng)
    assert attempts(MINUTE, error, rng) <= 10
    assert after_five <= 21, "at most one each 30 s"


def test_failures_wait_longer_and_longer() -> None:
    pace = WriteRate()
    waits = [pace.note_failure(Unreachable("x"), START, 1.0).total_seconds() for _ in range(8)]
    assert waits == [0.5, 1, 2, 4, 8, 16, 30, 30]


def test_a_denied_attempt_waits_for_a_person() -> None:
    pace = WriteRate()
    assert pace.note_failure(Denied("x"), START, 0.0) == PAUSE
    assert pace.is_denied
    assert pace.wait(START + PAUSE) == NOTHING


def test_fp_12_the_server_may_ask_for_more() -> None:
    busy = TooManyRequests("x", retry_after=timedelta(seconds=7))
    assert WriteRate().note_failure(busy, START, 0.0) == timedelta(seconds=7)
    assert WriteRate().note_failure(TooManyRequests("x"), START, 1.0) == timedelta(seconds=0.5)


def test_success_forgets_failures() -> None:
    pace = WriteRate()
    for _ in range(4):
        pace.note_failure(Denied("x"), START, 1.0)
    pace.note_success()
    assert (pace.failures, pace.is_denied) == (0, False)
    assert pace.note_failure(Unreachable("x"), START, 1.0) == timedelta(seconds=0.5)


def test_a_long_rest_saves_no_more_than_one_burst() -> None:
    pace = WriteRate()
    for _ in range(BURST):
        pace.note_attempt(START)
    assert pace.wait(START) == PAUSE
    late = START + timedelta(days=1)
    for _ in range(BURST):
        assert pace.wait(late) == NOTHING
        pace.note_attempt(late)
    assert pace.wait(late) == PAUSE
