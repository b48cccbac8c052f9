"""MultiAZRollouts on the real control plane: batches, pauses, kills, groups, a kind that goes."""

from collections.abc import Mapping
from datetime import timedelta
from http import HTTPStatus
from itertools import pairwise
from typing import Any, Final

import pytest
from rollout_lab.zones import ZoneSpec, three_zones

from rollout_operator.kube.api import MULTI_AZ_ROLLOUTS
from rollout_operator.model.names import TOPOLOGY_KEYS
from tests.system.grants import without
from tests.system.waits import show_columns, wait_line, wait_reason, wait_true
from tests.world.api import EVENTS, Json, Resource
from tests.world.budgets import CRDS, install_kinds
from tests.world.operatorproc import OperatorProcess
from tests.world.world import World

pytestmark = pytest.mark.controlplane

ON: Final = "-multi-az-rollouts.enabled"
POLICIES: Final = Resource("rollout.grafana.com/v1alpha1", MULTI_AZ_ROLLOUTS.plural)
KIND: Final = "multiazrollouts.rollout.grafana.com"
ZONES: Final = ("us-west-2a", "us-west-2b", "us-west-2c")
PAUSE: Final = timedelta(seconds=2)
# Times of an audit log are those of arrival, and the server's clock has whole seconds.
BLUR: Final = timedelta(seconds=1)
LIMIT: Final = timedelta(seconds=90)
BY_HAND: Final = {
    "number": 7,
    "zone": "nowhere",
    "statefulSet": "db-z",
    "updateRevision": "db-z-1",
    "pods": [{"name": "db-z-0", "uid": "none"}],
    "startTime": "2999-01-01T00:00:00Z",
}


async def test_the_sample_goes_zone_by_zone_with_pauses_over_kills(world: World) -> None:
    """MT-20, MT-30: nine batches of one, in order; a kill shortens no pause."""
    await _prepare(world)
    names = await world.create(*_zones())
    await _create_policy(world, azOrder=[*ZONES])
    first = await world.operator(ON)
    await _wait_condition(world, "Ready", "True UpToDate")
    await world.set_image(names, "v2")
    await _wait_batch(world, 3)
    first.kill()
    second = await world.operator(ON)
    await world.wait_rolled(names)
    await _wait_condition(world, "Ready", "True UpToDate")

    deletes = [one for one in await world.judge.deletes() if one.uid]
    order = [f"db-{letter}-{ordinal}" for letter in "abc" for ordinal in (2, 1, 0)]
    assert [one.name for one in deletes] == order
    gaps = [after.received - before.received for before, after in pairwise(deletes)]
    assert min(gaps) >= (PAUSE - BLUR).total_seconds(), gaps
    status = (await world.get(POLICIES, "db"))["status"]
    assert (status["phase"], status["lastBatch"]["number"]) == ("Idle", 9)
    assert (status["updatedPods"], status["totalPods"], status["readyPods"]) == (9, 9, 9)
    assert (await show_columns(world, POLICIES))["Updated"] == 9
    assert await second.terminate() == 0
    await world.judge.assert_clean()


async def test_a_group_is_driven_by_one_policy_and_falls_back_to_its_label(world: World) -> None:
    """MT-62, MT-63, MT-72, MAZ-82: a younger policy waits, a status by hand counts for nothing.

    Without its kind there are no policies, and once it is back there are. What drives the group is
    shown by page, metrics and commands: `tests/telemetry/test_policies.py`, `tests/cli`.
    """
    await _prepare(world)
    names = await world.create(*_zones(group="db", replicas=1))
    operator = await world.operator(ON)
    await _create_policy(world)
    await _wait_condition(world, "Ready", "True UpToDate")
    await _create_policy(world, name="younger")
    await _wait_condition(world, "Accepted", "False Conflict", name="younger")
    edited = {"status": {"lastBatch": BY_HAND, "phase": "Paused"}}
    await world.api.patch(POLICIES, world.namespace, "db", edited, subresource="status")
    await world.patch(POLICIES, "db", {"spec": {"paused": True}})
    await world.set_image(names, "v2")
    await _wait_driven(operator)
    await _wait_condition(world, "Progressing", "False Paused")
    await world.patch(POLICIES, "db", {"spec": {"paused": False}})
    await world.wait_rolled(names)
    await world.delete(POLICIES, "db")
    await _wait_condition(world, "Accepted", "True Accepted", name="younger")
    await world.delete(POLICIES, "younger")
    await world.roll(names, "v3")

    await _lose_kind(world, operator)
    await world.roll(names, "v4")
    await install_kinds(world.api)
    await _create_policy(world)
    await _wait_condition(world, "Ready", "True UpToDate")
    assert await operator.terminate() == 0


async def test_an_older_definition_is_named_in_the_log(world: World) -> None:
    """MAZ-43: what is recorded there is lost; the pauses follow from the pods all the same."""
    await _prepare(world)
    names = await world.create(*_zones(replicas=1))
    await _create_policy(world)
    operator = await world.operator(ON)
    await _wait_condition(world, "Ready", "True UpToDate")
    definition = await world.api.get(CRDS, "", KIND)
    for version in definition["spec"]["versions"]:
        status = version["schema"]["openAPIV3Schema"]["properties"]["status"]
        del status["properties"]["lastBatch"]
    path = f"{CRDS.path('', KIND)}"
    assert (await world.api.exchange("PUT", path, body=definition)).status == HTTPStatus.OK
    try:
        await world.set_image(names, "v2")
        await wait_line(operator, "Status of policy is not kept", "status.lastBatch")
        await world.wait_rolled(names)
    finally:
        await _lose_kind(world, operator)
        await install_kinds(world.api)
    deletes = [one.received for one in await world.judge.deletes() if one.uid]
    gaps = [after - before for before, after in pairwise(deletes)]
    assert min(gaps) >= (PAUSE - BLUR).total_seconds(), gaps


async def test_without_the_flag_policies_are_reported_under_the_base_role(world: World) -> None:
    """SEC-17: by a line of the log and an Event; a Role without the right costs only these."""
    await install_kinds(world.api)
    await _create_policy(world)
    names = await world.create(*three_zones(replicas=1))
    operator = await world.operator()
    line = await wait_line(operator, "Obeying no MultiAZRollouts", "policies=db ")
    assert "level=warn" in line

    async def is_reported() -> bool:
        events = await world.api.items(EVENTS, world.namespace)
        return [
            one["regarding"]["name"] for one in events if one["reason"] == "PolicyNotObeyed"
        ] == ["db"]

    await wait_true("no Event of the policy", is_reported)
    await operator.terminate()
    async with without(world, ("list", MULTI_AZ_ROLLOUTS.plural)):
        operator = await world.operator()
        await world.roll(names, "v2")
        told = [one for one in operator.log_lines() if MULTI_AZ_ROLLOUTS.kind in one]
        assert ["level=debug" in one for one in told] == [True]
    await world.judge.assert_clean()


async def _prepare(world: World) -> None:
    await install_kinds(world.api)
    await world.grant("multi-az-rollouts")


def _zones(group: str | None = None, replicas: int = 3) -> list[ZoneSpec]:
    return [
        ZoneSpec(
            name=f"db-{zone[-1]}",
            group=group,
            replicas=replicas,
            labels={"app": "db", TOPOLOGY_KEYS[0]: zone},
        )
        for zone in ZONES
    ]


async def _create_policy(world: World, name: str = "db", **spec: Any) -> None:
    body: Json = {
        "apiVersion": POLICIES.api_version,
        "kind": "MultiAZRollout",
        "metadata": {"name": name},
        "spec": {
            "statefulSetSelector": {"matchLabels": {"app": "db"}},
            "rollingUpdate": {"intervalSeconds": int(PAUSE.total_seconds())},
            **spec,
        },
    }
    await world.post(POLICIES, body)


async def _read_conditions(world: World, name: str) -> Mapping[str, str]:
    """Return status and reason of each condition, such as `True UpToDate`."""
    status = (await world.get(POLICIES, name)).get("status", {})
    return {one["type"]: f"{one['status']} {one['reason']}" for one in status.get("conditions", ())}


async def _wait_condition(world: World, kind: str, wanted: str, name: str = "db") -> None:
    """Wait as `kubectl wait --for=condition=...` does."""
    seen: Mapping[str, str] = {}

    async def holds() -> bool:
        nonlocal seen
        seen = await _read_conditions(world, name)
        return seen.get(kind) == wanted

    await wait_true(lambda: f"{name}: {kind} {wanted}, but {seen}", holds, LIMIT)


async def _wait_batch(world: World, number: int) -> None:
    async def is_recorded() -> bool:
        status = (await world.get(POLICIES, "db"))["status"]
        found: int = status.get("lastBatch", {}).get("number", 0)
        return found >= number

    await wait_true(f"batch {number} recorded", is_recorded, LIMIT)


async def _wait_driven(operator: OperatorProcess) -> None:
    """Wait until the label of the group says that a policy drives it."""
    await wait_reason(operator, "db", "driven_by_policy")


async def _lose_kind(world: World, operator: OperatorProcess) -> None:
    """Remove the definition of the kind, and wait until the operator knows."""
    before = len(operator.log_lines())
    await world.api.delete(CRDS, "", KIND)

    def is_reported() -> bool:
        return any(POLICIES.plural in line for line in operator.log_lines()[before:])

    await wait_true("a line about the kind", is_reported, LIMIT)
    assert operator.is_running
