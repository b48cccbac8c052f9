"""Which pods are called before they go: T-07, PREP-20, D-26, SEED-092, SEED-106, SI-10, W-48."""

import dataclasses
from collections.abc import Sequence
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from rollout_operator.model.downscale import Decrease, Endpoint, Target
from rollout_operator.model.group import Zone
from rollout_operator.model.names import Uid
from rollout_operator.model.objects import Pod
from rollout_operator.model.outcome import Code, Reason, Severity, Verdict
from rollout_operator.planning.downscales.rule import PreparePods, choose_pods_to_prepare
from tests.builders import pod, sts, with_pods, zone

REPEATABLE: Final = settings(derandomize=True, deadline=None, max_examples=200, database=None)
TARGET: Final = Target(port=8080, path="prepare-downscale", service="service-name")
DOMAIN: Final = "cluster.local."
IP: Final = "10.0.0.1"


def five(states: str = "lllll") -> Zone:
    return with_pods(zone("a", states), ip=IP)


def with_pod(base: Zone, ordinal: int, **changes: object) -> Zone:
    """Return the zone with one of its pods changed."""
    name = f"{base.sts.name}-{ordinal}"
    pods = [replace(one, **changes) if one.name == name else one for one in base.pods]
    return dataclasses.replace(base, pods=tuple(pods))


def and_pod(base: Zone, *more: Pod) -> Zone:
    return dataclasses.replace(base, pods=(*base.pods, *more))


def ask(case: Zone, *, start: int = 5, end: int = 3) -> PreparePods | Verdict:
    decrease = Decrease(
        resource="statefulsets",
        namespace="test",
        name="zone-a",
        replicas_from=start,
        replicas_to=end,
    )
    return choose_pods_to_prepare(decrease, case, TARGET, DOMAIN)


def endpoint(ordinal: int) -> Endpoint:
    return Endpoint(
        pod=f"zone-a-{ordinal}",
        uid=Uid(f"uid-a-{ordinal}"),
        ip=IP,
        host=f"zone-a-{ordinal}.service-name.test.svc.cluster.local.",
        port=8080,
        path="prepare-downscale",
    )


def outline(answer: PreparePods | Verdict) -> tuple[list[int], list[int], str]:
    """Return the ordinals that are called, those that go, and what is said of the others."""
    assert isinstance(answer, PreparePods)
    called = [int(one.pod.removeprefix("zone-a-")) for one in answer.endpoints]
    going = [int(one.name.removeprefix("zone-a-")) for one in answer.going]
    assert [one.uid for one in answer.endpoints] == [Uid(f"uid-a-{place}") for place in called]
    return called, going, answer.skipped


def refused(why: str, status: int = 0) -> Verdict:
    text = (
        "downscale of statefulsets/zone-a in test from 5 to 3 replicas is not allowed because one"
        f" or more pods failed to prepare for shutdown. {why}"
    )
    reason = Reason(code=Code.POD_NOT_PREPARED, text=text, severity=Severity.WARN)
    return Verdict(is_allowed=False, reason=reason, code=status)


def test_the_pods_of_the_range_are_called_from_the_highest_on() -> None:
    """T-07, PREP-20, SEED-116: from 5 to 3, first pod 4, then pod 3."""
    case = five()
    assert ask(case) == PreparePods(
        endpoints=(endpoint(4), endpoint(3)),
        going=(case.pods[4], case.pods[3]),
        witness=case.pods[0],
    )


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        pytest.param(
            five("lllL"),
            ([3], [3], "1 pod of the range: no such pod"),
            id="SEED-106 D-26 a pod that an upscale has not created yet",
        ),
        pytest.param(
            five("lll"),
            ([], [], "2 pods of the range: no such pod"),
            id="T-07 13 no pod exists",
        ),
        pytest.param(
            with_pod(five("llllL"), 4, phase="Pending", ip=""),
            ([3], [4, 3], "zone-a-4 does not run (phase Pending)"),
            id="D-26 a pod without running containers",
        ),
        pytest.param(
            with_pod(five("llllL"), 4, never_ready=True),
            ([3], [4, 3], "zone-a-4 was never ready"),
            id="SEED-106 D-26 a pod that starts and was never ready",
        ),
        pytest.param(
            with_pod(with_pod(five("lllLL"), 4, never_ready=True), 3, never_ready=True),
            ([], [4, 3], "zone-a-4 was never ready and zone-a-3 was never ready"),
            id="D-26 none of them was ever ready",
        ),
        pytest.param(
            five("lllLL"), ([4, 3], [4, 3], ""), id="D-26 SEED-092 a pod that crashes must confirm"
        ),
        pytest.param(
            with_pod(five("llllL"), 4, was_ready=True),
            ([4, 3], [4, 3], ""),
            id="D-26 a pod that has been ready must confirm",
        ),
        pytest.param(
            with_pod(five(), 4, phase=""), ([4, 3], [4, 3], ""), id="SI-13 no phase: must confirm"
        ),
        pytest.param(five("pppLL"), ([4, 3], [4, 3], ""), id="PREP-19 whatever its revision"),
        pytest.param(
            with_pod(five(), 4, owner_uid=Uid("stranger")),
            ([3], [3], "1 pod of the range: no such pod"),
            id="D-10 SI-21 a pod of somebody else is not called",
        ),
        pytest.param(
            with_pod(five(), 4, owner_uid=None),
            ([3], [3], "1 pod of the range: no such pod"),
            id="D-10 nor a pod of nobody",
        ),
        pytest.param(
            and_pod(five(), replace(pod("a", 5, "l"), ip=IP)),
            ([4, 3], [4, 3], ""),
            id="a pod above the range has been prepared before",
        ),
        pytest.param(
            and_pod(
                five("llll"),
                *(
                    replace(pod("a", 9, "l"), name=name, uid=Uid(name), ip=IP)
                    for name in (
                        *("zone-a-", "zone-a-x4", "4", "zone-a-4-4", "zone-a-\u0664", "b-4"),
                        *("zone-a-04", "zone-a-+4", "zone-a-4 "),
                    )
                ),
            ),
            ([3], [3], "1 pod of the range: no such pod"),
            id="names of another form have no ordinal",
        ),
    ],
)
def test_who_is_called(case: Zone, expected: tuple[list[int], list[int], str]) -> None:
    assert outline(ask(case)) == expected


def test_a_set_may_count_from_another_number() -> None:
    """D-10: replicas 5 that start at 2 are pods 2 to 6."""
    base = five("--lllll")
    moved = dataclasses.replace(base, sts=replace(base.sts, replicas=5, first_ordinal=2))
    assert outline(ask(moved)) == ([6, 5], [6, 5], "")


def test_si10_a_pod_that_runs_but_whose_node_is_silent_must_confirm() -> None:
    """D-26: the phase Unknown proves nothing."""
    assert outline(ask(with_pod(five(), 4, phase="Unknown"))) == ([4, 3], [4, 3], "")


@pytest.mark.parametrize("is_first", [True, False])
def test_si10_a_pod_with_a_lookalike_name_takes_nobodys_place(is_first: bool) -> None:
    """A controller adopts `zone-a-04`, and removes it and zone-a-4."""
    base = five()
    other = replace(base.pods[4], name="zone-a-04", uid=Uid("lookalike"), never_ready=True)
    pods = (other, *base.pods) if is_first else (*base.pods, other)
    answer = ask(dataclasses.replace(base, pods=pods))

    assert answer == PreparePods(
        endpoints=(endpoint(4), endpoint(3)),
        going=(base.pods[4], base.pods[3]),
        witness=base.pods[0],
    )


@pytest.mark.parametrize(
    ("case", "why"),
    [
        pytest.param(
            with_pod(five(), 4, ip=""), "pod zone-a-4 has no address yet", id="D-27 no address"
        ),
        pytest.param(
            with_pod(five(), 3, ip="pod"),
            'pod zone-a-3 has no valid address: "pod"',
            id="SEC-12 no valid address",
        ),
    ],
)
def test_who_cannot_be_called_refuses(case: Zone, why: str) -> None:
    assert ask(case) == refused(why)


def test_all_pods_may_go() -> None:
    assert outline(ask(five(), end=0)) == ([4, 3, 2, 1, 0], [4, 3, 2, 1, 0], "")


@pytest.mark.parametrize("start", [2**31 - 1, 10**18])
def test_a_range_of_thousands_of_millions_costs_nothing(start: int) -> None:
    assert outline(ask(five(), start=start, end=3)) == (
        [4, 3],
        [4, 3],
        f"{start - 5} pods of the range: no such pod",
    )


@REPEATABLE
@given(
    st.text("llllLt-", max_size=6),
    st.integers(0, 6),
    st.integers(0, 6),
    st.permutations(range(6)),
)
def test_si10_every_pod_that_may_have_data_is_called_exactly_once(
    states: str, lowest: int, never: int, order: Sequence[int]
) -> None:
    """An oracle: all pods of the range but the one that was never ready, highest first.

    Where one of them terminates, nobody is called.
    """
    case = with_pod(five(states), never, never_ready=True)
    pods = sorted(case.pods, key=lambda one: order[int(one.name[-1])])

    answer = ask(dataclasses.replace(case, pods=tuple(pods)), start=len(states), end=lowest)
    if "t" in states[lowest:]:
        assert isinstance(answer, Verdict)
        assert (answer.is_allowed, answer.code) == (False, 429)
        return
    called, going, _ = outline(answer)
    there = [place for place, state in enumerate(states) if state != "-" and place >= lowest]
    assert going == there[::-1]
    assert called == [place for place in there[::-1] if place != never]


def test_d51_a_mistyped_count_costs_no_walk_through_all_ordinals() -> None:
    """A pod with another name carries the reference: none of the ordinals is looked at for it."""
    odd = pod("a", 0, "l", name="zone-a-debug")
    huge = Zone(sts=sts("a", 2**31 - 1), pods=(odd,))

    plan = ask(huge, start=2**31 - 1, end=3)

    assert isinstance(plan, PreparePods)
    assert plan.going == ()
