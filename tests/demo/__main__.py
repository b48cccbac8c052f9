"""`make demo-cluster`: a rollout on a real control plane, to be watched or kept."""

import asyncio
import io
import os
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from typing import Final

import msgspec
from msgspec.structs import replace
from rollout_lab.demo.screen import Screen, choose_screen
from rollout_lab.end import end_by_signal
from rollout_lab.trace.lines import is_whole
from rollout_lab.zones import ZoneSpec

from rollout_operator.model.names import ExitCode
from rollout_operator.planning.text import Line, Style
from rollout_operator.planning.wording import count
from tests.demo.flags import Settings, read_settings
from tests.demo.kept import stay
from tests.demo.stage import OLD_IMAGE, ZONES, OperatorEndedError, Stage
from tests.system.hooked import TLS_FLAGS
from tests.system.zones import NO_DOWNSCALE, create_budgets
from tests.world.assets import NoControlPlaneError, locate_assets
from tests.world.budgets import GROUP, zone_budget
from tests.world.hooks import BUDGET_HOOKS, PREPARE_DOWNSCALE, Registration
from tests.world.hooks import NO_DOWNSCALE as NO_DOWNSCALE_HOOK
from tests.world.kubelet import Behaviour, Nodes, always
from tests.world.operatorproc import OperatorProcess
from tests.world.plane import ControlPlane
from tests.world.world import World

NAMESPACE: Final = "demo"
HOOKS: Final = (NO_DOWNSCALE_HOOK, PREPARE_DOWNSCALE, *BUDGET_HOOKS)
ENDS_AFTER: Final = timedelta(milliseconds=300)


async def run(plane: ControlPlane, settings: Settings, screen: Screen) -> bool:
    """Start a control plane, show a rollout on it, and remove every trace; return as `present`."""
    try:
        with _step(screen, "etcd, API server and controller manager"):
            await plane.start()
        async with open_cluster(plane, settings, screen, NAMESPACE) as cluster:
            is_well = await present(cluster, screen)
            if settings.is_kept:
                await stay(cluster.world, cluster.operator)
            return is_well
    finally:
        await plane.stop()


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """Three zones, and the operator with its webhooks."""

    world: World
    operator: OperatorProcess


@asynccontextmanager
async def open_cluster(
    plane: ControlPlane, settings: Settings, screen: Screen, namespace: str = ""
) -> AsyncIterator[Cluster]:
    """Yield a cluster on a running control plane that is as it should be."""
    pods = Behaviour(ready_after=settings.ready_after, terminates_after=ENDS_AFTER)
    async with (
        World(plane, plane.folder, always(pods), namespace=namespace) as world,
        Nodes(world.api, ZONES) as nodes,
    ):
        world.kubelet.place = nodes.place
        with _step(screen, f"{len(ZONES)} StatefulSets of {settings.pods} pods, and a budget"):
            budget = zone_budget("ingester", {GROUP: "ingester"}, maxUnavailable=settings.limit)
            await create_budgets(world, [budget])
            await world.create(*_list_zones(settings))
        with _step(screen, "the operator with its webhooks, under the shipped Roles"):
            await world.grant("webhooks")
            await world.grant("multi-az-rollouts")
            operator = await world.operator(*TLS_FLAGS, "-multi-az-rollouts.enabled")
            await world.register(Registration(port=operator.tls_port, hooks=HOOKS), ZONES[0])
        yield Cluster(world=world, operator=operator)


def _list_zones(settings: Settings) -> list[ZoneSpec]:
    zone = ZoneSpec(
        name="",
        replicas=settings.pods,
        max_unavailable=settings.limit,
        image=OLD_IMAGE,
        pod_labels={GROUP: "ingester"},
    )
    guarded = {NO_DOWNSCALE: "true"}
    return [replace(zone, name=name, labels=guarded if name == ZONES[-1] else {}) for name in ZONES]


async def present(cluster: Cluster, screen: Screen) -> bool:
    """Show a rollout on a cluster; return whether it was as it should be."""
    stage = Stage(cluster.world, cluster.operator, screen)
    screen.write("\n")
    trouble = ""
    with screen:
        try:
            async with asyncio.TaskGroup() as tasks:
                beside = [tasks.create_task(each) for each in (stage.follow(), stage.tick())]
                await stage.until(lambda now: True)
                stage.say("new image for all zones: v2")
                await cluster.world.set_image(ZONES, "v2")
                await stage.until(lambda now: all(map(is_whole, now.sets.values())))
                for task in beside:
                    task.cancel()
        except* (TimeoutError, OperatorEndedError) as failed:
            trouble = "\n".join(str(error) for error in failed.exceptions)
        broken = await cluster.world.judge.violations()
        texts = [*(f"{one.invariant}: {one.text}" for one in broken), *trouble.splitlines()]
        if stage.operator.is_running:
            await stage.look_last()
        screen.finish(stage.picture(*await _sum_up(cluster.world, texts)))
    return not texts


async def _sum_up(world: World, broken: Sequence[str]) -> list[Line]:
    """Return what was done, and whether the promises of docs/promises.md were kept."""
    deletes = [one.is_done for one in await world.judge.deletes()]
    done = f"the operator deleted {count(sum(deletes), 'pod')}"
    verdict = "etcd's own history, read by a judge: every promise was kept"
    if broken:
        verdict = "etcd's own history, read by a judge: not as promised"
    return [
        ((done, Style.PLAIN),),
        ((verdict, Style.BOLD),),
        *(((text, Style.RED),) for text in broken),
    ]


@contextmanager
def _step(screen: Screen, what: str) -> Iterator[None]:
    """Show a step of the set-up, and how long it took."""
    begin = time.monotonic()
    screen.write(f"  {what + ' ':.<60} ")
    yield
    screen.write(f"{time.monotonic() - begin:.1f} s\n")


def main(words: Sequence[str] | None = None) -> int:
    settings = read_settings(sys.argv[1:] if words is None else words)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    screen = choose_screen(sys.stdout, os.environ, is_plain=settings.is_plain)
    screen.write("The operator on a real control plane:\n")
    try:
        plane = ControlPlane(locate_assets(screen.write))
        code = asyncio.run(end_by_signal(run(plane, settings, screen)))
    except NoControlPlaneError as error:
        sys.stderr.write(f"{error}\n")
        return ExitCode.FAILED
    except KeyboardInterrupt:
        code = ExitCode.INTERRUPTED
    # There is no other way to end what is kept.
    return ExitCode.DONE if code == ExitCode.INTERRUPTED and settings.is_kept else code


if __name__ == "__main__":
    sys.exit(main())
