"""Whose pods are whose: sets that go and come again, pods that are adopted and let go."""

from typing import Any

from rollout_operator.kube.api import STATEFULSETS, JsonObject
from tests.contract.bodies import pod
from tests.contract.controllers_pods import HELD
from tests.contract.controllers_scene import Scene, controlled
from tests.contract.controllers_seen import is_going
from tests.contract.controllers_sets import PARALLEL, THREE, web
from tests.contract.sides import PODS, REVISIONS

REVISION = "controller-revision-hash"


# Sets that go


@controlled
async def a_set_deleted_with_its_pods(scene: Scene) -> None:
    await scene.whole()
    await scene.drop()
    await scene.until("all going", lambda: all(map(is_going, scene.seen.pods.values())))
    await scene.until("no revisions", lambda: not scene.seen.revisions)
    await scene.rest("gone, its pods are going", has_steps=False)
    await scene.end(*THREE)
    await scene.rest("nothing is left", has_steps=False)


@controlled
async def a_set_deleted_without_its_pods(scene: Scene) -> None:
    await scene.whole()
    await _leave_pods(scene)
    await scene.rest("pods and revisions stay", has_steps=False)


@controlled
async def a_set_that_waits_for_its_pods(scene: Scene) -> None:
    await scene.whole()
    await scene.drop(policy="Foreground")
    await scene.until("all going", lambda: all(map(is_going, scene.seen.pods.values())))
    await _until_status(scene, currentReplicas=None)
    _describe(scene, "it is going too, and makes nothing")
    await scene.end(*THREE)
    await scene.until("nothing left", lambda: not (scene.seen.sets or scene.seen.revisions))
    await scene.rest("nothing is left", has_steps=False)


@controlled
async def a_set_that_a_finalizer_keeps(scene: Scene) -> None:
    await scene.whole()
    await _metadata(scene, STATEFULSETS, "a", finalizers=["x.org/a"])
    await scene.drop()
    await scene.until("going", lambda: is_going(scene.seen.sets["a"]))
    await scene.rest("it is going, its pods stay")
    await scene.remove("a-1")
    await scene.settle()
    await scene.end("a-1")
    await scene.rest("and do not come again")
    await scene.write("a-2")
    await scene.rest("but are counted")
    await scene.version("2")
    await scene.rest("a new template still makes a revision")
    await _metadata(scene, STATEFULSETS, "a", finalizers=None)
    await scene.until("set gone", lambda: "a" not in scene.seen.sets)


@controlled
async def a_set_made_again_adopts_what_was_left(scene: Scene) -> None:
    await scene.whole()
    await _leave_pods(scene)
    await scene.create(web())
    await scene.until_whole()
    await scene.rest("the same pods, the same revision", has_steps=False)


@controlled
async def a_set_made_again_with_another_template(scene: Scene) -> None:
    await scene.whole()
    await _leave_pods(scene)
    await scene.create(_of_version(web(), "2"))
    await scene.until_whole()
    await scene.rest("the same pods, outdated", has_steps=False)
    await scene.replace("a-2")
    await scene.rest("one moved")


@controlled
async def a_rolling_set_made_again_with_another_template(scene: Scene) -> None:
    await scene.whole(strategy="RollingUpdate")
    await _leave_pods(scene)
    await scene.create(_of_version(web(strategy="RollingUpdate"), "2"))
    await _until_status(scene, replicas=3)
    await scene.rest("the highest goes", has_steps=False)


@controlled
async def a_set_made_again_with_fewer_pods(scene: Scene) -> None:
    await scene.whole(pods=PARALLEL)
    await _leave_pods(scene)
    await scene.create(web(replicas=1, pods=PARALLEL))
    await _until_status(scene, replicas=3)
    await scene.rest("the others are adopted, and go", has_steps=False)


@controlled
async def a_set_made_again_while_its_pods_are_going(scene: Scene) -> None:
    await scene.whole()
    await scene.drop()
    await scene.until("all going", lambda: all(map(is_going, scene.seen.pods.values())))
    await scene.until("no revisions", lambda: not scene.seen.revisions)
    await scene.create(web())
    await _until_status(scene, replicas=0)
    _describe(scene, "their names are taken")
    await scene.end("a-0")
    await scene.until_started("a-0")
    await _until_status(scene, replicas=1)
    _describe(scene, "the first comes")


# Pods that are let go, and others that come


@controlled
async def a_pod_that_is_selected_no_more(scene: Scene) -> None:
    await scene.whole()
    await scene.label("a-1", name="other")
    await scene.until("let go", lambda: not _owners(scene, "a-1"))
    # Its name is taken: the controller fails, and says so in its status.
    await _until_status(scene, replicas=2)
    _describe(scene, "it is nobody's, and stays")
    await scene.label("a-1", name="a")
    await scene.until("taken back", lambda: bool(_owners(scene, "a-1")))
    await scene.until_whole()
    await scene.rest("whole", has_steps=False)


@controlled
async def a_pod_that_is_selected_no_more_and_goes(scene: Scene) -> None:
    await scene.whole(pods=PARALLEL)
    await scene.label("a-1", name="other")
    await scene.until("let go", lambda: not _owners(scene, "a-1"))
    await _until_status(scene, replicas=2)
    await scene.end("a-1")
    await scene.until_started("a-1")
    await scene.rest("another has its name", has_steps=False)


@controlled
async def a_pod_that_has_lost_its_owner(scene: Scene) -> None:
    await scene.whole()
    await _metadata(scene, PODS, "a-1", ownerReferences=None)
    await scene.until("taken back", lambda: bool(_owners(scene, "a-1")))
    await scene.rest("it is adopted")


@controlled
async def a_pod_that_has_lost_its_labels(scene: Scene) -> None:
    await scene.whole()
    index = {"apps.kubernetes.io/pod-index": None}
    await scene.label("a-1", **index)
    await scene.rest("nobody minds")
    scene.world.record("labels", found=_labels(scene, "a-1"))
    await scene.label("a-1", **index, **{"statefulset.kubernetes.io/pod-name": None})
    await scene.rest("it gets them back")
    scene.world.record("labels", found=_labels(scene, "a-1"))


@controlled
async def a_pod_that_has_lost_its_revision(scene: Scene) -> None:
    await scene.whole()
    await scene.label("a-1", **{REVISION: None})
    await scene.rest("it counts for no revision")


@controlled
async def a_rolling_pod_that_has_lost_its_revision(scene: Scene) -> None:
    await scene.whole(strategy="RollingUpdate")
    await scene.label("a-1", **{REVISION: None})
    await scene.rest("it is replaced")


@controlled
async def pods_that_were_there_before(scene: Scene) -> None:
    for name, label in (("a-1", "a"), ("a-x", "a"), ("b-0", "a"), ("a-2", "other")):
        await _make_stray(scene, name, label)
    for name in ("a-1", "a-x", "b-0", "a-2"):
        await scene.until_started(name)
    await scene.create(web(replicas=2, pods=PARALLEL))
    await scene.until("adopted", lambda: bool(_owners(scene, "a-1")))
    await scene.rest("one is adopted, the others are strange", has_steps=False)


@controlled
async def a_name_that_somebody_else_has(scene: Scene) -> None:
    await _make_stray(scene, "a-1", "other")
    await scene.until_started("a-1")
    await scene.create(web())
    await scene.ready("a-0")
    await _until_status(scene, readyReplicas=1)
    _describe(scene, "in order, nothing comes after it")
    await scene.end("a-1")
    await scene.until("its own", lambda: bool(_owners(scene, "a-1")))
    await scene.rest("its own pod", has_steps=False)


@controlled
async def a_name_that_somebody_else_has_in_parallel(scene: Scene) -> None:
    """Pods are made in batches of one, two, four and so on, up to one that fails."""
    await _make_stray(scene, "a-1", "other")
    await scene.until_started("a-1")
    await scene.create(web(replicas=5, pods=PARALLEL))
    for name in ("a-0", "a-2"):
        await scene.until_started(name)
    await _until_status(scene, replicas=2)
    _describe(scene, "the batch of the name is made, and no other")
    await scene.end("a-1")
    for name in ("a-1", "a-3", "a-4"):
        await scene.until_started(name)
    await scene.rest("all five", has_steps=False)


@controlled
async def a_revision_that_somebody_deletes(scene: Scene) -> None:
    await scene.whole()
    await scene.version("2")
    await scene.rest("two revisions")
    update = scene.seen.sets["a"]["status"]["updateRevision"]
    await scene.delete(REVISIONS, update)
    await scene.rest("it is made again")


@controlled
async def a_revision_s_name_that_is_taken(scene: Scene) -> None:
    """The name is a hash of the template: here it was one of the set's own before."""
    await scene.create(web(replicas=0))
    await scene.settle()
    for version in ("2", "3"):
        await scene.version(version)
        await scene.settle()
    second = next(name for name, one in scene.seen.revisions.items() if one["revision"] == 2)
    await scene.delete(REVISIONS, second)
    await scene.until("it is gone", lambda: second not in scene.seen.revisions)
    taken = {"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": {"name": second}}
    await scene.make(REVISIONS, {**taken, "data": {"other": "data"}, "revision": 1})
    await scene.version("2")
    await scene.rest("another name, and a collision is counted", has_steps=False)


@controlled
async def a_current_revision_that_somebody_deletes(scene: Scene) -> None:
    await scene.whole()
    await scene.version("2")
    await scene.settle()
    current = scene.seen.sets["a"]["status"]["currentRevision"]
    await scene.delete(REVISIONS, current)
    await scene.rest("the update revision is the current one", has_steps=False)


@controlled
async def a_status_that_somebody_else_writes(scene: Scene) -> None:
    await scene.whole()
    wrong = {"replicas": 9, "readyReplicas": 8, "currentReplicas": 7, "availableReplicas": 8}
    await scene.patch(STATEFULSETS, "a/status", {"status": wrong})
    await _until_status(scene, replicas=3)
    await scene.rest("it is put right", has_steps=False)


@controlled
async def a_current_revision_that_nobody_knows(scene: Scene) -> None:
    await scene.whole()
    wrong = {"currentRevision": "a-nonsense"}
    await scene.patch(STATEFULSETS, "a/status", {"status": wrong})
    await scene.rest("the update revision is the current one", has_steps=False)


def _of_version(body: JsonObject, version: str) -> JsonObject:
    spec: Any = body["spec"]
    spec["template"]["metadata"]["annotations"]["version"] = version
    return body


async def _make_stray(scene: Scene, name: str, label: str) -> None:
    """Create a held pod that is nobody's."""
    body = pod(name, node="some-node", labels={"name": label})
    spec: Any = body["spec"]
    spec["containers"][0]["image"] = HELD
    await scene.make(PODS, body)


async def _leave_pods(scene: Scene) -> None:
    """Delete the set, and not its pods."""
    await scene.drop(policy="Orphan")
    await scene.until_gone("a")


def _owners(scene: Scene, name: str) -> Any:
    found = scene.seen.pods.get(name)
    return found is not None and found["metadata"].get("ownerReferences")


def _labels(scene: Scene, name: str) -> dict[str, str]:
    found = scene.seen.pods[name]["metadata"]["labels"]
    return {key: value for key, value in sorted(found.items()) if key != REVISION}


async def _until_status(scene: Scene, **fields: int | None) -> None:
    def holds() -> bool:
        status = scene.seen.sets["a"]["status"]
        return all(status.get(key) == value for key, value in fields.items())

    await scene.until(f"status {fields}", holds)


def _describe(scene: Scene, title: str) -> None:
    """Record what is there while the controller still tries, hence without waiting for rest."""
    scene.world.record(title, sets=scene.seen.describe_sets(), pods=scene.seen.describe_pods())


async def _metadata(scene: Scene, resource: Any, name: str, **fields: object) -> None:
    await scene.patch(resource, name, {"metadata": fields})
