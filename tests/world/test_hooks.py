"""Webhook configurations reach what serves them, by URL and by Service, and are always removed."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from rollout_operator.lab.zones import ZoneSpec
from tests.world.api import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    MUTATING_HOOKS,
    VALIDATING_HOOKS,
    Api,
    ApiError,
    Resource,
)
from tests.world.clients import Route, Workload
from tests.world.hooks import (
    INJECT_LABEL,
    NAMESPACE_LABEL,
    NO_DOWNSCALE,
    PREPARE_DOWNSCALE,
    Hooks,
    Registration,
)
from tests.world.pki import make_pki
from tests.world.plane import ControlPlane
from tests.world.reviews import Allow, Deny, Reviewer, Silence
from tests.world.scene import World

pytestmark = pytest.mark.controlplane

KNOWN_AS = "kubernetes.default.svc"
DENIED = f"/admission/{NO_DOWNSCALE}"


def called_at(world: World, port: int, **changes: object) -> Registration:
    wanted = Registration(port=port, ca_bundle=world.plane.pki.ca.read_bytes())
    return replace(wanted, **changes)  # type: ignore[arg-type]  # keywords of Registration


async def names(api: Api, resource: Resource) -> set[str]:
    return {each["metadata"]["name"] for each in await api.items(resource)}


async def test_by_url_the_hooks_are_called_mutating_before_validating(world: World) -> None:
    """SEED-148"""
    (name,) = await world.create(ZoneSpec(name="a", replicas=2))
    async with Reviewer(world.plane.pki) as reviewer:
        hooks = await world.register(called_at(world, reviewer.port))
        await hooks.wait_called(name)
        reviewer.seen.clear()
        reviewer.by_path[DENIED] = Deny(message="no: <it> stays", code=400)
        reviewer.by_path["/admission/prepare-downscale"] = Allow(warnings=('all "good"',))

        workload = Workload(api=world.api, namespace=world.namespace, name=name)
        for route in (Route.MERGE, Route.SCALE_MERGE):
            answer = await workload.scale(1, route)

            assert answer.status == 400
            assert answer.message == (
                f'admission webhook "no-downscale-{world.namespace}.grafana.com" denied the'
                " request: no: <it> stays"
            )
            assert answer.warnings == ('all "good"',)
        assert [(each.path.rpartition("/")[2], each.replicas) for each in reviewer.seen] == [
            (PREPARE_DOWNSCALE, (2, 1)),
            (NO_DOWNSCALE, (2, 1)),
        ] * 2
        assert [each.request["kind"]["kind"] for each in reviewer.seen[::2]] == [
            "StatefulSet",
            "Scale",
        ]
        assert await workload.replicas() == 2


@pytest.mark.parametrize("failure_policy", ["Fail", "Ignore"])
async def test_through_a_service_its_own_name_is_verified(
    world: World, tmp_path: Path, failure_policy: str
) -> None:
    """D-60, SEED-148: the reference that manifests ship works here, but for the port."""
    (name,) = await world.create(ZoneSpec(name="a", replicas=2))
    workload = Workload(api=world.api, namespace=world.namespace, name=name)
    pki = make_pki(tmp_path, more_names=[f"rollout-operator.{world.namespace}.svc"])
    async with Reviewer(pki, Deny()) as reviewer, Reviewer(world.plane.pki) as nameless:
        wanted = Registration(
            port=reviewer.port,
            service="rollout-operator",
            ca_bundle=pki.ca.read_bytes(),
            prepare_kind="Validating",
        )
        async with Hooks(world.api, world.namespace, wanted) as hooks:
            await hooks.wait_called(name)
            answer = await workload.scale(1, Route.SCALE_PUT)
            assert (answer.status, answer.message.rpartition(": ")[2]) == (
                403,
                "refused by a later webhook",
            )

        wanted = called_at(
            world, nameless.port, service="other-name", failure_policy=failure_policy
        )
        async with Hooks(world.api, world.namespace, wanted) as hooks:
            with pytest.raises(TimeoutError, match=r"prepare-downscale-\S+ is not called"):
                await hooks.wait_called(name, timedelta(seconds=3))
            answer = await workload.scale(1, Route.MERGE, is_dry_run=True)
            assert answer.status == (500 if failure_policy == "Fail" else 200)
            if failure_policy == "Fail":
                assert f"valid for localhost, kubernetes, {KNOWN_AS}, not other-name" in str(answer)
        assert nameless.seen == []


async def test_a_later_webhook_allows_refuses_and_is_silent(world: World) -> None:
    """FP-22"""
    (name,) = await world.create(ZoneSpec(name="a", replicas=4))
    workload = Workload(api=world.api, namespace=world.namespace, name=name)
    later = await world.later_webhook(Deny(message="over quota"), name)

    async with Reviewer(world.plane.pki) as reviewer:
        wanted = called_at(world, reviewer.port, hooks=[PREPARE_DOWNSCALE])
        hooks = await world.register(wanted)
        await hooks.wait_called(name)
        reviewer.seen.clear()

        refused = await workload.scale(3, Route.MERGE)
        assert (refused.status, refused.message.rpartition(": ")[2]) == (403, "over quota")
        assert [each.path for each in reviewer.seen] == [f"/admission/{PREPARE_DOWNSCALE}"]

        later.verdict = Silence()
        unanswered = await workload.scale(3, Route.MERGE, is_dry_run=True)
        assert unanswered.status == 500
        assert unanswered.message.endswith(": context deadline exceeded")
        later.verdict = Allow()
        assert (await workload.scale(3, Route.MERGE)).status == 200


async def test_they_ask_for_our_ca_and_are_removed_after_failures(world: World) -> None:
    """SEED-148, section 13.4: the labels; the wait ends when every bundle is there."""
    wanted = Registration(port=1)

    async def fail_with(hooks: Hooks) -> None:
        async with hooks:
            found = await hooks.fetch(NO_DOWNSCALE)
            assert found["metadata"]["labels"] == {
                INJECT_LABEL: "true",
                NAMESPACE_LABEL: world.namespace,
            }
            for hook in wanted.hooks:
                with pytest.raises(TimeoutError, match="no caBundle yet"):
                    await hooks.wait_injected(timedelta(milliseconds=200))
                patch = [
                    {"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": "aGVsbG8="}
                ]
                resource = hooks.resource(hook)
                await world.api.patch(resource, "", hooks.name(hook), patch, kind="json")
            assert await hooks.wait_injected() == [b"hello", b"hello"]
            raise RuntimeError("a test fails")

    with pytest.raises(RuntimeError, match="a test fails"):
        await fail_with(Hooks(world.api, world.namespace, wanted))

    for resource in (MUTATING_HOOKS, VALIDATING_HOOKS):
        left = await names(world.api, resource)
        assert not {each for each in left if world.namespace in each}


async def test_half_a_registration_leaves_nothing_behind(world: World) -> None:
    wanted = Registration(port=1, hooks=(NO_DOWNSCALE, "Not-A-Name"))

    with pytest.raises(ApiError, match="422 Invalid"):
        await Hooks(world.api, world.namespace, wanted).__aenter__()

    left = await names(world.api, VALIDATING_HOOKS)
    assert not {each for each in left if world.namespace in each}


async def test_cluster_roles_end_with_their_world(plane: ControlPlane, tmp_path: Path) -> None:
    async with World(plane, tmp_path) as world:
        await world.grant_webhooks()
        mine = f"rollout-operator-{world.namespace}-webhooks"
        assert mine in await names(world.api, CLUSTER_ROLES)

    async with plane.api() as api:
        for resource in (CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS):
            assert mine not in await names(api, resource)
