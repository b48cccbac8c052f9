"""`rollout-operator simulate`: what the operator would do with objects of a cluster.

Reads a copy and runs the operator's own code on it; nothing is sent anywhere. What may happen is
decided in `changes`, how the copy lives in `world`, what is told of it in
`report`.
"""

import io
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from rollout_operator.lab.end import forget_output
from rollout_operator.lab.simulate.changes import check_names
from rollout_operator.lab.simulate.dump import choose_objects
from rollout_operator.lab.simulate.figures import add_up
from rollout_operator.lab.simulate.flags import Output, SimulateSettings, read_settings
from rollout_operator.lab.simulate.input import read_file, read_objects
from rollout_operator.lab.simulate.report import SimulationRun, render_json, render_text
from rollout_operator.lab.simulate.times import choose_times
from rollout_operator.lab.simulate.world import play
from rollout_operator.model.exit_codes import ExitCode


def run(words: Sequence[str]) -> int:
    """Tell what the words after the command ask for; return the exit code.

    Raises HelpRequested, ConfigError with its exit code, BadDump, InvalidInput and NotPlayed.
    """
    settings = read_settings(words)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    content, written_at = read_file(settings.file, sys.stdin.buffer)
    try:
        told = tell(settings, content, written_at or datetime.now(UTC))
        sys.stdout.writelines(f"{line}\n" for line in _render(told))
        sys.stdout.flush()
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        forget_output()
        return ExitCode.UNREAD
    return ExitCode.DONE


def _render(told: SimulationRun) -> Iterable[str]:
    return [render_json(told)] if told.settings.output is Output.JSON else render_text(told)


def tell(settings: SimulateSettings, content: bytes, written_at: datetime) -> SimulationRun:
    """Return what would happen to the objects in `content`, which was written at a time.

    Raises BadDump, InvalidInput for names that are not there, and NotPlayed.
    """
    dump = choose_objects(read_objects(content), settings.namespace)
    check_names((change for _, change in settings.changes), dump.names())
    # What is in it has happened before it was written, whatever the file's time says.
    begins = settings.as_of or max(written_at, dump.newest or written_at)
    times = choose_times(dump, settings, begins)
    played = play(dump, settings, times, begins)
    figures = add_up(played.history.records, dump.groups, played.ended_at)
    return SimulationRun(
        dump=dump, settings=settings, times=times, epoch=begins, play=played, figures=figures
    )
