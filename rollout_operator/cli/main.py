"""The entry point: chooses the command by the arguments, and reports how it ended.

A first word that starts with a dash is a flag of the operator itself, as is no word at all: the
image is started with flags only. Whatever goes wrong is one line on stderr and an exit code.
"""

import errno
import os
import sys
from collections.abc import Sequence
from typing import Final, TextIO

from rollout_operator.cli.commands import OPERATOR, PROGRAM, Command, UnknownCommand, get_command
from rollout_operator.config.grammar import HelpRequested
from rollout_operator.model.errors import ConfigError, DecodeError, OperatorError
from rollout_operator.model.exit_codes import ExitCode

_VERSION: Final = ("-version", "--version")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that the words after the program's name choose; return the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    name, rest = _choose(arguments)
    try:
        command = get_command(name)
    except UnknownCommand as error:
        return _refuse(error, f"{PROGRAM} -help")
    try:
        code = _run(command, rest)
        # At exit the interpreter would do it, and print a traceback where that fails.
        sys.stdout.flush()
    except OSError as error:
        code = _judge_lost_output(error)
    return code


def _choose(arguments: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Return the name of the command, and the words for it."""
    if arguments and arguments[0] in _VERSION:
        return "version", arguments[1:]
    if not arguments or arguments[0].startswith("-"):
        return OPERATOR, arguments
    return arguments[0], arguments[1:]


def _run(command: Command, arguments: Sequence[str]) -> int:
    module = command.load()
    try:
        return module.run(arguments)
    except HelpRequested:
        sys.stdout.write(module.render_usage())
        return ExitCode.DONE
    except ConfigError as error:
        return _refuse(error, command.help_words)
    except OperatorError as error:
        _complain(_chain(error))
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    return ExitCode.FAILED


def _refuse(error: ConfigError, help_words: str) -> int:
    """Print what is wrong, and for a wrong command line where to read on; never the help itself."""
    text = str(error)
    if error.exit_code == ExitCode.BAD_COMMAND_LINE:
        text += f"{'' if text.endswith('?') else '.'} See {help_words}"
    _complain(text)
    return error.exit_code


def _judge_lost_output(error: OSError) -> int:
    """Return the exit code where stdout takes no more; raise any other error."""
    if error.errno not in (errno.EPIPE, errno.ENOSPC):
        raise error
    _forget(sys.stdout)
    if error.errno == errno.EPIPE:
        return ExitCode.UNREAD
    _complain(f"cannot write the output: {error.strerror}")
    return ExitCode.FAILED


def _chain(error: BaseException) -> str:
    """Return an error and what caused it on one line."""
    texts = [str(error)]
    cause = error.__cause__
    # What cannot be decoded is explained already: the library says the same in its own words.
    is_news = not isinstance(error, DecodeError) and str(cause) not in texts[0]
    if cause is not None and is_news:
        texts.append(f"{type(cause).__name__}: {cause}")
    return ": ".join(texts)


def _complain(text: str) -> None:
    """Write one line to stderr, if it can be written: the exit code is the same."""
    # Not before: help is there at once.
    from rollout_operator.planning.wording import printable

    try:
        sys.stderr.write(f"{PROGRAM}: {printable(' '.join(text.splitlines()))}\n")
        sys.stderr.flush()
    except BrokenPipeError:
        _forget(sys.stderr)


def _forget(stream: TextIO) -> None:
    """Drop the rest of the buffer: it would fail again at exit, with exit code 120."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
