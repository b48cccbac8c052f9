"""More and fewer pods: in which order they come and go, and who waits for whom."""

from rollout_operator.kube.api import STATEFULSETS
from tests.contract.controllers_pods import QUICK
from tests.contract.controllers_rig import ControllerRig, controlled
from tests.contract.controllers_sets import PARALLEL, THREE, web


@controlled
async def ordered_up(rig: ControllerRig) -> None:
    await rig.create(web(replicas=1))
    await rig.ready("a-0")
    await rig.rest("one")
    await rig.change(replicas=3)
    await rig.rest("one more, not ready")
    await rig.ready("a-1", "a-2")
    await rig.rest("three")


@controlled
async def ordered_up_while_a_lower_one_is_not_ready(rig: ControllerRig) -> None:
    await rig.whole()
    await rig.write("a-1")
    await rig.settle()
    await rig.change(replicas=5)
    await rig.rest("nothing comes")
    await rig.ready("a-1")
    await rig.rest("the next one comes")


@controlled
async def parallel_up_while_a_lower_one_is_not_ready(rig: ControllerRig) -> None:
    await rig.whole(pods=PARALLEL)
    await rig.write("a-1")
    await rig.settle()
    await rig.change(replicas=5)
    await rig.rest("both come", has_steps=False)


@controlled
async def ordered_down(rig: ControllerRig) -> None:
    await rig.whole()
    await rig.change(replicas=1)
    await rig.rest("the highest terminates, and no other")
    await rig.end("a-2")
    await rig.rest("then the next")
    await rig.end("a-1")
    await rig.rest("one")


@controlled
async def parallel_down(rig: ControllerRig) -> None:
    await rig.whole(pods=PARALLEL)
    await rig.change(replicas=1)
    await rig.rest("both terminate", has_steps=False)
    await rig.end("a-1")
    await rig.rest("the lower one is gone first")
    await rig.end("a-2")
    await rig.rest("one")


@controlled
async def ordered_down_while_one_that_stays_is_not_ready(rig: ControllerRig) -> None:
    await rig.whole()
    await rig.write("a-0")
    await rig.settle()
    await rig.change(replicas=1)
    await rig.rest("none goes")
    await rig.ready("a-0")
    await rig.rest("the highest goes")


@controlled
async def ordered_down_while_the_highest_is_not_ready(rig: ControllerRig) -> None:
    await rig.whole()
    await rig.write("a-2")
    await rig.settle()
    await rig.change(replicas=1)
    await rig.rest("it goes all the same")


@controlled
async def ordered_down_while_the_next_to_go_is_not_ready(rig: ControllerRig) -> None:
    await rig.whole()
    await rig.write("a-1")
    await rig.settle()
    await rig.change(replicas=1)
    await rig.rest("the highest goes before")
    await rig.end("a-2")
    await rig.rest("then that one")


@controlled
async def ordered_down_while_two_that_go_are_not_ready(rig: ControllerRig) -> None:
    await rig.whole()
    await rig.write("a-1")
    await rig.write("a-2")
    await rig.settle()
    await rig.change(replicas=1)
    await rig.rest("the higher one waits for the lower one", has_steps=False)
    await rig.ready("a-1")
    await rig.rest("and goes once that is ready")


@controlled
async def ordered_to_none_and_back(rig: ControllerRig) -> None:
    await rig.whole()
    await rig.change(replicas=0)
    for pod in reversed(THREE):
        await rig.settle()
        await rig.end(pod)
    await rig.rest("none")
    await rig.change(replicas=2)
    await rig.rest("the first again")
    await rig.ready("a-0")
    await rig.rest("and the second")


@controlled
async def ordered_down_and_up_before_the_pod_is_gone(rig: ControllerRig) -> None:
    await rig.whole()
    await rig.change(replicas=2)
    await rig.rest("it terminates")
    await rig.change(replicas=4)
    await rig.rest("its end is waited for")
    await rig.end("a-2")
    await rig.rest("it comes again")


@controlled
async def parallel_down_and_up_before_the_pod_is_gone(rig: ControllerRig) -> None:
    await rig.whole(pods=PARALLEL)
    await rig.change(replicas=2)
    await rig.rest("it terminates")
    await rig.change(replicas=4)
    await rig.rest("the one above comes")
    await rig.end("a-2")
    await rig.rest("it comes again")


@controlled
async def down_while_the_pod_is_going_already(rig: ControllerRig) -> None:
    await rig.whole()
    await rig.remove("a-1")
    await rig.settle()
    await rig.change(replicas=2)
    await rig.rest("the highest waits for it")
    await rig.end("a-1")
    await rig.rest("which comes again before")
    await rig.ready("a-1")
    await rig.rest("then the highest goes")


@controlled
async def by_the_scale_subresource(rig: ControllerRig) -> None:
    await rig.whole(pods=PARALLEL)
    await rig.patch(STATEFULSETS, "a/scale", {"spec": {"replicas": 2}})
    await rig.rest("the highest goes")
    await rig.end("a-2")
    await rig.rest("two")


@controlled
async def up_after_a_new_template_on_delete(rig: ControllerRig) -> None:
    await rig.whole()
    await rig.version("2")
    await rig.settle()
    await rig.change(replicas=4)
    await rig.rest("the new pod has the new revision")


@controlled
async def up_with_a_new_template_at_once(rig: ControllerRig) -> None:
    await rig.whole(pods=PARALLEL)
    template = {"metadata": {"annotations": {"version": "2"}}}
    await rig.change(replicas=5, template=template)
    await rig.rest("both new ones have the new revision", has_steps=False)


@controlled
async def ordinals_that_begin_later_in_order(rig: ControllerRig) -> None:
    await rig.whole()
    await rig.change(ordinals={"start": 2})
    await rig.rest("the next above comes first")
    await rig.ready("a-3")
    await rig.rest("and the one after")
    await rig.ready("a-4")
    await rig.rest("then the highest below goes")
    await rig.end("a-1")
    await rig.rest("and the last")
    await rig.end("a-0")
    await rig.rest("three from two on")


@controlled
async def ordinals_that_begin_later_in_parallel(rig: ControllerRig) -> None:
    await rig.whole(pods=PARALLEL)
    await rig.change(ordinals={"start": 2})
    await rig.rest("all at once", has_steps=False)


@controlled
async def ordinals_that_begin_at_none_again(rig: ControllerRig) -> None:
    await rig.create(web(replicas=2, pods=PARALLEL, ordinals={"start": 1}))
    await rig.ready("a-1", "a-2")
    await rig.rest("one and two", has_steps=False)
    await rig.change(ordinals=None)
    await rig.rest("none comes, two goes", has_steps=False)


@controlled
async def up_and_down_by_themselves_in_parallel(rig: ControllerRig) -> None:
    await rig.create(web(replicas=1, image=QUICK, pods=PARALLEL))
    await rig.until_whole()
    await rig.change(replicas=6)
    await rig.until_whole()
    await rig.change(replicas=2)
    await rig.until_whole()
    await rig.rest("one, six, two")
