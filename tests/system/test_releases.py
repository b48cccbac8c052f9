"""The examples of kuberik's documentation with the reference registry; all else: `releases.txt`."""

from pathlib import Path
from typing import Final

import pytest
import yaml

from tests.goldens import Golden
from tests.oci.registries import NAME
from tests.stories import Story, read_stories
from tests.system.release_stage import ReleaseStage
from tests.system.releasing import KINDS, create_pull_secret
from tests.world.api import Resource
from tests.world.budgets import FOLDER, install_kinds
from tests.world.flux import install_flux
from tests.world.plane import ControlPlane
from tests.world.registry import push_image, serving
from tests.world.world import World

pytestmark = pytest.mark.controlplane

HERE: Final = Path(__file__).parent


@pytest.mark.parametrize("story", read_stories(HERE / "kuberik.txt"))
async def test_the_examples_of_kuberik(
    story: Story, golden: Golden, plane: ControlPlane, tmp_path: Path
) -> None:
    with serving(tmp_path) as host:
        for tag in ("1.0.0", "1.1.0"):
            push_image(host, tag, version=f"v{tag}")
        async with World(plane, tmp_path, namespace="flux-system") as world:
            await _apply_examples(world, host)
            story.check(await ReleaseStage(world).play(story.commands), golden)
            await world.assert_permitted()


async def _apply_examples(world: World, host: str) -> None:
    await install_kinds(world.api, FOLDER / "releases")
    await install_flux(world.api)
    for component in ("releases", "releases-registries"):
        await world.grant(component)
    await create_pull_secret(world, host)
    text = (HERE / "kuberik.yaml").read_text().replace("REGISTRY/team/app", f"{host}/{NAME}")
    for body in yaml.safe_load_all(text):
        resource = Resource(body["apiVersion"], KINDS[body["kind"]].plural)
        await world.api.create(resource, world.namespace, body)
