"""What Flux says of its objects, and waits for it."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from tests.flux.record import REQUESTED_AT, show_conditions
from tests.system.releasing import LIMIT
from tests.system.waits import wait_true
from tests.world.api import Json, Resource
from tests.world.world import World

# After a change Flux acts within less.
_CALM: Final = timedelta(seconds=2)


def is_failing(reason: str) -> Callable[[Json], bool]:
    """Return a check whether Flux failed for this reason with an object as it is now."""

    def is_so(body: Json) -> bool:
        return any(
            (one["type"], one["status"], one["reason"]) == ("Ready", "False", reason)
            and one["observedGeneration"] == body["metadata"]["generation"]
            for one in body["status"].get("conditions", ())
        )

    return is_so


def is_requested_again(body: Json) -> bool:
    """Return whether Flux has taken a request to reconcile an object."""
    requested = (body["metadata"].get("annotations") or {}).get(REQUESTED_AT)
    return requested is not None and body["status"].get("lastHandledReconcileAt") == requested


def is_settled(body: Json) -> bool:
    """Return whether Flux is through with what stands in an object."""
    is_seen = body["status"].get("observedGeneration") == body["metadata"]["generation"]
    shown = show_conditions(body)
    return is_seen and "Ready=True" in shown and "Reconciling" not in shown


def is_applied(tag: str) -> Callable[[Json], bool]:
    return lambda body: (
        is_settled(body) and body["status"]["lastAppliedRevision"].startswith(f"{tag}@")
    )


async def wait_flux(
    world: World, resource: Resource, holds: Callable[[Json], bool], name: str = "app"
) -> None:
    seen: Mapping[str, Any] = {}

    async def is_so() -> bool:
        nonlocal seen
        seen = await world.get(resource, name)
        return "status" in seen and holds(dict(seen))

    await wait_true(lambda: f"it, but {seen.get('status')}", is_so, LIMIT)


async def wait_calm(world: World, resources: Sequence[Resource]) -> None:
    """Wait until Flux is through with all, and has written none of them for a while."""

    async def is_calm() -> bool:
        before = [await world.get(one, "app") for one in resources]
        if not all(map(is_settled, before)):
            return False
        await asyncio.sleep(_CALM.total_seconds())
        return [await world.get(one, "app") for one in resources] == before

    await wait_true("calm", is_calm, LIMIT)


async def request_again(world: World, resource: Resource, name: str, value: str) -> None:
    """Have Flux reconcile an object again, and wait until it has."""
    await world.patch(resource, name, {"metadata": {"annotations": {REQUESTED_AT: value}}})
    await wait_flux(
        world, resource, lambda body: is_requested_again(body) and is_settled(body), name
    )
