"""Pods in trouble, and pods that must be ready for a while before they count."""

from typing import Any

from tests.contract import controllers_pods as pods
from tests.contract.controllers_scene import Scene, controlled, staged
from tests.contract.controllers_sets import ORDERED, PARALLEL, THREE, web
from tests.contract.plays import Needs, Play, add_each


@controlled
async def failed_in_order(scene: Scene) -> None:
    await scene.whole()
    await scene.write("a-1", phase="Failed")
    await _made_anew(scene, "a-1", "it goes without grace, and is made anew")


@controlled
async def failed_above_one_that_is_not_ready(scene: Scene) -> None:
    await scene.whole()
    await scene.write("a-0")
    await scene.settle()
    await scene.write("a-2", phase="Failed")
    await scene.rest("in order, it stays")
    await scene.ready("a-0")
    await _made_anew(scene, "a-2", "then it goes")


@controlled
async def failed_while_it_goes(scene: Scene) -> None:
    await scene.whole()
    await scene.remove("a-1")
    await scene.settle()
    await scene.write("a-1", phase="Failed")
    await scene.rest("it is told nothing more")
    await scene.end("a-1")
    await scene.rest("it is made anew")


@controlled
async def failed_and_outdated(scene: Scene) -> None:
    await scene.whole()
    await scene.version("2")
    await scene.settle()
    await scene.write("a-1", phase="Failed")
    await _made_anew(scene, "a-1", "it comes with the new revision")


@controlled
async def failed_and_not_wanted(scene: Scene) -> None:
    await scene.whole()
    await scene.change(replicas=2)
    await scene.settle()
    await scene.write("a-2", phase="Failed")
    await scene.rest("it is going still")
    await scene.end("a-2")
    await scene.rest("two")


@controlled
async def succeeded(scene: Scene) -> None:
    await scene.whole()
    await scene.write("a-2", phase="Succeeded")
    await _made_anew(scene, "a-2", "it goes too, and is made anew")


@controlled
async def ready_without_running(scene: Scene) -> None:
    await scene.whole()
    for phase in ("Pending", "Unknown"):
        await scene.write("a-2", is_ready=True, phase=phase)
        await scene.rest("it does not count as ready")


async def _made_anew(scene: Scene, name: str, title: str) -> None:
    """Wait for the second pod of a name; how it came is chance."""
    await scene.until(f"{name} anew", lambda: scene.seen.count_lives(name) == 2)
    await scene.rest(title, has_steps=False)


def _in_trouble(image: str, policy: str, number: int) -> Play:
    """Return a sequence of a set whose pods are in trouble of their own."""

    async def play(scene: Scene) -> None:
        await scene.create(web(image=image, pods=policy))
        await scene.until(f"{number} made", lambda: len(scene.seen.pods) == number)
        await scene.until("in trouble", lambda: all(map(_shows_it, scene.seen.pods.values())))
        await scene.rest("none ready")

    return staged(play)


def _shows_it(pod: Any) -> bool:
    """Tell whether a pod has got as far as it ever will."""
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
async def failing_again_and_again_until_mended(scene: Scene) -> None:
    await scene.create(web(replicas=1, image=pods.FAILING))
    seen: list[str] = []
    for _ in range(3):  # how many there are in the end is chance
        await scene.until("another one", lambda: _uid(scene) not in ("", *seen))
        seen.append(_uid(scene))
    await scene.change(template=_image(pods.QUICK))
    await scene.until_rolled()
    await scene.settle()
    scene.world.record("whole", sets=scene.seen.describe_sets())


# Ready long enough


@controlled
async def not_long_enough_in_order(scene: Scene) -> None:
    await scene.create(web(minReadySeconds=3600))
    await scene.ready("a-0")
    await scene.rest("ready, not available: the next does not come")
    await scene.change(minReadySeconds=0)
    await scene.rest("now it does")


@controlled
async def not_long_enough_in_parallel(scene: Scene) -> None:
    await scene.create(web(pods=PARALLEL, minReadySeconds=3600))
    await scene.ready(*THREE)
    await scene.rest("three ready, none available", has_steps=False)
    await scene.change(minReadySeconds=0)
    await scene.rest("three available")
    await scene.change(minReadySeconds=3600)
    await scene.rest("none")


@controlled
async def not_long_enough_to_scale_down(scene: Scene) -> None:
    await scene.whole()
    await scene.change(minReadySeconds=3600)
    await scene.settle()
    await scene.change(replicas=1)
    await scene.rest("nobody goes")
    await scene.change(minReadySeconds=0)
    await scene.rest("the highest goes")


@controlled
async def not_long_enough_to_roll_on(scene: Scene) -> None:
    await scene.whole(strategy="RollingUpdate", pods=PARALLEL)
    await scene.change(minReadySeconds=3600)
    await scene.settle()
    await scene.version("2")
    await scene.rest("the highest goes")
    await scene.renew("a-2")
    await scene.rest("and no other")
    await scene.change(minReadySeconds=0)
    await scene.rest("the next goes")


@controlled
async def long_enough_in_parallel(scene: Scene) -> None:
    await scene.create(web(image=pods.QUICK, pods=PARALLEL, minReadySeconds=2))
    await scene.until_whole()
    await scene.rest("all available")


@controlled
async def long_enough_after_a_while_of_not(scene: Scene) -> None:
    await scene.create(web(replicas=1, minReadySeconds=2))
    await scene.ready("a-0")
    await scene.write("a-0")
    await scene.settle()
    await scene.write("a-0", is_ready=True)
    await scene.until_whole()
    await scene.rest("available", has_steps=False)


def _uid(scene: Scene) -> str:
    found = scene.seen.pods.get("a-0")
    return "" if found is None else str(found["metadata"]["uid"])


def _image(image: str) -> Any:
    return {"spec": {"containers": [{"name": "app", "image": image}]}}
