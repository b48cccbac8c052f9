"""A rollout whose grants fail: the API server is slow or away, or the pod is another one by now
(SI-09, LI-11, ZPDB-60).
"""

import asyncio
from datetime import timedelta
from typing import Final

import pytest

from rollout_operator.controllers.live_reads import LOOK_LASTS
from rollout_operator.model.errors import (
    ApiError,
    Conflict,
    NotFound,
    Throttled,
    TooManyRequests,
    UnknownOutcome,
    Unreachable,
)
from rollout_operator.model.outcome import Code, Severity
from tests.controllers.rollout.test_executor_budgets import GROUP, LIST, PATCH, Shell, rolling
from tests.guards.arbiter_bench import failing, rule
from tests.virtual_time import in_virtual_time

LATE: Final = "no answer of the API server about ingester-zone-a-0 in time"


def hang_after_record(made: Shell) -> None:
    """Let the live read that follows a record take longer than it counts."""

    async def hang(call: str) -> None:
        if made.here.client.verbs()[-2:] == [PATCH, LIST]:
            await asyncio.sleep((LOOK_LASTS + timedelta(seconds=1)).total_seconds())

    made.here.client.pause = hang


@in_virtual_time
async def test_li_11_grants_that_are_always_too_late_back_off_and_say_so() -> None:
    """SI-09: LISTs so slow that no grant is confirmed in time: no success, no cache at fault."""
    made = rolling(rule(1))
    hang_after_record(made)
    report = await made.step()
    assert report.cut_short == LATE
    assert not report.is_contradicted
    assert report.held == []
    made.process.sync()
    waits: list[timedelta] = []
    for _ in range(9):
        again = (await made.controller.reconcile(GROUP)).again
        assert again is not None
        waits.append(again)
        made.process.sync()
        await made.process.clock.sleep(again)
    assert waits == [timedelta(seconds=wait) for wait in (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5, 5, 5)]
    assert made.deleted == []
    assert made.refreshed == []
    reason = made.group_states.entries()[0].plan.waits[0]
    assert (reason.code, reason.severity) == (Code.LIVE_READ_EXPIRED, Severity.WARN)
    assert reason.text.endswith(LATE)
    metric = "rollout_operator_last_successful_group_reconcile_timestamp_seconds"
    labels = {"rollout_group": f"{GROUP}"}
    assert made.process.metrics.registry.get_sample_value(metric, labels) == 0


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        pytest.param(Conflict("changed", status=409), "contradicted", id="the pod has changed"),
        pytest.param(NotFound("gone", status=404), "contradicted", id="the pod is gone"),
        pytest.param(Throttled("later"), "cut short", id="our own limiter: a new look"),
        pytest.param(TooManyRequests("busy"), "failed", id="turned away: an error"),
        pytest.param(Unreachable("refused"), "failed", id="nothing could be sent: an error"),
        pytest.param(UnknownOutcome("no answer"), "failed", id="no answer: an error"),
    ],
)
@in_virtual_time
async def test_zpdb60_a_record_that_fails_comes_to_what_its_error_says(
    error: ApiError, outcome: str
) -> None:
    """Only a pod that is not what it was contradicts the cache."""
    made = rolling(rule(1))
    made.here.client.before = failing(PATCH, error)
    report = await made.step()
    assert made.deleted == []
    assert report.is_contradicted == (outcome == "contradicted")
    assert report.is_cut_short == (outcome == "cut short")
    assert report.error is (error if outcome == "failed" else None)
