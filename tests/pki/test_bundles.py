"""The CA in webhook configurations: texts of commands beside this file, and what is no story."""

import asyncio
import copy
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict, replace

from rollout_operator.model.names import (
    INJECT_CA_LABEL,
    NAMESPACE_LABEL,
    Conflict,
    Denied,
    OperatorError,
    TooManyRequests,
    Uid,
    Unreachable,
)
from rollout_operator.model.objects import Unreadable
from rollout_operator.pki.bundle import BURST, PAUSE, WriteRate, is_ours, plan_patch
from tests.goldens import Golden
from tests.pki.bundle_stage import ENCODED, NAMES, BundleStage, apply, configuration
from tests.stories import Story, read_stories
from tests.virtual_time import in_virtual_time

FIRST = next(text for text, name in ENCODED.items() if name == "first")


@pytest.mark.parametrize("story", read_stories(Path(__file__).parent / "bundles.txt"))
def test_story(story: Story, golden: Golden, lines: list[str]) -> None:
    found: list[str] = []

    @in_virtual_time
    async def run() -> None:
        found.extend(await BundleStage(lines).play(story.commands))

    run()
    story.check(found, golden)


@given(st.lists(st.sampled_from(["none", "first", "other"]), min_size=1, max_size=6))
def test_si_20_a_patch_changes_bundles_and_nothing_else(bundles: list[str]) -> None:
    one = configuration("guard", *bundles)
    before = copy.deepcopy(asdict(one))
    patched = apply(one, plan_patch(one, FIRST, "ops", NAMES))
    assert asdict(one) == before, "W-25: what is cached is never changed"
    assert {hook.ca_bundle for hook in patched.webhooks} == {FIRST}
    assert plan_patch(patched, FIRST, "ops", NAMES) == []
    assert replace(patched, webhooks=one.webhooks) == one


def test_what_cannot_be_read_is_nobodys() -> None:
    lost = Unreadable(
        kind="ValidatingWebhookConfiguration",
        namespace="",
        name="x",
        uid=Uid("x"),
        resource_version="1",
        labels={INJECT_CA_LABEL: "true", NAMESPACE_LABEL: "ops"},
        error="no",
    )
    assert not is_ours(lost, "ops")


@in_virtual_time
async def test_cancelling_in_the_middle_of_a_write_leaves_nothing_behind() -> None:
    stage = BundleStage([])
    [*_, before] = await stage.play(["put guard", "run", "0.0005s"])
    await asyncio.sleep(1)
    assert (before, stage.look()) == ("guard at 0.0", [])


# How often one configuration is written

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
        pace.record_attempt(now)
        count += 1
        if error is None:
            pace.record_success()
        else:
            pace.record_failure(error, now, rng)
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
    waits = [pace.record_failure(Unreachable("x"), START, 1.0).total_seconds() for _ in range(8)]
    assert waits == [0.5, 1, 2, 4, 8, 16, 30, 30]


def test_a_denied_attempt_waits_for_a_person() -> None:
    pace = WriteRate()
    assert pace.record_failure(Denied("x"), START, 0.0) == PAUSE
    assert pace.is_denied
    assert pace.wait(START + PAUSE) == NOTHING


def test_fp_12_the_server_may_require_more() -> None:
    busy = TooManyRequests("x", retry_after=timedelta(seconds=7))
    assert WriteRate().record_failure(busy, START, 0.0) == timedelta(seconds=7)
    assert WriteRate().record_failure(TooManyRequests("x"), START, 1.0) == timedelta(seconds=0.5)


def test_success_forgets_failures() -> None:
    pace = WriteRate()
    for _ in range(4):
        pace.record_failure(Denied("x"), START, 1.0)
    pace.record_success()
    assert (pace.failures, pace.is_denied) == (0, False)
    assert pace.record_failure(Unreachable("x"), START, 1.0) == timedelta(seconds=0.5)


def test_a_long_rest_saves_no_more_than_one_burst() -> None:
    pace = WriteRate()
    for _ in range(BURST):
        pace.record_attempt(START)
    assert pace.wait(START) == PAUSE
    late = START + timedelta(days=1)
    for _ in range(BURST):
        assert pace.wait(late) == NOTHING
        pace.record_attempt(late)
    assert pace.wait(late) == PAUSE
