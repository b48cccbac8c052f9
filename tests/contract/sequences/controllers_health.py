"""Pods in trouble, and pods that must be ready for a while before they count."""

from typing import Any

from tests.contract import controllers_pods as pods
from tests.contract.controllers_rig import ControllerRig, controlled, staged
from tests.contract.controllers_sets import ORDERED, PARALLEL, THREE, web
from tests.contract.plays import Needs, Play, add_each


@controlled
async def failed_in_order(rig: ControllerRig) -> None:
    await rig.whole()
    await rig.write("a-1", phase="Failed")
    await _made_anew(rig, "a-1", "it goes without grace, and is made anew")


@controlled
async def failed_above_one_that_is_not_ready(rig: ControllerRig) -> None:
    await rig.whole()
    await rig.write("a-0")
    await rig.settle()
    await rig.write("a-2", phase="Failed")
    await rig.rest("in order, it stays")
    await rig.ready("a-0")
    await _made_anew(rig, "a-2", "then it goes")


@controlled
async def failed_while_it_goes(rig: ControllerRig) -> None:
    await rig.whole()
    await rig.remove("a-1")
    await rig.settle()
    await rig.write("a-1", phase="Failed")
    await rig.rest("it is sent nothing more")
    await rig.end("a-1")
    await rig.rest("it is made anew")


@controlled
async def failed_and_outdated(rig: ControllerRig) -> None:
    await rig.whole()
    await rig.version("2")
    await rig.settle()
    await rig.write("a-1", phase="Failed")
    await _made_anew(rig, "a-1", "it comes with the new revision")


@controlled
async def failed_and_not_wanted(rig: ControllerRig) -> None:
    await rig.whole()
    await rig.change(replicas=2)
    await rig.settle()
    await rig.write("a-2", phase="Failed")
    await rig.rest("it is going still")
    await rig.end("a-2")
    await rig.rest("two")


@controlled
async def succeeded(rig: ControllerRig) -> None:
    await rig.whole()
    await rig.write("a-2", phase="Succeeded")
    await _made_anew(rig, "a-2", "it goes too, and is made anew")


@controlled
async def ready_without_running(rig: ControllerRig) -> None:
    await rig.whole()
    for phase in ("Pending", "Unknown"):
        await rig.write("a-2", is_ready=True, phase=phase)
        await rig.rest("it does not count as ready")


async def _made_anew(rig: ControllerRig, name: str, title: str) -> None:
    """Wait for the second pod of a name; how it came is chance."""
    await rig.until(f"{name} anew", lambda: rig.seen.count_lives(name) == 2)
    await rig.rest(title, has_steps=False)


def _in_trouble(image: str, policy: str, number: int) -> Play:
    """Return a sequence of a set whose pods are in trouble of their own."""

    async def play(rig: ControllerRig) -> None:
        await rig.create(web(image=image, pods=policy))
        await rig.until(f"{number} made", lambda: len(rig.seen.pods) == number)
        await rig.until("in trouble", lambda: all(map(_shows_it, rig.seen.pods.values())))
        await rig.rest("none ready")

    return staged(play)


def _shows_it(pod: Any) -> bool:
    """Return whether a pod has got as far as it ever will."""
    image = pod["spec"]["containers"][0]["image"]
    conditions = {one["type"]: one["status"] for one in pod["status"].get("conditions", ())}
    states = [one["state"] for one in pod["status"].get("containerStatuses", ())]
    match image:
        case pods.PENDING:
            return True
        case pods.CRASHING:
            return any(
                "waiting" in state and pod["status"]["phase"] == "Running" for state in states
            )
        case pods.GATED:
            return conditions.get("ContainersReady") == "True"
        case pods.CLAIMING:
            return conditions.get("Ready") == "True"
        case _:
            return bool(pod["status"].get("phase") == "Running")


add_each(
    (
        ("never_ready_in_order", _in_trouble(pods.NEVER_READY, ORDERED, 1)),
        ("crashing_in_parallel", _in_trouble(pods.CRASHING, PARALLEL, 3)),
        ("held_back_by_a_gate", _in_trouble(pods.GATED, PARALLEL, 3)),
        ("ready_without_proof_in_order", _in_trouble(pods.CLAIMING, ORDERED, 3)),
        ("without_a_node_in_order", _in_trouble(pods.PENDING, ORDERED, 1)),
    ),
    "controllers_health",
    Needs.CONTROLLERS,
)


@controlled
async def failing_again_and_again_until_mended(rig: ControllerRig) -> None:
    await rig.create(web(replicas=1, image=pods.FAILING))
    seen: list[str] = []
    for _ in range(3):  # how many there are in the end is chance
        await rig.until("another one", lambda: _uid(rig) not in ("", *seen))
        seen.append(_uid(rig))
    await rig.change(template=_image(pods.QUICK))
    await rig.until_rolled()
    await rig.settle()
    rig.world.record("whole", sets=rig.seen.describe_sets())


# Ready long enough


@controlled
async def not_long_enough_in_order(rig: ControllerRig) -> None:
    await rig.create(web(minReadySeconds=3600))
    await rig.ready("a-0")
    await rig.rest("ready, not available: the next does not come")
    await rig.change(minReadySeconds=0)
    await rig.rest("now it does")


@controlled
async def not_long_enough_in_parallel(rig: ControllerRig) -> None:
    await rig.create(web(pods=PARALLEL, minReadySeconds=3600))
    await rig.ready(*THREE)
    await rig.rest("three ready, none available", has_steps=False)
    await rig.change(minReadySeconds=0)
    await rig.rest("three available")
    await rig.change(minReadySeconds=3600)
    await rig.rest("none")


@controlled
async def not_long_enough_to_scale_down(rig: ControllerRig) -> None:
    await rig.whole()
    await rig.change(minReadySeconds=3600)
    await rig.settle()
    await rig.change(replicas=1)
    await rig.rest("none goes")
    await rig.change(minReadySeconds=0)
    await rig.rest("the highest goes")


@controlled
async def not_long_enough_to_roll_on(rig: ControllerRig) -> None:
    await rig.whole(strategy="RollingUpdate", pods=PARALLEL)
    await rig.change(minReadySeconds=3600)
    await rig.settle()
    await rig.version("2")
    await rig.rest("all go: none of them counts as up")
    await rig.renew("a-2")
    await rig.rest("it does not count as up either")
    await rig.change(minReadySeconds=0)
    await rig.rest("the others are going still")


@controlled
async def long_enough_in_parallel(rig: ControllerRig) -> None:
    await rig.create(web(image=pods.QUICK, pods=PARALLEL, minReadySeconds=2))
    await rig.until_whole()
    await rig.rest("all available")


@controlled
async def long_enough_after_a_while_of_not(rig: ControllerRig) -> None:
    await rig.create(web(replicas=1, minReadySeconds=2))
    await rig.ready("a-0")
    await rig.write("a-0")
    await rig.settle()
    await rig.write("a-0", is_ready=True)
    await rig.until_whole()
    await rig.rest("available", has_steps=False)


def _uid(rig: ControllerRig) -> str:
    found = rig.seen.pods.get("a-0")
    return "" if found is None else str(found["metadata"]["uid"])


def _image(image: str) -> Any:
    return {"spec": {"containers": [{"name": "app", "image": image}]}}
