"""The webhooks of budgets as shipped, on the real API server: what they hold, and what they do not.

DEP-86, DEP-87, SEED-148.
"""

from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest
from rollout_lab.zones import ZoneSpec

from tests.rendered import LEAST, WEBHOOKS
from tests.system.installing import CONFIGURATIONS, installed, trust
from tests.system.waits import wait_true
from tests.world.api import PODS, ApiError, Json
from tests.world.budgets import (
    ZONE_BUDGETS,
    DryRun,
    evict,
    grouped_zones,
    install_kinds,
    zone_budget,
)
from tests.world.hooks import BUDGET_HOOKS, Hooks, Registration
from tests.world.operatorproc import TLS_FLAG
from tests.world.pki import make_pki
from tests.world.reviews import Reviewer
from tests.world.world import World

pytestmark = pytest.mark.controlplane

SERVICE: Final = "rollout-operator"
LABELS: Final = {"rollout-group": "ingester"}
OWN_POD: Final = f"{SERVICE}-6b7f9d5c4-x7k2p"
LOOKALIKES: Final = (f"{SERVICE}-x-10000", f"{SERVICE}-x-22222", f"{SERVICE}-payments-x7k2p")
SOON: Final = timedelta(seconds=30)
UNANSWERED: Final = "failed calling webhook"


async def test_dep87_a_dead_operator_blocks_evictions_and_new_budgets_only(
    world: World, tmp_path: Path
) -> None:
    """DEP-87, W-47: its own pod can be drained; labels and ends of budgets need no operator.

    Its own, and no other whose name begins like it.
    """
    await install_kinds(world.api)
    await world.create(ZoneSpec(name="probe", replicas=1))
    budget = zone_budget("old", LABELS)
    budget["metadata"]["finalizers"] = ["test/one"]
    await world.post(ZONE_BUDGETS, budget)
    for name in (OWN_POD, *LOOKALIKES):
        await _create_pod(world, name)
    async with installed(world, tmp_path, WEBHOOKS, LEAST):

        async def is_held() -> bool:
            answer = await evict(world.api, world.namespace, "probe-0", dry_run=DryRun.QUERY)
            return answer.status == 500 and UNANSWERED in answer.message

        await wait_true("held", is_held, SOON)
        with pytest.raises(ApiError, match=UNANSWERED):
            await world.post(ZONE_BUDGETS, zone_budget("new", LABELS))
        with pytest.raises(ApiError, match=UNANSWERED):
            await _patch(world, {"spec": {"maxUnavailable": 2}})
        with pytest.raises(ApiError, match=UNANSWERED):
            await _patch(world, {"metadata": {"annotations": {"a": "b"}}})
        await _patch(world, {"metadata": {"labels": {"a": "b"}}})
        await world.delete(ZONE_BUDGETS, "old")
        await _patch(world, {"metadata": {"finalizers": []}})
        assert await world.api.items(ZONE_BUDGETS, world.namespace) == []
        await world.delete(PODS, "probe-0")
        for name in LOOKALIKES:
            held = await evict(world.api, world.namespace, name)
            assert (held.status, UNANSWERED in held.message) == (500, True), (name, held)
        gone = await evict(world.api, world.namespace, OWN_POD)
        assert gone.status == 201, gone


async def test_dep86_what_reaches_the_operator(world: World, tmp_path: Path) -> None:
    """DEP-86: evictions, and budgets whose meaning changes; no other request for a pod."""
    await install_kinds(world.api)
    pki = make_pki(tmp_path, more_names=[f"{SERVICE}.{world.namespace}.svc"])
    await world.create(ZoneSpec(name="probe", replicas=1))
    async with (
        Reviewer(pki) as reviewer,
        installed(world, tmp_path / "x", WEBHOOKS, port=reviewer.port) as objects,
    ):
        await trust(world, objects, pki.ca.read_bytes())
        await _hooks(world).wait_called("probe")
        reviewer.seen.clear()
        await world.post(ZONE_BUDGETS, zone_budget("old", LABELS))
        for patch in ({"spec": {"maxUnavailable": 2}}, {"metadata": {"annotations": {"a": "b"}}}):
            await _patch(world, patch)
        seen = [(each.path, each.request["operation"]) for each in reviewer.seen]
        path = "/admission/zpdb-validation"
        assert seen == [(path, "CREATE"), (path, "UPDATE"), (path, "UPDATE")]
        reviewer.seen.clear()
        await _patch(world, {"metadata": {"labels": {"a": "b"}}})
        await world.delete(ZONE_BUDGETS, "old")
        change = {"metadata": {"annotations": {"a": "b"}}}
        await world.patch(PODS, "probe-0", change)
        assert reviewer.seen == []
        await evict(world.api, world.namespace, "probe-0")
        (eviction,) = reviewer.seen
        assert eviction.path == "/admission/pod-eviction"
        assert (eviction.request["subResource"], eviction.request["name"]) == (
            "eviction",
            "probe-0",
        )


async def test_seed148_as_shipped_they_hold_evictions(world: World, tmp_path: Path) -> None:
    """SEED-148, SEC-18, DEP-82: the least rights, names and flags fit together."""
    await install_kinds(world.api)
    names = await world.create(*grouped_zones(replicas=1), ZoneSpec(name="probe", replicas=1))
    async with installed(world, tmp_path / "x", WEBHOOKS, LEAST) as objects:
        (deployment,) = (one for one in objects if one["kind"] == "Deployment")
        container = deployment["spec"]["template"]["spec"]["containers"][0]
        words = [
            word.replace("$(POD_NAMESPACE)", world.namespace)
            for word in container["args"]
            if "kubernetes.namespace" not in word
        ]
        assert TLS_FLAG in words
        operator = await world.operator(*words)
        await _call_at(world, objects, operator.tls_port)
        hooks = _hooks(world)
        await hooks.wait_injected()
        await hooks.wait_called("probe")
        budget = zone_budget("ingester", LABELS, maxUnavailable=0)
        await world.post(ZONE_BUDGETS, budget)

        async def is_refused() -> bool:
            answer = await evict(world.api, world.namespace, f"{names[0]}-0", dry_run=DryRun.QUERY)
            return answer.status == 403 and "max unavailable = 0" in answer.message

        await wait_true("refused", is_refused, SOON)
        operator.kill()  # before its rights are gone


def _hooks(world: World) -> Hooks:
    """Return the shipped configurations of budgets, which are called like those of tests."""
    return Hooks(world.api, world.namespace, Registration(port=1, hooks=BUDGET_HOOKS))


async def _patch(world: World, patch: object) -> None:
    await world.patch(ZONE_BUDGETS, "old", patch)


async def _create_pod(world: World, name: str) -> None:
    spec = {"containers": [{"name": "rollout-operator", "image": "v1"}]}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    await world.post(PODS, body)


async def _call_at(world: World, objects: list[Json], port: int) -> None:
    """Let the configurations name the port that is listened on."""
    step = {"op": "replace", "path": "/webhooks/0/clientConfig/service/port", "value": port}
    for one in objects:
        if one["kind"] in CONFIGURATIONS:
            resource = CONFIGURATIONS[one["kind"]]
            await world.api.patch(resource, "", one["metadata"]["name"], [step], kind="json")
