"""What we remember of our own deletes, and when it ends (D-17, SI-18)."""

from datetime import timedelta

import pytest
from msgspec import structs

from rollout_operator.guards.budgets.own_deletes import OwnDeletes
from rollout_operator.kube.cache.store import PodStore
from rollout_operator.model.group import Deletion
from rollout_operator.model.names import Uid
from rollout_operator.model.objects import Pod, Unreadable
from tests.builders import pod, sts_uid, unreadable
from tests.fakes_clock import FakeClock

POD = pod("a", 0)
UNREADABLE = structs.replace(unreadable("Pod", POD.name), uid=POD.uid)
GROUP, OTHER = {sts_uid("a")}, {sts_uid("b")}
UNKNOWN, ACCEPTED = {POD.uid: Deletion.UNKNOWN}, {POD.uid: Deletion.ACCEPTED}


def memory() -> tuple[OwnDeletes, PodStore, FakeClock]:
    cache, clock = PodStore(), FakeClock()
    cache.replace_all([POD])
    return OwnDeletes(cache, clock), cache, clock


def test_a_delete_counts_from_before_it_is_sent() -> None:
    """For the sets that control the pods, and no others."""
    made, _, _ = memory()
    made.begin(POD)
    assert made.list_of(GROUP) == UNKNOWN
    made.accept(POD)
    assert made.list_of(GROUP) == ACCEPTED
    assert not made.list_of(OTHER)
    made.begin(POD)
    assert not made.list_unknown(OTHER)


@pytest.mark.parametrize(
    ("shown", "is_over"),
    [
        pytest.param([pod("a", 0, "t")], True, id="the pod terminates"),
        pytest.param([pod("a", 0, uid=Uid("2"))], True, id="another pod of that name"),
        pytest.param([], True, id="no pod"),
        pytest.param([UNREADABLE], False, id="it cannot be read: no proof"),
    ],
)
def test_it_ends_with_what_the_cache_shows(shown: list[Pod | Unreadable], is_over: bool) -> None:
    made, cache, _ = memory()
    made.begin(POD)
    made.accept(POD)
    cache.replace_all(shown)
    assert made.list_of(GROUP) == ({} if is_over else ACCEPTED)


def test_a_request_that_was_turned_away_leaves_only_an_earlier_one() -> None:
    """SI-18: the first may still be committed."""
    made, _, clock = memory()
    made.begin(POD)
    made.withdraw(POD)
    assert not made.list_of(GROUP)
    made.begin(POD)
    clock.jump(timedelta(seconds=60))
    made.begin(POD)
    made.withdraw(POD)
    assert made.list_of(GROUP) == UNKNOWN


def test_the_newest_request_decides_how_long_one_may_still_be_committed() -> None:
    """SI-18: requests at 0 s and 60 s; the second may be committed until 150 s."""
    made, _, clock = memory()
    made.begin(POD)
    clock.jump(timedelta(seconds=60))
    made.begin(POD)
    (own,) = made.list_unknown(GROUP)
    clock.jump(timedelta(seconds=89))
    assert made.may_still_commit(own)
    clock.jump(timedelta(seconds=1))
    assert not made.may_still_commit(own)


def test_longest_unseen_counts_accepted_deletes_only() -> None:
    made, _, clock = memory()
    made.begin(POD)
    clock.jump(timedelta(seconds=7))
    assert made.longest_unseen(GROUP) == timedelta(0)
    made.accept(POD)
    clock.jump(timedelta(seconds=3))
    assert made.longest_unseen(GROUP) == timedelta(seconds=3)
