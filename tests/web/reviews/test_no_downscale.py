"""No-downscale refuses fewer replicas of what carries the label, and allows on error (T-06)."""

import asyncio
from collections.abc import Mapping
from datetime import timedelta

import pytest

from rollout_operator.aio.tasks import gather_all
from rollout_operator.kube.store import StatefulSetStore
from rollout_operator.model.decode.objects import decode_statefulset
from rollout_operator.model.names import (
    ApiError,
    DeadlinePassed,
    Denied,
    NotFound,
    Throttled,
    TooManyRequests,
    Uid,
    Unreachable,
)
from rollout_operator.model.outcome import Code, Verdict
from rollout_operator.model.scaling import Review, Scalable, Unusable, Version
from rollout_operator.web.no_downscale import NoDownscale, Parents, UnconfirmedReads
from tests.controllers.fake_client import FakeClient
from tests.virtual_time import VirtualClock, in_virtual_time
from tests.web.downscale_world import part, raw, zone

TRUE: Mapping[str, str] = {"grafana.com/no-downscale": "true"}
NONE: Mapping[str, str] = {}
DENIED = (
    "downscale of statefulsets/mock in test from 2 to 1 replicas is not allowed because it has the"
    " label 'grafana.com/no-downscale=true'"
)
UNREAD = "can't get statefulsets/mock in namespace test, allowing the change: "
Seen = tuple[bool, str, tuple[str, ...]]


def review(
    old: Scalable | Unusable, new: Scalable | Unusable, *, dry_run: bool = False, kind: str = ""
) -> Review:
    return Review(
        version=Version.V1, uid="u", operation="UPDATE", resource=kind or "statefulsets",
        namespace="test", name="mock", dry_run=dry_run, old=old, new=new,
    )  # fmt: skip


def sts(replicas: int, labels: Mapping[str, str] = TRUE) -> Scalable:
    return Scalable(kind="StatefulSet", replicas=replicas, labels=labels)


def scale(replicas: int) -> Scalable:
    return Scalable(kind="Scale", uid=Uid("uid-mock"), resource_version="1", replicas=replicas)


def send_request(
    requested: Review, labels: Mapping[str, str] = TRUE, *, fault: ApiError | None = None,
    fails_closed: bool = False,
) -> tuple[Verdict, list[str]]:  # fmt: skip
    """Return the verdict and the calls that it took; with `fault` the cache is empty."""
    verdicts: list[Verdict] = []
    stored = zone("mock", 2, labels=labels)
    if fault is None:
        part(stored, "metadata")["resourceVersion"] = "1"
    client, store, clock = FakeClient([stored], []), StatefulSetStore(), VirtualClock()

    def fail(call: str) -> None:
        if fault is not None:
            raise fault

    client.before = fail
    if fault is None:
        store.upsert(decode_statefulset(raw(stored)))

    @in_virtual_time
    async def run() -> None:
        parents = Parents(store, client, UnconfirmedReads(0), namespace="test", clock=clock)
        hook = NoDownscale(parents, fails_closed=fails_closed)
        verdicts.append(await hook.review(requested, clock.elapsed() + timedelta(seconds=9)))

    run()
    return verdicts[0], client.calls


def seen(verdict: Verdict) -> Seen:
    return verdict.is_allowed, verdict.reason.text, verdict.warnings


@pytest.mark.parametrize(
    ("requested", "labels", "expected"),
    [
        pytest.param(review(sts(2), sts(1)), TRUE, (False, DENIED, ()), id="T-06 2 to 1: deny"),
        pytest.param(review(sts(2), sts(3)), TRUE, (True, "", ()), id="T-06 2 to 3: allow"),
        pytest.param(
            review(sts(2), sts(1, NONE)), NONE, (False, DENIED, ()), id="NODOWN-04 the old label"
        ),
        pytest.param(
            review(scale(2), scale(1)), TRUE, (False, DENIED, ()), id="T-06 /scale 2 to 1: deny"
        ),
        pytest.param(
            review(scale(2), scale(1), dry_run=True), TRUE, (False, DENIED, ()), id="T-06 dry run"
        ),
        pytest.param(
            review(scale(2), scale(1)), NONE, (True, "", ()), id="T-06 /scale unlabelled: allow"
        ),
        pytest.param(
            review(Unusable("no kind Pod"), Unusable("no kind Pod"), kind="pods"),
            NONE,
            (True, "", ("can't decode old object, allowing the change, err: no kind Pod",)),
            id="T-06 SEED-087 a pod: warn-allow",
        ),
    ],
)
def test_t06(requested: Review, labels: Mapping[str, str], expected: Seen) -> None:
    """T-06: none of these needs a read; the Scale's parent comes from the fresh cache.

    The whole table stands in `tests/planning/downscales/test_request.py`.
    """
    verdict, calls = send_request(requested, labels)
    assert seen(verdict) == expected
    assert verdict.code == 0
    assert calls == []


REFUSED = (
    "downscale of statefulsets/mock in test from 2 to 1 replicas is not allowed because can't"
    " get statefulsets/mock in namespace test: "
)


@pytest.mark.parametrize(
    ("fault", "is_settled"),
    [
        pytest.param(NotFound("no such set", status=404), True, id="404"),
        pytest.param(Denied("role", status=403), True, id="403"),
        pytest.param(Unreachable("time-out"), False, id="time-out or 5xx"),
    ],
)
@pytest.mark.parametrize("fails_closed", [False, True])
def test_t06_parent_not_readable(fault: ApiError, is_settled: bool, fails_closed: bool) -> None:
    """T-06, SEED-087, D-20: with fail-closed only what may be readable later is refused, as 429."""
    verdict, calls = send_request(
        review(scale(2), scale(1)), fault=fault, fails_closed=fails_closed
    )
    assert calls == ["get statefulsets/mock"]
    assert verdict.reason.code is Code.CANNOT_CHECK
    if is_settled or not fails_closed:
        assert seen(verdict) == (True, "", (f"{UNREAD}{fault}",))
        return
    assert seen(verdict) == (False, f"{REFUSED}{fault}", ())
    assert verdict.code == 429


@pytest.mark.parametrize("fails_closed", [False, True])
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Throttled("own limiter"), id="throttled by ourselves"),
        pytest.param(DeadlinePassed("no answer within 8.8s"), id="no time left"),
        pytest.param(TooManyRequests("busy"), id="429 of the API server"),
    ],
)
def test_d20_overload_lets_nothing_pass(fault: ApiError, fails_closed: bool) -> None:
    """D-20, SI-13, D-42: the sender can make the load; it may try again in a second."""
    verdict, calls = send_request(
        review(scale(2), scale(1)), fault=fault, fails_closed=fails_closed
    )
    assert calls == ["get statefulsets/mock"]
    assert verdict.reason.code is Code.CANNOT_CHECK
    assert seen(verdict) == (False, f"{REFUSED}{fault}", ())
    assert (verdict.code, verdict.retry_after) == (429, timedelta(seconds=1))


@in_virtual_time
async def test_d20_a_crowd_of_reviews_is_refused_and_never_let_through() -> None:
    """D-20, SI-13, SI-14: 300 at once and five reads a second: all are judged by the label."""
    clock, turn = VirtualClock(), asyncio.Lock()
    client = FakeClient([], [])
    client.put("deployments", zone("mock", 2, labels=TRUE))

    async def wait_for_turn(call: str) -> None:
        async with turn:
            await clock.sleep(timedelta(milliseconds=200))

    client.pause = wait_for_turn
    parents = Parents(
        StatefulSetStore(), client, UnconfirmedReads(0), namespace="test", clock=clock
    )
    hook = NoDownscale(parents, fails_closed=False)
    requested = review(scale(2), scale(1), kind="deployments")
    until = clock.elapsed() + timedelta(seconds=9)

    verdicts = await gather_all(hook.review(requested, until) for _ in range(300))

    assert {seen(verdict) for verdict in verdicts} == {
        (False, DENIED.replace("statefulsets", "deployments"), ())
    }
    assert client.calls == ["get deployments/mock"]


@pytest.mark.parametrize("fails_closed", [False, True])
def test_a_scale_of_another_kind(fails_closed: bool) -> None:
    """NODOWN-05: what we do not know how to read cannot be understood."""
    verdict, calls = send_request(
        review(scale(2), scale(1), kind="frobs"), fails_closed=fails_closed
    )
    assert verdict.is_allowed is not fails_closed
    assert calls == []


def test_undecodable_objects_fail_closed_where_that_is_wanted() -> None:
    """D-20, SI-13."""
    requested = review(sts(2), Unusable("broken"))
    verdict, _ = send_request(requested, fails_closed=True)
    assert seen(verdict) == (False, "can't decode new object, err: broken", ())
