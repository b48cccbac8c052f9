"""Operators and commands as processes of their own that begin with all modules read.

An interpreter takes a second of a processor to read them, and the suite starts some hundreds of
both. Here one process per worker of the tests reads them once, and is forked: the standard
library's forkserver, which also ends with the tests, however these end.
"""

import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Final

from tests.world.childproc import die_with

PROGRAM: Final = "rollout_operator"
# Among them what commands, and the operator with some flags, import only then.
READ_ONCE: Final = (
    __name__,
    *(f"{PROGRAM}.cli.{name}" for name in ("adopt", "doctor", "run", "status")),
    "rollout_lab.simulate.command",
    f"{PROGRAM}.kube.nodes",
    f"{PROGRAM}.operator.main",
    f"{PROGRAM}.controllers.policies",
    f"{PROGRAM}.operator.releases",
    f"{PROGRAM}.operator.webhooks",
    "urllib3",
    "yaml",
)
_SERVER: Final = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(list(READ_ONCE))


class Forked:
    """A forked operator, with the methods of `subprocess.Popen` that `Child` uses."""

    def __init__(self, process: ForkServerProcess) -> None:
        process.start()
        assert process.pid is not None  # it has started: a signal to 0 would be one to the tests
        self._process, self.pid = process, process.pid

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal, or None while it runs."""
        return self._process.exitcode

    def wait(self) -> int:
        self._process.join()
        return self._process.exitcode or 0

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


def read_modules() -> None:
    """Start the process that is forked, and return when it has read all modules."""
    forked = _SERVER.Process(target=os.getpid, daemon=True)
    forked.start()
    forked.join()


def fork_operator(flags: Sequence[str], log: Path, env: Mapping[str, str]) -> Forked:
    """Start the operator with these flags; it prints to the end of `log`."""
    return Forked(_SERVER.Process(target=_run, args=(flags, log, log, env), daemon=True))


def run_program(
    *words: str, env: Mapping[str, str], limit_s: float
) -> subprocess.CompletedProcess[str]:
    """Run the program with these words, and no input, until it ends by itself.

    Raises TimeoutExpired.
    """
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder) / "out", Path(folder) / "err"
        process = _SERVER.Process(target=_run, args=(words, out, err, dict(env)), daemon=True)
        process.start()
        process.join(limit_s)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(words, limit_s)
        return subprocess.CompletedProcess(
            words, process.exitcode, out.read_text(), err.read_text()
        )


def _run(words: Sequence[str], out: Path, err: Path, env: Mapping[str, str]) -> None:
    """Become what `python -m rollout_operator` with these words is."""
    die_with(os.getppid())
    nothing = os.open(os.devnull, os.O_RDONLY)
    printed, complained = (
        os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644) for path in (out, err)
    )
    for given, wanted in ((nothing, 0), (printed, 1), (complained, 2)):
        os.dup2(given, wanted)
    os.environ.clear()
    os.environ.update(env)
    # The server ignores it for itself.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = [PROGRAM, *words]
    runpy.run_module(PROGRAM, run_name="__main__", alter_sys=True)
