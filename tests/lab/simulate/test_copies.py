"""Copies of a namespace: what is read, what may be missing, and that nothing is written."""

from typing import Final

import pytest
from rollout_lab.model.fields import child, name_of
from rollout_lab.schemas.kinds import BUDGETS, KINDS, REPLICA_TEMPLATES
from rollout_lab.simulate.copies import ObjectsCopy, copy_namespace
from rollout_lab.zones import ZoneSpec, three_zones

from rollout_operator.kube.api import (
    MULTI_AZ_ROLLOUTS,
    ROLLOUT_HEALTH_CHECKS,
    STATEFULSETS,
    ZONE_BUDGETS,
    JsonObject,
    Resource,
)
from rollout_operator.model.names import Denied
from tests.gates.trees import health_check_tree
from tests.operator.diagnosis.inspected import PERSON, ObservedCluster, observed_cluster
from tests.virtual_time import in_virtual_time

READS: Final = {"get", "list", "discover"}
MIRROR: Final = "grafana.com/rollout-mirror-replicas-from-resource"


def _custom(kind: str, name: str, **spec: object) -> JsonObject:
    version = "rollout-operator.grafana.com/v1"
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}


async def _copy(world: ObservedCluster) -> ObjectsCopy:
    clock = world.sandbox.clock()
    return await copy_namespace(world.client, world.sandbox.namespace, clock)


def _list(copy: ObjectsCopy, kind: str) -> list[str]:
    return [name_of(one) for one in copy.objects if one["kind"] == kind]


@in_virtual_time
async def test_everything_that_decides_is_read_and_nothing_written() -> None:
    mirrors = {
        f"{MIRROR}-name": "sizes",
        f"{MIRROR}-kind": "ReplicaTemplate",
        f"{MIRROR}-api-version": "rollout-operator.grafana.com/v1",
    }
    async with observed_cluster(ZoneSpec(name="zone-a", replicas=1, annotations=mirrors)) as world:
        chosen: JsonObject = {"matchLabels": {"name": "zone-a"}}
        await world.create(REPLICA_TEMPLATES, _custom("ReplicaTemplate", "sizes", replicas=1))
        budget = _custom(ZONE_BUDGETS.kind, "b", selector=chosen, maxUnavailable=1)
        await world.create(ZONE_BUDGETS, budget)
        native = {**_custom(BUDGETS.kind, "n", selector=chosen), "apiVersion": "policy/v1"}
        await world.create(BUDGETS, native)
        version = f"{MULTI_AZ_ROLLOUTS.group}/{MULTI_AZ_ROLLOUTS.version}"
        policy = {**_custom(MULTI_AZ_ROLLOUTS.kind, "p"), "apiVersion": version}
        await world.create(MULTI_AZ_ROLLOUTS, policy)
        check = {**health_check_tree(), "metadata": {"name": "h"}}
        await world.create(ROLLOUT_HEALTH_CHECKS, check)

        copy = await _copy(world)

        assert _list(copy, "StatefulSet") == ["zone-a"]
        assert _list(copy, "Pod") == ["zone-a-0"]
        assert _list(copy, "ReplicaTemplate") == ["sizes"]
        assert _list(copy, ZONE_BUDGETS.kind) == ["b"]
        assert _list(copy, BUDGETS.kind) == ["n"]
        assert _list(copy, MULTI_AZ_ROLLOUTS.kind) == ["p"]
        assert _list(copy, ROLLOUT_HEALTH_CHECKS.kind) == ["h"]
        assert copy.unread == ()
        assert {"ValidatingWebhookConfiguration", "Node", "Pod"} < copy.known
        assert copy.read_at >= world.sandbox.epoch
        status = child(copy.objects[0], "status")
        assert status["readyReplicas"] == 1
        assert world.collect_verbs() <= READS


@in_virtual_time
async def test_what_may_not_be_read_is_named() -> None:
    async with observed_cluster(*three_zones(replicas=1)) as world:
        refused = world.sandbox.api.forbidden
        refused.add((PERSON, "list", "nodes"))
        refused.add((PERSON, "list", "zoneawarepoddisruptionbudgets"))
        refused.add((PERSON, "list", "multiazrollouts"))
        refused.add((PERSON, "list", "rollouthealthchecks"))
        refused.add((PERSON, "get", "configmaps"))

        copy = await _copy(world)

        assert len(_list(copy, "Pod")) == 3
        assert [each.partition(":")[0] for each in copy.unread] == [
            "zoneawarepoddisruptionbudgets are left out",
            "nodes are left out",
            "multiazrollouts are left out",
            "rollouthealthchecks are left out",
            "ConfigMap rollout-operator-zone-tracker is left out",
        ]
        assert "Node" not in copy.known


@pytest.mark.parametrize("kind", [MULTI_AZ_ROLLOUTS, ROLLOUT_HEALTH_CHECKS])
@in_virtual_time
async def test_a_kind_that_is_not_installed_is_not_left_out(
    kind: Resource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A role that shows none does not show whether there could be any; discovery does."""
    monkeypatch.delitem(KINDS, (kind.group, kind.plural))
    async with observed_cluster(*three_zones(replicas=1)) as world:
        world.sandbox.api.forbidden.add((PERSON, "list", kind.plural))

        copy = await _copy(world)

        assert copy.unread == ()
        assert kind.kind in copy.known


@in_virtual_time
async def test_without_sets_nothing_can_be_said() -> None:
    async with observed_cluster(*three_zones(replicas=1)) as world:
        world.sandbox.api.forbidden.add((PERSON, "list", STATEFULSETS.plural))

        with pytest.raises(Denied, match='grant verb list on "statefulsets"'):
            await _copy(world)
