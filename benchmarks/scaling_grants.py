"""What the operator must be granted besides its base Role, as the shipped components grant it."""

from typing import Final

import yaml

from tests.rendered import MANIFESTS
from tests.world.manifests import apply_manifests
from tests.world.world import World

_FILES: Final = ("role.yaml", "rolebinding.yaml")


async def grant_component(world: World, component: str) -> None:
    """Apply the Role of a component to a world's operator."""
    folder = MANIFESTS / "components" / component
    role, binding = (yaml.safe_load((folder / name).read_text()) for name in _FILES)
    binding["subjects"][0]["namespace"] = world.namespace
    await apply_manifests(world.api, world.namespace, [role, binding])
