"""What follows a failure, error by error (LI-11, FP-10, FP-12, W-22)."""

from datetime import timedelta

import pytest

from rollout_operator.kube.cache.retries import (
    FAILED_RESUMES,
    Failures,
    Retry,
    RetryCause,
    WentBack,
)
from rollout_operator.model.errors import (
    ApiError,
    Conflict,
    Denied,
    Gone,
    NotFound,
    Refused,
    Throttled,
    TooManyRequests,
    Unreachable,
)
from rollout_operator.model.outcome import Severity


@pytest.mark.parametrize(
    ("error", "cause", "seconds", "severity"),
    [
        (Gone("x"), RetryCause.GONE, 0, Severity.INFO),
        (Unreachable("x"), RetryCause.UNREACHABLE, 0.1, Severity.WARN),
        (WentBack("x"), RetryCause.WENT_BACK, 2.1, Severity.WARN),
        (Throttled("x"), RetryCause.THROTTLED, 0.1, Severity.WARN),
        (TooManyRequests("x"), RetryCause.THROTTLED, 0.1, Severity.WARN),
        (TooManyRequests("x", retry_after=timedelta(seconds=3)), RetryCause.THROTTLED, 3.1, "warn"),
        (TooManyRequests("x", retry_after=timedelta(hours=3)), RetryCause.THROTTLED, 30.1, "warn"),
        (Denied("x"), RetryCause.DENIED, 1, Severity.ERROR),
        (NotFound("x"), RetryCause.REFUSED, 1, Severity.ERROR),
        (Refused("x"), RetryCause.REFUSED, 1, Severity.ERROR),
        (Conflict("x"), RetryCause.REFUSED, 1, Severity.ERROR),
    ],
)
def test_the_first_failure(
    error: ApiError, cause: RetryCause, seconds: float, severity: Severity
) -> None:
    retry = Failures().next(error, 1.0, has_list=True)
    assert (retry.cause, retry.severity) == (cause, severity)
    assert retry.delay == timedelta(seconds=seconds)
    assert retry.needs_list is isinstance(error, Gone)


@pytest.mark.parametrize(
    ("error", "seconds"),
    [(Unreachable("x"), 10), (Gone("x"), 10), (Denied("x"), 30), (WentBack("x"), 12)],
)
def test_li11_every_row_of_failures_reaches_its_bound(error: ApiError, seconds: int) -> None:
    failures = Failures()
    delays = [failures.next(error, 1.0, has_list=False).delay for _ in range(20)]
    assert delays[-1] == max(delays) == timedelta(seconds=seconds)
    assert delays == sorted(delays)


def test_fp10_three_failed_resumes_ask_for_a_list_and_a_list_starts_anew() -> None:
    failures = Failures()

    def resume() -> Retry:
        return failures.next(Unreachable("x"), 0.5, has_list=True)

    assert [resume().needs_list for _ in range(FAILED_RESUMES)] == [False, False, True]
    failures.note_list()
    assert not resume().needs_list
    assert failures.in_row == 4, "a list alone ends no row: the next delay is longer"


def test_a_failed_list_needs_a_list() -> None:
    assert Failures().next(Unreachable("x"), 0.5, has_list=False).needs_list


def test_the_log_tells_the_first_failures_and_then_one_in_ten() -> None:
    failures = Failures()
    news = [failures.next(Unreachable("x"), 0.5, has_list=False).is_news for _ in range(30)]
    assert [number for number, is_news in enumerate(news, 1) if is_news] == [1, 2, 3, 10, 20, 30]
