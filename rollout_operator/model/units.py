"""Durations, integers, booleans, int-or-percent, timestamps, URLs and patterns that people write.

Spellings are accepted exactly as by Go's standard library, for which users wrote them; Python's
`int` and `float` are laxer. Parsers raise InvalidInput naming the value; the caller adds object and
field.

Patterns are RE2 of bounded size. Those of budgets match a whole text, those of Flux match anywhere
and extract.
"""

import json
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from functools import lru_cache
from ipaddress import IPv4Address
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from rollout_operator.model.names import LONGEST_NAME, InvalidInput

_NANOSECONDS: Final = {
    "ns": 1,
    "us": 1_000,
    "\u00b5s": 1_000,  # micro sign
    "\u03bcs": 1_000,  # Greek mu
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
# Go's durations have 64 bits.
_LARGEST: Final = 2**63 - 1
_SMALLEST: Final = -(2**63)
_MICROSECOND: Final = timedelta(microseconds=1)
_DURATION_PART: Final = re.compile(r"([0-9]*)(?:\.([0-9]*))?([^0-9.]*)")
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
# An address in brackets may be followed by a port only.
_AFTER_IPV6: Final = re.compile(r"\][^:]")
# In the order required in a duration.
_PROMETHEUS: Final = {
    "y": timedelta(days=365),
    "w": timedelta(days=7),
    "d": timedelta(days=1),
    "h": timedelta(hours=1),
    "m": timedelta(minutes=1),
    "s": timedelta(seconds=1),
    "ms": timedelta(milliseconds=1),
}
_PROMETHEUS_PARTS: Final = re.compile(
    "".join(rf"(?:([0-9]{{1,10}}){unit})?" for unit in _PROMETHEUS), re.ASCII
)
# No `?`, and no class in brackets: both have another meaning in URLs.
_URL_PATTERN: Final = re.compile(
    r"(https?|\*)://([a-zA-Z0-9*._-]+|\[[0-9a-fA-F:.]+\])(?::([0-9*]{1,5}))?(/[^?#\[\]\s]*)?"
)
_PORTS: Final = {"http": 80, "https": 443}
_RFC3339: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.,][0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})"
)
# Minutes are added to times that others wrote, and 9999 is the last year of a datetime.
_LAST_YEAR: Final = 9998
_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "FALSE", "false", "False"})
# In any case. Anything else may be meant to stop.
_NO: Final = frozenset({"", "false", "no", "off", "0"})
# More than any 64-bit number has; tenants may write a hundred thousand.
_MOST_DIGITS: Final = 20
_LONGEST_QUOTE: Final = 200
# The engine's work grows with the pattern.
LONGEST_PATTERN: Final = 1024
# Of the engine, for one pattern; `(a{1000}){1000}` needs more.
_MEMORY: Final = 1 << 20
# Up to 128 groups, for each of a thousand tags.
LONGEST_TEMPLATE: Final = 256
# `$name`, `${name}` and `$$`, as Go's `regexp.Expand` reads them: the longest name counts.
_VARIABLES: Final = r"\$(?:\$|([\pL\d_]+)|\{([\pL\d_]+)\})"
_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,8}")
# For the budgets of a namespace, and those refused lately.
_KEPT: Final = 128
# Quoted and escaped text, character sets, parentheses and alternation.
_TOKEN: Final = re.compile(
    r"\\Q.*?(?:\\E|\Z)|\\.|\[\^?\]?(?:\[:\^?[a-z]+:\]|\\.|[^\]\\])*\]|[()|]", re.DOTALL
)


class IntOrPercent(msgspec.Struct, frozen=True):
    """A number of pods, or a share of the replicas."""

    number: int
    is_percent: bool = False

    def of(self, replicas: int) -> int:
        """Return the number of pods, rounded down, at least 1."""
        return max(1, self.number * replicas // 100) if self.is_percent else self.number

    def __str__(self) -> str:
        return f"{self.number}%" if self.is_percent else str(self.number)


class Confidential:
    """Holds a secret, which no log line or traceback shows."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(...)"


class Pattern:
    def __init__(self, groups: int, capture: Callable[[str, int], str | None]) -> None:
        self.groups = groups
        self._capture = capture

    def capture(self, text: str, group: int) -> str | None:
        """Return a group if the pattern matches all of `text`, None otherwise."""
        return self._capture(text, group) if len(text) <= LONGEST_NAME else None


def parse_duration(text: str) -> timedelta:
    """Return a Go duration such as `1h30m`, `1.5h`, `-300ms` or `0`.

    Rounded away from zero to microseconds. Raises InvalidInput; days and missing units are errors.
    """
    negative = text.startswith("-")
    rest = text[1:] if text.startswith(("-", "+")) else text
    if rest == "0":
        return timedelta(0)
    total, place = 0, 0
    while place < len(rest) or not rest:
        span, place = _duration_part(text, rest, place)
        total += span
        if not _SMALLEST <= (-total if negative else total) <= _LARGEST:
            raise InvalidInput(f"time: invalid duration {quote(text)}")
    microseconds = -(-total // 1000)
    return (-microseconds if negative else microseconds) * _MICROSECOND


def format_duration(span: timedelta) -> str:
    """Return a duration as in Go: `12h0m0s`, `1.5s`, `100ms`, `0s`."""
    microseconds = span // _MICROSECOND
    if microseconds < 0:
        return f"-{format_duration(-span)}"
    if microseconds == 0:
        return "0s"
    if microseconds < 1000:
        return f"{microseconds}\u00b5s"
    if microseconds < 1_000_000:
        return f"{_decimal(microseconds, 3)}ms"
    minutes, rest = divmod(microseconds, 60_000_000)
    hours, minutes = divmod(minutes, 60)
    seconds = f"{_decimal(rest, 6)}s"
    if hours:
        return f"{hours}h{minutes}m{seconds}"
    return f"{minutes}m{seconds}" if minutes else seconds


def parse_prometheus_duration(text: str) -> timedelta:
    """Return a Prometheus duration such as `1y`, `12h`, `1h30m` or `0`.

    Raises InvalidInput: each unit at most once, from large to small, whole numbers only.
    """
    if text == "0":
        return timedelta(0)
    match = _PROMETHEUS_PARTS.fullmatch(text)
    if not text or match is None:
        raise InvalidInput(f"not a valid duration string: {quote(text)}")
    try:
        parts = zip(match.groups(), _PROMETHEUS.values(), strict=True)
        return sum((int(number) * unit for number, unit in parts if number), timedelta(0))
    except OverflowError as error:
        raise InvalidInput(f"duration out of range: {quote(text)}") from error


def format_prometheus_duration(span: timedelta) -> str:
    """Return a duration as in Prometheus: `1y`, `12h`, `1h30m`, `0s`."""
    text = ""
    for name, unit in _PROMETHEUS.items():
        # Years and weeks only if exact: 366 days are `366d`, not `1y1d`.
        if name in {"y", "w"} and span % unit:
            continue
        number, span = divmod(span, unit)
        text += f"{number}{name}" if number else ""
    return text or "0s"


def parse_go_int(text: str, bits: int = 64) -> int:
    """Parse an optional sign and ASCII digits that fit into `bits`. Raises InvalidInput."""
    if not _INTEGER.fullmatch(text):
        raise InvalidInput(f"{quote(text)} is not an integer")
    digits = text.lstrip("+-").lstrip("0")
    value = int(f"0{digits[: _MOST_DIGITS + 1]}")
    value = -value if text.startswith("-") else value
    if not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
        raise InvalidInput(f"{quote(text)} does not fit into {bits} bits")
    return value


def parse_go_bool(text: str) -> bool:
    """Raises InvalidInput."""
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise InvalidInput(f"{quote(text)} is not a boolean")


def parse_max_unavailable(text: str) -> IntOrPercent:
    """Parse an integer from 1, or 1% to 100%, with blanks around. Raises InvalidInput."""
    trimmed = text.strip()
    is_percent = trimmed.endswith("%")
    try:
        number = parse_go_int(trimmed.removesuffix("%"), bits=32 if is_percent else 64)
    except InvalidInput:
        number = 0
    if number < 1 or (is_percent and number > 100):
        raise InvalidInput(
            f"{quote(text)} is neither an integer from 1 nor a share from 1% to 100%"
        )
    return IntOrPercent(number, is_percent)


def find_url_problem(text: str, schemes: Sequence[str] = ("https",)) -> str:
    """Return why nothing can be sent to a URL, as the end of a sentence; empty where it can.

    It does not show the URL, which may hold a password.
    """
    if not text.lower().startswith(("https://", "http://")):
        return f"must begin with {' or '.join(f'{scheme}://' for scheme in schemes)}"
    if not text.isprintable() or " " in text:
        return "contains a space or a control character"
    try:
        url = urlsplit(text)
        host = url.hostname or ""
        host.encode("idna")  # as the resolver does
        if host and not host.strip("0123456789."):
            IPv4Address(host)
        if _AFTER_IPV6.search(url.netloc):
            return "has an invalid host"
    except ValueError:
        return "has an invalid host"
    if not host:
        return "names no host"
    try:
        is_port = url.port != 0
    except ValueError:
        is_port = False
    return "" if is_port else "needs a port from 1 to 65535"


def parse_rfc3339(text: str) -> datetime:
    """Return a timestamp such as `2006-01-02T15:04:05Z`, keeping its offset.

    Cut to microseconds. Raises InvalidInput, also for times that `check_time` refuses.
    """
    match = _RFC3339.fullmatch(text)
    if match is None:
        raise InvalidInput(f"{quote(text)} is no RFC 3339 time")
    fraction = match[1] or ""
    # Python reads only three or six digits of a fraction.
    plain = text.replace(fraction, f".{fraction[1:7]:0<6}", 1) if fraction else text
    try:
        return check_time(datetime.fromisoformat(plain))
    except (ValueError, InvalidInput) as error:
        raise InvalidInput(f"{quote(text)} is no RFC 3339 time: {error}") from error


def format_rfc3339(time: datetime) -> str:
    """Return UTC such as `2006-01-02T15:04:05Z`, with a fraction unless it is 0."""
    text = time.astimezone(UTC).replace(tzinfo=None).isoformat()
    return f"{text.rstrip('0') if '.' in text else text}Z"


def format_next_second(time: datetime) -> str:
    """Return UTC in whole seconds, rounded up."""
    whole = time.replace(microsecond=0)
    return format_rfc3339(whole if whole == time else whole + timedelta(seconds=1))


def check_time(time: datetime) -> datetime:
    """Return a time that others wrote, if it is in the years 1 to 9998 of UTC.

    Raises InvalidInput: the time cannot be in UTC, or leaves no room for sums.
    """
    try:
        is_fit = time.astimezone(UTC).year <= _LAST_YEAR
    except OverflowError:
        is_fit = False
    if not is_fit:
        raise InvalidInput(f"not in the years 1 to {_LAST_YEAR} of UTC")
    return time


def format_go_time(time: datetime) -> str:
    """Return a timestamp as Go prints it: `2026-01-02 03:04:05 +0000 UTC`."""
    offset = time.strftime("%z")[:5]
    fraction = f".{time.microsecond:06d}".rstrip("0") if time.microsecond else ""
    zone = "UTC" if not time.utcoffset() else offset
    return (
        f"{time.replace(tzinfo=None, microsecond=0).isoformat(sep=' ')}{fraction} {offset} {zone}"
    )


def is_brake_on(text: str | None) -> bool:
    """Return whether a label or annotation stops something: unless it is a clear no (D-89)."""
    return text is not None and text.strip().lower() not in _NO


def is_odd_brake(text: str | None) -> bool:
    """Return whether a brake holds by another value than `true`."""
    return is_brake_on(text) and text != "true"


def quote(text: str) -> str:
    """Quote text for an error message, cut if it is very long."""
    shown = text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}..."
    return json.dumps(shown, ensure_ascii=False)


@lru_cache(maxsize=_KEPT)
def compile_pattern(text: str) -> Pattern:
    """Raises InvalidInput with the engine's reason."""
    size = len(text.encode("utf-8", "replace"))
    if size > LONGEST_PATTERN:
        raise InvalidInput(f"pattern of {size} bytes is longer than {LONGEST_PATTERN}")
    regexp = _compile(text, memory=_MEMORY)

    def capture(subject: str, group: int) -> str | None:
        # Anchored as `^(?:...)$`.
        match = regexp.fullmatch(subject)
        return None if match is None else match.group(group)

    return Pattern(regexp.groups, capture)


@lru_cache(maxsize=_KEPT)
def compile_extraction(pattern: str, template: str) -> Callable[[str], str | None]:
    """Return a function that fills the template with the groups of the first match.

    It returns None without a match, and the text itself without a template, as Go's `regexp`.
    Raises InvalidInput with the engine's reason.
    """
    if (size := len(template)) > LONGEST_TEMPLATE:
        raise InvalidInput(f"template of {size} characters is longer than {LONGEST_TEMPLATE}")
    regexp, variables = _compile(pattern, memory=_MEMORY), _compile(_VARIABLES)

    def extract(text: str) -> str | None:
        match = regexp.search(text)
        if match is None or not template:
            return None if match is None else text
        return str(variables.sub(lambda found: _fill(found, match), template))

    return extract


def compile_search(text: str) -> Callable[[str], bool]:
    """Return a search for a pattern of the operator's own user. Raises InvalidInput."""
    regexp = _compile(text)
    return lambda subject: regexp.search(subject) is not None


def compile_url_pattern(text: str) -> Callable[[str], bool]:
    """Return a match for URLs by a pattern such as `https://*.example.com:*/prometheus`.

    `*` stands for any text within scheme, host, port or path. A pattern without a port takes the
    scheme's own, one without a path takes any; `*` alone takes all. Raises InvalidInput.
    """
    if text == "*":
        return lambda url: True
    match = _URL_PATTERN.fullmatch(text)
    if match is None:
        raise InvalidInput(f"{quote(text)} is no pattern of URLs, such as https://*.example.com:*")
    scheme, host, port, path = match.groups()

    def fits(url: str) -> bool:
        parts = urlsplit(url)
        default = _PORTS.get(parts.scheme, 0)
        wanted = ((parts.scheme, scheme), (parts.hostname or "", host.strip("[]")))
        return (
            all(fnmatchcase(part, glob.lower()) for part, glob in wanted)
            and fnmatchcase(f"{parts.port or default}", port or f"{default}")
            and (not path or fnmatchcase(parts.path or "/", path))
        )

    return fits


def has_open_alternation(text: str) -> bool:
    """Return whether a pattern has a `|` outside all groups.

    Between `^` and `$`, as in earlier releases, it matches other texts.
    """
    depth = 0
    for token in _TOKEN.findall(text):
        if token == "|" and depth == 0:  # noqa: S105 (a piece of a pattern)
            return True
        depth += {"(": 1, ")": -1}.get(token, 0)
    return False


def _duration_part(text: str, rest: str, place: int) -> tuple[int, int]:
    """Return the nanoseconds of one number with unit, and where the next one starts."""
    match = _DURATION_PART.match(rest, place)
    assert match is not None  # every part of the expression may be empty
    whole, fraction, unit = match[1], match[2] or "", match[3]
    if not whole and not fraction:
        raise InvalidInput(f"time: invalid duration {quote(text)}")
    if not unit:
        raise InvalidInput(f"time: missing unit in duration {quote(text)}")
    if unit not in _NANOSECONDS:
        raise InvalidInput(f"time: unknown unit {quote(unit)} in duration {quote(text)}")
    digits = whole.lstrip("0")
    if len(digits) > _MOST_DIGITS:
        raise InvalidInput(f"time: invalid duration {quote(text)}")
    fraction = fraction[:_MOST_DIGITS]
    scale = 10 ** len(fraction)
    return _NANOSECONDS[unit] * int(f"0{digits}{fraction}") // scale, match.end()


def _decimal(number: int, places: int) -> str:
    """Divide by a power of ten, without trailing zeros."""
    whole, fraction = divmod(number, 10**places)
    return f"{whole}.{fraction:0{places}d}".rstrip("0").rstrip(".") if fraction else str(whole)


def _fill(variable: Any, match: Any) -> str:
    """Return the value of a variable, empty if its group is missing or did not match."""
    name = variable.group(1) or variable.group(2)
    if name is None:
        return "$"
    index = int(name) if _INDEX.fullmatch(name) else match.re.groupindex.get(name)
    if index is None or index > match.re.groups:
        return ""
    return match.group(index) or ""


def _compile(text: str, *, memory: int | None = None) -> Any:
    import re2  # a library of several MiB that hardly any installation needs

    options = re2.Options()
    options.log_errors = False  # it would write to stderr by itself
    if memory is not None:
        options.max_mem = memory
    try:
        return re2.compile(text, options)
    except re2.error as error:
        cause = error.args[0] if error.args else ""
        text = cause.decode(errors="replace") if isinstance(cause, bytes) else str(cause)
        raise InvalidInput(text) from error
