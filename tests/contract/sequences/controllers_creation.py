"""How the controller brings a new set's pods to life, and what they look like."""

from typing import Any

from rollout_operator.kube.api import JsonObject
from tests.contract.bodies import tree
from tests.contract.controllers_pods import PENDING, QUICK
from tests.contract.controllers_scene import Scene, controlled
from tests.contract.controllers_sets import PARALLEL, web
from tests.contract.sides import PODS, REVISIONS


@controlled
async def ordered_pods_come_one_after_another(scene: Scene) -> None:
    await scene.create(web())
    await scene.rest("one pod, not ready")
    for ordinal in range(3):
        await scene.ready(f"a-{ordinal}")
        await scene.rest(f"pod {ordinal} ready")


@controlled
async def parallel_pods_come_at_once(scene: Scene) -> None:
    await scene.create(web(pods=PARALLEL))
    await scene.rest("all pods, none ready")
    for ordinal in (2, 0, 1):
        await scene.ready(f"a-{ordinal}")
        await scene.rest(f"pod {ordinal} ready")


@controlled
async def the_next_pod_waits_for_one_that_is_unready_again(scene: Scene) -> None:
    await scene.create(web())
    await scene.ready("a-0", "a-1")
    await scene.settle()
    await scene.write("a-0")
    await scene.rest("pod 0 unready again, pod 2 not ready yet")
    await scene.ready("a-2")
    await scene.rest("pod 2 ready, pod 0 not")


@controlled
async def ordered_pods_from_another_ordinal_on(scene: Scene) -> None:
    await scene.create(web(replicas=2, ordinals={"start": 5}))
    await scene.rest("the first")
    await scene.ready("a-5", "a-6")
    await scene.rest("both")


@controlled
async def many_parallel_pods(scene: Scene) -> None:
    await scene.create(web(replicas=9, pods=PARALLEL))
    await scene.rest("all nine")


@controlled
async def sets_beside_each_other_by_themselves(scene: Scene) -> None:
    await scene.create(web("a", image=QUICK))
    await scene.create(web("b", image=QUICK, pods=PARALLEL))
    await scene.create(web("c", image=QUICK, strategy="RollingUpdate"))
    for name in "abc":
        await scene.until_whole(name)
    await scene.rest("all whole")


@controlled
async def two_sets_with_the_same_selector(scene: Scene) -> None:
    second = web("b", replicas=1)
    _spec(second)["selector"] = {"matchLabels": {"name": "a"}}
    _spec(second)["template"]["metadata"]["labels"] = {"name": "a"}
    await scene.create(web("a", replicas=1))
    await scene.rest("one alone")
    await scene.create(second)
    await scene.rest("each has its own pod")


@controlled
async def one_name_that_begins_with_the_other(scene: Scene) -> None:
    first = web("a", replicas=1)
    second = web("a-0", replicas=1)
    for body in (first, second):
        _spec(body)["selector"] = {"matchLabels": {"name": "x"}}
        _spec(body)["template"]["metadata"]["labels"] = {"name": "x"}
    await scene.create(first)
    await scene.settle()
    await scene.create(second)
    await scene.rest("a-0 and a-0-0")


@controlled
async def all_that_a_pod_says_of_its_set(scene: Scene) -> None:
    body = web(replicas=1, image=PENDING, ordinals={"start": 3})
    template = _spec(body)["template"]
    template["metadata"]["labels"]["tier"] = "db"
    template["metadata"]["finalizers"] = ["x.org/a"]
    template["spec"]["hostname"] = "other"
    await scene.create(body)
    await _show_pod(scene, "a-3")
    await scene.rest("no node for it")
    # so that it can go in the end
    await scene.patch(PODS, "a-3", {"metadata": {"finalizers": None}})


@controlled
async def a_pod_without_a_service(scene: Scene) -> None:
    body = web(replicas=1, image=PENDING)
    del _spec(body)["serviceName"]
    await scene.create(body)
    await _show_pod(scene, "a-0")


@controlled
async def all_that_a_revision_keeps(scene: Scene) -> None:
    body = web(replicas=0)
    body["metadata"] = {"name": "a", "annotations": {"x.org/note": "kept"}, "labels": {"x": "y"}}
    await scene.create(body)
    await scene.rest("nothing but its revision")
    (name,) = scene.seen.revisions
    with scene.world.quietly():
        found = tree(await scene.world.get(REVISIONS, name))
    metadata = found["metadata"]
    (reference,) = metadata["ownerReferences"]
    scene.world.record(
        "the revision",
        annotations=metadata["annotations"],
        labels=sorted(metadata["labels"]),
        has_hash_in_name=name == f"a-{metadata['labels']['controller.kubernetes.io/hash']}",
        owner={key: value for key, value in reference.items() if key != "uid"},
        number=found["revision"],
        directive=found["data"]["spec"]["template"]["$patch"],
        kept=sorted(found["data"]["spec"]),
        template=found["data"]["spec"]["template"]["metadata"],
    )


async def _show_pod(scene: Scene, name: str) -> None:
    await scene.until(f"{name} there", lambda: name in scene.seen.pods)
    with scene.world.quietly():
        pod = tree(await scene.world.get(PODS, name))
    metadata = pod["metadata"]
    revision = metadata["labels"].pop("controller-revision-hash")
    await scene.settle()
    scene.world.record(
        "the pod",
        revision=scene.seen.call_revision(revision),
        metadata=metadata,
        spec={key: value for key, value in pod["spec"].items() if key != "nodeName"},
    )


def _spec(body: JsonObject) -> Any:
    return body["spec"]
