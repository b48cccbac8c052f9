"""`rollout-operator run`, and flags without a command: the operator itself."""

import gc
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from rollout_operator.cli.main import PROGRAM, import_lean, render_commands
from rollout_operator.config.checks import read_config, render_flags
from rollout_operator.config.flags import Config, read_environment
from rollout_operator.config.grammar import HelpRequested
from rollout_operator.model.names import ExitCode, OperatorError

_MOUNTED_NAMESPACE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


class PartDied(OperatorError):
    """A part of the operator has ended because of a defect."""


def run(arguments: Sequence[str]) -> int:
    """Run the operator until a signal stops it; return 0.

    Raises HelpRequested, ConfigError, PartDied and the errors of the operator's start.
    """
    try:
        config = read_config(arguments, read_environment(os.environ, _read_mounted_namespace()))
    except HelpRequested as request:
        if not request.is_full:
            raise
        sys.stdout.write(render_usage(is_full=True))
        return ExitCode.DONE
    # Everything else is imported here, so that help, version and refusals are quick.
    from rollout_operator.aio.memory import return_buffers

    return_buffers()
    return _operate(config, import_operator())


def _read_mounted_namespace() -> str:
    """Return the namespace of this pod's service account; empty outside a cluster."""
    try:
        return _MOUNTED_NAMESPACE.read_text()
    except (OSError, UnicodeDecodeError):
        return ""


def render_usage(*, is_full: bool = False) -> str:
    """Return the help of the whole program, no line longer than 100 columns."""
    head = f"Usage: {PROGRAM} [flags]\n       {PROGRAM} COMMAND [flags]\n"
    return f"{head}\n{render_commands()}\n{render_flags(is_full=is_full)}"


def import_operator() -> Callable[[Config], int]:
    """Import the operator with the garbage collector off, which saves a tenth of the time or more.

    Modules live as long as the process, so they are frozen: later collections skip them.
    """
    gc.disable()
    try:
        with import_lean():
            from rollout_operator.operator.main import run as run_operator
    finally:
        gc.freeze()
        gc.enable()
    return run_operator


def _operate(config: Config, run_operator: Callable[[Config], int]) -> int:
    """Run the operator; return its exit code. Raises PartDied, and the operator's own errors."""
    from rollout_operator.aio.tasks import TaskDied
    from rollout_operator.telemetry.logs import log

    try:
        return run_operator(config)
    except TaskDied as error:
        # A defect, and the only place where its traceback can still be printed.
        stack = "".join(traceback.format_exception(error))
        log.error("A part of the operator died", err=error, stack=stack)
        raise PartDied(str(error)) from error.__cause__
