"""What a real API server says of who writes a count: by that the other writer is named."""

import json
from pathlib import Path

import pytest

from rollout_operator.kube.api import STATEFULSETS, JsonObject
from rollout_operator.lab.zones import ZoneSpec, statefulset
from rollout_operator.model.decode.managers import decode_replica_writers
from rollout_operator.model.names import FIELD_MANAGER
from tests.kube.test_real_writes import opened
from tests.world.plane import ADMIN
from tests.world.scene import World

pytestmark = pytest.mark.controlplane


async def test_whoever_wrote_a_count_last_is_named_and_we_are_known(
    world: World, tmp_path: Path
) -> None:
    async with opened(world, tmp_path, world.plane.tokens[ADMIN]) as client:
        where = (STATEFULSETS, world.namespace)
        body = statefulset(ZoneSpec(name="contested", replicas=0, group="none"), world.namespace)
        await client.create(*where, body)
        steps: list[JsonObject] = [{"op": "replace", "path": "/spec/replicas", "value": 0}]
        found = await client.patch(*where, "contested", steps)
        assert decode_replica_writers(found, but="") == (FIELD_MANAGER,)
        assert decode_replica_writers(found, but=FIELD_MANAGER) == ()

        managed = json.loads(found)["metadata"]["managedFields"]
        taken = [{**one, "manager": "keda"} for one in managed]
        found = await client.patch(
            *where, "contested", {"metadata": {"managedFields": taken}, "spec": {"replicas": 0}}
        )
        assert "keda" in decode_replica_writers(found, but=FIELD_MANAGER)
