"""The entry point: which command the words choose, and which exit code its end has.

A first word that starts with a dash is a flag of the operator itself, as is no word at all: the
image is started with flags only.
"""

import difflib
import gc
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Final

from rollout_operator import __version__
from rollout_operator.config.checks import read_config
from rollout_operator.config.flags import FLAGS, Config
from rollout_operator.config.grammar import USAGE_EXIT_CODE, HelpRequested, UnknownFlag
from rollout_operator.config.usage import render_usage
from rollout_operator.model.errors import ConfigError, OperatorError

_FAILED: Final = 1
_COMMANDS: Final = ("run", "demo", "simulate", "uninstall-webhooks", "version", "help")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that the words after the program's name choose; return the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0].startswith("-"):
        return _run(words)
    match words[0]:
        case "run":
            return _run(words[1:])
        case "demo":
            return _demo(words[1:])
        case "simulate":
            return _simulate(words[1:])
        case "uninstall-webhooks":
            return _uninstall_webhooks(words[1:])
        case "version":
            return _show(f"rollout-operator {__version__}\n")
        case "help":
            return _show(render_usage())
        case command:
            known = ", ".join(_COMMANDS)
            _complain(f'unknown command "{command}"; commands are {known}; flags start with -')
            return USAGE_EXIT_CODE


def _run(words: Sequence[str]) -> int:
    try:
        config = read_config(words)
    except HelpRequested:
        return _show(render_usage())
    except ConfigError as error:
        return _refuse(error)
    # Everything else is imported here, so that help, version and refusals are quick.
    return operate(config, import_operator())


def import_operator() -> Callable[[Config], int]:
    """Import the operator without looking for garbage on the way: a tenth of the time or more.

    What is imported lives as long as the process: later looks leave it out.
    """
    gc.disable()
    try:
        from rollout_operator.operator.main import run
    finally:
        gc.freeze()
        gc.enable()
    return run


def _demo(words: Sequence[str]) -> int:
    from rollout_operator.lab.demo import command as demo
    from rollout_operator.lab.demo import flags as demo_flags

    try:
        return demo.run(words)
    except HelpRequested:
        return _show(demo_flags.render_demo_usage())
    except ConfigError as error:
        return _refuse(error, demo_flags.render_demo_usage())
    except OperatorError as error:
        _complain(_chain(error))
    return _FAILED


def _simulate(words: Sequence[str]) -> int:
    from rollout_operator.lab.simulate import command as simulate
    from rollout_operator.lab.simulate import flags as simulate_flags

    try:
        return simulate.run(words)
    except HelpRequested:
        return _show(simulate_flags.render_simulate_usage())
    except ConfigError as error:
        return _refuse(error, simulate_flags.render_simulate_usage())
    except OperatorError as error:
        _complain(_chain(error))
    return _FAILED


def _uninstall_webhooks(words: Sequence[str]) -> int:
    from rollout_operator.cli import uninstall_webhooks as webhooks

    try:
        return webhooks.run(words)
    except HelpRequested:
        return _show(webhooks.USAGE)
    except ConfigError as error:
        return _refuse(error, webhooks.USAGE)
    except OperatorError as error:
        _complain(_chain(error))
    return _FAILED


def operate(config: Config, run: Callable[[Config], int]) -> int:
    """Return what `run` returns, or the exit code that belongs to its error."""
    from rollout_operator.aio.tasks import TaskDied
    from rollout_operator.telemetry.logs import log

    try:
        return run(config)
    except ConfigError as error:
        return _refuse(error)
    except OperatorError as error:
        _complain(_chain(error))
    except TaskDied as error:
        # A defect, and the only place where its traceback can still be told.
        stack = "".join(traceback.format_exception(error))
        log.error("A part of the operator died", err=error, stack=stack)
        _complain(_chain(error))
    return _FAILED


def _refuse(error: ConfigError, usage: str = "") -> int:
    _complain(str(error))
    if error.exit_code == USAGE_EXIT_CODE:
        _write(f"\n{usage or render_usage()}\n")
        # Once more at the end: a look at the last lines of a crashing pod's log must be enough.
        _complain(f"{error}{_suggest(error)}")
    return error.exit_code


def _suggest(error: ConfigError) -> str:
    if not isinstance(error, UnknownFlag):
        return ""
    close = difflib.get_close_matches(error.name, [flag.name for flag in FLAGS], n=1)
    return f"; did you mean -{close[0]}?" if close else ""


def _chain(error: BaseException) -> str:
    """Return an error and what caused it on one line."""
    texts = [str(error)]
    cause = error.__cause__
    if cause is not None and str(cause) not in texts[0]:
        texts.append(f"{type(cause).__name__}: {cause}")
    return ": ".join(texts)


def _complain(text: str) -> None:
    _write(f"rollout-operator: {' '.join(text.splitlines())}\n")


def _write(text: str) -> None:
    """Write to stderr, as far as anybody reads it: the exit code is the same."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except BrokenPipeError:
        # What is left in the buffer would fail again at exit, which then is 120.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def _show(text: str) -> int:
    sys.stdout.write(text)
    return 0
