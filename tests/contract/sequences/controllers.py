"""The StatefulSet controller and the kubelet at work: what they leave behind."""

from rollout_operator.kube.api import PODS, STATEFULSETS
from rollout_operator.lab.model.request import ApiAnswer
from tests.contract.bodies import statefulset, tree
from tests.contract.plays import Needs, sequence
from tests.contract.world import World


def _is_whole(answer: ApiAnswer) -> bool:
    found = tree(answer)
    status, wanted = found.get("status", {}), found.get("spec", {}).get("replicas")
    is_seen = status.get("observedGeneration") == found["metadata"].get("generation")
    return bool(is_seen and status.get("availableReplicas") == wanted == status["replicas"])


@sequence(needs=Needs.CONTROLLERS)
async def a_set_gets_its_pods(world: World) -> None:
    await world.make(STATEFULSETS, statefulset("a", 2, podManagementPolicy="Parallel"))
    await world.until(STATEFULSETS, "a", _is_whole)
    for ordinal in range(2):
        with world.quietly():
            pod = tree(await world.get(PODS, f"a-{ordinal}"))
        metadata = pod["metadata"]
        world.note(
            f"pod {ordinal}",
            labels=sorted(metadata["labels"]),
            owner=metadata["ownerReferences"][0]["kind"],
            phase=pod["status"]["phase"],
        )


@sequence(needs=Needs.CONTROLLERS)
async def a_deleted_pod_comes_back(world: World) -> None:
    await world.make(STATEFULSETS, statefulset("a", 1))
    await world.until(STATEFULSETS, "a", _is_whole)
    with world.quietly():
        old = tree(await world.get(PODS, "a-0"))["metadata"]["uid"]
        await world.delete(PODS, "a-0")
    await world.until(PODS, "a-0", lambda answer: answer.is_ok and _uid(answer) != old)
    await world.until(STATEFULSETS, "a", _is_whole)


def _uid(answer: ApiAnswer) -> str:
    return str(tree(answer)["metadata"]["uid"])
