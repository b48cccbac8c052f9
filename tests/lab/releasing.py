"""One release in a simulated cluster: a Rollout, what announces it, Flux, and zones."""

from typing import Final

from rollout_operator.kube.api import STATEFULSETS, JsonObject
from rollout_operator.kube.release_kinds import (
    HEALTH_CHECKS,
    IMAGE_POLICIES,
    IMAGE_REPOSITORIES,
    KUSTOMIZATIONS,
    OCI_REPOSITORIES,
    ROLLOUTS,
)
from rollout_operator.lab.flux import OWNER_LABELS
from rollout_operator.lab.model.fields import children, name_of
from rollout_operator.lab.model.request import ApiRequest
from rollout_operator.lab.zones import ZoneSpec, statefulset
from tests.controllers.releases.world import ReleaseSandbox

APP: Final = {"app": "app"}
GROUP: Final = "web"
TAGGED: Final = {"rollout.kuberik.com/rollout": "app"}
CHECKED: Final = {"healthcheck.kuberik.com/rollout-group": GROUP}


async def create_release(world: ReleaseSandbox, **spec: object) -> None:
    """Create a Rollout that bakes with the health of its zones, and all that it stands on."""
    await world.create(IMAGE_REPOSITORIES[0], "app", {"image": "registry.example/app"})
    policy = {"imageRepositoryRef": {"name": "app"}, "policy": {"semver": {"range": "*"}}}
    await world.create(IMAGE_POLICIES[0], "app", policy)
    source = {"interval": "1m", "url": "oci://registry.example/app", "ref": {"tag": "none"}}
    await world.create(OCI_REPOSITORIES[0], "app", source, annotations=TAGGED)
    applied = {"interval": "10m", "sourceRef": {"kind": "OCIRepository", "name": "app"}}
    await world.create(KUSTOMIZATIONS[0], "app", applied)
    group: JsonObject = {"class": "rollout-group"}
    await world.create(HEALTH_CHECKS, "zones", group, annotations=CHECKED, labels=APP)
    selector = {"selector": {"matchLabels": APP}}
    usual = {"releasesImagePolicy": {"name": "app"}, "healthCheckSelector": selector}
    await world.create(ROLLOUTS, "app", {**usual, **spec})


async def create_zones(world: ReleaseSandbox, letters: str = "abc", pods: int = 1) -> None:
    """Create zones that the Kustomization applies."""
    namespace = world.sandbox.namespace
    owner = dict(zip(OWNER_LABELS, ("app", namespace), strict=True))
    for letter in letters:
        zone = ZoneSpec(
            name=f"web-{letter}", group=GROUP, replicas=pods, image="app:none", labels=owner
        )
        body = statefulset(zone, namespace)
        await world.sandbox.call(
            ApiRequest(verb="create", resource=STATEFULSETS, namespace=namespace, body=body)
        )


def list_images(world: ReleaseSandbox) -> dict[str, str]:
    """Return the image that each zone wants."""
    return {
        name_of(sts): str(children(sts, "spec", "template", "spec", "containers")[0]["image"])
        for sts in world.sandbox.api.list(STATEFULSETS, world.sandbox.namespace)
    }
