"""`rollout-operator demo`: stories of the operator, played in a simulated world in real time.

Decides in which order stories are played and how the whole ends. What there is to play stands in
`scenarios`, what is asked for in `flags`.
"""

import asyncio
import io
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Final

from rollout_operator.lab.demo.drawing import BLANK
from rollout_operator.lab.demo.flags import DemoSettings, read_settings
from rollout_operator.lab.demo.objects import NAMESPACE
from rollout_operator.lab.demo.scenarios import TALES, change_all, until_done
from rollout_operator.lab.demo.screen import Screen, choose_screen
from rollout_operator.lab.demo.stage import DemoRun, open_stage
from rollout_operator.lab.demo.totals import draw_totals
from rollout_operator.lab.end import end_by_signal
from rollout_operator.model.exit_codes import ExitCode
from rollout_operator.operator.context import Telemetry
from rollout_operator.web.admin import AdminServer
from rollout_operator.web.http.cluster import ClusterRules

# A demo has no reason to be seen by a network.
HOST: Final = "127.0.0.1"
# Between two rollouts of a demo that serves: as long as a scrape, so that both are seen.
PAUSE: Final = timedelta(seconds=15)


def run(words: Sequence[str]) -> int:
    """Play what the words after the command ask for; return the exit code.

    Raises HelpRequested, ConfigError with its exit code, and StoryStuck.
    """
    settings = read_settings(words)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    screen = choose_screen(sys.stdout, os.environ, color=settings.color)
    try:
        code = asyncio.run(end_by_signal(play(settings, screen)))
    except KeyboardInterrupt:
        code = ExitCode.INTERRUPTED
    # There is no other way to end it.
    is_served = settings.port is not None
    return ExitCode.DONE if code == ExitCode.INTERRUPTED and is_served else code


async def play(settings: DemoSettings, screen: Screen) -> bool:
    """Play the stories; return whether the promises were kept. Raises StoryStuck, ConfigError."""
    is_kept = True
    with screen:
        for name in settings.stories:
            async with open_stage(TALES[name], settings, screen) as stage, _serve(settings, stage):
                await TALES[name].play(stage)
                totals = stage.totals()
                is_kept = is_kept and totals.is_kept
                screen.finish(stage.picture(), [*draw_totals(totals), BLANK])
                if settings.port is not None and name == settings.stories[-1]:
                    await _go_on(stage)
    return is_kept


@asynccontextmanager
async def _serve(settings: DemoSettings, stage: DemoRun) -> AsyncIterator[None]:
    """Serve the operator's pages, where that is asked for. Raises ConfigError."""
    if settings.port is None:
        yield
        return
    admin = make_admin(settings.port, NAMESPACE, stage.replicas[-1].telemetry)
    admin.show(stage.replicas[-1].describe)
    await admin.start(HOST)
    try:
        stage.address = f"http://{HOST}:{admin.port}/"
        yield
    finally:
        await admin.stop()


def make_admin(port: int, namespace: str, telemetry: Telemetry) -> AdminServer:
    """Return the server of one operator, to be started on HOST; port 0 takes a free one."""
    return AdminServer(
        port,
        metrics=telemetry.metrics,
        health=telemetry.health,
        cluster=ClusterRules(namespace=namespace),
    )


async def _go_on(stage: DemoRun) -> None:
    """Roll out one version after the other, for ever."""
    while True:
        await stage.rest(PAUSE)
        stage.forget()
        await change_all(stage, stage.next_version())
        await until_done(stage)
