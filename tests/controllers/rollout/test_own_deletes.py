"""What we remember of our own deletes, and when it ends (D-17, SI-18)."""

from datetime import timedelta

from rollout_operator.controllers.rollout.own_deletes import OwnDeletes
from rollout_operator.model.group import Deletion
from rollout_operator.model.names import Uid
from rollout_operator.model.objects import Pod, Unreadable
from tests.fakes_clock import FakeClock

GROUP, OTHER = {Uid("uid-a")}, {Uid("uid-b")}


def pod(uid: str = "1", *, is_terminating: bool = False) -> Pod:
    return Pod(
        namespace="test",
        name="a-0",
        uid=Uid(uid),
        resource_version="7",
        owner_uid=Uid("uid-a"),
        is_terminating=is_terminating,
    )


class Cache:
    """A pod cache of one entry."""

    def __init__(self, shown: Pod | Unreadable | None) -> None:
        self.shown = shown

    def get(self, namespace: str, name: str) -> Pod | Unreadable | None:
        assert (namespace, name) == ("test", "a-0")
        return self.shown


def memory(shown: Pod | None) -> tuple[OwnDeletes, Cache, FakeClock]:
    cache, clock = Cache(shown), FakeClock()
    return OwnDeletes(cache.get, clock), cache, clock


def test_a_delete_counts_from_before_it_is_sent() -> None:
    made, _, _ = memory(pod())
    made.begin(pod())
    assert made.list_of(GROUP) == {"1": Deletion.UNKNOWN}
    made.accept(pod())
    assert made.list_of(GROUP) == {"1": Deletion.ACCEPTED}


def test_only_pods_of_these_sets_are_listed() -> None:
    made, _, _ = memory(pod())
    made.begin(pod())
    assert not made.list_of(OTHER)
    assert not made.list_unknown(OTHER)


def test_it_ends_when_the_cache_shows_the_pod_terminating() -> None:
    made, cache, _ = memory(pod())
    made.begin(pod())
    made.accept(pod())
    cache.shown = pod(is_terminating=True)
    assert not made.list_of(GROUP)


def test_it_ends_when_the_cache_shows_another_pod_of_that_name() -> None:
    made, cache, _ = memory(pod())
    made.begin(pod())
    made.accept(pod())
    cache.shown = pod("2")
    assert not made.list_of(GROUP)


def test_it_ends_when_the_cache_shows_no_pod() -> None:
    made, cache, _ = memory(pod())
    made.begin(pod())
    made.accept(pod())
    cache.shown = None
    assert not made.list_of(GROUP)


def test_an_unreadable_pod_proves_nothing() -> None:
    made, cache, _ = memory(pod())
    made.begin(pod())
    made.accept(pod())
    cache.shown = Unreadable(
        kind="Pod",
        namespace="test",
        name="a-0",
        uid=Uid("1"),
        resource_version="8",
        error="spec: not an object",
    )
    assert made.list_of(GROUP) == {"1": Deletion.ACCEPTED}


def test_a_request_that_was_turned_away_is_forgotten() -> None:
    made, _, _ = memory(pod())
    made.begin(pod())
    made.withdraw(pod())
    assert not made.list_of(GROUP)


def test_a_request_that_was_turned_away_leaves_the_earlier_one() -> None:
    """SI-18: the first may still be committed."""
    made, _, clock = memory(pod())
    made.begin(pod())
    clock.jump(timedelta(seconds=60))
    made.begin(pod())
    made.withdraw(pod())
    assert made.list_of(GROUP) == {"1": Deletion.UNKNOWN}


def test_the_newest_request_decides_how_long_one_may_still_be_committed() -> None:
    """SI-18: requests at 0 s and 60 s; the second may be committed until 150 s."""
    made, _, clock = memory(pod())
    made.begin(pod())
    clock.jump(timedelta(seconds=60))
    made.begin(pod())
    (own,) = made.list_unknown(GROUP)
    clock.jump(timedelta(seconds=89))
    assert made.may_still_commit(own)
    clock.jump(timedelta(seconds=1))
    assert not made.may_still_commit(own)


def test_longest_unseen_counts_accepted_deletes_only() -> None:
    made, _, clock = memory(pod())
    made.begin(pod())
    clock.jump(timedelta(seconds=7))
    assert made.longest_unseen(GROUP) == timedelta(0)
    made.accept(pod())
    clock.jump(timedelta(seconds=3))
    assert made.longest_unseen(GROUP) == timedelta(seconds=3)
