"""`WWW-Authenticate` → challenges: which credentials a registry requires, and where to get tokens.

Reads several challenges in one header, several headers, and quoted values with escapes, as RFC
9110 has them. What is no challenge is skipped. Pure; `tokens` decides how each is answered.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

# Registries send one or two; more is an attempt to keep us busy.
_MOST: Final = 8
_LONGEST: Final = 8 * 1024

_WORD: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_PARAMETER: Final = re.compile(rf'({_WORD})[ \t]*=[ \t]*(?:"((?:[^"\\]|\\.)*)"|({_WORD}))')
_SCHEME: Final = re.compile(rf"({_WORD})(?=[ \t]|,|$)")
_BETWEEN: Final = re.compile(r"[ \t,]*")
_ELSE: Final = re.compile(r"[^ \t,]+")


@dataclass(frozen=True, slots=True)
class Challenge:
    """One way to authenticate that a server offers."""

    scheme: str
    """In small letters."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    """Names in small letters; of a name that is given twice, the first."""


def parse_challenges(headers: Iterable[str]) -> list[Challenge]:
    """Return the challenges of all headers in their order, the first `_MOST` of them."""
    challenges: list[Challenge] = []
    for header in headers:
        challenges += _read(header[:_LONGEST])
    return challenges[:_MOST]


def _read(header: str) -> Iterator[Challenge]:
    scheme = ""
    parameters: dict[str, str] = {}
    at = 0
    while (at := _skip(header, at)) < len(header):
        if parameter := _PARAMETER.match(header, at):
            name, quoted, plain = parameter.groups()
            value = plain if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
            parameters.setdefault(name.lower(), value)
            at = parameter.end()
        elif start := _SCHEME.match(header, at):
            if scheme:
                yield Challenge(scheme, parameters)
            scheme, parameters = start[1].lower(), {}
            at = start.end()
        else:
            # Such as the single value of Negotiate.
            rest = _ELSE.match(header, at)
            at = rest.end() if rest else len(header)
    if scheme:
        yield Challenge(scheme, parameters)


def _skip(header: str, at: int) -> int:
    between = _BETWEEN.match(header, at)
    return between.end() if between else at
