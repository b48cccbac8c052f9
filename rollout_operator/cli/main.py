"""The entry point: chooses the command by the arguments, and reports how it ended.

A first word that starts with a dash is a flag of the operator itself, as is no word at all: the
image is started with flags only. Whatever goes wrong is one line on stderr and an exit code.

The table of commands: a new command is a module of this folder and a row here. Those of another
distribution are found by its entry points.

The module is imported when its command is chosen, so that help, version and refusals are quick.
"""

import difflib
import errno
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.machinery import PathFinder
from types import ModuleType
from typing import Final, Protocol, TextIO, cast

import msgspec

from rollout_operator.config.grammar import HelpRequested, UsageError
from rollout_operator.model.names import ApiError, ConfigError, DecodeError, ExitCode, OperatorError

PROGRAM: Final = "rollout-operator"
ENTRY_POINTS: Final = "rollout_operator.commands"
LAB: Final = "lab"
"""The extra that brings the distribution with the simulated cluster."""


class CommandModule(Protocol):
    """The functions of the module of a command."""

    def run(self, arguments: Sequence[str]) -> int:
        """Return the exit code. Raises HelpRequested, and OperatorError as one line on stderr."""
        ...

    def render_usage(self) -> str:
        """Return the help text, which goes to stdout."""
        ...


class Command(msgspec.Struct, frozen=True):
    """One row: the word that chooses the command, and its line in the help."""

    name: str
    summary: str
    extra: str = ""
    """What brings the command, where the operator's own distribution does not."""

    def load(self) -> CommandModule:
        """Import the module, which has the name of its command. Raises NotInstalled."""
        if not self.extra:
            with import_lean():
                module = import_module(f"{__package__}.{self.name.replace('-', '_')}")
            return cast(CommandModule, module)
        # Not before: it takes longer than help does, and few commands need it.
        from importlib.metadata import entry_points

        for entry in entry_points(group=ENTRY_POINTS, name=self.name):
            return cast(CommandModule, entry.load())
        raise NotInstalled(self)

    @property
    def help_words(self) -> str:
        """Return the words to type for its help."""
        return f"{PROGRAM} -help" if self.name == OPERATOR else f"{PROGRAM} {self.name} -help"


# aiohttp reads the CAs of the system twice when it is imported, 50 ms and 2 MiB, for contexts that
# nothing here uses; OpenSSL takes their places from the environment. Another MiB is the run-time
# library of C++, which frozenlist alone would load, for lists that are read once for a session.
_LEAN: Final = {
    "SSL_CERT_FILE": os.devnull,
    "SSL_CERT_DIR": os.devnull,
    "FROZENLIST_NO_EXTENSIONS": "1",
}


# With its own `__init__` it brings servers, for 0.6 MiB and 7 ms.
_METRICS: Final = "prometheus_client"


def _register_empty(name: str) -> bool:
    """Have modules of a package imported without the package; return False where it is there."""
    if name in sys.modules or (spec := PathFinder.find_spec(name)) is None:
        return False
    package = ModuleType(name)
    package.__path__ = list(spec.submodule_search_locations or ())
    sys.modules[name] = package
    return True


@contextmanager
def import_lean() -> Iterator[None]:
    """Import libraries inside without what costs time and memory and is not used."""
    before = {name: os.environ.get(name) for name in _LEAN}
    os.environ.update(_LEAN)
    empty = _register_empty(_METRICS)
    try:
        yield
    finally:
        if empty:
            del sys.modules[_METRICS]
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


OPERATOR: Final = "run"
"""The command that takes flags without a command."""
COMMANDS: Final = (
    Command(OPERATOR, "run the operator, as without a command"),
    Command("status", "what each rollout group does, and what it waits for"),
    Command("explain", "whether a pod may go now, and what would have to happen first"),
    Command("wait", "wait until rollout groups are rolled out, in a script"),
    Command("demo", "watch the operator at work on a simulated cluster", LAB),
    Command("simulate", "what the operator would do with objects of your cluster", LAB),
    Command("doctor", "check an installation, and say what is wrong and how to fix it"),
    Command("adopt", "print what brings plain StatefulSets of zones under the operator"),
    Command("admin", "upgrade the operator's kinds, or delete its webhook configurations"),
    Command("completion", "print what lets a shell complete commands and flags"),
    Command("version", "print the version, as -version does"),
    Command("help", "print this, or with the name of a command its help"),
)

ADMIN_TASKS: Final = ("apply-crds", "uninstall-webhooks")
"""Tasks of `admin` that were commands: hooks of charts and scripts call them so."""


class NotInstalled(OperatorError):
    """The command is part of another distribution, which is not there."""

    def __init__(self, command: Command) -> None:
        how = f"pip install ./{command.extra} in a checkout of this version"
        super().__init__(f"{command.name} is not installed: {how}")


class UnknownCommand(UsageError):
    """No command has this name."""

    def __init__(self, name: str) -> None:
        names = [command.name for command in COMMANDS]
        near = difflib.get_close_matches(name, (*names, *ADMIN_TASKS), n=1)
        hint = f"did you mean {near[0]}?" if near else f"commands are {', '.join(names)}"
        super().__init__(f'unknown command "{name}"; {hint}')


def get_command(name: str) -> Command:
    """Return the command of this name. Raises UnknownCommand."""
    name = "admin" if name in ADMIN_TASKS else name
    for command in COMMANDS:
        if command.name == name:
            return command
    raise UnknownCommand(name)


def render_commands() -> str:
    """Return the table as help text."""
    width = max(len(command.name) for command in COMMANDS)
    rows = (f"  {command.name:{width}}  {command.summary}\n" for command in COMMANDS)
    return f"Commands, each with a help of its own:\n{''.join(rows)}"


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
    if arguments[0] in ADMIN_TASKS:
        return "admin", arguments
    return arguments[0], arguments[1:]


def _run(command: Command, arguments: Sequence[str]) -> int:
    try:
        return command.load().run(arguments)
    except HelpRequested:
        sys.stdout.write(command.load().render_usage())
        return ExitCode.DONE
    except ConfigError as error:
        return _refuse(error, command.help_words)
    except NotInstalled as error:
        _complain(str(error))
        return ExitCode.BAD_COMMAND_LINE
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
    # What is wrong with an object or a call is told already: a library has other words for it.
    is_told = isinstance(error, DecodeError) or (isinstance(error, ApiError) and error.call)
    if cause is not None and not is_told and str(cause) not in texts[0]:
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
