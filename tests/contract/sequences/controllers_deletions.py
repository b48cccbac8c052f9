"""Pods that a client deletes: when their successors come, and which are left alone."""

from typing import Any

from rollout_operator.kube.api import STATEFULSETS
from tests.contract.bodies import eviction
from tests.contract.controllers_pods import PENDING
from tests.contract.controllers_rig import ControllerRig, controlled
from tests.contract.controllers_seen import is_going
from tests.contract.controllers_sets import PARALLEL, THREE, web
from tests.contract.sides import PODS


@controlled
async def the_lowest_in_order(rig: ControllerRig) -> None:
    await rig.whole()
    await rig.remove("a-0")
    await _goes_and_comes(rig, "a-0")
    await rig.ready("a-0")
    await rig.rest("whole")


@controlled
async def one_in_parallel(rig: ControllerRig) -> None:
    await rig.whole(pods=PARALLEL)
    await rig.remove("a-1")
    await _goes_and_comes(rig, "a-1")
    await rig.ready("a-1")
    await rig.rest("whole")


@controlled
async def two_in_order(rig: ControllerRig) -> None:
    await rig.whole()
    await rig.remove("a-0", "a-2")
    await rig.settle()
    await rig.end("a-2")
    await rig.rest("the higher one waits for the lower one", has_steps=False)
    await rig.end("a-0")
    await rig.rest("which comes first")
    await rig.ready("a-0")
    await rig.rest("then the higher one")


@controlled
async def two_in_parallel(rig: ControllerRig) -> None:
    await rig.whole(pods=PARALLEL)
    await rig.remove("a-0", "a-2")
    await rig.settle()
    await rig.end("a-2")
    await rig.rest("the first that is gone comes first", has_steps=False)
    await rig.end("a-0")
    await rig.rest("then the other")


@controlled
async def without_grace(rig: ControllerRig) -> None:
    await rig.whole()
    await rig.end("a-1")
    # Whether the controller still sees it going is chance.
    await rig.rest("it is made anew at once", has_steps=False)


@controlled
async def one_that_stops_being_ready_while_it_goes(rig: ControllerRig) -> None:
    await rig.whole()
    await rig.remove("a-2")
    await rig.rest("it is going, and counts as ready")
    await rig.write("a-2")
    await rig.rest("not any more")
    await rig.write("a-2", phase="Succeeded")
    await rig.rest("its containers have ended")
    await rig.end("a-2")
    await rig.rest("it is made anew")


@controlled
async def one_that_has_no_node(rig: ControllerRig) -> None:
    await rig.create(web(replicas=1, image=PENDING))
    await rig.until("there", lambda: "a-0" in rig.seen.pods)
    uid = rig.seen.pods["a-0"]["metadata"]["uid"]
    await rig.remove("a-0")
    await rig.until("another", lambda: _is_another(rig, "a-0", uid))
    await rig.rest("it went at once")


@controlled
async def one_that_a_finalizer_keeps(rig: ControllerRig) -> None:
    await rig.whole()
    await _finalizers(rig, "a-1", ["x.org/a"])
    await rig.delete(PODS, "a-1", gracePeriodSeconds=0)
    await rig.until("going", lambda: is_going(rig.seen.pods["a-1"]))
    await rig.rest("it is kept")
    await rig.write("a-1")
    await rig.rest("not ready any more")
    await _finalizers(rig, "a-1", None)
    await rig.until("gone", lambda: "finalizers" not in _metadata(rig, "a-1"))
    await rig.rest("it is made anew")


@controlled
async def one_that_is_evicted(rig: ControllerRig) -> None:
    await rig.whole()
    await rig.make(PODS, eviction("a-2"), "a-2/eviction")
    await _goes_and_comes(rig, "a-2")


@controlled
async def one_while_the_one_below_is_not_ready(rig: ControllerRig) -> None:
    await rig.whole()
    await rig.write("a-0")
    await rig.settle()
    await rig.remove("a-1")
    await rig.settle()
    await rig.end("a-1")
    await rig.rest("it does not come")
    await rig.ready("a-0")
    await rig.rest("now it does")


@controlled
async def one_of_a_set_without_replicas(rig: ControllerRig) -> None:
    await rig.whole(pods=PARALLEL)
    await rig.remove("a-1")
    await rig.settle()
    await rig.change(replicas=0)
    await rig.rest("all are going", has_steps=False)
    await rig.end(*THREE)
    await rig.rest("none", has_steps=False)
    await rig.world.get(STATEFULSETS, "a/scale")


async def _goes_and_comes(rig: ControllerRig, name: str) -> None:
    await rig.rest("it is going")
    await rig.end(name)
    await rig.rest("it is made anew")


def _is_another(rig: ControllerRig, name: str, uid: str) -> bool:
    return name in rig.seen.pods and bool(_metadata(rig, name)["uid"] != uid)


def _metadata(rig: ControllerRig, name: str) -> Any:
    return rig.seen.pods[name]["metadata"] if name in rig.seen.pods else {}


async def _finalizers(rig: ControllerRig, name: str, finalizers: list[str] | None) -> None:
    await rig.patch(PODS, name, {"metadata": {"finalizers": finalizers}})
