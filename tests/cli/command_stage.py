"""The commands of stories of `status`, `explain` and `wait`, as a person types them after a `$`.

    $ wait mazr/store -timeout=1m | exit 3 after 60s; MultiAZRollout store waiting interval_wait

A wait shows its exit code, when it ends, and of each line object, phase and code; one with `&` goes
on beside what follows, until `ended` shows it. An error stands in place of all that.
"""

import asyncio
import io
import json
import os
import re
from datetime import timedelta
from typing import Any, Final, cast

import msgspec
from msgspec.structs import replace

from rollout_operator.cli import explain, status, wait
from rollout_operator.cli.access import NOTHING, ClusterInspector, read_named
from rollout_operator.cli.render import OutputStream
from rollout_operator.cli.wait import Awaited, RolloutWait, WaitProgress
from rollout_operator.config.grammar import parse_mixed
from rollout_operator.kube.api import (
    CLUSTER_ROLLOUT_SCHEDULES,
    MULTI_AZ_ROLLOUTS,
    ROLLOUT_SCHEDULES,
    ApiClient,
)
from rollout_operator.model.description import SCHEMA_VERSION
from rollout_operator.model.names import ConfigError, OperatorError
from tests.operator.diagnosis.inspect_stage import NIGHTS, InspectStage
from tests.virtual_time import elapsed

_LINE: Final = re.compile(r"(\w+ [^:]+): ([^,]+), .*? \[(\w+)\]")
_WIDTH: Final = 200
_STATES: Final = {"u": "", "d": "a-0: CrashLoopBackOff"}


class CommandStage(InspectStage):
    """A person who types commands beside a cluster."""

    def __init__(self) -> None:
        super().__init__()
        self._running: asyncio.Task[str] | None = None

    def find_command(self, word: str, rest: Any) -> Any:
        return self._type if word == "$" else super().find_command(word, rest)

    async def _type(self, command: str, *words: str) -> str | None:
        run = getattr(self, f"_run_{command}")
        if words[-1:] == ("&",):
            self._running = asyncio.ensure_future(self._try(run, words[:-1]))
            return None
        return await self._try(run, words)

    async def do_ended(self) -> str:
        """Show what the command that runs beside the others has shown, when it ends."""
        assert self._running is not None
        return await self._running

    async def do_stopped(self, seconds: str) -> str:
        """Let a command that never ends run for so long; show what it has shown."""
        assert self._running is not None
        await asyncio.sleep(float(seconds))
        self._running.cancel()
        await asyncio.wait([self._running])
        return _drop_times(self._stream.getvalue())

    async def do_annotate(self, letters: str, key: str, text: str) -> None:
        """Annotate zones, or with `none` no more."""
        for letter in letters:
            await self.people.annotate(f"zone-{letter}", key, None if text == "none" else text)

    async def do_driven(self, *how: str) -> None:
        """Begin with a policy over two zones of two pods, which is obeyed unless `unobeyed`."""
        await self._quietly(
            "zone a 2 plain who=all zonal; zone b 2 plain who=all zonal; 60s; policy"
        )
        await self.do_change("store", '{"progressDeadlineSeconds": 30}')
        await self.do_change("store", '{"rollingUpdate": {"intervalSeconds": 5}}')
        if "unobeyed" not in how:
            await self._quietly("start")

    async def do_released(self) -> None:
        """Begin with a Rollout over three zones that nothing is announced for yet."""
        await self._quietly("release; makes; start")

    async def do_freeze(self) -> None:
        """Create a schedule that is closed, and one of the cluster."""
        await self.world.create(ROLLOUT_SCHEDULES, "freeze", NIGHTS)
        await self.world.create(CLUSTER_ROLLOUT_SCHEDULES, "holidays", NIGHTS)

    async def do_recover(self, plural: str) -> None:
        """Have reads of a kind be answered again."""
        del self.client.answers[plural]

    async def do_change(self, name: str, spec: str) -> None:
        """Change the spec of a policy."""
        await self.world.patch(MULTI_AZ_ROLLOUTS, name, {"spec": msgspec.json.decode(spec)})

    async def do_says(self, *how: str) -> None:
        """Have the operator be reached: one that is `acting` or not, with the flag of policies."""
        described = await self._process().describe()
        assert described.operator is not None
        operator = replace(described.operator, is_acting="acting" in how)
        own = replace(described, operator=operator)
        if "flagless" in how:
            own = replace(own, policies=msgspec.UNSET)
        self.client.answers["services"] = msgspec.json.encode(own)

    async def do_stalls(self, minutes: str) -> str:
        """Show at which minute a wait gives up: pods are `d`own or `u`p, or so many more are up."""
        waiter = self._build_wait("-for=whole", "-timeout=1h")
        begin = elapsed()
        for minute, state in enumerate(minutes):
            pods = int(state, 36) if state not in _STATES else -(state == "d")
            stuck = _STATES.get(state, "a-0: x")
            one = Awaited(title="group a", line="", progress=WaitProgress((), pods), stuck=stuck)
            if waiter.judge([one], begin + timedelta(hours=1)) is not None:
                return f"gives up at {minute}"
            await asyncio.sleep(60)
        return "waits on"

    async def _try(self, run: Any, words: tuple[str, ...]) -> str:
        self._stream = io.StringIO()
        try:
            return str(await run(*words))
        except OperatorError as error:
            await asyncio.sleep(1)  # other reads end
            code = f"exit {error.exit_code}: " if isinstance(error, ConfigError) else ""
            return f"{code}{type(error).__name__}: {error}"

    def _inspector(self, named: Any = NOTHING) -> ClusterInspector:
        self.client.answers.setdefault("namespaces", b"{}")
        return ClusterInspector(
            cast(ApiClient, self.client),
            self.sandbox.namespace,
            self.service,
            named,
            self.sandbox.clock(),
        )

    def _build_wait(self, *words: str) -> RolloutWait:
        parsed = parse_mixed(wait.WAIT_FLAGS, words)
        named = read_named(parsed.leftovers, tag=parsed.value(wait.TAG))
        self._stream = io.StringIO()
        return RolloutWait(self._inspector(), self._stream, parsed, named)

    async def _run_wait(self, *words: str) -> str:
        begin = elapsed()
        waiter = self._build_wait(*words)
        code = await waiter.run()
        lines = map(_digest, self._stream.getvalue().splitlines())
        shown = "; ".join(dict.fromkeys(lines))
        return f"exit {code:d} after {(elapsed() - begin).total_seconds():.0f}s; {shown}"

    async def _run_explain(self, *words: str) -> str:
        parsed = parse_mixed(explain.EXPLAIN_FLAGS, words)
        target = explain.read_target(parsed.leftovers)
        await explain.explain(self._inspector(), target, self._open())
        return self._stream.getvalue().rstrip()

    async def _run_status(self, *words: str) -> str:
        parsed = parse_mixed(status.STATUS_FLAGS, words)
        inspector = self._inspector(read_named(parsed.leftovers))
        await status.show(inspector, parsed, self._open(is_terminal="-w" not in words))
        text = self._stream.getvalue().rstrip()
        if "-o=json" not in words:
            return text
        found = json.loads(text)
        one = found[0] if isinstance(found, list) else found
        assert one["schema_version"] == SCHEMA_VERSION
        shown = f"{one['namespace']} {' '.join(group['phase'] for group in one['groups'])}"
        return f"a list: {shown}" if isinstance(found, list) else shown

    def _open(self, *, is_terminal: bool = True) -> OutputStream:
        size = os.terminal_size((_WIDTH, 100))
        return OutputStream(self._stream, is_terminal, is_coloured=False, size=lambda: size)


def _digest(line: str) -> str:
    if found := _LINE.match(line):
        return " ".join(found.groups())
    return line.partition(": ")[0] if line.startswith("operator not reached") else line


def _drop_times(text: str) -> str:
    return re.sub(r"^\d\d:\d\d:\d\d ", "", text, flags=re.MULTILINE).rstrip()
