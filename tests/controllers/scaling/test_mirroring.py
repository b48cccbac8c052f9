"""Zones that mirror a count, from the reading to the writes: T-04, MIRR-01 to 11."""

from collections.abc import Sequence

import pytest

from rollout_operator.model.errors import Unreachable
from rollout_operator.model.names import GroupName
from rollout_operator.model.outcome import Code
from tests.controllers.fake_client import Json
from tests.controllers.scaling_bench import GROUP, SECOND, Bench, pass_time
from tests.controllers.scaling_clients import DEMO
from tests.controllers.scaling_objects import in_group, mirroring, zone
from tests.virtual_time import in_virtual_time

STORE = GroupName("store")
FOUR = [zone("a", 4), mirroring("b", 5), mirroring("c", 5, write_back="true"), mirroring("d", 2)]


@pytest.mark.parametrize(
    ("zones", "scale", "patched", "published"),
    [
        pytest.param([mirroring("b", 2)], (5, 2), ["zone-b 5"], [5], id="T-04 row 1"),
        pytest.param([mirroring("b", 3)], (2, 3), ["zone-b 2"], [2], id="T-04 row 3"),
        pytest.param([mirroring("b", 3)], (3, 5), [], [3], id="T-04 row 4"),
        pytest.param(FOUR, (5, 2), ["zone-d 5"], [5], id="T-04 row 9: one status, W-19"),
    ],
)
@in_virtual_time
async def test_t04(
    zones: Sequence[Json], scale: tuple[int, int], patched: list[str], published: list[int]
) -> None:
    """All in one reconcile: what was published is what had been written by then."""
    bench = Bench(zones)
    bench.references.show(*scale)
    await bench.reconcile()
    assert bench.references.wanted == {GROUP: (DEMO,)}
    assert bench.client.patched == patched
    assert bench.references.published == published
    bench.follow()
    await bench.reconcile()
    assert (bench.client.patched, bench.references.published) == (patched, published)


@in_virtual_time
async def test_a_status_that_cannot_be_written_is_tried_again_ever_more_rarely() -> None:
    """LI-11, W-43: counts are right all the same; twice a minute after five minutes."""
    bench = Bench([mirroring("b", 2)])
    bench.references.show(5, 2)
    bench.references.error = Unreachable("HTTP status 500")
    async with bench.living():
        await pass_time(330 * SECOND)
        before = bench.references.tries
        await pass_time(600 * SECOND)
        assert 18 <= bench.references.tries - before <= 20
        assert bench.client.patched == ["zone-b 5"]
        assert bench.waits() == [f"{Code.SCALE_REFUSED}"]
        bench.references.error = None
        await pass_time(31 * SECOND)
        assert bench.references.published == [5]
        assert bench.waits() == []


@in_virtual_time
async def test_a_reference_that_no_group_wants_is_not_followed_any_more() -> None:
    """The annotations go, or the group does: what was wanted is released."""
    bench = Bench([mirroring("b", 2)])
    bench.references.show(2, 2)
    await bench.reconcile()
    assert bench.references.wanted == {GROUP: (DEMO,)}
    bench.remove("b")
    await bench.reconcile()
    assert bench.references.wanted == {GROUP: ()}


def shared() -> Bench:
    """Return two groups that mirror one object, of which the other is behind."""
    behind = in_group(mirroring("x", 5, delay="soon", url="http://pod/prepare"), STORE)
    bench = Bench([mirroring("b", 3), behind])
    bench.references.show(3, 5)
    return bench


@in_virtual_time
async def test_w19_two_groups_do_not_publish_against_each_other() -> None:
    """MIRR-10: an object that two groups mirror has both of them reported by either. The group
    that is where it should be leaves the status to the group that is behind.
    """
    bench = shared()
    reconcile = bench.memory.scaling.reconcile
    await reconcile(STORE)
    for _ in range(3):
        await reconcile(GROUP)
        await reconcile(STORE)
    assert bench.references.published == []
    bench.scale("x", 3)
    await reconcile(STORE)
    assert bench.references.published == [3]


@in_virtual_time
async def test_w19_a_group_that_mirrors_no_more_is_left_out() -> None:
    bench = shared()
    await bench.memory.scaling.reconcile(STORE)
    bench.client.objects["statefulsets", "zone-x"] = in_group(zone("x", 5), STORE)
    bench.follow()
    await bench.memory.scaling.reconcile(STORE)
    await bench.reconcile()
    assert bench.references.published == [3]
