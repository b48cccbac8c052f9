"""What an earlier downscale means for the next, what became of it, and which pods stay.

D-24, LI-05, SI-10, SI-11, SI-12, SI-16, W-15, W-36.
"""

from collections.abc import Collection, Sequence
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from msgspec.structs import replace

from rollout_operator.model.names import Uid
from rollout_operator.model.objects import Decrease, Key, Pod, StatefulSet, Target, Underway
from rollout_operator.model.outcome import Code, Verdict
from rollout_operator.model.scaling import TimesSource
from rollout_operator.planning.downscales import (
    DownscaleOutcome,
    DownscaleSnapshot,
    EarlierDownscale,
    choose_staying,
    is_over,
    judge_downscale,
    plan_reservation,
)
from tests.builders import group, pod, sts, sts_uid, with_pods, zone
from tests.examples import repeatable

TARGET: Final = Target(port=8080, path="prepare-downscale", service="service-name")
OTHER: Final = Target(port=9090, path="prepare-downscale", service="service-name")

KEY: Final = Key(set_uid=sts_uid("a"), replicas_from=5, replicas_to=3)
PODS: Final = zone("a", "lllll").pods


def key(start: int = 5, end: int = 3, target: Target | None = TARGET) -> Key:
    return Key(set_uid=sts_uid("a"), replicas_from=start, replicas_to=end, target=target)


def earlier(
    found: Key | None = None, *, prepared: tuple[int, ...] = (4, 3), **changes: bool
) -> EarlierDownscale:
    """Return the same downscale, allowed and not written yet."""
    names = ("is_preparing", "is_persisted", "is_adopted", "is_late", "is_elsewhere")
    states = dict.fromkeys(names, False)
    return EarlierDownscale(
        key=found or key(),
        prepared={Uid(f"uid-a-{ordinal}") for ordinal in prepared},
        **(states | changes),
    )


def plan(
    known: EarlierDownscale | None, *, has_times: bool = True, is_grouped: bool = True, **why: bool
) -> str | tuple[list[str], bool]:
    """Return the code of a refusal, or who is called and whether the first answer stands."""
    zones = group(with_pods(zone("a", "lllll"), ip="10.0.0.1"), zone("b", "lllll"))
    if why.get("other_underway"):
        underway = Underway(zone="zone-b", replicas_from=5, replicas_to=4)
        zones = structs.replace(zones, downscale=underway)
    decided = plan_reservation(
        DownscaleSnapshot(
            decrease=Decrease(
                resource="statefulsets",
                namespace="test",
                name="zone-a",
                replicas_from=5,
                replicas_to=3,
            ),
            key=key(),
            target=TARGET,
            zone=zones.zones[0],
            group=zones,
            is_grouped=is_grouped,
            times={} if has_times else None,
            source=TimesSource.ANNOTATIONS,
            earlier=known,
            cluster_domain="cluster.local.",
        )
    )
    if isinstance(decided, Verdict):
        assert decided.code == 429, "it is to be tried again"
        return decided.reason.code
    assert [endpoint.pod for endpoint in decided.pods.endpoints] == ["zone-a-4", "zone-a-3"]
    return [endpoint.pod for endpoint in decided.missing], decided.is_repeated


BOTH: Final = (["zone-a-4", "zone-a-3"], False)


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        pytest.param(None, BOTH, id="the first"),
        pytest.param(earlier(), ([], True), id="D-24 SI-16 the same: no pod is called twice"),
        pytest.param(
            earlier(prepared=(3,)),
            (["zone-a-4"], True),
            id="D-24 only those which have not confirmed",
        ),
        pytest.param(
            earlier(key(target=None)), ([], True), id="the same, of a release without targets"
        ),
        pytest.param(earlier(is_preparing=True), ([], True), id="the same, while pods are called"),
        pytest.param(earlier(is_adopted=True), BOTH, id="LI-05 of another process: judged anew"),
        pytest.param(earlier(is_late=True), BOTH, id="D-24 so late it is another request"),
        pytest.param(earlier(is_elsewhere=True), BOTH, id="SI-11 judged beside other zones"),
        pytest.param(
            earlier(is_elsewhere=True, is_preparing=True),
            Code.OTHER_DOWNSCALE_UNDERWAY,
            id="SI-10 judged beside other zones, while pods are called",
        ),
        pytest.param(earlier(is_persisted=True), BOTH, id="it has happened"),
        pytest.param(
            earlier(key(end=4)), Code.OTHER_DOWNSCALE_UNDERWAY, id="W-15 another range may persist"
        ),
        pytest.param(earlier(key(end=4), is_persisted=True), BOTH, id="another range has happened"),
        pytest.param(
            earlier(key(end=4, target=None)),
            Code.OTHER_DOWNSCALE_UNDERWAY,
            id="another range, whose target is not known",
        ),
        pytest.param(
            earlier(key(target=OTHER)), BOTH, id="D-24 the set was changed since: it cannot persist"
        ),
        pytest.param(
            earlier(key(target=OTHER), is_preparing=True),
            Code.OTHER_DOWNSCALE_UNDERWAY,
            id="SI-10 pods are being called elsewhere",
        ),
    ],
)
def test_an_earlier_downscale_of_the_set(
    known: EarlierDownscale | None, expected: str | tuple[list[str], bool]
) -> None:
    assert plan(known) == expected


def test_the_rest_of_the_group_has_a_say() -> None:
    """SI-11: but what was granted once holds the others back, not they it."""
    assert plan(None, other_underway=True) == Code.OTHER_DOWNSCALE_UNDERWAY
    assert plan(earlier(), other_underway=True) == ([], True)
    assert plan(None, other_underway=True, is_grouped=False) == BOTH


def test_times_that_were_not_read_are_not_judged_by() -> None:
    """The same was sent before, and was settled while the group was read."""
    assert plan(earlier(), has_times=False) == ([], True)
    assert plan(None, has_times=False) == Code.CHANGED_MEANWHILE
    assert plan(None, has_times=False, is_grouped=False) == BOTH


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
