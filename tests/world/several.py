"""Several namespaces for one operator: its rights in each of them, and in the whole cluster."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from tests.world.api import ROLE_BINDINGS, Json
from tests.world.judge import Judge
from tests.world.manifests import ACCOUNT, apply_manifests, remove_cluster_scoped
from tests.world.world import World

_AUTHORIZATION: Final = "rbac.authorization.k8s.io"


@asynccontextmanager
async def beside(home: World, *, is_granted: bool = True) -> AsyncIterator[World]:
    """Yield one more namespace, whose Roles are bound to the operator of `home`."""
    world = World(home.plane, home.folder, home.kubelet.choose)
    world.judge = Judge(home.plane, world.namespace, home.user)
    async with world:
        world.may_be_forbidden = not is_granted
        await world.grant_webhooks()
        await world.grant("multi-az-rollouts")
        if is_granted:
            await bind(world, home)
        yield world


async def bind(world: World, home: World) -> None:
    """Let the operator of `home` do in this namespace what the Roles of it grant."""
    for binding in await world.api.items(ROLE_BINDINGS, world.namespace):
        name = binding["metadata"]["name"]
        await world.patch(ROLE_BINDINGS, name, {"subjects": [_account(home)]})


def permit_following(group: str, plural: str) -> Json:
    """Return the rule that a kind may be listed and watched."""
    return {"apiGroups": [group], "resources": [plural], "verbs": ["list", "watch"]}


@asynccontextmanager
async def granting(home: World, *rules: Json) -> AsyncIterator[None]:
    """Grant the operator of `home` rules in the whole cluster, inside a block."""
    name = f"spaces-{home.namespace}"
    granted: list[Json] = [
        {"kind": "ClusterRole", "rules": [*rules]},
        {
            "kind": "ClusterRoleBinding",
            "roleRef": {"apiGroup": _AUTHORIZATION, "kind": "ClusterRole", "name": name},
            "subjects": [_account(home)],
        },
    ]
    head = {"apiVersion": f"{_AUTHORIZATION}/v1", "metadata": {"name": name}}
    granted = [{**head, **one} for one in granted]
    await apply_manifests(home.api, "", granted)
    yield
    await remove_cluster_scoped(home.api, granted)


def _account(home: World) -> Json:
    return {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": home.namespace}
