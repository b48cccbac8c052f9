"""An object that two groups mirror is told of both of them by either (W-19, MIRR-10)."""

from rollout_operator.model.names import GroupName
from tests.controllers.scaling_bench import GROUP, Bench
from tests.controllers.scaling_objects import in_group, mirroring, zone
from tests.virtual_time import in_virtual_time

STORE = GroupName("store")


@in_virtual_time
async def test_w19_two_groups_do_not_publish_against_each_other() -> None:
    """The one that is where it should be leaves the status to the one that is behind."""
    behind = in_group(mirroring("x", 5, delay="soon", url="http://pod/prepare"), STORE)
    bench = Bench([mirroring("b", 3), behind])
    bench.references.show(3, 5)
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
    behind = in_group(mirroring("x", 5, delay="soon", url="http://pod/prepare"), STORE)
    bench = Bench([mirroring("b", 3), behind])
    bench.references.show(3, 5)
    await bench.memory.scaling.reconcile(STORE)
    bench.client.objects["statefulsets", "zone-x"] = in_group(zone("x", 5), STORE)
    bench.follow()
    await bench.memory.scaling.reconcile(STORE)

    await bench.look()

    assert bench.references.published == [3]
