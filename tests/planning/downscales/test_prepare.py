"""Which pods are called before they go: T-07, PREP-20, D-26, SEED-092, SEED-106, SI-10, W-48.

Where it is unknown now which pods must be prepared, it is refused for a while: SI-10, SI-13, D-26.
"""

from collections.abc import Sequence
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from msgspec.structs import replace

from rollout_operator.model.names import Uid
from rollout_operator.model.objects import Decrease, Endpoint, Pod, Target, Zone
from rollout_operator.model.outcome import Code, Reason, Severity, Verdict
from rollout_operator.planning.downscales import PreparePods, choose_pods_to_prepare
from tests.builders import pod, sts, unreadable, with_pods, zone
from tests.examples import repeatable
from tests.planning.tables import read_group, read_table

REPEATABLE: Final = repeatable(200)
TARGET: Final = Target(port=8080, path="prepare-downscale", service="service-name")
DOMAIN: Final = "cluster.local."
IP: Final = "10.0.0.1"


def five(states: str = "lllll") -> Zone:
    return with_pods(zone("a", states), ip=IP)


def with_pod(base: Zone, ordinal: int, **changes: object) -> Zone:
    """Return the zone with one of its pods changed."""
    name = f"{base.sts.name}-{ordinal}"
    pods = [replace(one, **changes) if one.name == name else one for one in base.pods]
    return structs.replace(base, pods=tuple(pods))


def and_pod(base: Zone, *more: Pod) -> Zone:
    return structs.replace(base, pods=(*base.pods, *more))


def post(case: Zone, *, start: int = 5, end: int = 3) -> PreparePods | Verdict:
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
    assert post(case) == PreparePods(
        endpoints=(endpoint(4), endpoint(3)),
        going=(case.pods[4], case.pods[3]),
        annotated_pod=case.pods[0],
    )


CALLED = """
SEED-106 D-26 a pod that an upscale has not created yet
  zone a lllL | call 3; go 3; 1 pod of the range: no such pod
T-07 13 no pod exists
  zone a lll | call; go; 2 pods of the range: no such pod
D-26 a pod without running containers
  zone a llllL; pod zone-a-4 phase=Pending ip=
  | call 3; go 4 3; zone-a-4 does not run (phase Pending)
D-26 a pod that has ended
  zone a llllL; pod zone-a-4 phase=Succeeded
  | call 3; go 4 3; zone-a-4 does not run (phase Succeeded)
D-26 a pod that has failed
  zone a llllL; pod zone-a-4 phase=Failed | call 3; go 4 3; zone-a-4 does not run (phase Failed)
SEED-106 D-26 a pod that starts and was never ready
  zone a llllL; pod zone-a-4 never_ready=true | call 3; go 4 3; zone-a-4 was never ready
D-26 none of them was ever ready
  zone a lllLL; pod zone-a-4 zone-a-3 never_ready=true
  | call; go 4 3; zone-a-4 was never ready and zone-a-3 was never ready
D-26 SEED-092 a pod that crashes must confirm
  zone a lllLL | call 4 3; go 4 3
D-26 a pod that has been ready must confirm
  zone a llllL; pod zone-a-4 was_ready=true | call 4 3; go 4 3
SI-13 no phase: must confirm
  zone a lllll; pod zone-a-4 phase= | call 4 3; go 4 3
SI-10 D-26 the node is silent, and the phase Unknown proves nothing: must confirm
  zone a lllll; pod zone-a-4 phase=Unknown | call 4 3; go 4 3
SI-10 D-26 not ready on a silent node: must confirm
  zone a llllL; pod zone-a-4 phase=Unknown | call 4 3; go 4 3
SI-10 has been ready, on a silent node: must confirm
  zone a llllL; pod zone-a-4 was_ready=true phase=Unknown | call 4 3; go 4 3
D-26 not ready and without a phase: must confirm
  zone a llllL; pod zone-a-4 phase= | call 4 3; go 4 3
D-26 a phase in other letters: must confirm
  zone a llllL; pod zone-a-4 phase=pending | call 4 3; go 4 3
PREP-19 whatever its revision
  zone a pppLL | call 4 3; go 4 3
D-10 SI-21 a pod of another set is not called
  zone a lllll; pod zone-a-4 owner_uid=stranger | call 3; go 3; 1 pod of the range: no such pod
D-10 nor a pod without a set
  zone a lllll; pod zone-a-4 owner_uid=none | call 3; go 3; 1 pod of the range: no such pod
D-10 a stranger's pod terminates
  zone a lllll; pod zone-a-4 owner_uid=stranger is_terminating=true
  | call 3; go 3; 1 pod of the range: no such pod
a pod above the range has been prepared before
  zone a llllll replicas=5 | call 4 3; go 4 3
D-10 replicas 5 that start at 2 are pods 2 to 6
  zone a --lllll replicas=5 first_ordinal=2 | call 6 5; go 6 5
one that stays terminates
  zone a ttTll | call 4 3; go 4 3
one that stays has failed
  zone a llLll; pod zone-a-2 was_ready=true phase=Failed | call 4 3; go 4 3
those that stay cannot be read
  zone a --lll; lost zone-a-0 zone-a-1 | call 4 3; go 4 3
one above the range is lost
  zone a lllll; lost zone-a-5 | call 4 3; go 4 3
the zone rolls, and no pod is missing
  prev a ppppp | call 4 3; go 4 3
the zone rolls below the range
  prev a -pppp | call 4 3; go 4 3
the zone is paused: no pod is replaced
  prev a pppp- paused=true | call 3; go 3; 1 pod of the range: no such pod
"""


def read_zone(text: str) -> Zone:
    """Return zone a, as `read_group` does, with an address for each pod."""
    whole, _, rest = text.partition("; ")
    return read_group(f"{whole}; pod zone-a-* ip={IP}; {rest}").zones[0]


@pytest.mark.parametrize(("case", "expected"), read_table(CALLED, read_zone))
def test_which_pods_are_called(case: Zone, expected: list[str]) -> None:
    called, going, skipped = outline(post(case))
    words = [" ".join(["call", *map(str, called)]), " ".join(["go", *map(str, going)])]
    assert "; ".join([*words, *filter(None, [skipped])]) == expected[0]


def test_names_of_another_form_have_no_ordinal() -> None:
    names = ("zone-a-", "zone-a-x4", "4", "zone-a-4-4", "zone-a-\u0664", "b-4", "zone-a-04",
             "zone-a-+4", "zone-a-4 ")  # fmt: skip
    odd = [replace(pod("a", 9, "l"), name=name, uid=Uid(name), ip=IP) for name in names]
    assert outline(post(and_pod(five("llll"), *odd))) == (
        [3],
        [3],
        "1 pod of the range: no such pod",
    )


def test_those_that_are_not_called_are_counted() -> None:
    """Four are idle: three are named."""
    answer = post(with_pods(five("llLLLL"), phase="Pending"), start=6, end=2)
    assert outline(answer) == (
        [],
        [5, 4, 3, 2],
        "zone-a-5 does not run (phase Pending), zone-a-4 does not run (phase Pending),"
        " zone-a-3 does not run (phase Pending) and 1 more",
    )


@pytest.mark.parametrize("is_first", [True, False])
def test_si10_a_pod_with_a_lookalike_name_takes_nobodys_place(is_first: bool) -> None:
    """A controller adopts `zone-a-04`, and removes it and zone-a-4."""
    base = five()
    other = replace(base.pods[4], name="zone-a-04", uid=Uid("lookalike"), never_ready=True)
    pods = (other, *base.pods) if is_first else (*base.pods, other)
    answer = post(structs.replace(base, pods=pods))

    assert answer == PreparePods(
        endpoints=(endpoint(4), endpoint(3)),
        going=(base.pods[4], base.pods[3]),
        annotated_pod=base.pods[0],
    )


REPLACED: Final = (
    "may just be replaced: zone-a is being rolled out; try again when it is, or pause it"
)
REFUSED = """
D-27 no address
  zone a lllll; pod zone-a-4 ip= | 0 pod zone-a-4 has no address yet
SEC-12 no valid address
  zone a lllll; pod zone-a-3 ip=pod | 0 pod zone-a-3 has no valid address: "pod"
SI-10 its successor was never ready but has its data
  zone a llllt | 429 zone-a-4 is terminating: try again when it has been replaced
SI-10 terminating, whatever else it was
  zone a llllt; pod zone-a-4 never_ready=true phase=Pending
  | 429 zone-a-4 is terminating: try again when it has been replaced
D-26 has been ready, is pending
  zone a llllL; pod zone-a-4 was_ready=true phase=Pending
  | 429 zone-a-4 has been ready and does not run now (phase Pending)
D-26 has been ready, has ended
  zone a lllLl; pod zone-a-3 was_ready=true phase=Succeeded
  | 429 zone-a-3 has been ready and does not run now (phase Succeeded)
D-26 has been ready, has failed
  zone a llllL; pod zone-a-4 was_ready=true phase=Failed
  | 429 zone-a-4 has been ready and does not run now (phase Failed)
SI-13 a pod of the range cannot be read
  zone a llll replicas=5; lost zone-a-4 | 429 pods cannot be read: zone-a-4
SI-13 two pods of the range cannot be read
  zone a lll replicas=5; lost zone-a-4 zone-a-3 | 429 pods cannot be read: zone-a-3 and zone-a-4
SI-13 a name that no controller gives
  zone a lllll; lost zone-a-04 zone-a-2 | 429 pods cannot be read: zone-a-04
SI-10 missing while the zone rolls
  prev a pppp- | 429 1 pod of the range MAY BE REPLACED
SI-10 the successor of one that was rolled is pending
  prev a ppppP; pod zone-a-4 phase=Pending is_starting=true | 429 1 pod of the range MAY BE REPLACED
SI-10 the successor of one that was rolled has not been ready yet
  prev a ppppL; pod zone-a-4 never_ready=true is_starting=true
  | 429 1 pod of the range MAY BE REPLACED
SI-10 all missing while the zone rolls
  prev a ppp-- | 429 2 pods of the range MAY BE REPLACED
SI-10 a zone that is not paused
  prev a pppp- paused=false | 429 1 pod of the range MAY BE REPLACED
SI-10 two pods of one name, one of which never was ready, hide no gap
  prev a ppp-P; twin zone-a-4 never_ready=true is_starting=true
  | 429 2 pods of the range MAY BE REPLACED
"""


@pytest.mark.parametrize(("case", "expected"), read_table(REFUSED, read_zone))
def test_a_pod_that_cannot_be_called_refuses(case: Zone, expected: list[str]) -> None:
    """SI-10, SI-13, D-26: where a retry is worth it, no pod has been called."""
    status, _, why = expected[0].partition(" ")
    assert post(case) == refused(why.replace("MAY BE REPLACED", REPLACED), int(status))


@pytest.mark.parametrize(
    ("names", "shown"),
    [([""], "one without a name"), (["b", "d", "c", "a", "e"], "a, b, c and 2 more")],
)
def test_si13_what_cannot_be_read_may_be_any_pod(names: list[str], shown: str) -> None:
    lost = tuple(unreadable("Pod", name, owner="a") for name in names)
    case = structs.replace(five("llll"), unreadable_pods=lost)
    assert post(case) == refused(f"pods cannot be read: {shown}", 429)


def test_all_pods_may_go() -> None:
    assert outline(post(five(), end=0)) == ([4, 3, 2, 1, 0], [4, 3, 2, 1, 0], "")


@pytest.mark.parametrize("start", [2**31 - 1, 10**18])
def test_a_range_of_thousands_of_millions_costs_nothing(start: int) -> None:
    assert outline(post(five(), start=start, end=3)) == (
        [4, 3],
        [4, 3],
        f"{start - 5} pods of the range: no such pod",
    )


@REPEATABLE
@given(
    st.text("llllLt-", max_size=6), st.integers(0, 6), st.integers(0, 6), st.permutations(range(6))
)
def test_si10_every_pod_that_may_have_data_is_called_exactly_once(
    states: str, lowest: int, never: int, order: Sequence[int]
) -> None:
    """An oracle: all pods of the range but the one that was never ready, highest first.

    Where one of them terminates, no pod is called.
    """
    case = with_pod(five(states), never, never_ready=True)
    pods = sorted(case.pods, key=lambda one: order[int(one.name[-1])])

    answer = post(structs.replace(case, pods=tuple(pods)), start=len(states), end=lowest)
    if "t" in states[lowest:]:
        assert isinstance(answer, Verdict)
        assert (answer.is_allowed, answer.code) == (False, 429)
        return
    called, going, _ = outline(answer)
    there = [place for place, state in enumerate(states) if state != "-" and place >= lowest]
    assert going == there[::-1]
    assert called == [place for place in there[::-1] if place != never]


def test_d51_a_mistyped_count_costs_no_walk_through_all_ordinals() -> None:
    """A pod with another name carries the reference: none of the ordinals is read for it."""
    odd = pod("a", 0, "l", name="zone-a-debug")
    huge = Zone(sts=sts("a", 2**31 - 1), pods=(odd,))

    plan = post(huge, start=2**31 - 1, end=3)

    assert isinstance(plan, PreparePods)
    assert plan.going == ()
