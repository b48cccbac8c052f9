"""The StatefulSet controller, parallel sets: what is made, replaced, taken away, and counted."""

from datetime import timedelta

from rollout_operator.kube.api import PODS, JsonObject
from rollout_operator.lab.controllers.members import revision_of
from rollout_operator.lab.controllers.revisions import new_revision
from rollout_operator.lab.model.fields import child, children, name_of, number, text, uid_of
from rollout_operator.lab.model.request import STRATEGIC_PATCH, ApiRequest
from rollout_operator.lab.nodes.behaviour import Behaviour, StartKind
from rollout_operator.lab.schemas.kinds import CONTROLLER_REVISIONS
from rollout_operator.lab.zones import ZoneSpec
from rollout_operator.model.names import REVISION_LABEL
from tests.lab.cluster_world import NAMESPACE, World, world
from tests.virtual_time import in_virtual_time


def settled(status: JsonObject) -> JsonObject:
    return {key: value for key, value in status.items() if key.endswith("eplicas")}


@in_virtual_time
async def test_a_new_set_gets_its_pods_with_all_that_names_them() -> None:
    with world() as scene:
        await scene.bring_up(ZoneSpec(name="web", replicas=2, first_ordinal=5))
        assert scene.pod_names() == ["web-5", "web-6"]
        pod, sts = scene.pod("web-5"), scene.sts("web")
        assert child(pod, "metadata", "labels") == {
            "name": "web",
            REVISION_LABEL: text(sts, "status", "updateRevision"),
            "statefulset.kubernetes.io/pod-name": "web-5",
            "apps.kubernetes.io/pod-index": "5",
        }
        assert children(pod, "metadata", "ownerReferences") == [
            {
                "apiVersion": "apps/v1",
                "kind": "StatefulSet",
                "name": "web",
                "uid": uid_of(sts),
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ]
        spec = child(pod, "spec")
        assert (spec["hostname"], spec["subdomain"]) == ("web-5", "web")


@in_virtual_time
async def test_the_status_of_a_new_set_counts_everything() -> None:
    with world() as scene:
        await scene.bring_up(ZoneSpec(name="web"))
        [revision] = scene.revisions()
        assert scene.status("web") == {
            "observedGeneration": 1,
            "replicas": 3,
            "readyReplicas": 3,
            "availableReplicas": 3,
            "currentReplicas": 3,
            "updatedReplicas": 3,
            "currentRevision": name_of(revision),
            "updateRevision": name_of(revision),
            "collisionCount": 0,
        }


@in_virtual_time
async def test_on_delete_replaces_a_pod_only_once_it_is_deleted() -> None:
    with world() as scene:
        await scene.bring_up(ZoneSpec(name="web"))
        before = [uid_of(one) for one in scene.pods()]
        scene.set_image("web", "v2")
        await scene.until(lambda: len(scene.revisions()) == 2)
        await scene.until_ready("web")
        assert [uid_of(one) for one in scene.pods()] == before
        scene.delete_pod("web-1")
        await scene.until_ready("web")
        images = [text(children(one, "spec", "containers")[0], "image") for one in scene.pods()]
        assert images == ["v1", "v2", "v1"]
        status = scene.status("web")
        assert settled(status) == {
            "replicas": 3,
            "readyReplicas": 3,
            "availableReplicas": 3,
            "currentReplicas": 2,
            "updatedReplicas": 1,
        }
        assert revision_of(scene.pod("web-1")) == status["updateRevision"]
        assert revision_of(scene.pod("web-0")) == status["currentRevision"]


@in_virtual_time
async def test_on_delete_never_moves_the_current_revision() -> None:
    """W-27: it stays after the rollout until someone else writes it, and then it stays so."""
    with world() as scene:
        await scene.bring_up(ZoneSpec(name="web", replicas=1))
        scene.set_image("web", "v2")
        await scene.until(lambda: len(scene.revisions()) == 2)
        scene.delete_pod("web-0")
        await scene.until(lambda: scene.is_rolled("web"))
        status = scene.status("web")
        assert status["currentRevision"] != status["updateRevision"]
        assert "currentReplicas" not in status
        moved = {**status, "currentRevision": status["updateRevision"]}
        body: JsonObject = {**scene.sts("web"), "status": moved}
        scene.call("update", "web", body, subresource="status")
        await scene.until(lambda: number(scene.status("web"), "currentReplicas") == 1)
        assert scene.status("web")["currentRevision"] == status["updateRevision"]


@in_virtual_time
async def test_a_rolling_update_goes_from_the_highest_down_one_at_a_time_and_completes() -> None:
    with world() as scene:
        await scene.bring_up(ZoneSpec(name="web", strategy="RollingUpdate"))
        scene.set_image("web", "v2")
        await scene.until(lambda: len(scene.revisions()) == 2)
        await scene.until(
            lambda: (
                scene.is_rolled("web")
                and scene.status("web")["currentRevision"] == scene.status("web")["updateRevision"]
            )
        )
        deleted = [
            one.name
            for one in scene.commits("pods", "statefulset-controller")
            if one.after is not None and text(one.after, "metadata", "deletionTimestamp")
        ]
        assert deleted == ["web-2", "web-1", "web-0"]
        assert number(scene.status("web"), "currentReplicas") == 3


@in_virtual_time
async def test_scaling_down_takes_the_highest_and_up_brings_them_at_the_update_revision() -> None:
    with world() as scene:
        await scene.bring_up(ZoneSpec(name="web", replicas=4))
        scene.patch("web", {"replicas": 2})
        await scene.until(lambda: scene.pod_names() == ["web-0", "web-1"])
        await scene.until_ready("web")
        scene.set_image("web", "v2")
        scene.patch("web", {"replicas": 3})
        await scene.until_ready("web")
        assert revision_of(scene.pod("web-2")) == scene.status("web")["updateRevision"]
        assert revision_of(scene.pod("web-0")) == scene.status("web")["currentRevision"]


@in_virtual_time
async def test_a_moved_first_ordinal_condemns_what_is_below() -> None:
    """FP-29: pods outside of the range go, wherever they are."""
    with world() as scene:
        await scene.bring_up(ZoneSpec(name="web"))
        scene.patch("web", {"ordinals": {"start": 2}})
        await scene.until(lambda: scene.pod_names() == ["web-2", "web-3", "web-4"])
        await scene.until_ready("web")


@in_virtual_time
async def test_replicas_left_out_means_one_and_zero_means_none() -> None:
    with world() as scene:
        await scene.bring_up(ZoneSpec(name="web", replicas=None))
        assert scene.pod_names() == ["web-0"]
        scene.patch("web", {"replicas": 0})
        await scene.until(lambda: settled(scene.status("web")).get("replicas") == 0)
        assert scene.pod_names() == []
        assert settled(scene.status("web")) == {"replicas": 0, "availableReplicas": 0}


@in_virtual_time
async def test_a_rollback_renumbers_the_old_revision_and_keeps_its_name() -> None:
    """FP-28: an equal template is the same revision again, now the newest."""
    with world() as scene:
        await scene.bring_up(ZoneSpec(name="web", replicas=1))
        first = scene.status("web")["updateRevision"]
        scene.set_image("web", "v2")
        await scene.until(lambda: scene.status("web")["updateRevision"] != first)
        scene.set_image("web", "v1")
        await scene.until(lambda: scene.status("web")["updateRevision"] == first)
        await scene.until_ready("web")
        numbers = {name_of(one): one["revision"] for one in scene.revisions()}
        assert numbers[str(first)] == 3
        assert sorted(map(str, numbers.values())) == ["2", "3"]
        assert number(scene.status("web"), "updatedReplicas") == 1


@in_virtual_time
async def test_history_beyond_the_limit_is_deleted_but_not_what_pods_run() -> None:
    with world() as scene:
        await scene.bring_up(ZoneSpec(name="web", replicas=1))
        first = str(scene.status("web")["currentRevision"])
        scene.patch("web", {"revisionHistoryLimit": 1})
        for image in ("v2", "v3", "v4", "v5"):
            before = scene.status("web")["updateRevision"]
            scene.set_image("web", image)
            await scene.until_revised("web", before)
        await scene.until(lambda: len(scene.revisions()) == 3)
        kept = {name_of(one): one["revision"] for one in scene.revisions()}
        assert sorted(map(str, kept.values())) == ["1", "4", "5"]
        assert first in kept


@in_virtual_time
async def test_a_failed_pod_is_deleted_and_made_anew() -> None:
    kinds = iter([StartKind.FAILED, *[StartKind.NORMAL] * 9])
    with world(choose=lambda _: Behaviour(kind=next(kinds))) as scene:
        scene.create(ZoneSpec(name="web", replicas=1))
        await scene.until(lambda: bool(scene.pods()))
        first = uid_of(scene.pods()[0])
        await scene.until_ready("web")
        assert uid_of(scene.pod("web-0")) != first
        phases = [text(one.after or {}, "status", "phase") for one in scene.commits("pods")]
        assert "Failed" in phases


@in_virtual_time
async def test_min_ready_seconds_delay_availability_and_a_timer_tells_of_it() -> None:
    """W-27: ready is not available; no event announces the step from one to the other."""
    with world() as scene:
        scene.create(ZoneSpec(name="web", min_ready=timedelta(seconds=30)))
        ready = await scene.until(lambda: number(scene.status("web"), "readyReplicas") == 3)
        assert number(scene.status("web"), "availableReplicas") == 0
        available = await scene.until_ready("web")
        assert timedelta(seconds=28) <= available - ready <= timedelta(seconds=31)


@in_virtual_time
async def test_longer_min_ready_seconds_take_availability_back_for_a_while() -> None:
    """Nothing becomes ready after the change: only the look itself knows when to look again."""
    with world() as scene:
        await scene.bring_up(ZoneSpec(name="web"))
        scene.patch("web", {"minReadySeconds": 60})
        lost = await scene.until(lambda: number(scene.status("web"), "availableReplicas") == 0)
        back = await scene.until_ready("web")
        assert timedelta(seconds=50) < back - lost < timedelta(seconds=61)


@in_virtual_time
async def test_a_taken_name_with_other_data_is_a_collision_and_makes_another_name() -> None:
    with world(starts=False) as scene:
        scene.create(ZoneSpec(name="web", replicas=1))
        taken = new_revision(scene.sts("web"), 1, 0)
        foreign: JsonObject = {**taken, "data": {"other": "data"}}
        foreign["metadata"] = {"name": name_of(taken), "namespace": NAMESPACE}
        create = ApiRequest(
            verb="create", resource=CONTROLLER_REVISIONS, namespace=NAMESPACE, body=foreign
        )
        assert scene.api.call_now(create).is_ok
        scene.cluster.start()
        await scene.until_ready("web")
        second = name_of(new_revision(scene.sts("web"), 1, 1))
        assert scene.status("web")["updateRevision"] == second != name_of(taken)
        assert scene.status("web")["collisionCount"] == 1


@in_virtual_time
async def test_a_terminating_set_only_counts() -> None:
    with world() as scene:
        await scene.bring_up(ZoneSpec(name="web"))
        scene.call("patch", "web", {"metadata": {"finalizers": ["test/hold"]}})
        scene.call("delete", "web", {"kind": "DeleteOptions", "apiVersion": "v1"})
        scene.delete_pod("web-1")
        await scene.until(lambda: number(scene.status("web"), "replicas") == 2)
        assert scene.pod_names() == ["web-0", "web-2"]


@in_virtual_time
async def test_an_orphan_that_matches_is_adopted_and_counts() -> None:
    with world() as scene:
        orphan: JsonObject = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "web-0", "namespace": NAMESPACE, "labels": {"name": "web"}},
            "spec": {"containers": [{"name": "app", "image": "v1"}]},
        }
        create = ApiRequest(verb="create", resource=PODS, namespace=NAMESPACE, body=orphan)
        assert scene.api.call_now(create).is_ok
        scene.create(ZoneSpec(name="web", replicas=1))
        await scene.until(lambda: scene.status("web").get("readyReplicas") == 1)
        [owner] = children(scene.pod("web-0"), "metadata", "ownerReferences")
        assert owner["uid"] == uid_of(scene.sts("web"))
        labels = child(scene.pod("web-0"), "metadata", "labels")
        assert labels["statefulset.kubernetes.io/pod-name"] == "web-0"
        assert "updatedReplicas" not in scene.status("web"), "it does not say what it runs"


@in_virtual_time
async def test_a_pod_that_no_longer_matches_is_released_and_its_place_stays_taken() -> None:
    with world() as scene:
        await scene.bring_up(ZoneSpec(name="web", replicas=2))
        patch = ApiRequest(
            verb="patch",
            resource=PODS,
            namespace=NAMESPACE,
            name="web-1",
            body={"metadata": {"labels": {"name": "other"}}},
            content_type=STRATEGIC_PATCH,
        )
        assert scene.api.call_now(patch).is_ok
        await scene.until(lambda: not children(scene.pod("web-1"), "metadata", "ownerReferences"))
        await scene.until(lambda: number(scene.status("web"), "replicas") == 1)
        # As in a real cluster: the name is taken, so the pod cannot be made, again and again.
        refused = await scene.until(lambda: count_refused(scene) >= 3)
        assert refused < timedelta(minutes=1)
        scene.delete_pod("web-1")
        await scene.until_ready("web")


def count_refused(scene: World) -> int:
    return len([one for one in scene.called("statefulset-controller") if one.status == 409])
