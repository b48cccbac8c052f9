"""How a story begins: a world with whole zones and a ready operator, and its end.

What is told is decided in `scenarios`; how the operator and the world are put together, in
`lab.world`.
"""

from collections.abc import AsyncIterator, Set
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Final

from msgspec.structs import replace

from rollout_lab.demo.flags import DemoSettings
from rollout_lab.demo.keys import Controls, set_loop_pace
from rollout_lab.demo.objects import FIRST, NAMESPACE, REPLICAS
from rollout_lab.demo.screen import Screen
from rollout_lab.demo.stage import DemoRun, Story
from rollout_lab.flux import FluxTimes
from rollout_lab.nodes.behaviour import Behaviour, Choose, Response, StartKind, image_of
from rollout_lab.virtual_loop.pace import Range
from rollout_lab.world import EPOCH, Sandbox
from rollout_operator.aio.clock import LoopClock
from rollout_operator.kube.api import JsonObject
from rollout_operator.telemetry import logs

# Pods of the initial version start fast: set-up time is not part of the scenario.
AT_ONCE: Final = timedelta(milliseconds=50)
FETCH: Final = timedelta(milliseconds=800)
APPLY: Final = timedelta(milliseconds=600)
# Of a loop that can: what comes before the story is mostly waiting.
SET_UP_PACE: Final = 8.0
# The people of a story do not wait for the operator's turn at the API server.
_ARGS: Final = ("-kubernetes.client-qps=0",)


@asynccontextmanager
async def open_stage(
    story: Story, settings: DemoSettings, screen: Screen, controls: Controls | None = None
) -> AsyncIterator["DemoRun"]:
    """Give a world with whole zones and a ready operator, and end it. Raises StoryStuck."""
    bad_versions = {story.bad_version}
    sandbox = Sandbox(
        seed=settings.seed,
        choose=choose_behaviour(bad_versions, settings),
        namespace=NAMESPACE,
        # What is recorded is the same on any day.
        epoch=EPOCH if settings.record else LoopClock().now(),
        flux=FluxTimes(fetch=_span(settings, FETCH), apply=_span(settings, APPLY)),
    )
    args = (*_ARGS, *story.args)
    replicas = tuple(
        sandbox.process(name, args=args, webhooks=True, elects=story.replicas > 1)
        for name in REPLICAS[: story.replicas]
    )
    stage = DemoRun(
        story=story,
        settings=settings,
        screen=screen,
        sandbox=sandbox,
        replicas=replicas,
        controls=controls,
        bad_versions=bad_versions,
    )
    logs.configure(format="json", write=stage.read_line)
    try:
        async with sandbox:
            set_loop_pace(SET_UP_PACE)
            await stage.set_up()
            set_loop_pace(controls.pace if controls else 1.0)
            yield stage
            for process in replicas:
                await process.stop()
                # Its last call may be on its way still.
                await process.link.ground()
    finally:
        logs.configure()


def _span(settings: DemoSettings, span: timedelta) -> Range:
    return (settings.scale(span), settings.scale(span))


def choose_behaviour(bad_versions: Set[str], settings: DemoSettings) -> Choose:
    """Return how the pods of a story behave, by their version."""
    ready_after = settings.scale(settings.ready_after)
    usual = Behaviour(
        starts_after=ready_after / 4,
        ready_after=ready_after * 3 / 4,
        terminates_after=ready_after / 4,
        prepare=Response(after=ready_after / 4),
    )
    quick = replace(usual, starts_after=AT_ONCE, ready_after=AT_ONCE)
    bad = replace(usual, kind=StartKind.CRASH_LOOP, ready_after=ready_after / 4)

    def choose(pod: JsonObject) -> Behaviour:
        version = image_of(pod)
        if version == FIRST:
            return quick
        return bad if version in bad_versions else usual

    return choose
