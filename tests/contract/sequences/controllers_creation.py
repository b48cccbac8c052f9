"""How the controller brings a new set's pods to life, and what they look like."""

from typing import Any

from rollout_operator.kube.api import JsonObject
from tests.contract.bodies import tree
from tests.contract.controllers_pods import PENDING, QUICK
from tests.contract.controllers_rig import ControllerRig, controlled
from tests.contract.controllers_sets import PARALLEL, web
from tests.contract.sides import PODS, REVISIONS


@controlled
async def ordered_pods_come_one_after_another(rig: ControllerRig) -> None:
    await rig.create(web())
    await rig.rest("one pod, not ready")
    for ordinal in range(3):
        await rig.ready(f"a-{ordinal}")
        await rig.rest(f"pod {ordinal} ready")


@controlled
async def parallel_pods_come_at_once(rig: ControllerRig) -> None:
    await rig.create(web(pods=PARALLEL))
    await rig.rest("all pods, none ready")
    for ordinal in (2, 0, 1):
        await rig.ready(f"a-{ordinal}")
        await rig.rest(f"pod {ordinal} ready")


@controlled
async def the_next_pod_waits_for_one_that_is_unready_again(rig: ControllerRig) -> None:
    await rig.create(web())
    await rig.ready("a-0", "a-1")
    await rig.settle()
    await rig.write("a-0")
    await rig.rest("pod 0 unready again, pod 2 not ready yet")
    await rig.ready("a-2")
    await rig.rest("pod 2 ready, pod 0 not")


@controlled
async def ordered_pods_from_another_ordinal_on(rig: ControllerRig) -> None:
    await rig.create(web(replicas=2, ordinals={"start": 5}))
    await rig.rest("the first")
    await rig.ready("a-5", "a-6")
    await rig.rest("both")


@controlled
async def many_parallel_pods(rig: ControllerRig) -> None:
    await rig.create(web(replicas=9, pods=PARALLEL))
    await rig.rest("all nine")


@controlled
async def sets_beside_each_other_by_themselves(rig: ControllerRig) -> None:
    await rig.create(web("a", image=QUICK))
    await rig.create(web("b", image=QUICK, pods=PARALLEL))
    await rig.create(web("c", image=QUICK, strategy="RollingUpdate"))
    for name in "abc":
        await rig.until_whole(name)
    await rig.rest("all whole")


@controlled
async def two_sets_with_the_same_selector(rig: ControllerRig) -> None:
    second = web("b", replicas=1)
    _spec(second)["selector"] = {"matchLabels": {"name": "a"}}
    _spec(second)["template"]["metadata"]["labels"] = {"name": "a"}
    await rig.create(web("a", replicas=1))
    await rig.rest("one alone")
    await rig.create(second)
    await rig.rest("each has its own pod")


@controlled
async def one_name_that_begins_with_the_other(rig: ControllerRig) -> None:
    first = web("a", replicas=1)
    second = web("a-0", replicas=1)
    for body in (first, second):
        _spec(body)["selector"] = {"matchLabels": {"name": "x"}}
        _spec(body)["template"]["metadata"]["labels"] = {"name": "x"}
    await rig.create(first)
    await rig.settle()
    await rig.create(second)
    await rig.rest("a-0 and a-0-0")


@controlled
async def all_that_a_pod_says_of_its_set(rig: ControllerRig) -> None:
    body = web(replicas=1, image=PENDING, ordinals={"start": 3})
    template = _spec(body)["template"]
    template["metadata"]["labels"]["tier"] = "db"
    template["metadata"]["finalizers"] = ["x.org/a"]
    template["spec"]["hostname"] = "other"
    await rig.create(body)
    await _show_pod(rig, "a-3")
    await rig.rest("no node for it")
    # so that it can go in the end
    await rig.patch(PODS, "a-3", {"metadata": {"finalizers": None}})


@controlled
async def a_pod_without_a_service(rig: ControllerRig) -> None:
    body = web(replicas=1, image=PENDING)
    del _spec(body)["serviceName"]
    await rig.create(body)
    await _show_pod(rig, "a-0")


@controlled
async def all_that_a_revision_keeps(rig: ControllerRig) -> None:
    body = web(replicas=0)
    body["metadata"] = {"name": "a", "annotations": {"x.org/note": "kept"}, "labels": {"x": "y"}}
    await rig.create(body)
    await rig.rest("nothing but its revision")
    (name,) = rig.seen.revisions
    with rig.world.quietly():
        found = tree(await rig.world.get(REVISIONS, name))
    metadata = found["metadata"]
    (reference,) = metadata["ownerReferences"]
    rig.world.record(
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


async def _show_pod(rig: ControllerRig, name: str) -> None:
    await rig.until(f"{name} there", lambda: name in rig.seen.pods)
    with rig.world.quietly():
        pod = tree(await rig.world.get(PODS, name))
    metadata = pod["metadata"]
    revision = metadata["labels"].pop("controller-revision-hash")
    await rig.settle()
    rig.world.record(
        "the pod",
        revision=rig.seen.call_revision(revision),
        metadata=metadata,
        spec={key: value for key, value in pod["spec"].items() if key != "nodeName"},
    )


def _spec(body: JsonObject) -> Any:
    return body["spec"]
