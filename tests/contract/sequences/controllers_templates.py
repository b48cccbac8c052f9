"""New and old templates under OnDelete: revisions, and what the status counts."""

from rollout_operator.kube.api import STATEFULSETS
from tests.contract.controllers_rig import ControllerRig, controlled
from tests.contract.controllers_sets import PARALLEL, THREE, web


@controlled
async def on_delete_pods_move_as_they_are_deleted(rig: ControllerRig) -> None:
    await rig.whole()
    await rig.version("2")
    await rig.rest("a new revision, the same pods")
    for pod in ("a-1", "a-2", "a-0"):
        await rig.replace(pod)
        await rig.rest(f"{pod} replaced")


@controlled
async def on_delete_in_parallel(rig: ControllerRig) -> None:
    await rig.whole(pods=PARALLEL)
    await rig.version("2")
    await rig.settle()
    await rig.remove(*THREE)
    await rig.rest("all are going", has_steps=False)
    await rig.end(*THREE)
    await rig.rest("all are made anew", has_steps=False)
    await rig.ready(*THREE)
    await rig.rest("whole, and the current revision is still the old one")


@controlled
async def on_delete_a_third_template(rig: ControllerRig) -> None:
    await rig.whole()
    for version in ("2", "3"):
        await rig.version(version)
        await rig.settle()
        await rig.replace("a-2")
    await rig.rest("one pod of the third, none of the second")
    await rig.replace("a-1", "a-0")
    await rig.rest("all of the third")


@controlled
async def on_delete_back_before_a_pod_has_moved(rig: ControllerRig) -> None:
    await rig.whole()
    await rig.version("2")
    await rig.rest("forth")
    await rig.version("1")
    await rig.rest("and back: the old revision with a new number")


@controlled
async def on_delete_back_in_the_middle(rig: ControllerRig) -> None:
    await rig.whole()
    await rig.version("2")
    await rig.settle()
    await rig.replace("a-2")
    await rig.version("1")
    await rig.rest("back: one pod is outdated")
    await rig.replace("a-2")
    await rig.rest("whole as before")


@controlled
async def on_delete_back_after_all_have_moved(rig: ControllerRig) -> None:
    await rig.whole(pods=PARALLEL)
    await rig.version("2")
    await rig.settle()
    await rig.replace(*THREE)
    await rig.version("1")
    await rig.rest("back: all pods are outdated")
    await rig.replace("a-0")
    await rig.rest("one is back")
    await rig.version("2")
    await rig.rest("and forth again")


@controlled
async def on_delete_two_templates_in_a_row(rig: ControllerRig) -> None:
    await rig.whole()
    await rig.version("2")
    await rig.version("3")
    await rig.settle()
    # Whether the controller has seen the one between is chance.
    sts = rig.seen.sets["a"]["status"]
    rig.world.record("revisions", are_equal=sts["currentRevision"] == sts["updateRevision"])


@controlled
async def on_delete_the_current_revision_written_by_another(rig: ControllerRig) -> None:
    await rig.whole()
    await rig.version("2")
    await rig.settle()
    await rig.replace("a-2")
    await rig.rest("one moved")
    update = rig.seen.sets["a"]["status"]["updateRevision"]
    await rig.patch(STATEFULSETS, "a/status", {"status": {"currentRevision": update}})
    await rig.rest("the current revision is the new one now", has_steps=False)
    await rig.replace("a-1", "a-0")
    await rig.rest("whole")


@controlled
async def on_delete_without_pods(rig: ControllerRig) -> None:
    await rig.create(web(replicas=0))
    await rig.settle()
    await rig.version("2")
    await rig.rest("another revision")
    await rig.change(replicas=1)
    await rig.rest("the pod has it")


@controlled
async def on_delete_while_a_pod_is_going(rig: ControllerRig) -> None:
    await rig.whole()
    await rig.remove("a-1")
    await rig.settle()
    await rig.version("2")
    await rig.rest("it is going still")
    await rig.end("a-1")
    await rig.rest("the new one has the new revision")


@controlled
async def on_delete_while_a_pod_is_not_ready(rig: ControllerRig) -> None:
    await rig.whole()
    await rig.write("a-1")
    await rig.settle()
    await rig.version("2")
    await rig.rest("nothing moves")
    await rig.remove("a-2")
    await rig.settle()
    await rig.end("a-2")
    await rig.rest("in order, a higher one does not come before it is ready")
    await rig.ready("a-1")
    await rig.rest("then it comes")


@controlled
async def on_delete_labels_of_the_template(rig: ControllerRig) -> None:
    await rig.whole()
    await rig.change(template={"metadata": {"labels": {"tier": "db"}}})
    await rig.settle()
    await rig.replace("a-2")
    await rig.rest("one replaced")
    labels = {name: pod["metadata"]["labels"].get("tier") for name, pod in rig.seen.pods.items()}
    rig.world.record("labels", tier=dict(sorted(labels.items())))


@controlled
async def what_makes_no_revision(rig: ControllerRig) -> None:
    await rig.whole()
    both = {"labels": {"x": "y"}, "annotations": {"x.org/x": "y"}}
    await rig.patch(STATEFULSETS, "a", {"metadata": both})
    await rig.change(minReadySeconds=0, revisionHistoryLimit=5, replicas=3)
    await rig.rest("as before")


@controlled
async def revisions_beyond_the_limit(rig: ControllerRig) -> None:
    await rig.create(web(replicas=0, revisionHistoryLimit=1))
    await rig.settle()
    for version in ("2", "3", "4"):
        await rig.version(version)
        await rig.rest(f"version {version}")


@controlled
async def no_revisions_kept(rig: ControllerRig) -> None:
    await rig.create(web(replicas=1, revisionHistoryLimit=0))
    await rig.ready("a-0")
    for version in ("2", "3", "4"):
        await rig.version(version)
        await rig.settle()
    await rig.rest("those in use stay", has_steps=False)
    await rig.replace("a-0")
    await rig.rest("and so does the current one")
