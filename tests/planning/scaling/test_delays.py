"""Whom pods of a zone with a delay are told what: T-05, DELAY-01 to 14, SEED-073 to 079, W-20."""

from collections.abc import Mapping, Sequence
from typing import Final

import pytest
from msgspec.structs import replace

from rollout_operator.model.group import Zone
from rollout_operator.model.names import Uid
from rollout_operator.model.outcome import Severity
from rollout_operator.model.scaling import Talk, Word
from rollout_operator.planning.scaling.plan import plan_scaling
from tests.builders import NOW
from tests.planning.scalings import (
    FORCED,
    HOUR,
    MINUTE,
    SECOND,
    SHOWN,
    annotated,
    changed,
    codes,
    counts,
    delayed,
    outline,
    view,
    word,
)

FAILED: Final = word(None, problem="zone-b-3 answered 500")
DUE: Final = word(70 * MINUTE)
TOLD: Final = Talk(cancelled_at=NOW - MINUTE)


def change(text: str, letter: str = "b") -> str:
    return f"zone-{letter} mirrors {SHOWN}: {text}"


def asking(text: str, names: str, letter: str = "b") -> str:
    what = f"{change(text, letter)} waits: {names} are asked to prepare"
    return f"wait delayed_by_pods zone-{letter}: {what}"


def early(text: str, pod: str, since: str, left: str, letter: str = "b") -> str:
    what = f"{change(text, letter)} waits: zone-{pod} is prepared since {since}, 1h0m0s are wanted"
    return f"wait delayed_by_pods zone-{letter}: {what}, {left} left"


def no_time(text: str, why: str) -> str:
    return f"wait pod_gave_no_time zone-b: {change(text)} waits: {why}"


def told(letter: str, pods: int) -> dict[str, Talk]:
    """Return that the lowest pods of a zone were told lately that they stay."""
    return {f"{letter}-{number}": TOLD for number in range(pods)}


FIRST: Final = ["talk zone-b: stay 0 1 2, ask 4 3", asking("5 → 3", "zone-b-4 and zone-b-3")]


@pytest.mark.parametrize(
    ("zone", "scale", "asked", "words", "then"),
    [
        pytest.param(
            delayed("b", 5), "3/5", FIRST, {"b-4": DUE, "b-3": DUE},
            [f"scale_down: {change('5 → 3')}"],
            id="T-05.1 SEED-073 both are due",
        ),
        pytest.param(
            delayed("b", 5), "3/5", FIRST, {"b-4": word(30 * MINUTE), "b-3": word(0 * MINUTE)},
            [early("5 → 3", "b-4", "2026-01-01T11:30:00Z", "30m0s")],
            id="T-05.2 none is due",
        ),
        pytest.param(
            delayed("b", 5), "3/5", FIRST, {"b-4": word(0 * MINUTE), "b-3": DUE},
            [early("5 → 3", "b-4", "2026-01-01T12:00:00Z", "1h0m0s")],
            id="T-05.3 the highest is not due",
        ),
        pytest.param(
            delayed("b", 5), "1/5",
            ["talk zone-b: stay 0, ask 4 3 2 1",
             asking("5 → 1", "zone-b-4, zone-b-3, zone-b-2 and 1 more")],
            {"b-4": DUE, "b-3": word(75 * MINUTE), "b-2": word(30 * MINUTE),
             "b-1": word(75 * MINUTE)},
            [f"scale_down: {change('5 → 3')}, on the way to 1"],
            id="T-05.4 down to the first that is not due",
        ),
        pytest.param(
            delayed("b", 5), "3/5", FIRST,
            {"b-4": word(None, problem="zone-b-4 answered 500"), "b-3": FAILED},
            [no_time("5 → 3", "zone-b-4 answered 500, and 1 more pod gave no time")],
            id="T-05.5 both answer 500",
        ),
        pytest.param(
            delayed("b", 5), "3/5", FIRST,
            {"b-4": DUE, "b-3": word(None, problem="zone-b-3: connection reset")},
            [no_time("5 → 3", "zone-b-3: connection reset")],
            id="T-05.6 DELAY-07 one cannot be reached",
        ),
        pytest.param(
            delayed("b", 5), "3/5", FIRST,
            {"b-4": word(None, problem="zone-b-4: no JSON"), "b-3": DUE},
            [no_time("5 → 3", "zone-b-4: no JSON")],
            id="T-05.7 SEED-075 one answers with something else",
        ),
        pytest.param(
            delayed("b", 2), "5/2", [f"scale_up: {change('2 → 5')}", "talk zone-b: stay 0 1"], {},
            [f"scale_up: {change('2 → 5')}"],
            id="T-05.9 SEED-077 up at once",
        ),
        pytest.param(
            delayed("b", 3), "3/3", ["talk zone-b: stay 0 1 2"], {}, [],
            id="T-05.10 DELAY-10 as many as wanted",
        ),
        pytest.param(
            delayed("b", 5, force="2"), "10/5",
            ["talk zone-b: stay 0 1, ask 4 3 2",
             asking(f"5 → 2, {FORCED}", "zone-b-4, zone-b-3 and zone-b-2")],
            {"b-4": DUE, "b-3": DUE, "b-2": DUE}, [f"scale_down: {change('5 → 2')}, {FORCED}"],
            id="T-05.11 forced, and due",
        ),
        pytest.param(
            delayed("b", 3, force="0"), "3/3",
            ["talk zone-b: ask 2 1 0",
             asking(f"3 → 0, {FORCED}", "zone-b-2, zone-b-1 and zone-b-0")],
            {name: word(30 * MINUTE) for name in ("b-2", "b-1", "b-0")},
            [early(f"3 → 0, {FORCED}", "b-2", "2026-01-01T11:30:00Z", "30m0s")],
            id="T-05.12 forced to none, not due",
        ),
        pytest.param(
            delayed("b", 3, force="3"), "3/3", ["talk zone-b: stay 0 1 2"], {}, [],
            id="T-05.13 forced to the count it has",
        ),
    ],
)  # fmt: skip
def test_t05_a_delayed_downscale(
    zone: Zone, scale: str, asked: list[str], words: Mapping[str, Word], then: list[str]
) -> None:
    """First whom to tell what, then what comes of the answers; the pods that stay confirm."""
    staying = told("b", zone.sts.replicas - len(words))

    assert outline(plan_scaling(view(zone, scale=scale))) == asked
    assert outline(plan_scaling(view(zone, scale=scale, words=words, stay=staying))) == then


def test_t05_8_a_zone_whose_pods_are_not_due_holds_no_other_zone_back() -> None:
    zones = [delayed("a", 5), delayed("b", 5)]
    words = {"a-4": FAILED, "a-3": DUE, "b-4": DUE, "b-3": DUE}

    first = plan_scaling(view(*zones, scale="3/5"))
    second = plan_scaling(
        view(*zones, scale="3/5", words=words, stay={**told("a", 3), **told("b", 3)})
    )

    assert outline(first)[:2] == [
        "talk zone-a: stay 0 1 2, ask 4 3",
        "talk zone-b: stay 0 1 2, ask 4 3",
    ]
    assert (counts(second), codes(second)) == ({"zone-b": 3}, ["pod_gave_no_time zone-a"])


def test_t05_14_nobody_else_is_told_to_stay_while_a_zone_moves() -> None:
    zones = [delayed("a", 5, force="0"), delayed("b", 5), delayed("c", 5)]
    words = {f"a-{number}": DUE for number in range(5)}

    first = plan_scaling(view(*zones, scale="5/5"))
    second = plan_scaling(view(*zones, scale="5/5", words=words))
    third = plan_scaling(view(*zones, scale="5/5", written={"a": 0}))

    assert outline(first)[0] == "talk zone-a: ask 4 3 2 1 0"
    assert len(first.talks) == 1
    assert (counts(second), second.talks) == ({"zone-a": 0}, ())
    assert [talk.zone.name for talk in third.talks] == ["zone-b", "zone-c"]


def test_delay04_seed074_only_the_host_is_replaced() -> None:
    """T-05, endpoint form; who may be called, and all hostile URLs, are in the tests of D-27."""
    zone = delayed("b", 5, url="https://example.com:8080/api/prepare?a=b&c")
    (talk,) = plan_scaling(view(zone, scale="3/5")).talks

    assert [
        (pod.scheme, pod.host, pod.port, pod.path, pod.query, pod.ip) for pod in talk.ask
    ] == [
        ("https", f"zone-b-{number}.pods.test.svc.cluster.local.", 8080, "api/prepare", "a=b&c",
         "10.0.0.1")
        for number in (4, 3)
    ]  # fmt: skip


def test_seed078_a_new_process_asks_before_anything_else_and_keeps_what_pods_know() -> None:
    """Nothing is remembered: the pods' own times neither shorten nor restart the wait."""
    zone = delayed("b", 5)
    new = plan_scaling(view(zone, scale="3/5"))
    told_59 = plan_scaling(
        view(zone, scale="3/5", words=dict.fromkeys(("b-4", "b-3"), word(59 * MINUTE)))
    )
    told_60 = plan_scaling(
        view(zone, scale="3/5", words=dict.fromkeys(("b-4", "b-3"), word(HOUR + SECOND)))
    )

    assert (counts(new), new.talks[0].ask != ()) == ({}, True)
    assert (counts(told_59), told_59.look_again) == ({}, 59 * SECOND)
    assert counts(told_60) == {"zone-b": 3}


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        pytest.param({"b-4": (30, 59), "b-3": (30, 59)}, [], id="less than a minute ago"),
        pytest.param({"b-4": (30, 60), "b-3": (30, 59)}, [4], id="a minute ago"),
        pytest.param({"b-4": (61, 1), "b-3": (30, 1)}, [], id="due, and asked since"),
        pytest.param({"b-4": (60, 6), "b-3": (30, 1)}, [4], id="asked before it was due"),
        pytest.param({"b-4": (30, 30), "b-3": (60, 6)}, [3], id="the other one"),
        pytest.param({"b-4": (70, 6), "b-3": (70, 1)}, [4], id="a downscale would rest on it"),
        pytest.param({"b-4": (70, 5), "b-3": (70, 5)}, [], id="fresh"),
        pytest.param({"b-4": (70, -6), "b-3": (70, 1)}, [4], id="FP-17 asked in the future"),
        pytest.param({"b-4": (70, -99), "b-3": (30, 1)}, [4], id="FP-17 far in the future"),
        pytest.param({"b-4": (70, 1), "b-3": (30, 6)}, [3], id="W-20 all of the range are asked"),
    ],
)
def test_seed076_when_a_pod_is_asked_again(
    words: Mapping[str, tuple[int, int]], asked: Sequence[int]
) -> None:
    """`words` are since how many minutes, and asked how many seconds ago."""
    said = {name: word(since * MINUTE, asked=ago * SECOND) for name, (since, ago) in words.items()}
    plan = plan_scaling(view(delayed("b", 5), scale="3/5", words=said, stay=told("b", 3)))

    assert [pod.pod for talk in plan.talks for pod in talk.ask] == [f"zone-b-{n}" for n in asked]
    assert not (asked and plan.scale), "what has to be asked is asked first"


def test_a_downscale_rests_on_fresh_words_only_and_says_what_it_waits_for() -> None:
    words = {"b-4": word(70 * MINUTE, asked=20 * SECOND), "b-3": word(70 * MINUTE, asked=SECOND)}
    plan = plan_scaling(view(delayed("b", 5), scale="3/5", words=words, stay=told("b", 3)))

    assert outline(plan) == [
        "talk zone-b: ask 4",
        f"wait delayed_by_pods zone-b: {change('5 → 3')} waits: 1 pod is asked once more",
    ]
    assert plan.waits[0].severity is Severity.DEBUG


def test_nobody_is_asked_once_more_for_a_downscale_that_may_not_be() -> None:
    """The time between zones: twelve hours of questions every few seconds would be a storm."""
    words = dict.fromkeys(("a-4", "a-3"), word(70 * MINUTE, asked=20 * SECOND))
    leading = annotated(delayed("a", 5), span="12h")
    behind = annotated(changed(delayed("b", 5), annotations={}), leading="zone-a",
                       last="2026-01-01T11:00:00Z")  # fmt: skip
    plan = plan_scaling(view(leading, behind, scale="3/5", words=words, stay=told("a", 3)))

    assert (plan.talks, counts(plan)) == ((), {})
    assert "zone_downscaled_lately zone-a" in codes(plan)
    assert plan.look_again == 40 * SECOND, "they are asked at a low rate all the same"


def test_the_second_zone_in_turn_asks_nobody_once_more_while_the_first_goes() -> None:
    old = dict.fromkeys(("b-4", "b-3"), word(70 * MINUTE, asked=20 * SECOND))
    words = {**old, "a-4": DUE, "a-3": DUE}
    stay = {**told("a", 3), **told("b", 3)}
    plan = plan_scaling(view(delayed("a", 5), delayed("b", 5), scale="3/5", words=words, stay=stay))

    assert (counts(plan), plan.talks) == ({"zone-a": 3}, ())
    assert codes(plan) == ["downscale_underway zone-b"]


def test_ordinals_that_begin_elsewhere() -> None:
    """W-24: 5 pods from zone-b-3 on, 3 wanted: 7 and 6 go."""
    base = delayed("b", 8, pods="---lllll")
    zone = changed(base, first_ordinal=3, replicas=5, status_replicas=5)
    words = {"b-7": DUE, "b-6": word(30 * MINUTE)}

    assert outline(plan_scaling(view(zone, scale="3/5")))[0] == "talk zone-b: stay 3 4 5, ask 7 6"
    assert counts(plan_scaling(view(zone, scale="3/5", words=words))) == {"zone-b": 4}


def test_two_pods_of_one_name_are_both_asked() -> None:
    """A cache that missed an event: the one that is not due holds the ordinal."""
    zone = delayed("b", 5)
    twin = replace(zone.pods[4], uid=Uid("uid-twin"))
    both = type(zone)(sts=zone.sts, pods=(*zone.pods, twin))
    words = {"b-4": DUE, "b-3": DUE, "twin": word(MINUTE)}

    assert codes(plan_scaling(view(both, scale="3/5", words=words))) == ["delayed_by_pods zone-b"]
