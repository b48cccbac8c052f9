"""New templates under RollingUpdate, and changes between the two strategies."""

from tests.contract.controllers_scene import Scene, controlled
from tests.contract.controllers_sets import PARALLEL, ROLLING, THREE, web


async def _move_each(scene: Scene) -> None:
    await scene.version("2")
    for pod in reversed(THREE):
        await scene.rest(f"{pod} is told to go")
        await scene.end(pod)
        await scene.rest(f"{pod} is made anew")
        await scene.ready(pod)


async def _partition(scene: Scene, partition: int) -> None:
    strategy = {"type": ROLLING, "rollingUpdate": {"partition": partition}}
    await scene.change(updateStrategy=strategy)


@controlled
async def rolling_goes_from_the_highest_down(scene: Scene) -> None:
    await scene.whole(strategy=ROLLING)
    await _move_each(scene)
    await scene.rest("whole, and the new revision is the current one")


@controlled
async def rolling_back_in_the_middle(scene: Scene) -> None:
    await scene.whole(strategy=ROLLING)
    await scene.version("2")
    await scene.settle()
    await scene.renew("a-2")
    await scene.rest("one moved, the next is going")
    await scene.version("1")
    await scene.rest("back, while it is going")
    await scene.renew("a-1")
    await scene.rest("the highest is told to go")
    await scene.renew("a-2")
    await scene.rest("whole as before")


@controlled
async def rolling_waits_for_a_new_pod(scene: Scene) -> None:
    await scene.whole(strategy=ROLLING)
    await scene.version("2")
    await scene.settle()
    await scene.end("a-2")
    await scene.rest("it is not ready")
    await scene.version("3")
    await scene.rest("in order, a third template does not help", has_steps=False)
    await scene.replace("a-2")
    await scene.rest("it has the third now, and the next is going", has_steps=False)


@controlled
async def rolling_in_parallel_replaces_a_broken_new_pod(scene: Scene) -> None:
    await scene.whole(strategy=ROLLING, pods=PARALLEL)
    await scene.version("2")
    await scene.settle()
    await scene.end("a-2")
    await scene.rest("it is not ready")
    await scene.version("3")
    await scene.rest("it is told to go")


@controlled
async def rolling_replaces_a_broken_old_pod_only_in_its_turn(scene: Scene) -> None:
    await scene.whole(strategy=ROLLING, pods=PARALLEL)
    await scene.write("a-0")
    await scene.settle()
    await scene.version("2")
    await scene.rest("the highest goes although another is down")
    await scene.renew("a-2")
    await scene.rest("then the next")


@controlled
async def rolling_down_to_a_partition(scene: Scene) -> None:
    await scene.whole(strategy=ROLLING)
    await _partition(scene, 2)
    await scene.version("2")
    await scene.rest("the highest goes")
    await scene.renew("a-2")
    await scene.rest("and no other")
    await scene.replace("a-1")
    await scene.rest("one below comes with the old revision")
    await _partition(scene, 0)
    await scene.rest("then the next goes")


@controlled
async def rolling_down_to_a_partition_from_another_ordinal_on(scene: Scene) -> None:
    """A partition counts pods, not ordinals."""
    await scene.create(web(strategy=ROLLING, ordinals={"start": 4}))
    await scene.ready("a-4", "a-5", "a-6")
    await scene.settle()
    await _partition(scene, 2)
    await scene.version("2")
    await scene.settle()
    await scene.renew("a-6")
    await scene.rest("the highest has moved")
    await scene.replace("a-5")
    await scene.rest("one below comes with the old revision")


@controlled
async def rolling_beyond_a_partition_above_all(scene: Scene) -> None:
    await scene.whole(strategy=ROLLING, pods=PARALLEL)
    await _partition(scene, 4)
    await scene.version("2")
    await scene.rest("nobody goes")
    await scene.change(replicas=5)
    await scene.rest("the first new pod is of the old revision, the second is not", has_steps=False)


async def _lowest_deleted(scene: Scene) -> None:
    await scene.version("2")
    await scene.settle()
    await scene.remove("a-0")
    await scene.settle()
    await scene.end("a-0")
    await scene.rest("the lowest is made anew while the highest is going")
    await scene.end("a-2")
    await scene.ready("a-0", "a-2")
    await scene.rest("both are made anew")


@controlled
async def rolling_while_a_lower_pod_is_deleted(scene: Scene) -> None:
    """Nothing but the type of the strategy is given: the lower pod is of the old revision."""
    await scene.whole(strategy=ROLLING, pods=PARALLEL)
    await _lowest_deleted(scene)


@controlled
async def rolling_without_a_partition_while_a_lower_pod_is_deleted(scene: Scene) -> None:
    await scene.whole(strategy=ROLLING, pods=PARALLEL)
    await _partition(scene, 0)
    await _lowest_deleted(scene)


@controlled
async def rolling_while_it_scales(scene: Scene) -> None:
    await scene.whole(strategy=ROLLING)
    await scene.version("2")
    await scene.settle()
    await scene.change(replicas=4)
    await scene.rest("the highest is going still")
    await scene.end("a-2")
    await scene.rest("it comes before the new one")
    await scene.ready("a-2")
    await scene.rest("the new one")
    await scene.ready("a-3")
    await scene.rest("then the next goes")


@controlled
async def from_on_delete_to_rolling(scene: Scene) -> None:
    await scene.whole()
    await scene.version("2")
    await scene.settle()
    await scene.replace("a-1")
    await _partition(scene, 0)
    await scene.rest("the highest goes")
    await scene.renew("a-2")
    await scene.rest("then the lowest: the one between is new")
    await scene.renew("a-0")
    await scene.rest("whole, and the new revision is the current one")


@controlled
async def from_on_delete_to_rolling_when_all_is_done(scene: Scene) -> None:
    await scene.whole()
    await scene.version("2")
    await scene.settle()
    await scene.replace(*THREE)
    await _partition(scene, 0)
    await scene.rest("the new revision is the current one")


@controlled
async def from_rolling_to_on_delete(scene: Scene) -> None:
    await scene.whole(strategy=ROLLING)
    await scene.version("2")
    await scene.settle()
    await scene.change(updateStrategy={"type": "OnDelete", "rollingUpdate": None})
    await scene.renew("a-2")
    await scene.rest("no other goes")
