"""New and old templates under OnDelete: revisions, and what the status counts."""

from rollout_operator.kube.api import STATEFULSETS
from tests.contract.controllers_scene import Scene, controlled
from tests.contract.controllers_sets import PARALLEL, THREE, web


@controlled
async def on_delete_pods_move_as_they_are_deleted(scene: Scene) -> None:
    await scene.whole()
    await scene.version("2")
    await scene.rest("a new revision, the same pods")
    for pod in ("a-1", "a-2", "a-0"):
        await scene.replace(pod)
        await scene.rest(f"{pod} replaced")


@controlled
async def on_delete_in_parallel(scene: Scene) -> None:
    await scene.whole(pods=PARALLEL)
    await scene.version("2")
    await scene.settle()
    await scene.remove(*THREE)
    await scene.rest("all are going", has_steps=False)
    await scene.end(*THREE)
    await scene.rest("all are made anew", has_steps=False)
    await scene.ready(*THREE)
    await scene.rest("whole, and the current revision is still the old one")


@controlled
async def on_delete_a_third_template(scene: Scene) -> None:
    await scene.whole()
    for version in ("2", "3"):
        await scene.version(version)
        await scene.settle()
        await scene.replace("a-2")
    await scene.rest("one pod of the third, none of the second")
    await scene.replace("a-1", "a-0")
    await scene.rest("all of the third")


@controlled
async def on_delete_back_before_a_pod_has_moved(scene: Scene) -> None:
    await scene.whole()
    await scene.version("2")
    await scene.rest("forth")
    await scene.version("1")
    await scene.rest("and back: the old revision with a new number")


@controlled
async def on_delete_back_in_the_middle(scene: Scene) -> None:
    await scene.whole()
    await scene.version("2")
    await scene.settle()
    await scene.replace("a-2")
    await scene.version("1")
    await scene.rest("back: one pod is outdated")
    await scene.replace("a-2")
    await scene.rest("whole as before")


@controlled
async def on_delete_back_after_all_have_moved(scene: Scene) -> None:
    await scene.whole(pods=PARALLEL)
    await scene.version("2")
    await scene.settle()
    await scene.replace(*THREE)
    await scene.version("1")
    await scene.rest("back: all pods are outdated")
    await scene.replace("a-0")
    await scene.rest("one is back")
    await scene.version("2")
    await scene.rest("and forth again")


@controlled
async def on_delete_two_templates_in_a_row(scene: Scene) -> None:
    await scene.whole()
    await scene.version("2")
    await scene.version("3")
    await scene.settle()
    # Whether the controller has seen the one between is chance.
    sts = scene.seen.sets["a"]["status"]
    scene.world.record("revisions", are_equal=sts["currentRevision"] == sts["updateRevision"])


@controlled
async def on_delete_the_current_revision_written_by_another(scene: Scene) -> None:
    await scene.whole()
    await scene.version("2")
    await scene.settle()
    await scene.replace("a-2")
    await scene.rest("one moved")
    update = scene.seen.sets["a"]["status"]["updateRevision"]
    await scene.patch(STATEFULSETS, "a/status", {"status": {"currentRevision": update}})
    await scene.rest("the current revision is the new one now", has_steps=False)
    await scene.replace("a-1", "a-0")
    await scene.rest("whole")


@controlled
async def on_delete_without_pods(scene: Scene) -> None:
    await scene.create(web(replicas=0))
    await scene.settle()
    await scene.version("2")
    await scene.rest("another revision")
    await scene.change(replicas=1)
    await scene.rest("the pod has it")


@controlled
async def on_delete_while_a_pod_is_going(scene: Scene) -> None:
    await scene.whole()
    await scene.remove("a-1")
    await scene.settle()
    await scene.version("2")
    await scene.rest("it is going still")
    await scene.end("a-1")
    await scene.rest("the new one has the new revision")


@controlled
async def on_delete_while_a_pod_is_not_ready(scene: Scene) -> None:
    await scene.whole()
    await scene.write("a-1")
    await scene.settle()
    await scene.version("2")
    await scene.rest("nothing moves")
    await scene.remove("a-2")
    await scene.settle()
    await scene.end("a-2")
    await scene.rest("in order, a higher one does not come before it is ready")
    await scene.ready("a-1")
    await scene.rest("then it comes")


@controlled
async def on_delete_labels_of_the_template(scene: Scene) -> None:
    await scene.whole()
    await scene.change(template={"metadata": {"labels": {"tier": "db"}}})
    await scene.settle()
    await scene.replace("a-2")
    await scene.rest("one replaced")
    labels = {name: pod["metadata"]["labels"].get("tier") for name, pod in scene.seen.pods.items()}
    scene.world.record("labels", tier=dict(sorted(labels.items())))


@controlled
async def what_makes_no_revision(scene: Scene) -> None:
    await scene.whole()
    both = {"labels": {"x": "y"}, "annotations": {"x.org/x": "y"}}
    await scene.patch(STATEFULSETS, "a", {"metadata": both})
    await scene.change(minReadySeconds=0, revisionHistoryLimit=5, replicas=3)
    await scene.rest("as before")


@controlled
async def revisions_beyond_the_limit(scene: Scene) -> None:
    await scene.create(web(replicas=0, revisionHistoryLimit=1))
    await scene.settle()
    for version in ("2", "3", "4"):
        await scene.version(version)
        await scene.rest(f"version {version}")


@controlled
async def no_revisions_kept(scene: Scene) -> None:
    await scene.create(web(replicas=1, revisionHistoryLimit=0))
    await scene.ready("a-0")
    for version in ("2", "3", "4"):
        await scene.version(version)
        await scene.settle()
    await scene.rest("those in use stay", has_steps=False)
    await scene.replace("a-0")
    await scene.rest("and so does the current one")
