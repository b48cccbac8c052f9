"""One release in a simulated cluster: a Rollout, what announces it, Flux, and zones."""

from typing import Final

from rollout_lab.flux import label_owner
from rollout_lab.model.fields import children, name_of
from rollout_lab.model.request import ApiRequest
from rollout_lab.releases import group_check, list_release
from rollout_lab.zones import ZoneSpec, statefulset

from rollout_operator.kube.api import STATEFULSETS
from tests.controllers.releases.world import ReleaseSandbox

GROUP: Final = "web"


async def create_release(world: ReleaseSandbox, **bake: object) -> None:
    """Create a Rollout that bakes with the health of its zones, and all that it stands on."""
    sandbox = world.sandbox
    for one in [*list_release("app", bake), group_check("zones", "app", GROUP)]:
        await sandbox.call(one.create(sandbox.namespace, "amy"))


async def create_zones(world: ReleaseSandbox, before: str = "web-") -> None:
    """Create three zones that the Kustomization applies; `before` begins their names."""
    namespace = world.sandbox.namespace
    owner = label_owner("app", namespace)
    for letter in "abc":
        zone = ZoneSpec(
            name=f"{before}{letter}", group=GROUP, replicas=1, image="app:none", labels=owner
        )
        body = statefulset(zone, namespace)
        await world.sandbox.call(
            ApiRequest(verb="create", resource=STATEFULSETS, namespace=namespace, body=body)
        )


def map_images(world: ReleaseSandbox) -> dict[str, str]:
    return {
        name_of(sts): str(children(sts, "spec", "template", "spec", "containers")[0]["image"])
        for sts in world.sandbox.api.list(STATEFULSETS, world.sandbox.namespace)
    }
