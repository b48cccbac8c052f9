"""One process for several namespaces: each has all of it, and none holds another (MAZ-60)."""

import asyncio
import json
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from http import HTTPStatus
from typing import Final

import msgspec
import pytest
from msgspec.structs import replace
from rollout_lab.zones import ZoneSpec, three_zones

from rollout_operator.kube.api import MULTI_AZ_ROLLOUTS
from rollout_operator.model.names import GROUP_LABEL_LONG
from tests.system.hooked import TLS_FLAGS, calling
from tests.system.waits import read_metric, wait_line, wait_page, wait_true
from tests.system.zones import NO_DOWNSCALE, PATH, prepared_zone
from tests.world.api import ApiError, Json, Resource
from tests.world.budgets import ZONE_BUDGETS, evict, grouped_zones, install_kinds, zone_budget
from tests.world.clients import CREATED
from tests.world.hooks import (
    INJECT_LABEL,
    NAMESPACE_LABEL,
    POD_EVICTION,
    PREPARE_DOWNSCALE,
    Hooks,
    Registration,
)
from tests.world.hooks import NO_DOWNSCALE as NO_DOWNSCALE_HOOK
from tests.world.operatorproc import OperatorProcess
from tests.world.webpods import WebPods
from tests.world.world import World, beside, bind, granting, permit_following

pytestmark = pytest.mark.controlplane

POLICIES: Final = Resource("rollout.grafana.com/v1alpha1", MULTI_AZ_ROLLOUTS.plural)
# What it needs to find the namespaces of a cluster.
CLUSTER_RULES: Final = (
    permit_following("apps", "statefulsets"),
    permit_following("rollout-operator.grafana.com", "zoneawarepoddisruptionbudgets"),
    permit_following("rollout.grafana.com", "multiazrollouts"),
)
CLUSTER_SCOPED: Final = frozenset(
    ("validatingwebhookconfigurations", "mutatingwebhookconfigurations", "nodes")
)


def launch(home: World, watched: str, *flags: str) -> OperatorProcess:
    """Return an operator of `home` that watches what the variable says; it is not started."""
    home.may_be_forbidden = True
    limits = ("-kubernetes.client-qps=100", "-kubernetes.client-burst=100")
    variables = {
        "WATCH_NAMESPACE": watched,
        "POD_NAMESPACE": home.namespace,
        "LOG_LEVEL": "debug",
    }
    started = home.launch(*limits, "-multi-az-rollouts.enabled", *flags)
    return OperatorProcess(replace(started, namespace="", env=variables))


def make_policy(name: str) -> Json:
    """Return a MultiAZRollout of the sets with this label `app`, without a pause."""
    return {
        "apiVersion": POLICIES.api_version,
        "kind": MULTI_AZ_ROLLOUTS.kind,
        "metadata": {"name": name},
        "spec": {
            "statefulSetSelector": {"matchLabels": {"app": name}},
            "rollingUpdate": {"intervalSeconds": 0},
        },
    }


async def list_requests(home: World, begun: int) -> list[Json]:
    """Return what the audit log has of the operator since then."""
    await home.judge.settle()
    entries, _ = home.plane.read_audit(begun)
    return [one for one in entries if one["user"].get("username") == home.user]


def list_strays(entries: Sequence[Json], watched: Collection[str]) -> list[str]:
    """Return the requests that were about objects elsewhere."""
    assert {entry.get("objectRef", {}).get("namespace") for entry in entries} >= {*watched}
    return [
        entry["requestURI"]
        for entry in entries
        if (target := entry.get("objectRef", {})).get("namespace") not in watched
        and target.get("resource") not in CLUSTER_SCOPED
    ]


def collect_watches(entries: Sequence[Json]) -> set[tuple[str, str | None]]:
    """Return what was watched: kinds and namespaces, None where that is all of them."""
    targets = [entry["objectRef"] for entry in entries if entry["verb"] == "watch"]
    return {(target["resource"], target.get("namespace")) for target in targets}


GROUP: Final = {"rollout-group": "ingester"}
GUARDED: Final = ZoneSpec(name="guarded", group=None, replicas=1, labels={NO_DOWNSCALE: "true"})
LONG_LABELLED: Final = ZoneSpec(
    name="long-a", group=None, replicas=1, labels={GROUP_LABEL_LONG: "store"}
)
# Nothing but their nodes could say the zones of these, so that nodes are read.
DRIVEN: Final = [
    ZoneSpec(name=f"db-zone-{letter}", group=None, replicas=1, labels={"app": "db"})
    for letter in "ab"
]
NODE_RULE: Final = permit_following("", "nodes")


class Several(msgspec.Struct, frozen=True, kw_only=True):
    """One operator, the namespaces that it watches, and one of them that it may not read."""

    operator: OperatorProcess
    home: World
    worlds: Sequence[World]
    """`home` is the first."""
    forbidden: World

    @property
    def watched(self) -> set[str]:
        """Return the names of all of them."""
        return {world.namespace for world in (*self.worlds, self.forbidden)}


@asynccontextmanager
async def several(home: World) -> AsyncIterator[Several]:
    """Yield an operator that is ready, in its own namespace and three others."""
    async with AsyncExitStack() as stack:
        others = [await stack.enter_async_context(beside(home)) for _ in range(2)]
        forbidden = await stack.enter_async_context(beside(home, is_granted=False))
        await home.grant_webhooks()
        await home.grant("multi-az-rollouts")
        await stack.enter_async_context(granting(home, NODE_RULE))
        names = ",".join(world.namespace for world in (home, *others, forbidden))
        operator = await stack.enter_async_context(launch(home, names, *TLS_FLAGS))
        await operator.wait_ready()
        yield Several(operator=operator, home=home, worlds=[home, *others], forbidden=forbidden)


async def test_maz60_each_of_several_namespaces_has_all_of_one(world: World) -> None:
    """MAZ-60, MAZ-80, MT-66, MT-68: rollouts, reviews, budgets; a forbidden one holds only itself.

    Groups by label and by policy side by side. Nothing is sent to the API server outside of the
    namespaces that are watched, but for kinds of the cluster, and for all namespaces once.
    """
    await install_kinds(world.api)
    begun = world.plane.audit_size()
    async with several(world) as found:
        # What they enter and leave belongs to this task.
        stages = [await _set_up(each, found) for each in found.worlds]
        await asyncio.gather(*map(_play, stages))
        await _assert_reported(found)
        await _assert_forbidden(found)
        await bind(found.forbidden, world)
        await wait_line(
            found.operator, "Looking after namespace", f"namespace={found.forbidden.namespace}"
        )
        names = await found.forbidden.create(*three_zones(replicas=1))
        await found.forbidden.roll(names, "v2")
        await wait_page(found.operator, "/ready", 200, "ready", lacking="namespace")
        for each in (*found.worlds, found.forbidden):
            each.judge.elsewhere = found.watched - {each.namespace}
            await each.judge.assert_clean()
        assert await found.operator.terminate() == 0
        mine = await list_requests(found.home, begun)
        assert list_strays(mine, found.watched) == []
        assert sum(entry["requestURI"].endswith("/nodes?limit=1") for entry in mine) == 1


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """What is there in one namespace."""

    world: World
    pods: WebPods
    hooks: Hooks
    names: list[str]


async def _set_up(world: World, found: Several) -> Stage:
    pods = await world.serve_pods()
    names = await world.create(*grouped_zones(replicas=1))
    prepared = ZoneSpec(name="prepared", group="store", replicas=2)
    await world.create(GUARDED, prepared_zone(pods, prepared), *DRIVEN)
    await world.post(POLICIES, make_policy("db"))
    await world.post(ZONE_BUDGETS, zone_budget("ingester", GROUP, maxUnavailable=1))
    hooks = await world.register(
        Registration(
            port=found.operator.tls_port,
            hooks=(NO_DOWNSCALE_HOOK, PREPARE_DOWNSCALE, POD_EVICTION),
            labels={INJECT_LABEL: "true", NAMESPACE_LABEL: found.home.namespace},
        )
    )
    return Stage(world=world, pods=pods, hooks=hooks, names=names)


async def _play(stage: Stage) -> None:
    """Have a rollout, reviews of both kinds and a budget do here what they do in one namespace."""
    world, names = stage.world, stage.names
    await stage.hooks.wait_injected()
    await stage.hooks.wait_called("guarded")
    await world.set_image([zone.name for zone in DRIVEN], "v2")
    await world.roll(names, "v2")
    await world.wait_adopted([zone.name for zone in DRIVEN])
    with pytest.raises(ApiError, match="denied the request"):
        await world.set_replicas("guarded", 0)
    await world.set_replicas("prepared", 1)
    calls = [(call.path, call.method) for call in stage.pods.calls_to("prepared-1")]
    assert (f"/{PATH}", "POST") in calls
    first, second = f"{names[0]}-0", f"{names[1]}-0"
    assert (await evict(world.api, world.namespace, first)).status in CREATED
    refused = await evict(world.api, world.namespace, second)
    assert refused.status == HTTPStatus.TOO_MANY_REQUESTS, refused
    await world.wait_ready(names)


async def _assert_reported(found: Several) -> None:
    """Metrics, log and page name the namespace."""
    operator = found.operator
    for world in found.worlds:
        await wait_true(
            "counted",
            lambda world=world: _is_counted(operator, world.namespace),  # type: ignore[misc]
        )
        await wait_line(operator, "group=ingester ", f"namespace={world.namespace}")
    document: Json = json.loads((await operator.fetch("/status.json"))[1])
    groups = {(group["namespace"], group["name"]) for group in document["groups"]}
    assert groups >= {(world.namespace, "ingester") for world in found.worlds}
    driving = {(policy["namespace"], policy["name"]) for policy in document["policies"]}
    assert driving == {(world.namespace, "db") for world in found.worlds}
    lines = [line for line in (await operator.metrics()).splitlines() if not line.startswith("#")]
    series = [line.rsplit(" ", 1)[0] for line in lines]
    assert len(series) == len({*series}), "each is there once"
    for namespace, name in driving:
        own = f'{{namespace="{namespace}",name="{name}"}}'
        assert f"rollout_operator_multiaz_batch_duration_seconds_count{own}" in series
    ready = {one["name"]: one["is_ready"] for one in document["namespaces"]}
    assert ready == {
        **{world.namespace: True for world in found.worlds},
        found.forbidden.namespace: False,
    }


async def _is_counted(operator: OperatorProcess, namespace: str) -> bool:
    name = "rollout_operator_pods_deleted_total"
    labels = {"namespace": namespace, "rollout_group": "ingester", "outcome": "accepted"}
    return await read_metric(operator, name, **labels) == len(three_zones())


async def _assert_forbidden(found: Several) -> None:
    """It is reported, and reviews of its objects are refused, to be tried again."""
    namespace = found.forbidden.namespace
    page = await wait_page(found.operator, "/ready", 200, f"namespace {namespace}: ")
    assert "may not" in page or "forbidden" in page or "cannot list" in page
    async with calling(found.home, found.operator) as caller:
        answer = await caller.evict(namespace, "any-0")
        assert (answer.is_allowed, answer.code) == (False, HTTPStatus.TOO_MANY_REQUESTS)
        assert f"namespace {namespace} is not followed yet" in answer.message
        elsewhere = await caller.evict("kube-system", "any-0")
        assert elsewhere.code == HTTPStatus.BAD_REQUEST, "as in one namespace"
        assert "kube-system is not looked after" in elsewhere.message


async def test_maz65_all_namespaces_are_watched_where_the_role_permits_it(world: World) -> None:
    """MAZ-65: else its own, which one line says. Either label of a group shows a namespace.

    Where policies are installed and the Role has no watch on them, groups go by their label.
    """
    await install_kinds(world.api)
    await world.grant_webhooks()
    async with (
        beside(world) as other,
        beside(world) as longer,
        launch(world, "", *TLS_FLAGS) as operator,
    ):
        names = await world.create(*three_zones(replicas=1))
        assert await other.create(*three_zones(replicas=1)) == names
        by_long = [LONG_LABELLED, replace(LONG_LABELLED, name="long-b")]
        long_names = await longer.create(*by_long)
        await operator.wait_ready()
        await wait_line(operator, "Looking after its own namespace alone", world.namespace)
        warnings = [line for line in operator.log_lines() if "kind=StatefulSet" in line]
        assert len([line for line in warnings if "level=warn" in line]) == 1
        await other.set_image(names, "v2")
        await longer.set_image(long_names, "v2")
        await world.roll(names, "v2")
        assert await operator.terminate() == 0
        other.judge.elsewhere = {world.namespace}
        assert await other.judge.deletes() == [], "it may, but has no flag for it"
        begun = world.plane.audit_size()
        async with granting(world, *CLUSTER_RULES):
            operator.start()
            await operator.wait_ready()
            await other.wait_adopted(names)
            await longer.wait_adopted(long_names)
        watches = collect_watches(await list_requests(world, begun))
        assert watches >= {("statefulsets", None), ("pods", other.namespace)}
        own = {
            (kind, space) for kind, space in watches if space in {other.namespace, longer.namespace}
        }
        assert {kind for kind, _ in own} == {"pods"}, "the others are followed once for all"
        for each in (world, other, longer):
            elsewhere = {one.namespace for one in (world, other, longer)} - {each.namespace}
            each.judge.elsewhere = elsewhere
            await each.judge.assert_clean()
