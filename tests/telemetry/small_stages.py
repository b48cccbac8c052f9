"""What makes /ready and /livez red, and what is written to the log, each with its commands."""

import asyncio
import logging
import shlex
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Final

from rollout_operator.model.names import InvalidInput
from rollout_operator.telemetry import logs
from rollout_operator.telemetry.logs import log
from rollout_operator.telemetry.metrics import Metrics
from rollout_operator.telemetry.states import BEAT, Health, Heartbeat
from tests.fakes_clock import FakeClock
from tests.stories import Steps

# Nanoseconds: 2026-01-02T12:04:05 and six of them.
NOON: Final = 1_767_355_445_000_000_006


class HealthStage(Steps):
    """The health of a process or of a namespace, and the heart of its event loop."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._clock = FakeClock()
        self._health = Health(self._clock)
        self._said: dict[str, str] = {}
        self._metrics = Metrics()
        self._heart = Heartbeat(self._clock, self._metrics)

    async def do_wait(self, seconds: float) -> None:
        await self._clock.advance(timedelta(seconds=seconds))

    async def do_namespace(self) -> None:
        """Be one of several namespaces."""
        self._health = Health(self._clock, is_whole=False)

    async def do_part(self, name: str, *lacks: str) -> None:
        """Include a part; `ready=text`, `alive=text`, `partial=text` and `shown=text` are said."""
        given = dict(one.split("=", 1) for one in lacks)
        self._said |= {f"{name}.{key}": text for key, text in given.items()}

        def answer(key: str) -> Callable[[], str | None]:
            return lambda: self._said.get(f"{name}.{key}")

        self._health.part(
            name,
            is_ready=answer("ready"),
            is_alive=answer("alive"),
            find_partial_lack=answer("partial"),
            describe=answer("shown"),
        )

    async def do_say(self, key: str, text: str = "") -> None:
        """Have a part, as in `pods.ready`, lack something, or nothing."""
        self._said.pop(key, None)
        if text:
            self._said[key] = text

    async def do_stop(self) -> None:
        self._health.stopping()

    async def do_ready(self) -> str:
        return "; ".join(self._health.list_missing()) or "yes"

    async def do_alive(self) -> str:
        return "; ".join(self._health.list_faults()) or "yes"

    async def do_lacks(self) -> str:
        return "; ".join(self._health.list_partial_lacks()) or "nothing"

    async def do_beat(self) -> None:
        """Let the heart beat from now on."""
        self._task = self.start(self._heart.run())
        await self._clock.advance(timedelta(seconds=1))

    async def do_end(self) -> None:
        """Let it beat no more."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def do_stall(self, *seconds: str) -> None:
        """Let time pass in which no task runs; each time the next beat comes late."""
        for one in seconds:
            self._clock.jump(timedelta(seconds=float(one)))
            await self._clock.advance(BEAT)

    async def do_jump(self, seconds: str) -> None:
        self._clock.jump(timedelta(seconds=float(seconds)))

    async def do_heart(self) -> str:
        """Show what is wrong with the loop, and the lag that metrics show."""
        lag = self._metrics.registry.get_sample_value("rollout_operator_event_loop_lag_seconds")
        return f"{self._heart.find_stall() or 'fine'}, lag {lag or 0:g}"

    def look(self) -> list[str]:
        found = [line.split("msg=")[1].rstrip() for line in self._lines]
        self._lines.clear()
        return found


class LogStage(Steps):
    """A log at noon, and libraries that write to it."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._now = NOON
        self._configure()

    def _configure(self, **settings: str) -> None:
        logs.configure(
            write=lambda line: self._lines.append(line.decode()), now=lambda: self._now, **settings
        )

    async def do_wait(self, seconds: float) -> None:
        self._now += round(seconds * 1_000_000_000)

    async def do_configure(self, *settings: str) -> str:
        """Configure with `format=` and `level=`."""
        try:
            self._configure(**dict(one.split("=") for one in settings))
        except InvalidInput as error:
            return str(error)
        return ""

    async def do_log(self, level: str, message: str, *keys: str) -> None:
        """Log a record; `error` as value is one of ours."""
        values = dict(one.split("=", 1) for one in keys)
        error = {"err": InvalidInput("spec.a: 0 < 1")} if "err" in values else {}
        getattr(log, level)(message, **{**values, **error})

    async def do_each(self) -> str:
        """Log at each level, by attribute and by value; show the levels that were written."""
        for level in logs._LEVELS:
            getattr(log, level.value)("Looking")
            log.at(level)("Looking")
        levels = [line.split()[0].removeprefix("level=") for line in self._lines]
        assert levels[::2] == levels[1::2]
        self._lines.clear()
        return " ".join(levels[::2])

    async def do_bind(self, keys: str, *command: str) -> None:
        """Do something with keys bound, also in what begins there and ends later."""
        with logs.bind_keys(**dict(one.split("=") for one in keys.split(","))):
            begun = asyncio.create_task(self.act(shlex.join(command)))
        self._lines.append(await begun)

    async def do_lib(self, name: str, level: str, message: str, *arguments: str) -> None:
        """Have a library log a record."""
        with _bridge():
            message = message.replace(r"\n", "\n")
            logging.getLogger(name).log(getattr(logging, level), message, *arguments)

    async def do_enabled(self, level: str) -> str:
        with _bridge():
            return str(logging.getLogger("aiohttp").isEnabledFor(getattr(logging, level)))

    async def do_raise(self) -> str:
        """Have a library log an exception."""
        with _bridge():
            try:
                raise KeyError("x")
            except KeyError:
                logging.getLogger("aiohttp").exception("Error in request")
        [line] = self._lines
        self._lines.clear()
        return line.partition("File")[0].partition("msg=")[2]

    async def do_warn(self) -> None:
        with _bridge(), warnings.catch_warnings():
            warnings.simplefilter("always")
            # pytest replaces what shows a warning for each test, so it is installed once more.
            logging.captureWarnings(False)
            logging.captureWarnings(True)
            warnings.warn("old thing", DeprecationWarning, stacklevel=1)
        [line] = self._lines
        self._lines.clear()
        assert "DeprecationWarning: old thing" in line
        self._lines.append(line.rpartition(" ")[2])

    def look(self) -> list[str]:
        found = [line.removesuffix("\n") for line in self._lines]
        assert not any("\n" in line for line in found)
        self._lines.clear()
        return found


@contextmanager
def _bridge() -> Iterator[None]:
    """Install the bridge; within one phase of a test, since pytest has handlers for each."""
    root = logging.getLogger()
    before = (root.handlers, root.level)
    logs.install_stdlib_bridge()
    try:
        yield
    finally:
        logging.captureWarnings(False)
        root.handlers, root.level = before
