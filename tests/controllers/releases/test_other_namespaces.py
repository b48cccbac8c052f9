"""What an object names in another namespace: read live, within what Flux and flags allow."""

from typing import Final

import pytest

from rollout_operator.controllers.release_sources import ReleaseLookUps
from rollout_operator.kube import api as kinds
from rollout_operator.model.releases import ImageReference, ReleaseMetadata
from rollout_operator.oci.client import RegistryAccess
from tests.controllers.releases.bench import FakeReleaseApi, ReleaseBench
from tests.virtual_time import VirtualClock, in_virtual_time

TRY: Final = "try ocirepositories/app"
STATUS: Final = "patch rollouts/status/app"
TAG: Final = "apply ocirepositories/app"
ELSEWHERE: Final = {"releasesImagePolicy": {"name": "app", "namespace": "flux-system"}}


class Registries:
    """Is called by nothing: what is read stands in a queue."""

    async def fetch_release(self, image: ImageReference, access: RegistryAccess) -> ReleaseMetadata:
        raise AssertionError(f"{image}")


@in_virtual_time
async def test_a_policy_of_another_namespace_is_read_live() -> None:
    """RELB-26."""
    bench = ReleaseBench()
    bench.api.add(kinds.ROLLOUTS, "app", ELSEWHERE)
    bench.show("rollouts")
    await bench.step()
    # Once more when the deployment has been tried, and has its turn to be recorded.
    read = "get imagepolicies/app"
    assert bench.api.calls == [read, TRY, read, STATUS, TAG]


@in_virtual_time
async def test_a_policy_of_another_namespace_is_refused_where_a_flag_says_so() -> None:
    """RELB-26: it is not even read."""
    bench = ReleaseBench()
    bench.api.add(kinds.ROLLOUTS, "app", ELSEWHERE)
    bench.keep_to_namespace()
    bench.show("rollouts")
    await bench.step()
    assert bench.api.calls == [STATUS]
    assert bench.condition() == (
        "False RolloutFailed: ImagePolicy flux-system/app: other namespaces are left alone by"
        " -releases.no-cross-namespace-refs"
    )


@pytest.mark.parametrize(
    ("selected", "is_kept", "requested"),
    [
        pytest.param("registry.example/app", False, 2, id="of both tags"),
        pytest.param("registry.example/own", False, 0, id="Flux selected of another image"),
        pytest.param("::", False, 0, id="no image"),
        pytest.param("registry.example/app", True, 0, id="a flag refuses it"),
    ],
)
@in_virtual_time
async def test_an_image_repository_elsewhere_is_used_where_flux_uses_it(
    selected: str, is_kept: bool, requested: int
) -> None:
    """RELB-26, REL-24: no tenant reads a registry with a pull secret of others by naming it."""
    bench = ReleaseBench(wantedVersion="9.9.9")
    body = {"image": "registry.example/app", "secretRef": {"name": "pull"}}
    bench.api.add(kinds.IMAGE_REPOSITORIES[0], "app", body, metadata={"namespace": "others"})
    policy = bench.api.objects["imagepolicies", "app"]
    policy["spec"]["imageRepositoryRef"]["namespace"] = "others"
    policy["status"]["latestRef"]["name"] = selected
    look_ups = ReleaseLookUps(
        Registries(), FakeReleaseApi(), VirtualClock(), lambda name, wait: None
    )
    bench.use(look_ups)
    if is_kept:
        bench.keep_to_namespace()
    for _ in range(2):
        bench.show()
        await bench.step()
    assert (bench.history(), bench.tag) == ("9.9.9", "9.9.9")
    assert look_ups.queue.depth == requested
