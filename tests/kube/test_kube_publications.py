"""LI-11: a status that does not stay is written ever more seldom."""

import asyncio
from itertools import pairwise

import pytest

from rollout_operator.kube.publications import Publications
from rollout_operator.model.errors import Throttled
from rollout_operator.model.scaling import Reference
from tests.virtual_time import VirtualClock, in_virtual_time

ONE = Reference("x.example.org", "Thing", "one")
OTHER = Reference("x.example.org", "Thing", "other")


def is_free(publications: Publications, reference: Reference, replicas: int) -> bool:
    """Tell whether it may be written, and write it where it may."""
    try:
        publications.check(reference, replicas)
    except Throttled:
        return False
    publications.note(reference, replicas)
    return True


@in_virtual_time
async def test_three_times_are_free_and_others_do_not_count() -> None:
    publications = Publications(VirtualClock())
    assert [is_free(publications, ONE, 3) for _ in range(5)] == [True, True, True, False, False]
    assert is_free(publications, OTHER, 3)
    assert is_free(publications, ONE, 4), "another value begins anew"
    assert is_free(publications, ONE, 3)


@in_virtual_time
async def test_the_wait_doubles_up_to_five_minutes() -> None:
    publications = Publications(VirtualClock())
    times = []
    for second in range(3600):
        if is_free(publications, ONE, 3):
            times.append(second)
        await asyncio.sleep(1)
    gaps = [later - sooner for sooner, later in pairwise(times[2:])]
    assert gaps[:6] == [10, 20, 40, 80, 160, 300]
    assert set(gaps[6:]) == {300}


@in_virtual_time
async def test_the_refusal_says_what_is_the_matter() -> None:
    publications = Publications(VirtualClock())
    for _ in range(3):
        publications.note(ONE, 3)
    with pytest.raises(Throttled, match=r"status.replicas of Thing.x.example.org one was set to 3"):
        publications.check(ONE, 3)


@in_virtual_time
async def test_what_stayed_long_or_is_forgotten_begins_anew() -> None:
    publications = Publications(VirtualClock())
    for _ in range(3):
        assert is_free(publications, ONE, 3)
    await asyncio.sleep(15 * 60)
    assert [is_free(publications, ONE, 3) for _ in range(4)] == [True, True, True, False]
    publications.forget(ONE)
    assert is_free(publications, ONE, 3)
