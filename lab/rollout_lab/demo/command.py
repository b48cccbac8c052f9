"""`rollout-operator demo`: stories of the operator, played in a simulated world in real time.

Decides in which order stories are played and how the whole ends. What there is to play stands in
`stories`, what is requested in `flags`.
"""

import asyncio
import io
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Final

from rollout_lab.demo.flags import (
    NEED_TWO_ZONES,
    STORIES,
    Color,
    DemoSettings,
    read_settings,
    render_demo_usage,
)
from rollout_lab.demo.objects import NAMESPACE
from rollout_lab.demo.screen import Film, Screen, choose_screen
from rollout_lab.demo.stage import (
    NEXT,
    QUIT,
    Controls,
    DemoRun,
    TakenOver,
    open_stage,
    reading_keys,
    set_loop_pace,
)
from rollout_lab.demo.stories import MEANINGS, SCENARIOS, improvise, until_done
from rollout_lab.end import end_by_signal
from rollout_lab.virtual_loop.loop import VirtualTimeLoop
from rollout_lab.virtual_loop.pace import PacedLoop
from rollout_operator.controllers.context import Telemetry
from rollout_operator.model.names import ConfigError, ExitCode
from rollout_operator.web.admin import AdminServer
from rollout_operator.web.middleware import ClusterRules

# A demo has no reason to be seen by a network.
HOST: Final = "127.0.0.1"
# Between two rollouts of a demo that serves: as long as a scrape, so that both are seen.
PAUSE: Final = timedelta(seconds=15)
# Between two stories: to read what the first showed, and the title of the next.
BETWEEN: Final = timedelta(seconds=6)


def run(arguments: Sequence[str]) -> int:
    """Play what the words after the command request; return the exit code.

    Raises HelpRequested, ConfigError with its exit code, and StoryStuck.
    """
    settings = read_settings(arguments)
    if settings.record:
        return _record(settings)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    screen = choose_screen(
        sys.stdout, os.environ, is_ascii=settings.is_ascii, color=Color(settings.color)
    )
    reads_keys = screen.shows_keys and sys.stdin.isatty()
    show = play_by_keys(settings, screen) if reads_keys else play(settings, screen)
    try:
        with asyncio.Runner(loop_factory=PacedLoop) as runner:
            code = runner.run(end_by_signal(show))
    except KeyboardInterrupt:
        code = ExitCode.INTERRUPTED
    # There is no other way to end it.
    return ExitCode.DONE if code == ExitCode.INTERRUPTED and settings.is_served else code


def render_usage() -> str:
    return render_demo_usage()


def _record(settings: DemoSettings) -> int:
    """Write what would be seen, in virtual time. Raises ConfigError."""
    recorder = Film(settings.record, settings.screen_size or (0, 0), is_ascii=settings.is_ascii)
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        is_kept = runner.run(play(settings, recorder))
    try:
        Path(settings.record).write_text(recorder.render(), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"-record={settings.record}: {error.strerror}") from error
    return ExitCode.DONE if is_kept else ExitCode.FAILED


async def play_by_keys(settings: DemoSettings, screen: Screen) -> bool:
    """Do as `play`, and as the keys say that are pressed on the terminal meanwhile."""
    controls = Controls(set_loop_pace, MEANINGS)
    with reading_keys(controls):
        return await play(settings, screen, controls)


async def play(settings: DemoSettings, screen: Screen, controls: Controls | None = None) -> bool:
    """Play the stories; return whether the promises were kept. Raises StoryStuck, ConfigError."""
    is_kept, left = True, list(settings.stories)
    with screen:
        while left:
            name = left.pop(0)
            async with (
                open_stage(SCENARIOS[name], settings, screen, controls) as stage,
                _serve(settings, stage),
            ):
                if controls is not None:
                    controls.on_press = stage.show
                wish = await _perform(stage, left)
                is_kept = is_kept and stage.totals().is_kept
            if wish == QUIT:
                break
            if controls is not None and not left:
                left = [_next_story(name, settings.zones)]
    return is_kept


def _next_story(name: str, zones: int) -> str:
    """Return the story after this, of those that so many zones can show."""
    place = STORIES.index(name) + 1
    others = (*STORIES[place:], *STORIES[:place])
    return next(other for other in others if zones > 1 or other not in NEED_TWO_ZONES)


async def _perform(stage: DemoRun, left: Sequence[str]) -> str:
    """Play a story and let the reader act, where keys are read; return what is wanted next."""
    with suppress(TakenOver):
        await stage.story.play(stage)
        await stage.finish()
        if left:
            stage.announce(SCENARIOS[left[0]].title)
            await stage.rest(BETWEEN)
            return NEXT
        if stage.settings.is_served:
            await _go_on(stage)
    return NEXT if stage.controls is None else await improvise(stage)


@asynccontextmanager
async def _serve(settings: DemoSettings, stage: DemoRun) -> AsyncIterator[None]:
    """Serve the operator's pages, where that is requested. Raises ConfigError."""
    if not settings.is_served:
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
        await stage.change_all(stage.next_version())
        await until_done(stage)
