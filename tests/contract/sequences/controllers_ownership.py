"""Whose pods are whose: sets that go and come again, pods that are adopted and let go."""

from typing import Any

from rollout_operator.kube.api import STATEFULSETS, JsonObject
from tests.contract.bodies import pod
from tests.contract.controllers_pods import HELD
from tests.contract.controllers_rig import ControllerRig, controlled
from tests.contract.controllers_seen import is_going
from tests.contract.controllers_sets import PARALLEL, THREE, web
from tests.contract.sides import PODS, REVISIONS

REVISION = "controller-revision-hash"


# Sets that go


@controlled
async def a_set_deleted_with_its_pods(rig: ControllerRig) -> None:
    await rig.whole()
    await rig.drop()
    await rig.until("all going", lambda: all(map(is_going, rig.seen.pods.values())))
    await rig.until("no revisions", lambda: not rig.seen.revisions)
    await rig.rest("gone, its pods are going", has_steps=False)
    await rig.end(*THREE)
    await rig.rest("nothing is left", has_steps=False)


@controlled
async def a_set_deleted_in_the_foreground(rig: ControllerRig) -> None:
    await rig.whole()
    await rig.drop(policy="Foreground")
    await rig.until("all going", lambda: all(map(is_going, rig.seen.pods.values())))
    finalizers = rig.seen.sets["a"]["metadata"]["finalizers"]
    rig.world.record("it waits for its pods", finalizers=finalizers, pods=sorted(rig.seen.pods))
    await rig.end("a-1")
    rig.world.record("none comes again", sets=sorted(rig.seen.sets), pods=sorted(rig.seen.pods))
    await rig.end("a-0", "a-2")
    await rig.until_gone("a")
    # Whether the controller has made a revision once more meanwhile is chance.
    rig.world.record("nothing is left", pods=sorted(rig.seen.pods))


@controlled
async def a_set_deleted_without_its_pods(rig: ControllerRig) -> None:
    await rig.whole()
    await _leave_pods(rig)
    await rig.rest("pods and revisions stay", has_steps=False)


@controlled
async def a_set_that_a_finalizer_keeps(rig: ControllerRig) -> None:
    await rig.whole()
    await _metadata(rig, STATEFULSETS, "a", finalizers=["x.org/a"])
    await rig.drop()
    await rig.until("going", lambda: is_going(rig.seen.sets["a"]))
    await rig.rest("it is going, its pods stay")
    await rig.remove("a-1")
    await rig.settle()
    await rig.end("a-1")
    await rig.rest("and do not come again")
    await rig.write("a-2")
    await rig.rest("but are counted")
    await rig.version("2")
    await rig.rest("a new template still makes a revision")
    await _metadata(rig, STATEFULSETS, "a", finalizers=None)
    await rig.until("set gone", lambda: "a" not in rig.seen.sets)


@controlled
async def a_set_made_again_adopts_what_was_left(rig: ControllerRig) -> None:
    await rig.whole()
    await _leave_pods(rig)
    await rig.create(web())
    await rig.until_whole()
    await rig.rest("the same pods, the same revision", has_steps=False)


@controlled
async def a_set_made_again_with_another_template(rig: ControllerRig) -> None:
    await rig.whole()
    await _leave_pods(rig)
    await rig.create(_of_version(web(), "2"))
    await rig.until_whole()
    await rig.rest("the same pods, outdated", has_steps=False)
    await rig.replace("a-2")
    await rig.rest("one moved")


@controlled
async def a_rolling_set_made_again_with_another_template(rig: ControllerRig) -> None:
    await rig.whole(strategy="RollingUpdate")
    await _leave_pods(rig)
    await rig.create(_of_version(web(strategy="RollingUpdate"), "2"))
    await _until_status(rig, replicas=3)
    await rig.rest("the highest goes", has_steps=False)


@controlled
async def a_set_made_again_with_fewer_pods(rig: ControllerRig) -> None:
    await rig.whole(pods=PARALLEL)
    await _leave_pods(rig)
    await rig.create(web(replicas=1, pods=PARALLEL))
    await _until_status(rig, replicas=3)
    await rig.rest("the others are adopted, and go", has_steps=False)


@controlled
async def a_set_made_again_while_its_pods_are_going(rig: ControllerRig) -> None:
    await rig.whole()
    await rig.drop()
    await rig.until("all going", lambda: all(map(is_going, rig.seen.pods.values())))
    await rig.until("no revisions", lambda: not rig.seen.revisions)
    await rig.create(web())
    await _until_status(rig, replicas=0)
    _describe(rig, "their names are taken")
    await rig.end("a-0")
    await rig.until_started("a-0")
    await _until_status(rig, replicas=1)
    _describe(rig, "the first comes")


# Pods that are let go, and others that come


@controlled
async def a_pod_that_is_selected_no_more(rig: ControllerRig) -> None:
    await rig.whole()
    await rig.label("a-1", name="other")
    await rig.until("let go", lambda: not _owners(rig, "a-1"))
    # Its name is taken: the controller fails, and says so in its status.
    await _until_status(rig, replicas=2)
    _describe(rig, "it has no owner, and stays")
    await rig.label("a-1", name="a")
    await rig.until("adopted again", lambda: bool(_owners(rig, "a-1")))
    await rig.until_whole()
    await rig.rest("whole", has_steps=False)


@controlled
async def a_pod_that_is_selected_no_more_and_goes(rig: ControllerRig) -> None:
    await rig.whole(pods=PARALLEL)
    await rig.label("a-1", name="other")
    await rig.until("let go", lambda: not _owners(rig, "a-1"))
    await _until_status(rig, replicas=2)
    await rig.end("a-1")
    await rig.until_started("a-1")
    await rig.rest("another has its name", has_steps=False)


@controlled
async def a_pod_that_has_lost_its_owner(rig: ControllerRig) -> None:
    await rig.whole()
    await _metadata(rig, PODS, "a-1", ownerReferences=None)
    await rig.until("adopted again", lambda: bool(_owners(rig, "a-1")))
    await rig.rest("it is adopted")


@controlled
async def a_pod_that_has_lost_its_labels(rig: ControllerRig) -> None:
    await rig.whole()
    index = {"apps.kubernetes.io/pod-index": None}
    await rig.label("a-1", **index)
    await rig.rest("it stays as it is")
    rig.world.record("labels", found=_labels(rig, "a-1"))
    await rig.label("a-1", **index, **{"statefulset.kubernetes.io/pod-name": None})
    await rig.rest("it gets them back")
    rig.world.record("labels", found=_labels(rig, "a-1"))


@controlled
async def a_pod_that_has_lost_its_revision(rig: ControllerRig) -> None:
    await rig.whole()
    await rig.label("a-1", **{REVISION: None})
    await rig.rest("it counts for no revision")


@controlled
async def a_rolling_pod_that_has_lost_its_revision(rig: ControllerRig) -> None:
    await rig.whole(strategy="RollingUpdate")
    await rig.label("a-1", **{REVISION: None})
    await rig.rest("it is replaced")


@controlled
async def pods_that_were_there_before(rig: ControllerRig) -> None:
    for name, label in (("a-1", "a"), ("a-x", "a"), ("b-0", "a"), ("a-2", "other")):
        await _make_stray(rig, name, label)
    for name in ("a-1", "a-x", "b-0", "a-2"):
        await rig.until_started(name)
    await rig.create(web(replicas=2, pods=PARALLEL))
    await rig.until("adopted", lambda: bool(_owners(rig, "a-1")))
    await rig.rest("one is adopted, the others are strange", has_steps=False)


@controlled
async def a_name_of_another_owner(rig: ControllerRig) -> None:
    await _make_stray(rig, "a-1", "other")
    await rig.until_started("a-1")
    await rig.create(web())
    await rig.ready("a-0")
    await _until_status(rig, readyReplicas=1)
    _describe(rig, "in order, nothing comes after it")
    await rig.end("a-1")
    await rig.until("its own", lambda: bool(_owners(rig, "a-1")))
    await rig.rest("its own pod", has_steps=False)


@controlled
async def a_name_of_another_owner_in_parallel(rig: ControllerRig) -> None:
    """Pods are made in batches of one, two, four and so on, up to one that fails."""
    await _make_stray(rig, "a-1", "other")
    await rig.until_started("a-1")
    await rig.create(web(replicas=5, pods=PARALLEL))
    for name in ("a-0", "a-2"):
        await rig.until_started(name)
    await _until_status(rig, replicas=2)
    _describe(rig, "the batch of the name is made, and no other")
    await rig.end("a-1")
    for name in ("a-1", "a-3", "a-4"):
        await rig.until_started(name)
    await rig.rest("all five", has_steps=False)


@controlled
async def a_revision_that_a_client_deletes(rig: ControllerRig) -> None:
    await rig.whole()
    await rig.version("2")
    await rig.rest("two revisions")
    update = rig.seen.sets["a"]["status"]["updateRevision"]
    await rig.delete(REVISIONS, update)
    await rig.rest("it is made again")


@controlled
async def a_revision_s_name_that_is_taken(rig: ControllerRig) -> None:
    """The name is a hash of the template: here it was one of the set's own before."""
    await rig.create(web(replicas=0))
    await rig.settle()
    for version in ("2", "3"):
        await rig.version(version)
        await rig.settle()
    second = next(name for name, one in rig.seen.revisions.items() if one["revision"] == 2)
    await rig.delete(REVISIONS, second)
    await rig.until("it is gone", lambda: second not in rig.seen.revisions)
    taken = {"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": {"name": second}}
    await rig.make(REVISIONS, {**taken, "data": {"other": "data"}, "revision": 1})
    await rig.version("2")
    await rig.rest("another name, and a collision is counted", has_steps=False)


@controlled
async def a_current_revision_that_a_client_deletes(rig: ControllerRig) -> None:
    await rig.whole()
    await rig.version("2")
    await rig.settle()
    current = rig.seen.sets["a"]["status"]["currentRevision"]
    await rig.delete(REVISIONS, current)
    await rig.rest("the update revision is the current one", has_steps=False)


@controlled
async def a_status_that_another_client_writes(rig: ControllerRig) -> None:
    await rig.whole()
    wrong = {"replicas": 9, "readyReplicas": 8, "currentReplicas": 7, "availableReplicas": 8}
    await rig.patch(STATEFULSETS, "a/status", {"status": wrong})
    await _until_status(rig, replicas=3)
    await rig.rest("it is put right", has_steps=False)


@controlled
async def an_unknown_current_revision(rig: ControllerRig) -> None:
    await rig.whole()
    wrong = {"currentRevision": "a-nonsense"}
    await rig.patch(STATEFULSETS, "a/status", {"status": wrong})
    await rig.rest("the update revision is the current one", has_steps=False)


def _of_version(body: JsonObject, version: str) -> JsonObject:
    spec: Any = body["spec"]
    spec["template"]["metadata"]["annotations"]["version"] = version
    return body


async def _make_stray(rig: ControllerRig, name: str, label: str) -> None:
    """Create a held pod without an owner."""
    body = pod(name, node="some-node", labels={"name": label})
    spec: Any = body["spec"]
    spec["containers"][0]["image"] = HELD
    await rig.make(PODS, body)


async def _leave_pods(rig: ControllerRig) -> None:
    """Delete the set, and not its pods."""
    await rig.drop(policy="Orphan")
    await rig.until_gone("a")


def _owners(rig: ControllerRig, name: str) -> Any:
    found = rig.seen.pods.get(name)
    return found is not None and found["metadata"].get("ownerReferences")


def _labels(rig: ControllerRig, name: str) -> dict[str, str]:
    found = rig.seen.pods[name]["metadata"]["labels"]
    return {key: value for key, value in sorted(found.items()) if key != REVISION}


async def _until_status(rig: ControllerRig, **fields: int | None) -> None:
    def holds() -> bool:
        status = rig.seen.sets["a"]["status"]
        return all(status.get(key) == value for key, value in fields.items())

    await rig.until(f"status {fields}", holds)


def _describe(rig: ControllerRig, title: str) -> None:
    """Record what is there while the controller still tries, hence without waiting for rest."""
    rig.world.record(title, sets=rig.seen.describe_sets(), pods=rig.seen.describe_pods())


async def _metadata(rig: ControllerRig, resource: Any, name: str, **fields: object) -> None:
    await rig.patch(resource, name, {"metadata": fields})
