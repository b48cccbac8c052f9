"""Which hooks get our CA, and how often one is written (D-31, SI-20, LI-11, FP-34, W-25)."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from rollout_operator.model.names import (
    Conflict,
    Denied,
    OperatorError,
    TooManyRequests,
    Unreachable,
)
from rollout_operator.model.objects import WebhookConfiguration
from rollout_operator.pki.bundle import BURST, PAUSE, WriteRate, plan_patch
from tests.kube.informer_rig import after
from tests.pki.injection_bench import (
    HOST,
    NAMES,
    OTHER_PEM,
    PEM,
    Cluster,
    apply,
    configuration,
    encoded,
)
from tests.virtual_time import in_virtual_time

WANTED = encoded(PEM)


def called(*hosts: str) -> WebhookConfiguration:
    """Return a labelled configuration with a hook for each host, and the CA of another server."""
    one = configuration("guard", *[OTHER_PEM] * len(hosts))
    hooks = (replace(hook, host=host) for hook, host in zip(one.webhooks, hosts, strict=True))
    return replace(one, webhooks=tuple(hooks))


@pytest.mark.parametrize(
    ("host", "is_ours"),
    [
        pytest.param(HOST, True, id="our Service"),
        pytest.param(f"{HOST}.cluster.local", True, id="the long name, in a URL"),
        pytest.param("other.ops.svc", False, id="another Service"),
        pytest.param("rollout-operator.prod.svc", False, id="of another namespace"),
        pytest.param(f"x.{HOST}", False, id="below ours"),
        pytest.param("10.0.0.1", False, id="an address"),
        pytest.param("", False, id="none that is known"),
    ],
)
def test_d31_only_hooks_that_call_us_are_written(host: str, is_ours: bool) -> None:
    """D-31, SI-20: the CA of another server in a labelled configuration is left alone."""
    one = called(host, HOST)
    patched = apply(one, plan_patch(one, WANTED, "ops", NAMES))
    expected = [WANTED if is_ours else encoded(OTHER_PEM), WANTED]
    assert [hook.ca_bundle for hook in patched.webhooks] == expected
    assert patched.webhooks[0].host == host


@in_virtual_time
async def test_d31_what_calls_another_server_is_reported_once_and_waited_for_never(
    lines: list[str],
) -> None:
    """D-31, SI-19: a rotation does not wait for a hook that is never written."""
    cluster = Cluster(called("other.ops.svc"))
    async with cluster.running():
        await after(3600)
        assert cluster.writes == []
        assert cluster.injector.holds(PEM)
    reported = [line for line in lines if "Leaving the CA bundle of other servers alone" in line]
    assert len(reported) == 1
    assert "hosts=other.ops.svc" in reported[0]


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
