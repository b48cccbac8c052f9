"""The grammar of Go's `flag` package, so that arguments written for a Go program mean the same.

`-name=value`, `--name=value` or `-name value`; a boolean takes a value only through `=`; the last
of several wins; `--` or the first word that is no flag ends the flags; numbers are decimal. Errors
begin as Go's do, and go on with what to write instead.
"""

import difflib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field, fields
from datetime import timedelta
from typing import Any, Final, Generic, TypeVar, cast

import msgspec

from rollout_operator.model.names import ConfigError, ExitCode, InvalidInput, OperatorError
from rollout_operator.model.units import (
    format_duration,
    format_prometheus_duration,
    parse_duration,
    parse_go_bool,
    parse_prometheus_duration,
    quote,
)

T = TypeVar("T")

HELP_ALL: Final = "help-all"

_PARSE_ERROR: Final = "parse error"
_RANGE_ERROR: Final = "value out of range"

# Of Go's integer literals only decimal literals: what Go takes for octal, `017`, is refused.
_INTEGER: Final = re.compile(r"[+-]?(0|[1-9][0-9]*)")
# A 64-bit number is not longer than this.
_LONGEST_INTEGER: Final = 20

_DECIMAL: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_NOT_FINITE: Final = re.compile(r"(?i:[+-]?inf(?:inity)?|nan)", re.ASCII)


class UsageError(ConfigError):
    """The words do not follow the grammar. The process says where help is and ends with 2."""

    def __init__(self, message: str) -> None:
        super().__init__(message, exit_code=ExitCode.BAD_COMMAND_LINE)


class UnknownFlag(UsageError):
    """No flag has this name; the error names the nearest flag that exists."""

    def __init__(self, name: str, names: Iterable[str] = ()) -> None:
        near = _choose_nearest(name, list(names))
        hint = f"; did you mean -{near}?" if near else ""
        super().__init__(f"flag provided but not defined: -{name}{hint}")


class HelpRequested(OperatorError):
    """`-h`, `-help` or `-help-all` was given, which is no error: show the usage and end with 0."""

    def __init__(self, *, is_full: bool = False) -> None:
        super().__init__()
        self.is_full = is_full


class FlagKind(msgspec.Struct, Generic[T], frozen=True):
    """A type of flag: its word in the usage, and its text in both directions."""

    word: str
    parse: Callable[[str], T]
    """Raises InvalidInput; only the reason is shown, the value is named by the grammar."""
    show: Callable[[T], str]
    stands_alone: bool = False
    """A flag without a value is true."""


class Flag(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    name: str
    kind: FlagKind[T]
    default: T
    help: str
    group: str = ""
    """The heading under which the help shows it."""
    alias: str = ""
    """Another spelling of the name; not shown in lists."""
    is_rare: bool = False
    """Only for compatibility, or without effect: `-help-all` shows it, and `-help` does not."""


def flag(
    name: str,
    kind: FlagKind[T],
    default: T,
    group: str,
    help: str,
    *,
    alias: str = "",
    is_rare: bool = False,
) -> T:
    declared = Flag(
        name=name,
        kind=kind,
        default=default,
        group=group,
        help=help,
        alias=alias,
        is_rare=is_rare,
    )
    made: T = field(default=default, metadata={"flag": declared})
    return made


def map_flags(settings: type[Any]) -> dict[str, Flag[Any]]:
    return {each.name: each.metadata["flag"] for each in fields(settings) if each.metadata}


class ParsedArguments(msgspec.Struct, frozen=True):
    """The parsed words: a value for each flag, and the words after the flags."""

    leftovers: tuple[str, ...] = ()
    _given: dict[str, object] = {}

    def value(self, flag: Flag[T]) -> T:
        return cast(T, self._given.get(flag.name, flag.default))

    def has(self, flag: Flag[Any]) -> bool:
        return flag.name in self._given


def fill_fields(settings: type[Any], arguments: ParsedArguments) -> dict[str, Any]:
    return {name: arguments.value(flag) for name, flag in map_flags(settings).items()}


def refuse_leftovers(arguments: ParsedArguments, hint: str = "") -> None:
    if arguments.leftovers:
        raise UsageError(f"unexpected word: {arguments.leftovers[0]}{hint}")


def refuse_other_choices(
    arguments: ParsedArguments, flag: Flag[str], choices: Iterable[str]
) -> None:
    problem = next(list_wrong_choices(flag.name, arguments.value(flag), choices), "")
    if problem:
        raise UsageError(problem)


def list_wrong_choices(flag: str, value: str, choices: Iterable[str]) -> Iterator[str]:
    valid = tuple(choices)
    if value not in valid:
        yield f"-{flag} must be one of {', '.join(valid)}: {quote(value)}"


def parse_arguments(flags: Iterable[Flag[Any]], arguments: Sequence[str]) -> ParsedArguments:
    """Read words from left to right. Raises UsageError, or HelpRequested."""
    by_name = _by_name(flags)
    given: dict[str, object] = {}
    rest = list(arguments)
    _take_flags(by_name, rest, given)
    return ParsedArguments(tuple(rest), given)


def parse_mixed(flags: Iterable[Flag[Any]], arguments: Sequence[str]) -> ParsedArguments:
    """Read flags that may stand between and after other words as well, as for kubectl.

    Raises UsageError, or HelpRequested.
    """
    by_name = _by_name(flags)
    given: dict[str, object] = {}
    others: list[str] = []
    rest = list(arguments)
    while not _take_flags(by_name, rest, given) and rest:
        others.append(rest.pop(0))
    return ParsedArguments((*others, *rest), given)


def _by_name(flags: Iterable[Flag[Any]]) -> dict[str, Flag[Any]]:
    return {name: flag for flag in flags for name in (flag.name, flag.alias) if name}


def _take_flags(flags: dict[str, Flag[Any]], rest: list[str], given: dict[str, object]) -> bool:
    """Take flags from the front of `rest`; return whether `--` has ended them."""
    while rest and len(rest[0]) > 1 and rest[0].startswith("-"):
        word = rest.pop(0)
        if word == "--":
            return True
        name, text = _split(word)
        flag = _get_flag(flags, name)
        if text is None and not flag.kind.stands_alone:
            if not rest:
                raise UsageError(f"flag needs an argument: -{name}")
            text = rest.pop(0)
        given[flag.name] = True if text is None else _parse_value(flag.kind, name, text)
    return False


def _split(word: str) -> tuple[str, str | None]:
    """Return name and value; the value is None where no `=` gives one."""
    name = word[2:] if word.startswith("--") else word[1:]
    if name.startswith(("-", "=")):
        raise UsageError(f"bad flag syntax: {word}")
    name, equals, text = name.partition("=")
    return name, text if equals else None


def _get_flag(flags: dict[str, Flag[Any]], name: str) -> Flag[Any]:
    if name in flags:
        return flags[name]
    if name in {"h", "help", HELP_ALL}:
        raise HelpRequested(is_full=name == HELP_ALL)
    raise UnknownFlag(name, (flag.name for flag in flags.values()))


def _choose_nearest(name: str, names: Sequence[str]) -> str:
    """Return the flag that was probably meant: the end of a long name, or a typing error."""
    ends = [flag for flag in names if flag.endswith(f".{name}")]
    return next(iter(ends or difflib.get_close_matches(name.lower(), names, n=1)), "")


def _parse_value(kind: FlagKind[Any], name: str, text: str) -> object:
    try:
        return kind.parse(text)
    except InvalidInput as error:
        what = "boolean value" if kind.stands_alone else "value"
        of = f"-{name}" if kind.stands_alone else f"flag -{name}"
        raise UsageError(f"invalid {what} {quote(text)} for {of}: {error}") from error


def _parse_bool(text: str) -> bool:
    try:
        return parse_go_bool(text)
    except InvalidInput as error:
        raise InvalidInput(f"{_PARSE_ERROR}: write true or false") from error


def _parse_duration(text: str) -> timedelta:
    """Parse a duration; errors begin as Go's do, and go on with what would be right."""
    try:
        return parse_duration(text)
    except InvalidInput as error:
        hint = f"write {text}s or {text}m" if _is_bare(text) else "units are ms, s, m and h"
        raise InvalidInput(f"{_PARSE_ERROR}: {error}: {hint}") from error


def _parse_long_span(text: str) -> timedelta:
    try:
        return parse_prometheus_duration(text)
    except InvalidInput as error:
        hint = f"write {text}h or {text}d" if _is_bare(text) else "write it as in 12h or 1d12h"
        raise InvalidInput(f"{error}: {hint}") from error


def _is_bare(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _LONGEST_INTEGER


def _parse_int(text: str) -> int:
    if not _INTEGER.fullmatch(text):
        raise InvalidInput(f"{_PARSE_ERROR}: write a whole number")
    value = int(text) if len(text) <= _LONGEST_INTEGER else 2**63
    if not -(2**63) <= value < 2**63:
        raise InvalidInput(_RANGE_ERROR)
    return value


def _parse_float(text: str) -> float:
    if _NOT_FINITE.fullmatch(text):
        return float(text)
    if not _DECIMAL.fullmatch(text):
        raise InvalidInput(f"{_PARSE_ERROR}: write a number")
    value = float(text)
    if math.isinf(value):
        raise InvalidInput(_RANGE_ERROR)
    return value


def _parse_list(text: str) -> tuple[str, ...]:
    """Return the parts between commas. An empty part would match everything, so it is dropped."""
    return tuple(part for part in map(str.strip, text.split(",")) if part)


TEXT: Final[FlagKind[str]] = FlagKind("string", str, str)
LIST: Final[FlagKind[tuple[str, ...]]] = FlagKind("list", _parse_list, ",".join)
INT: Final[FlagKind[int]] = FlagKind("int", _parse_int, str)
FLOAT: Final[FlagKind[float]] = FlagKind("float", _parse_float, "{:g}".format)
BOOL: Final[FlagKind[bool]] = FlagKind(
    "bool", _parse_bool, lambda value: str(value).lower(), stands_alone=True
)
DURATION: Final[FlagKind[timedelta]] = FlagKind("duration", _parse_duration, format_duration)
# Go prints the name of a type that it does not know as this word.
LONG_SPAN: Final[FlagKind[timedelta]] = FlagKind(
    "value", _parse_long_span, format_prometheus_duration
)
