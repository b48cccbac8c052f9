"""Pods that somebody deletes: when their successors come, and who is left alone."""

from typing import Any

from rollout_operator.kube.api import STATEFULSETS
from tests.contract.bodies import eviction
from tests.contract.controllers_pods import PENDING
from tests.contract.controllers_scene import Scene, controlled
from tests.contract.controllers_seen import is_going
from tests.contract.controllers_sets import PARALLEL, THREE, web
from tests.contract.sides import PODS


@controlled
async def the_lowest_in_order(scene: Scene) -> None:
    await scene.whole()
    await scene.remove("a-0")
    await _goes_and_comes(scene, "a-0")
    await scene.ready("a-0")
    await scene.rest("whole")


@controlled
async def one_in_parallel(scene: Scene) -> None:
    await scene.whole(pods=PARALLEL)
    await scene.remove("a-1")
    await _goes_and_comes(scene, "a-1")
    await scene.ready("a-1")
    await scene.rest("whole")


@controlled
async def two_in_order(scene: Scene) -> None:
    await scene.whole()
    await scene.remove("a-0", "a-2")
    await scene.settle()
    await scene.end("a-2")
    await scene.rest("the higher one waits for the lower one", has_steps=False)
    await scene.end("a-0")
    await scene.rest("which comes first")
    await scene.ready("a-0")
    await scene.rest("then the higher one")


@controlled
async def two_in_parallel(scene: Scene) -> None:
    await scene.whole(pods=PARALLEL)
    await scene.remove("a-0", "a-2")
    await scene.settle()
    await scene.end("a-2")
    await scene.rest("the first that is gone comes first", has_steps=False)
    await scene.end("a-0")
    await scene.rest("then the other")


@controlled
async def without_grace(scene: Scene) -> None:
    await scene.whole()
    await scene.end("a-1")
    # Whether the controller still sees it going is chance.
    await scene.rest("it is made anew at once", has_steps=False)


@controlled
async def one_that_stops_being_ready_while_it_goes(scene: Scene) -> None:
    await scene.whole()
    await scene.remove("a-2")
    await scene.rest("it is going, and counts as ready")
    await scene.write("a-2")
    await scene.rest("not any more")
    await scene.write("a-2", phase="Succeeded")
    await scene.rest("its containers have ended")
    await scene.end("a-2")
    await scene.rest("it is made anew")


@controlled
async def one_that_has_no_node(scene: Scene) -> None:
    await scene.create(web(replicas=1, image=PENDING))
    await scene.until("there", lambda: "a-0" in scene.seen.pods)
    uid = scene.seen.pods["a-0"]["metadata"]["uid"]
    await scene.remove("a-0")
    await scene.until("another", lambda: _is_another(scene, "a-0", uid))
    await scene.rest("it went at once")


@controlled
async def one_that_a_finalizer_keeps(scene: Scene) -> None:
    await scene.whole()
    await _finalizers(scene, "a-1", ["x.org/a"])
    await scene.delete(PODS, "a-1", gracePeriodSeconds=0)
    await scene.until("going", lambda: is_going(scene.seen.pods["a-1"]))
    await scene.rest("it is kept")
    await scene.write("a-1")
    await scene.rest("not ready any more")
    await _finalizers(scene, "a-1", None)
    await scene.until("gone", lambda: "finalizers" not in _metadata(scene, "a-1"))
    await scene.rest("it is made anew")


@controlled
async def one_that_is_evicted(scene: Scene) -> None:
    await scene.whole()
    await scene.make(PODS, eviction("a-2"), "a-2/eviction")
    await _goes_and_comes(scene, "a-2")


@controlled
async def one_while_the_one_below_is_not_ready(scene: Scene) -> None:
    await scene.whole()
    await scene.write("a-0")
    await scene.settle()
    await scene.remove("a-1")
    await scene.settle()
    await scene.end("a-1")
    await scene.rest("it does not come")
    await scene.ready("a-0")
    await scene.rest("now it does")


@controlled
async def one_of_a_set_without_replicas(scene: Scene) -> None:
    await scene.whole(pods=PARALLEL)
    await scene.remove("a-1")
    await scene.settle()
    await scene.change(replicas=0)
    await scene.rest("all are going", has_steps=False)
    await scene.end(*THREE)
    await scene.rest("none", has_steps=False)
    await scene.world.get(STATEFULSETS, "a/scale")


async def _goes_and_comes(scene: Scene, name: str) -> None:
    await scene.rest("it is going")
    await scene.end(name)
    await scene.rest("it is made anew")


def _is_another(scene: Scene, name: str, uid: str) -> bool:
    return name in scene.seen.pods and bool(_metadata(scene, name)["uid"] != uid)


def _metadata(scene: Scene, name: str) -> Any:
    return scene.seen.pods[name]["metadata"] if name in scene.seen.pods else {}


async def _finalizers(scene: Scene, name: str, finalizers: list[str] | None) -> None:
    await scene.patch(PODS, name, {"metadata": {"finalizers": finalizers}})
