"""`rollout-operator simulate`: what the operator would do with objects of a cluster.

Reads a copy, from files or a cluster, and runs the operator's own code on it; nothing is ever
written. What may happen is decided in `changes`, how the copy lives in `world`,
what is reported of it in `report`.
"""

import asyncio
import dataclasses
import io
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, TextIO

from msgspec.structs import replace

from rollout_lab.end import forget_output
from rollout_lab.model.history import Commit, Record
from rollout_lab.simulate.changes import check_names
from rollout_lab.simulate.copies import ObjectsCopy, copy_namespace
from rollout_lab.simulate.dump import choose_objects
from rollout_lab.simulate.figures import add_up
from rollout_lab.simulate.flags import (
    LONGEST_RUN,
    POLICY,
    Output,
    SimulateSettings,
    read_settings,
    render_simulate_usage,
)
from rollout_lab.simulate.objects import fill_in
from rollout_lab.simulate.policies import is_policy, put_policies
from rollout_lab.simulate.report import SimulationRun, render_comparison, render_json, render_text
from rollout_lab.simulate.times import choose_times
from rollout_lab.simulate.world import RunLimits, play
from rollout_lab.trace.trace import WIDTH
from rollout_operator.aio.clock import LoopClock
from rollout_operator.cli.access import CONTEXT, KUBECONFIG, be_quiet, choose_access, open_client
from rollout_operator.cli.dumps import BadDump, read_all, read_objects
from rollout_operator.config.grammar import ParsedArguments
from rollout_operator.kube.api import MULTI_AZ_ROLLOUTS, PODS, JsonObject
from rollout_operator.kube.connection import Access
from rollout_operator.model.names import ExitCode, InvalidInput
from rollout_operator.model.units import format_duration
from rollout_operator.planning.wording import count, printable

EVERY_S: Final = 15.0


@dataclass(slots=True)
class SimulationProgress:
    """Says every fifteen seconds of real time how far virtual time has come."""

    stream: TextIO
    pods: int
    clock: Callable[[], float]
    """Real time, in seconds."""
    _begun: float = field(init=False)
    _next: float = field(init=False)
    _created: int = 0

    def __post_init__(self) -> None:
        self._begun = self.clock()
        self._next = self._begun + EVERY_S

    def take(self, record: Record) -> None:
        """Count what has happened, and say something where it is time."""
        if isinstance(record, Commit) and record.resource == PODS and record.before is None:
            self._created += 1
        now = self.clock()
        if now < self._next:
            return
        self._next = now + EVERY_S
        self.stream.write(f"{self._render(record.at, now - self._begun)}\n")
        self.stream.flush()

    def _render(self, at: timedelta, took: float) -> str:
        come = f"{_format(at.total_seconds())} simulated in {_format(took)}"
        done = f"{self._created} of {count(self.pods, 'pod')} created anew"
        left = self.pods - self._created
        if not self._created or left <= 0:
            return f"{come}: {done}"
        return f"{come}: {done}, all of them would take {_format(took * left / self._created)} more"


def _format(seconds: float) -> str:
    return format_duration(timedelta(seconds=round(seconds)))


# Names of pods take half of it.
_NARROWEST: Final = 60


# -namespace is its own: a file may hold several.
_ACCESS: Final = (KUBECONFIG, CONTEXT)


def run(arguments: Sequence[str]) -> int:
    """Report what the words after the command request; return the exit code.

    Raises HelpRequested, ConfigError with its exit code, BadDump, InvalidInput, NotPlayed, and
    ApiError where a cluster is to be read.
    """
    settings = read_settings(arguments, _ACCESS)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    try:
        lines, exit_code = _simulate(settings)
        sys.stdout.writelines(f"{line}\n" for line in lines)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        forget_output()
        return ExitCode.UNREAD
    return exit_code if settings.has_exit_code else ExitCode.DONE


def render_usage() -> str:
    return render_simulate_usage(_ACCESS)


def _simulate(settings: SimulateSettings) -> tuple[Iterable[str], int]:
    copy = _read(settings) if settings.files else _copy_cluster(settings.arguments)
    copy = _put_policies(settings, _fill_in(settings, copy))
    simulated = simulate_copy(settings, copy, sys.stderr)
    other = dataclasses.replace(settings, changes=settings.versus)
    versus = simulate_copy(other, copy, sys.stderr) if settings.versus else None
    codes = [each.exit_code for each in (simulated, versus) if each is not None]
    return _render(simulated, versus), max(codes)


def _render(simulated: SimulationRun, versus: SimulationRun | None) -> Iterable[str]:
    if simulated.settings.output is Output.JSON:
        return [render_json(simulated, versus)]
    width = _choose_width()
    lines = (
        render_text(simulated, width)
        if versus is None
        else render_comparison(simulated, versus, width)
    )
    return map(printable, lines)


def _choose_width() -> int:
    """Return the columns of the terminal, as many as can be read; where there is none, as ever."""
    if not sys.stdout.isatty():
        return WIDTH
    return min(max(shutil.get_terminal_size().columns, _NARROWEST), WIDTH)


def _read(settings: SimulateSettings) -> ObjectsCopy:
    objects, written_at = read_all(settings.files, sys.stdin.buffer)
    return ObjectsCopy(objects=objects, read_at=written_at or datetime.now(UTC))


def _copy_cluster(arguments: ParsedArguments) -> ObjectsCopy:
    be_quiet()
    return asyncio.run(_copy(choose_access(arguments)))


async def _copy(access: Access) -> ObjectsCopy:
    async with open_client(access) as client:
        copy = await copy_namespace(client, access.namespace, LoopClock())
    if not any(obj["kind"] == "StatefulSet" for obj in copy.objects):
        raise InvalidInput(f"there is no StatefulSet in namespace {access.namespace}")
    return copy


def _fill_in(settings: SimulateSettings, copy: ObjectsCopy) -> ObjectsCopy:
    return replace(copy, objects=fill_in(copy.objects, settings.namespace, copy.read_at))


def _put_policies(settings: SimulateSettings, copy: ObjectsCopy) -> ObjectsCopy:
    """Return the objects with the policies of another file, as if they were applied now."""
    given: Sequence[JsonObject] = ()
    if name := settings.policy_file:
        objects, _ = read_all([name], sys.stdin.buffer, POLICY)
        given = [item for item in objects if is_policy(item)]
        if not given:
            raise BadDump(f"-policy {name}: no {MULTI_AZ_ROLLOUTS.kind} is in it")
    return replace(copy, objects=put_policies(copy, given, settings.namespace))


def simulate(settings: SimulateSettings, content: bytes, written_at: datetime) -> SimulationRun:
    """Return what `simulate_copy` does of the objects in `content`, which was written at a time."""
    copy = ObjectsCopy(objects=read_objects(content), read_at=written_at)
    return simulate_copy(settings, _put_policies(settings, _fill_in(settings, copy)))


def simulate_copy(
    settings: SimulateSettings, copy: ObjectsCopy, progress: TextIO | None = None
) -> SimulationRun:
    """Return what would happen to objects; where it takes long, `progress` is told how far it is.

    Raises BadDump, InvalidInput for names that are not there, and NotPlayed.
    """
    dump = choose_objects(
        copy.objects, settings.namespace, copy.known, copy.unread, obeys=settings.obeys
    )
    check_names((change for _, change in settings.changes), dump.names())
    # What is in it has happened before it was written, whatever the file's time says.
    begins = settings.as_of or max(copy.read_at, dump.newest or copy.read_at)
    times = choose_times(dump, settings, begins)
    limits = RunLimits(span=settings.until or LONGEST_RUN)
    if progress is not None:
        reporter = SimulationProgress(progress, len(dump.names().pods), time.monotonic)
        limits = replace(limits, watch=reporter.take)
    played = play(dump, settings, times, begins, limits)
    policies = dump.policies if dump.obeys else ()
    figures = add_up(played.history.records, dump.units, played.ended_at, policies)
    return SimulationRun(
        dump=dump, settings=settings, times=times, epoch=begins, play=played, figures=figures
    )
