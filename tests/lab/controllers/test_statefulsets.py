"""The StatefulSet controller, parallel sets: what is made, replaced, taken away, and counted."""

from rollout_operator.kube.api import JsonObject
from rollout_operator.lab.controllers.revisions import new_revision
from rollout_operator.lab.model.fields import name_of
from rollout_operator.lab.model.request import ApiRequest
from rollout_operator.lab.schemas.kinds import CONTROLLER_REVISIONS
from rollout_operator.lab.zones import ZoneSpec
from tests.lab.cluster_world import NAMESPACE, world
from tests.virtual_time import in_virtual_time


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
