"""What became of a downscale, and who stays: W-36, LI-05, SI-12."""

from collections.abc import Collection, Sequence
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rollout_operator.model.downscale import Key
from rollout_operator.model.names import Uid
from rollout_operator.model.objects import Pod, StatefulSet
from rollout_operator.planning.downscales.outcome import (
    DownscaleOutcome,
    choose_staying,
    is_over,
    judge_downscale,
)
from tests.builders import pod, sts, sts_uid, zone
from tests.examples import repeatable

KEY: Final = Key(set_uid=sts_uid("a"), replicas_from=5, replicas_to=3)
PODS: Final = zone("a", "lllll").pods


def uids(*ordinals: int) -> set[Uid]:
    return {Uid(f"uid-a-{ordinal}") for ordinal in ordinals}


def names(pods: Sequence[Pod]) -> list[str]:
    return [one.name for one in pods]


@pytest.mark.parametrize(
    ("replicas", "may_persist", "outcome"),
    [
        pytest.param(5, True, DownscaleOutcome.OPEN, id="SI-12 it may still happen"),
        pytest.param(5, False, DownscaleOutcome.FAILED, id="W-36 refused by another webhook"),
        pytest.param(3, True, DownscaleOutcome.HAPPENED, id="it happened"),
        pytest.param(3, False, DownscaleOutcome.HAPPENED, id="it happened long ago"),
        pytest.param(2, True, DownscaleOutcome.HAPPENED, id="more than that happened"),
        pytest.param(0, False, DownscaleOutcome.HAPPENED, id="all went"),
        pytest.param(
            4, True, DownscaleOutcome.OPEN, id="SI-12 something else happened, it may still happen"
        ),
        pytest.param(4, False, DownscaleOutcome.FAILED, id="W-36 something else happened instead"),
        pytest.param(
            9, True, DownscaleOutcome.OPEN, id="SI-12 reverted, and may be requested again"
        ),
        pytest.param(9, False, DownscaleOutcome.FAILED, id="W-36 LI-05 reverted: 10 to 9 to 10"),
    ],
)
def test_what_became_of_a_downscale(
    replicas: int, may_persist: bool, outcome: DownscaleOutcome
) -> None:
    assert judge_downscale(KEY, sts("a", replicas), may_persist=may_persist) is outcome


@given(st.integers(0, 9), st.integers(0, 9), st.booleans())
@repeatable()
def test_si12_no_pod_is_un_prepared_from_what_has_happened_or_may(
    replicas: int, target: int, may_persist: bool
) -> None:
    key = Key(set_uid=sts_uid("a"), replicas_from=10, replicas_to=target)
    outcome = judge_downscale(key, sts("a", replicas), may_persist=may_persist)

    assert (outcome is DownscaleOutcome.FAILED) == (replicas > target and not may_persist)


@pytest.mark.parametrize(
    ("replicas", "called", "expected"),
    [
        pytest.param(5, uids(3, 4), ["zone-a-3", "zone-a-4"], id="LI-05 both stay"),
        pytest.param(4, uids(3, 4), ["zone-a-3"], id="SI-12 one of them goes after all"),
        pytest.param(3, uids(3, 4), [], id="SI-12 both go"),
        pytest.param(5, uids(4), ["zone-a-4"], id="only those prepared"),
        pytest.param(5, uids(), [], id="no pod was prepared"),
        pytest.param(5, uids(0, 9), ["zone-a-0"], id="of those that are gone none"),
    ],
)
def test_which_pods_stay(replicas: int, called: set[Uid], expected: list[str]) -> None:
    assert _choose(sts("a", replicas), PODS[::-1], called) == expected


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"is_terminating": True}, id="it goes already"),
        pytest.param({"uid": Uid("new")}, id="FP-25 another pod of the name does not run yet"),
        pytest.param({"name": "zone-a-x"}, id="no ordinal"),
        pytest.param({"name": "zone-b-4"}, id="of another set"),
        pytest.param({"name": "zone-a-"}, id="empty ordinal"),
        pytest.param({"name": "zone-a-" + "9" * 240}, id="no ordinal of a set"),
    ],
)
def test_what_needs_not_be_reported(changes: dict[str, object]) -> None:
    assert _choose(sts("a", 5), [replace(pod("a", 4, "l"), **changes)], uids(4)) == []


def test_li05_a_pod_that_comes_back_is_un_prepared_when_it_runs() -> None:
    """LI-05: it may find on its disk that it is to go."""
    back = replace(pod("a", 4, "l"), uid=Uid("new"), ip="10.0.0.4")
    assert choose_staying(sts("a", 5), [back], {uids_of(4): "zone-a-4"}) == {uids_of(4): back}
    assert _choose(sts("a", 4), [back], uids(4)) == []


def uids_of(ordinal: int) -> Uid:
    (found,) = uids(ordinal)
    return found


def _choose(of: StatefulSet, pods: Sequence[Pod], called: Collection[Uid]) -> list[str]:
    """Return the names of the pods that are called."""
    known = {one.uid: one.name for ordinal in range(12) for one in [pod("a", ordinal, "l")]}
    return names(list(choose_staying(of, pods, {uid: known[uid] for uid in called}).values()))


def test_the_first_ordinal_counts() -> None:
    """D-10: replicas 2 that start at 3 are pods 3 and 4."""
    found = _choose(sts("a", 2, first_ordinal=3), PODS, uids(2, 3, 4))
    assert found == ["zone-a-3", "zone-a-4"]


def test_eleven_pods_are_in_order_of_numbers() -> None:
    pods = [pod("a", ordinal, "l") for ordinal in (10, 2, 9)]
    assert _choose(sts("a", 11), pods, uids(2, 9, 10)) == ["zone-a-2", "zone-a-9", "zone-a-10"]


def test_a_downscale_is_over_when_no_prepared_pod_is_left() -> None:
    going = [replace(one, is_terminating=one.name in {"zone-a-3", "zone-a-4"}) for one in PODS]

    assert not is_over(PODS, uids(3, 4))
    assert not is_over([*PODS[:4], going[4]], uids(3, 4))
    assert is_over(going, uids(3, 4))
    assert is_over(PODS[:3], uids(3, 4))
    assert is_over((), uids(3, 4))
    assert is_over(PODS, ())


def test_d51_a_mistyped_count_costs_no_walk_through_all_ordinals() -> None:
    odd = pod("a", 0, "l", name="zone-a-debug")

    assert choose_staying(sts("a", 2**31 - 1), [odd], {odd.uid: odd.name}) == {}
