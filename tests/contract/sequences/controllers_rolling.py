"""New templates under RollingUpdate, and changes between the two strategies."""

from tests.contract.controllers_rig import ControllerRig, controlled
from tests.contract.controllers_sets import PARALLEL, ROLLING, THREE, web


async def _move_each(rig: ControllerRig) -> None:
    await rig.version("2")
    for pod in reversed(THREE):
        await rig.rest(f"{pod} terminates")
        await rig.end(pod)
        await rig.rest(f"{pod} is made anew")
        await rig.ready(pod)


async def _partition(rig: ControllerRig, partition: int) -> None:
    strategy = {"type": ROLLING, "rollingUpdate": {"partition": partition}}
    await rig.change(updateStrategy=strategy)


async def _at_a_time(rig: ControllerRig, most: int | str) -> None:
    strategy = {"type": ROLLING, "rollingUpdate": {"maxUnavailable": most}}
    await rig.change(updateStrategy=strategy)


@controlled
async def rolling_goes_from_the_highest_down(rig: ControllerRig) -> None:
    await rig.whole(strategy=ROLLING)
    await _move_each(rig)
    await rig.rest("whole, and the new revision is the current one")


@controlled
async def rolling_back_in_the_middle(rig: ControllerRig) -> None:
    await rig.whole(strategy=ROLLING)
    await rig.version("2")
    await rig.settle()
    await rig.renew("a-2")
    await rig.rest("one moved, the next is going")
    await rig.version("1")
    await rig.rest("back, while it is going")
    await rig.renew("a-1")
    await rig.rest("the highest terminates")
    await rig.renew("a-2")
    await rig.rest("whole as before")


@controlled
async def rolling_waits_for_a_new_pod(rig: ControllerRig) -> None:
    await rig.whole(strategy=ROLLING)
    await rig.version("2")
    await rig.settle()
    await rig.end("a-2")
    await rig.rest("it is not ready")
    await rig.version("3")
    await rig.rest("in order, a third template does not help", has_steps=False)
    await rig.replace("a-2")
    await rig.rest("it has the third now, and the next is going", has_steps=False)


@controlled
async def rolling_in_parallel_replaces_a_broken_new_pod(rig: ControllerRig) -> None:
    await rig.whole(strategy=ROLLING, pods=PARALLEL)
    await rig.version("2")
    await rig.settle()
    await rig.end("a-2")
    await rig.rest("it is not ready")
    await rig.version("3")
    await rig.rest("it terminates")


@controlled
async def rolling_in_parallel_replaces_a_broken_old_pod_first(rig: ControllerRig) -> None:
    await rig.whole(strategy=ROLLING, pods=PARALLEL)
    await _at_a_time(rig, 1)
    await rig.write("a-0")
    await rig.settle()
    await rig.version("2")
    await rig.rest("the lowest goes, which is down")
    await rig.renew("a-0")
    await rig.rest("then the highest")


@controlled
async def rolling_in_order_two_at_a_time(rig: ControllerRig) -> None:
    await rig.whole(strategy=ROLLING)
    await _at_a_time(rig, 2)
    await rig.version("2")
    await rig.rest("the two highest go")
    await rig.renew("a-1")
    await rig.rest("one is back, which waits for none")
    await rig.renew("a-2")
    await rig.rest("the last goes")


@controlled
async def rolling_in_parallel_by_a_share(rig: ControllerRig) -> None:
    await rig.whole(strategy=ROLLING, pods=PARALLEL)
    await _at_a_time(rig, "70%")
    await rig.write("a-1")
    await rig.settle()
    await rig.version("2")
    await rig.rest("the one that is down goes, and the highest")
    await rig.renew("a-2")
    await rig.rest("the last goes")


@controlled
async def rolling_by_less_than_a_pod(rig: ControllerRig) -> None:
    await rig.whole(strategy=ROLLING)
    await _at_a_time(rig, "10%")
    await rig.version("2")
    await rig.rest("one goes")


@controlled
async def rolling_down_to_a_partition(rig: ControllerRig) -> None:
    await rig.whole(strategy=ROLLING)
    await _partition(rig, 2)
    await rig.version("2")
    await rig.rest("the highest goes")
    await rig.renew("a-2")
    await rig.rest("and no other")
    await rig.replace("a-1")
    await rig.rest("one below comes with the old revision")
    await _partition(rig, 0)
    await rig.rest("then the next goes")


@controlled
async def rolling_down_to_a_partition_from_another_ordinal_on(rig: ControllerRig) -> None:
    """A partition counts pods, not ordinals."""
    await rig.create(web(strategy=ROLLING, ordinals={"start": 4}))
    await rig.ready("a-4", "a-5", "a-6")
    await rig.settle()
    await _partition(rig, 2)
    await rig.version("2")
    await rig.settle()
    await rig.renew("a-6")
    await rig.rest("the highest has moved")
    await rig.replace("a-5")
    await rig.rest("one below comes with the old revision")


@controlled
async def rolling_beyond_a_partition_above_all(rig: ControllerRig) -> None:
    await rig.whole(strategy=ROLLING, pods=PARALLEL)
    await _partition(rig, 4)
    await rig.version("2")
    await rig.rest("none goes")
    await rig.change(replicas=5)
    await rig.rest("the first new pod is of the old revision, the second is not", has_steps=False)


async def _lowest_deleted(rig: ControllerRig) -> None:
    await rig.version("2")
    await rig.settle()
    await rig.remove("a-0")
    await rig.settle()
    await rig.end("a-0")
    await rig.rest("the lowest is made anew while the highest is going")
    await rig.end("a-2")
    await rig.ready("a-0", "a-2")
    await rig.rest("both are made anew")


@controlled
async def rolling_while_a_lower_pod_is_deleted(rig: ControllerRig) -> None:
    """Nothing but the type of the strategy is given: the lower pod is of the old revision."""
    await rig.whole(strategy=ROLLING, pods=PARALLEL)
    await _lowest_deleted(rig)


@controlled
async def rolling_without_a_partition_while_a_lower_pod_is_deleted(rig: ControllerRig) -> None:
    await rig.whole(strategy=ROLLING, pods=PARALLEL)
    await _partition(rig, 0)
    await _lowest_deleted(rig)


@controlled
async def rolling_while_it_scales(rig: ControllerRig) -> None:
    await rig.whole(strategy=ROLLING)
    await rig.version("2")
    await rig.settle()
    await rig.change(replicas=4)
    await rig.rest("the highest is going still")
    await rig.end("a-2")
    await rig.rest("it comes before the new one")
    await rig.ready("a-2")
    await rig.rest("the new one")
    await rig.ready("a-3")
    await rig.rest("then the next goes")


@controlled
async def from_on_delete_to_rolling(rig: ControllerRig) -> None:
    await rig.whole()
    await rig.version("2")
    await rig.settle()
    await rig.replace("a-1")
    await _partition(rig, 0)
    await rig.rest("the highest goes")
    await rig.renew("a-2")
    await rig.rest("then the lowest: the one between is new")
    await rig.renew("a-0")
    await rig.rest("whole, and the new revision is the current one")


@controlled
async def from_on_delete_to_rolling_when_all_is_done(rig: ControllerRig) -> None:
    await rig.whole()
    await rig.version("2")
    await rig.settle()
    await rig.replace(*THREE)
    await _partition(rig, 0)
    await rig.rest("the new revision is the current one")


@controlled
async def from_rolling_to_on_delete(rig: ControllerRig) -> None:
    await rig.whole(strategy=ROLLING)
    await rig.version("2")
    await rig.settle()
    await rig.change(updateStrategy={"type": "OnDelete", "rollingUpdate": None})
    await rig.renew("a-2")
    await rig.rest("no other goes")
