"""Which pods of a zone with a delay are called: T-05, DELAY-01 to 14, SEED-073 to 079, W-20."""

from collections.abc import Mapping, Sequence
from typing import Final

import pytest
from msgspec.structs import replace

from rollout_operator.model.names import Uid
from rollout_operator.model.outcome import Severity
from rollout_operator.model.scaling import PodCalls, ScalingSnapshot
from rollout_operator.planning.delays import CALL_AGAIN, CANCEL_AGAIN, SOON_TRIES
from rollout_operator.planning.scaling import plan_scaling
from tests.builders import NOW, with_pods
from tests.planning.scalings import (
    HOUR,
    MINUTE,
    SECOND,
    answer,
    called,
    codes,
    counts,
    delayed,
    outline,
    outline_snapshot,
    read_snapshot,
    snapshot,
)
from tests.planning.tables import read_table

STAYING = "stay b-0 b-1 b-2"

T05 = """
T-05.1 SEED-073 first they are called: those that stay, and those that go from the highest on
  delayed b 5; scale 3/5
  | call zone-b: stay 0 1 2, prepare 4 3
  | wait delayed_by_pods zone-b: b: 5 → 3 waits: zone-b-4 and zone-b-3 are called to prepare
T-05.1 SEED-073 both are due
  delayed b 5; scale 3/5; STAYS; says b-4 70m; says b-3 70m | scale_down: b: 5 → 3
T-05.2 none is due
  delayed b 5; scale 3/5; STAYS; says b-4 30m; says b-3 0
  | wait delayed_by_pods zone-b: b: 5 → 3 waits: zone-b-4 is prepared since 2026-01-01T11:30:00Z,
    1h0m0s are wanted, 30m0s left
T-05.3 the highest is not due
  delayed b 5; scale 3/5; STAYS; says b-4 0; says b-3 70m
  | wait delayed_by_pods zone-b: b: 5 → 3 waits: zone-b-4 is prepared since 2026-01-01T12:00:00Z,
    1h0m0s are wanted, 1h0m0s left
T-05.4 four are called, three are named
  delayed b 5; scale 1/5
  | call zone-b: stay 0, prepare 4 3 2 1
  | wait delayed_by_pods zone-b: b: 5 → 1 waits: zone-b-4, zone-b-3, zone-b-2 and 1 more are called
    to prepare
T-05.4 down to the first that is not due
  delayed b 5; scale 1/5; stay b-0; says b-4 70m; says b-3 75m; says b-2 30m; says b-1 75m
  | scale_down: b: 5 → 3, on the way to 1
T-05.5 both answer 500
  delayed b 5; scale 3/5; STAYS; failed b-4 zone-b-4 answered 500; failed b-3 zone-b-3 answered 500
  | wait pod_gave_no_time zone-b: b: 5 → 3 waits: zone-b-4 answered 500, and 1 more pod gave no time
T-05.6 DELAY-07 one cannot be reached
  delayed b 5; scale 3/5; STAYS; says b-4 70m; failed b-3 zone-b-3: connection reset
  | wait pod_gave_no_time zone-b: b: 5 → 3 waits: zone-b-3: connection reset
T-05.7 SEED-075 one answers with something else
  delayed b 5; scale 3/5; STAYS; failed b-4 zone-b-4: no JSON; says b-3 70m
  | wait pod_gave_no_time zone-b: b: 5 → 3 waits: zone-b-4: no JSON
T-05.8 a zone whose pods are not due holds no other zone back
  delayed a 5; delayed b 5; scale 3/5; stay a-0 a-1 a-2 b-0 b-1 b-2; failed a-4 no answer;
    says a-3 70m; says b-4 70m; says b-3 70m
  | scale_down: b: 5 → 3
  | wait pod_gave_no_time zone-a: a: 5 → 3 waits: no answer
T-05.9 SEED-077 up at once
  delayed b 2; scale 5/2 | scale_up: b: 2 → 5 | call zone-b: stay 0 1
T-05.9 whether they have confirmed or not
  delayed b 2; scale 5/2; stay b-0 b-1 | scale_up: b: 2 → 5
T-05.10 DELAY-10 as many as wanted
  delayed b 3; scale 3/3 | call zone-b: stay 0 1 2
T-05.10 DELAY-10 and they know it
  delayed b 3; scale 3/3; STAYS | nothing
T-05.11 forced, and called
  delayed b 5 force=2; scale 10/5
  | call zone-b: stay 0 1, prepare 4 3 2
  | wait delayed_by_pods zone-b: b: 5 → 2, FORCED waits: zone-b-4, zone-b-3 and zone-b-2 are called
    to prepare
T-05.11 forced, and due
  delayed b 5 force=2; scale 10/5; stay b-0 b-1; says b-4 70m; says b-3 70m; says b-2 70m
  | scale_down: b: 5 → 2, FORCED
T-05.12 forced to none, and called
  delayed b 3 force=0; scale 3/3
  | call zone-b: prepare 2 1 0
  | wait delayed_by_pods zone-b: b: 3 → 0, FORCED waits: zone-b-2, zone-b-1 and zone-b-0 are called
    to prepare
T-05.12 forced to none, not due
  delayed b 3 force=0; scale 3/3; says b-2 30m; says b-1 30m; says b-0 30m
  | wait delayed_by_pods zone-b: b: 3 → 0, FORCED waits: zone-b-2 is prepared since
    2026-01-01T11:30:00Z, 1h0m0s are wanted, 30m0s left
T-05.13 forced to the count it has
  delayed b 3 force=3; scale 3/3 | call zone-b: stay 0 1 2
T-05.14 no other pod is un-prepared while the pods of a zone are called
  delayed a 5 force=0; delayed b 5; delayed c 5; scale 5/5
  | call zone-a: prepare 4 3 2 1 0
  | wait delayed_by_pods zone-a: a: 5 → 0, FORCED waits: zone-a-4, zone-a-3, zone-a-2 and 2 more are
    called to prepare
T-05.14 nor while it moves
  delayed a 5 force=0; delayed b 5; delayed c 5; scale 5/5; says a-0 70m; says a-1 70m;
    says a-2 70m; says a-3 70m; says a-4 70m
  | scale_down: a: 5 → 0, FORCED
T-05.14 but when it has gone
  delayed a 5 force=0; delayed b 5; delayed c 5; scale 5/5; written a 0
  | publish 0 to DEMO | call zone-b: stay 0 1 2 3 4 | call zone-c: stay 0 1 2 3 4
a downscale rests on fresh words only, and says what it waits for
  delayed b 5; scale 3/5; STAYS; says b-4 70m called=20s; says b-3 70m
  | call zone-b: prepare 4 | wait delayed_by_pods zone-b: b: 5 → 3 waits: 1 pod is called once more
the second zone in turn calls no pod once more while the first goes
  delayed a 5; delayed b 5; scale 3/5; stay a-0 a-1 a-2 b-0 b-1 b-2; says a-4 70m; says a-3 70m;
    says b-4 70m called=20s; says b-3 70m called=20s
  | scale_down: a: 5 → 3
  | wait downscale_underway zone-b: b: 5 → 3 waits: zone-a is scaled down first
W-24 ordinals that begin elsewhere: 5 pods from zone-b-3 on, 3 wanted
  delayed b 8 pods=---lllll first_ordinal=3 replicas=5 status_replicas=5; scale 3/5
  | call zone-b: stay 3 4 5, prepare 7 6
  | wait delayed_by_pods zone-b: b: 5 → 3 waits: zone-b-7 and zone-b-6 are called to prepare
W-24 and one of them is due
  delayed b 8 pods=---lllll first_ordinal=3 replicas=5 status_replicas=5; scale 3/5;
    stay b-3 b-4 b-5; says b-7 70m; says b-6 30m
  | scale_down: b: 5 → 4, on the way to 3
SEED-077 an upscale in the midst of the wait reverts it
  delayed b 5; scale 6/5; STAYS; says b-4 30m; says b-3 30m
  | scale_up: b: 5 → 6 | call zone-b: stay 3 4
SI-12 what may still be scaled away is not un-prepared: 5 → 3 was sent without an answer
  delayed b 5; scale 5/5; says b-4 70m; says b-3 70m; says b-2 70m; downscale b 5 3
  | call zone-b: stay 0 1 2
"""


def read_delays(text: str) -> ScalingSnapshot:
    """Return a view; `CALLED` are those of zone b that stay."""
    return read_snapshot(text.replace("STAYS", STAYING))


@pytest.mark.parametrize(("case", "expected"), read_table(T05, read_delays))
def test_t05_a_delayed_downscale(case: ScalingSnapshot, expected: list[str]) -> None:
    """First which pods to call, then what comes of the answers; the pods that stay confirm."""
    assert outline_snapshot(case, short=True) == expected


def test_delay04_seed074_only_the_host_is_replaced() -> None:
    """T-05, endpoint form; who may be called, and all hostile URLs, are in the tests of D-27."""
    zone = delayed("b", 5, url="https://example.com:8080/api/prepare?a=b&c")
    (calls,) = plan_scaling(snapshot(zone, scale="3/5")).pod_calls

    assert [
        (pod.scheme, pod.host, pod.port, pod.path, pod.query, pod.ip) for pod in calls.post
    ] == [
        ("https", f"zone-b-{number}.pods.test.svc.cluster.local.", 8080, "api/prepare", "a=b&c",
         "10.0.0.1")
        for number in (4, 3)
    ]  # fmt: skip


def test_seed078_a_new_process_calls_before_anything_else_and_keeps_what_pods_know() -> None:
    """Nothing is remembered: the pods' own times neither shorten nor restart the wait."""
    zone = delayed("b", 5)
    new = plan_scaling(snapshot(zone, scale="3/5"))
    called_59 = plan_scaling(
        snapshot(zone, scale="3/5", answers=dict.fromkeys(("b-4", "b-3"), answer(59 * MINUTE)))
    )
    called_60 = plan_scaling(
        snapshot(zone, scale="3/5", answers=dict.fromkeys(("b-4", "b-3"), answer(HOUR + SECOND)))
    )

    assert (counts(new), new.pod_calls[0].post != ()) == ({}, True)
    assert (counts(called_59), called_59.requeue_after) == ({}, 59 * SECOND)
    assert counts(called_60) == {"zone-b": 3}


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        pytest.param({"b-4": (30, 59), "b-3": (30, 59)}, [], id="less than a minute ago"),
        pytest.param({"b-4": (30, 60), "b-3": (30, 59)}, [4], id="a minute ago"),
        pytest.param({"b-4": (61, 1), "b-3": (30, 1)}, [], id="due, and called since"),
        pytest.param({"b-4": (60, 6), "b-3": (30, 1)}, [4], id="called before it was due"),
        pytest.param({"b-4": (30, 30), "b-3": (60, 6)}, [3], id="the other pod"),
        pytest.param({"b-4": (70, 6), "b-3": (70, 1)}, [4], id="a downscale would rest on it"),
        pytest.param({"b-4": (70, 5), "b-3": (70, 5)}, [], id="fresh"),
        pytest.param({"b-4": (70, -6), "b-3": (70, 1)}, [4], id="FP-17 called in the future"),
        pytest.param({"b-4": (70, -99), "b-3": (30, 1)}, [4], id="FP-17 far in the future"),
        pytest.param({"b-4": (70, 1), "b-3": (30, 6)}, [3], id="W-20 all of the range are called"),
    ],
)
def test_seed076_when_a_pod_is_called_again(
    answers: Mapping[str, tuple[int, int]], expected: Sequence[int]
) -> None:
    """`words` are since how many minutes, and called how many seconds ago."""
    said = {
        name: answer(since * MINUTE, ago=ago * SECOND) for name, (since, ago) in answers.items()
    }
    plan = plan_scaling(
        snapshot(
            delayed("b", 5),
            scale="3/5",
            answers=said,
            stay=called("b-0", "b-1", "b-2"),
        )
    )

    assert [pod.pod for calls in plan.pod_calls for pod in calls.post] == [
        f"zone-b-{n}" for n in expected
    ]
    assert not (expected and plan.scale), "what has to be called is called first"


def test_a_pod_that_is_called_once_more_is_no_news() -> None:
    case = f"delayed b 5; scale 3/5; {STAYING}; says b-4 70m called=20s; says b-3 70m"
    assert plan_scaling(read_snapshot(case)).waits[0].severity is Severity.DEBUG


def test_no_pod_is_called_once_more_for_a_downscale_that_may_not_be() -> None:
    """The time between zones: twelve hours of questions every few seconds would be a storm."""
    case = (
        "delayed a 5 span=12h; b 5 follows=a ago=1h; scale 3/5; stay a-0 a-1 a-2;"
        " says a-4 70m called=20s; says a-3 70m called=20s"
    )
    plan = plan_scaling(read_snapshot(case.replace(";", "; ").replace(";  ", "; ")))

    assert (plan.pod_calls, counts(plan)) == ((), {})
    assert "zone_downscaled_lately zone-a" in codes(plan)
    assert plan.requeue_after == 40 * SECOND, "they are called at a low rate all the same"


def test_two_pods_of_one_name_are_both_called() -> None:
    """A cache that missed an event: the one that is not due holds the ordinal."""
    zone = delayed("b", 5)
    twin = replace(zone.pods[4], uid=Uid("uid-twin"))
    both = type(zone)(sts=zone.sts, pods=(*zone.pods, twin))
    answers = {"b-4": answer(70 * MINUTE), "b-3": answer(70 * MINUTE), "twin": answer(MINUTE)}

    assert codes(plan_scaling(snapshot(both, scale="3/5", answers=answers))) == [
        "delayed_by_pods zone-b"
    ]


# Which pods are told that they stay, and when: DELAY-05, 06, 10, W-20

FAILED: Final = answer(None, problem="zone-b-3 answered 500")
DUE: Final = answer(70 * MINUTE)
CALLED: Final = PodCalls(cancelled_at=NOW - MINUTE)


def test_a_pod_to_un_prepare_is_called_whatever_other_zones_do() -> None:
    """A zone that can never be scaled, as a quota refuses it, must not keep others prepared."""
    zones = [delayed("a", 2), delayed("b", 5)]
    plan = plan_scaling(snapshot(*zones, delayed("c", 7), scale="5/5", answers={"b-4": DUE}))

    assert counts(plan) == {"zone-a": 5}
    assert "call zone-b: stay 4" in outline(plan)


@pytest.mark.parametrize(
    ("calls", "is_called"),
    [
        pytest.param(None, True, id="never un-prepared by this process"),
        pytest.param(PodCalls(answer=DUE), True, id="DELAY-10 SEED-077 called since"),
        pytest.param(PodCalls(answer=FAILED), True, id="called since, without a good answer"),
        pytest.param(CALLED, False, id="W-20 un-prepared a minute ago"),
        pytest.param(
            PodCalls(cancelled_at=NOW - CANCEL_AGAIN + SECOND), False, id="W-20 un-prepared lately"
        ),
        pytest.param(PodCalls(cancelled_at=NOW - CANCEL_AGAIN), True, id="SEED-079 long ago"),
        pytest.param(PodCalls(tried_at=NOW - MINUTE), False, id="LI-11 it does not know the word"),
        pytest.param(PodCalls(tried_at=NOW - CANCEL_AGAIN), True, id="and is tried again rarely"),
        pytest.param(
            PodCalls(tried_at=NOW - MINUTE, tries=1), True,
            id="LI-05 not reached since the start: another process may have called it",
        ),
        pytest.param(PodCalls(tried_at=NOW - MINUTE, tries=SOON_TRIES), True, id="LI-05 at times"),
        pytest.param(
            PodCalls(tried_at=NOW - MINUTE, tries=SOON_TRIES + 1), False, id="LI-11 and no more"
        ),
        pytest.param(
            PodCalls(tried_at=NOW - CALL_AGAIN + SECOND, tries=1), False, id="not all the time"
        ),
        pytest.param(
            PodCalls(cancelled_at=NOW - CANCEL_AGAIN, tried_at=NOW - MINUTE, tries=1), False,
            id="it had confirmed before",
        ),
        pytest.param(
            PodCalls(answer=DUE, tried_at=NOW - CALL_AGAIN + SECOND), False, id="did not confirm"
        ),
        pytest.param(
            PodCalls(answer=DUE, tried_at=NOW - CALL_AGAIN), True,
            id="LI-05 owed: tried again after a minute",
        ),
        pytest.param(
            PodCalls(cancelled_at=NOW - CANCEL_AGAIN, tried_at=NOW - MINUTE), False,
            id="the newest counts",
        ),
        pytest.param(
            PodCalls(cancelled_at=NOW + CANCEL_AGAIN), True, id="FP-17 the server's clock went back"
        ),
    ],
)  # fmt: skip
def test_seed079_when_a_pod_is_un_prepared(calls: PodCalls | None, is_called: bool) -> None:
    for scale in ("5/5", "7/5"):
        stay = {} if calls is None else {"b-1": calls}
        others = dict.fromkeys(("b-0", "b-2", "b-3", "b-4"), CALLED)
        plan = plan_scaling(snapshot(delayed("b", 5), scale=scale, stay={**others, **stay}))

        assert [line for line in outline(plan) if line.startswith("call")] == (
            ["call zone-b: stay 1"] if is_called else []
        )


def test_seed079_it_is_known_when_the_next_of_them_is_due() -> None:
    stay = {f"b-{number}": PodCalls(cancelled_at=NOW - number * MINUTE) for number in range(5)}

    assert plan_scaling(snapshot(delayed("b", 5), scale="5/5", stay=stay)).requeue_after == (
        CANCEL_AGAIN - 4 * MINUTE
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"is_terminating": True},
        {"phase": "Pending"},
        {"phase": "Failed"},
        {"phase": "Unknown"},
        {"phase": ""},
        {"ip": ""},
        {"ip": "nowhere"},
        {"owner_uid": Uid("stranger")},
        {"name": "zone-b-x"},
        {"name": "zone-c-1"},
        {"name": "zone-b-01"},
    ],
)
def test_only_own_pods_that_run_are_called(changes: Mapping[str, object]) -> None:
    plan = plan_scaling(snapshot(with_pods(delayed("b", 3), **changes), scale="3/3"))

    assert plan.pod_calls == ()
