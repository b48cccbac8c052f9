"""More and fewer pods: in which order they come and go, and who waits for whom."""

from rollout_operator.kube.api import STATEFULSETS
from tests.contract.controllers_pods import QUICK
from tests.contract.controllers_scene import Scene, controlled
from tests.contract.controllers_sets import PARALLEL, THREE, web


@controlled
async def ordered_up(scene: Scene) -> None:
    await scene.create(web(replicas=1))
    await scene.ready("a-0")
    await scene.rest("one")
    await scene.change(replicas=3)
    await scene.rest("one more, not ready")
    await scene.ready("a-1", "a-2")
    await scene.rest("three")


@controlled
async def ordered_up_while_a_lower_one_is_not_ready(scene: Scene) -> None:
    await scene.whole()
    await scene.write("a-1")
    await scene.settle()
    await scene.change(replicas=5)
    await scene.rest("nothing comes")
    await scene.ready("a-1")
    await scene.rest("the next one comes")


@controlled
async def parallel_up_while_a_lower_one_is_not_ready(scene: Scene) -> None:
    await scene.whole(pods=PARALLEL)
    await scene.write("a-1")
    await scene.settle()
    await scene.change(replicas=5)
    await scene.rest("both come", has_steps=False)


@controlled
async def ordered_down(scene: Scene) -> None:
    await scene.whole()
    await scene.change(replicas=1)
    await scene.rest("the highest is told to go, and no other")
    await scene.end("a-2")
    await scene.rest("then the next")
    await scene.end("a-1")
    await scene.rest("one")


@controlled
async def parallel_down(scene: Scene) -> None:
    await scene.whole(pods=PARALLEL)
    await scene.change(replicas=1)
    await scene.rest("both are told to go", has_steps=False)
    await scene.end("a-1")
    await scene.rest("the lower one is gone first")
    await scene.end("a-2")
    await scene.rest("one")


@controlled
async def ordered_down_while_one_that_stays_is_not_ready(scene: Scene) -> None:
    await scene.whole()
    await scene.write("a-0")
    await scene.settle()
    await scene.change(replicas=1)
    await scene.rest("nobody goes")
    await scene.ready("a-0")
    await scene.rest("the highest goes")


@controlled
async def ordered_down_while_the_highest_is_not_ready(scene: Scene) -> None:
    await scene.whole()
    await scene.write("a-2")
    await scene.settle()
    await scene.change(replicas=1)
    await scene.rest("it goes all the same")


@controlled
async def ordered_down_while_the_next_to_go_is_not_ready(scene: Scene) -> None:
    await scene.whole()
    await scene.write("a-1")
    await scene.settle()
    await scene.change(replicas=1)
    await scene.rest("the highest goes before")
    await scene.end("a-2")
    await scene.rest("then that one")


@controlled
async def ordered_down_while_two_that_go_are_not_ready(scene: Scene) -> None:
    await scene.whole()
    await scene.write("a-1")
    await scene.write("a-2")
    await scene.settle()
    await scene.change(replicas=1)
    await scene.rest("the higher one waits for the lower one", has_steps=False)
    await scene.ready("a-1")
    await scene.rest("and goes once that is ready")


@controlled
async def ordered_to_none_and_back(scene: Scene) -> None:
    await scene.whole()
    await scene.change(replicas=0)
    for pod in reversed(THREE):
        await scene.settle()
        await scene.end(pod)
    await scene.rest("none")
    await scene.change(replicas=2)
    await scene.rest("the first again")
    await scene.ready("a-0")
    await scene.rest("and the second")


@controlled
async def ordered_down_and_up_before_the_pod_is_gone(scene: Scene) -> None:
    await scene.whole()
    await scene.change(replicas=2)
    await scene.rest("it is told to go")
    await scene.change(replicas=4)
    await scene.rest("its end is waited for")
    await scene.end("a-2")
    await scene.rest("it comes again")


@controlled
async def parallel_down_and_up_before_the_pod_is_gone(scene: Scene) -> None:
    await scene.whole(pods=PARALLEL)
    await scene.change(replicas=2)
    await scene.rest("it is told to go")
    await scene.change(replicas=4)
    await scene.rest("the one above comes")
    await scene.end("a-2")
    await scene.rest("it comes again")


@controlled
async def down_while_the_pod_is_going_already(scene: Scene) -> None:
    await scene.whole()
    await scene.remove("a-1")
    await scene.settle()
    await scene.change(replicas=2)
    await scene.rest("the highest waits for it")
    await scene.end("a-1")
    await scene.rest("which comes again before")
    await scene.ready("a-1")
    await scene.rest("then the highest goes")


@controlled
async def by_the_scale_subresource(scene: Scene) -> None:
    await scene.whole(pods=PARALLEL)
    await scene.patch(STATEFULSETS, "a/scale", {"spec": {"replicas": 2}})
    await scene.rest("the highest goes")
    await scene.end("a-2")
    await scene.rest("two")


@controlled
async def up_after_a_new_template_on_delete(scene: Scene) -> None:
    await scene.whole()
    await scene.version("2")
    await scene.settle()
    await scene.change(replicas=4)
    await scene.rest("the new pod has the new revision")


@controlled
async def up_with_a_new_template_at_once(scene: Scene) -> None:
    await scene.whole(pods=PARALLEL)
    template = {"metadata": {"annotations": {"version": "2"}}}
    await scene.change(replicas=5, template=template)
    await scene.rest("both new ones have the new revision", has_steps=False)


@controlled
async def ordinals_that_begin_later_in_order(scene: Scene) -> None:
    await scene.whole()
    await scene.change(ordinals={"start": 2})
    await scene.rest("the next above comes first")
    await scene.ready("a-3")
    await scene.rest("and the one after")
    await scene.ready("a-4")
    await scene.rest("then the highest below goes")
    await scene.end("a-1")
    await scene.rest("and the last")
    await scene.end("a-0")
    await scene.rest("three from two on")


@controlled
async def ordinals_that_begin_later_in_parallel(scene: Scene) -> None:
    await scene.whole(pods=PARALLEL)
    await scene.change(ordinals={"start": 2})
    await scene.rest("all at once", has_steps=False)


@controlled
async def ordinals_that_begin_at_none_again(scene: Scene) -> None:
    await scene.create(web(replicas=2, pods=PARALLEL, ordinals={"start": 1}))
    await scene.ready("a-1", "a-2")
    await scene.rest("one and two", has_steps=False)
    await scene.change(ordinals=None)
    await scene.rest("none comes, two goes", has_steps=False)


@controlled
async def up_and_down_by_themselves_in_parallel(scene: Scene) -> None:
    await scene.create(web(replicas=1, image=QUICK, pods=PARALLEL))
    await scene.until_whole()
    await scene.change(replicas=6)
    await scene.until_whole()
    await scene.change(replicas=2)
    await scene.until_whole()
    await scene.rest("one, six, two")
