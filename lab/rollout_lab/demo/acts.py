"""What a person can do in a demo beside watching, each by one key.

How a request is written is decided in `objects`, how an accident happens in `stage`.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Final

import msgspec

from rollout_lab.demo.keys import NEXT, QUIT
from rollout_lab.demo.objects import PERSON, cordon, name_node, pause, scale
from rollout_lab.demo.snapshot import PodCell, ZoneRow, is_at_rest
from rollout_lab.demo.stage import DemoRun
from rollout_lab.drains import Draining
from rollout_operator.aio.tasks import TaskStack

# As `kubectl drain` waits five seconds: pods of a story are faster.
RETRY: Final = timedelta(seconds=2)
# Until a pod, a node or an operator that was lost is there again.
REPAIR: Final = timedelta(seconds=4)


class Act(msgspec.Struct, frozen=True):
    """One thing to do."""

    meaning: str
    carry_out: Callable[[DemoRun], Awaitable[None]]


async def improvise(stage: DemoRun) -> str:
    """Do what the reader requests, until it is another story or the end; return which."""
    controls = stage.controls
    assert controls is not None, "no keys are read"
    stage.is_scripted = False
    async with TaskStack() as acts:
        under_way: list[str] = []
        while True:
            for key in controls.take():
                if key in (NEXT, QUIT):
                    return key
                stage.begin_anew()
                under_way.append(key)
                acts.start(ACTS[key].meaning, _carry_out(stage, key, under_way))
            await stage.tick()
            if not under_way and is_at_rest(stage.snapshot()):
                stage.show_totals()


async def _carry_out(stage: DemoRun, key: str, under_way: list[str]) -> None:
    try:
        await ACTS[key].carry_out(stage)
        await stage.rest(REPAIR / 2)
    finally:
        under_way.remove(key)


async def change_image(stage: DemoRun) -> None:
    """Roll out a version that works."""
    await stage.change_all(stage.next_version())


async def break_image(stage: DemoRun) -> None:
    """Roll out a version that crashes."""
    version = stage.next_version()
    stage.bad_versions.add(version)
    await stage.change_all(version)


async def roll_back(stage: DemoRun) -> None:
    """Go back to the last version before this that worked."""
    await stage.change_all(stage.last_good())


async def kill_pod(stage: DemoRun) -> None:
    """Let the first ready pod of the zone with the fewest accidents die for a while."""
    rows = stage.snapshot().rows
    pods = [pod for row in rows for pod in _list_ready(row)]
    if pods:
        stage.fail_pod(pods[0])
        await stage.rest(REPAIR)
        # It may have been replaced meanwhile.
        with suppress(LookupError):
            stage.mend_pod(pods[0])


def _list_ready(row: ZoneRow) -> list[str]:
    ready = (PodCell.OLD, PodCell.NEW)
    return [f"{row.name}-{number}" for number, cell in enumerate(row.cells) if cell.state in ready]


async def drain(stage: DemoRun, node: str) -> None:
    """Cordon a node and evict its pods, as `kubectl drain` does: again where it is refused."""
    await stage.act(f"drain {node}", cordon(node))
    draining = Draining(
        sandbox=stage.sandbox,
        what=f"the drain of {node}",
        nodes=[node],
        actor=PERSON,
        retry=stage.settings.scale(RETRY),
    )
    async with TaskStack() as tasks:
        tasks.start("drain", draining.run())
        while not tasks.list_dead():
            await stage.tick()


async def drain_node(stage: DemoRun) -> None:
    """Drain a node, and give it back."""
    node = name_node(stage.settings.names[0], 1)
    await drain(stage, node)
    await stage.act(f"uncordon {node}", cordon(node, is_cordoned=False))


async def scale_zone(stage: DemoRun) -> None:
    """Give the last zone a pod more, or take it back."""
    zone, pods = stage.settings.names[-1], stage.settings.pods
    row = next(row for row in stage.snapshot().rows if row.name == zone)
    wanted = pods + 1 if len(row.cells) <= pods else pods
    await stage.act(f"scale {zone} to {wanted}", scale(zone, wanted))


async def pause_zone(stage: DemoRun) -> None:
    """Pause the last zone, or release it."""
    zone = stage.settings.names[-1]
    is_paused = any(row.name == zone and row.is_paused for row in stage.snapshot().rows)
    text = f"release {zone}" if is_paused else f"pause {zone} (an annotation)"
    await stage.act(text, pause(zone, is_paused=not is_paused))


async def kill_operator(stage: DemoRun) -> None:
    """Let the operator die; alone, it is started again by its Deployment."""
    process = stage.acting
    if process is not None:
        stage.lose_operator()
        await stage.rest(REPAIR)
        stage.sandbox.say("kubelet", f"starts {process.name} again")
        process.start()


ACTS: Final[Mapping[str, Act]] = {
    "i": Act("new image for all zones", change_image),
    "b": Act("bad image: its pods crash", break_image),
    "r": Act("roll back to the last good image", roll_back),
    "k": Act("kill a pod", kill_pod),
    "d": Act("drain a node", drain_node),
    "s": Act("scale the last zone up or down", scale_zone),
    "p": Act("pause or release the last zone", pause_zone),
    "o": Act("kill the operator", kill_operator),
}
MEANINGS: Final[Mapping[str, str]] = {key: act.meaning for key, act in ACTS.items()}
