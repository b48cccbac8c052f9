"""The contract with Flux: the play on a control plane of its own, compared with the record."""

import asyncio
import sys
import traceback
from collections.abc import Iterator, Sequence

from tests.flux.controllers import CONTROLLERS, read_kinds, read_version, running
from tests.flux.play import Play, play_releases
from tests.flux.record import list_differences, read_record, write_record
from tests.flux.sharing import share_objects
from tests.world.api import Json
from tests.world.assets import locate_assets
from tests.world.budgets import CRDS, wait_served
from tests.world.plane import ControlPlane
from tests.world.registry import serving
from tests.world.world import World


def prove_contract(*, is_recording: bool) -> Sequence[str]:
    """Play, and return what differs from the record, which is made anew where that is requested.

    Raises BuildError and NoControlPlaneError.
    """
    failed: list[str] = []
    try:
        seen = render(asyncio.run(_play()))
    except* (AssertionError, OSError, RuntimeError) as failures:
        failed = ["".join(traceback.format_exception(failures))]
    if failed:
        return failed
    if is_recording:
        write_record(seen)
    return list(compare(seen, read_record()))


def render(play: Play) -> Json:
    return {
        "versions": {one.name: read_version(one) for one in CONTROLLERS},
        "moments": play.moments,
        "managers": play.managers,
        "passing": {kind: sorted(seen) for kind, seen in play.passing.items()},
    }


def compare(seen: Json, known: Json) -> Iterator[str]:
    """Yield what is not as it was recorded; of what only passes not all is seen each time."""
    for part in ("versions", "moments", "managers"):
        yield from list_differences(seen[part], known[part], part)
    for kind, passing in seen["passing"].items():
        for conditions in sorted({*passing} - {*known["passing"][kind]}):
            yield f"passing/{kind}: {conditions}, not recorded"


async def _play() -> Play:
    async with ControlPlane(locate_assets(sys.stderr.write)).running() as plane:
        folder = plane.folder / "flux"
        folder.mkdir()
        async with World(plane, folder) as world:
            for crd in read_kinds():
                await world.api.create(CRDS, "", crd)
                await wait_served(world.api, crd)
            with serving(folder) as host, running(world) as controllers:
                try:
                    return await play_releases(world, host, share_objects)
                except (AssertionError, TimeoutError) as failure:
                    for one in controllers:
                        failure.add_note(f"--- {one.name}\n{one.tail()}")
                    raise
