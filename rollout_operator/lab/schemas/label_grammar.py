"""The grammar of label selectors in queries: `a=b,c in (d, e),!f`.

Decides what is a selector and with which words another text is refused, as the real server's parser
does token by token.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from rollout_operator.lab.model.request import not_modelled

_TOKEN: Final = re.compile(r"\s*(?:(?P<sign>==|!=|[=!(),<>])|(?P<word>[^\s=!(),<>]+))")
_END: Final = ("", "")
_COMPARISONS: Final = ("=", "==", "!=")
_SETS: Final = ("in", "notin")
_OPERATORS: Final = "in, notin, =, ==, !=, gt, lt"


@dataclass(frozen=True, slots=True)
class Requirement:
    """One condition: the value is among `values`, or is not. None stands for no value at all."""

    key: str
    values: frozenset[str | None]
    is_among: bool

    def holds(self, value: str | None) -> bool:
        """Tell whether a value is what is asked for."""
        return (value in self.values) is self.is_among


def parse_requirements(selector: str) -> tuple[Requirement, ...]:
    """Return the conditions of a selector. Raises ValueError that says where it makes no sense."""
    return tuple(_Parser(selector).read())


class _Parser:
    """The tokens of one selector, and how far they are read. A token is its kind and its text."""

    def __init__(self, selector: str) -> None:
        found = _TOKEN.finditer(selector.rstrip())
        self._tokens = [
            ("word", one["word"]) if one["word"] else (one["sign"], one["sign"]) for one in found
        ]
        self._tokens.append(_END)
        self._at = 0

    def read(self) -> Iterator[Requirement]:
        while self._kind != "":
            if self._kind not in ("word", "!"):
                raise ValueError(
                    f"found '{self._text}', expected: !, identifier, or 'end of string'"
                )
            try:
                yield self._requirement()
            except ValueError as error:
                raise ValueError(f"unable to parse requirement: {error}") from error
            self._comma()

    @property
    def _kind(self) -> str:
        return self._tokens[self._at][0]

    @property
    def _text(self) -> str:
        return self._tokens[self._at][1]

    def _take(self) -> tuple[str, str]:
        token = self._tokens[self._at]
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return token

    def _comma(self) -> None:
        kind, text = self._take()
        if kind not in (",", ""):
            raise ValueError(f"found '{text}', expected: ',' or 'end of string'")
        if kind == "," and self._kind not in ("word", "!"):
            raise ValueError(f"found '{self._text}', expected: identifier after ','")

    def _requirement(self) -> Requirement:
        kind, key = self._take()
        is_absent = kind == "!"
        if is_absent:
            kind, key = self._take()
        if kind != "word":
            raise ValueError(f"found '{key}', expected: identifier")
        if self._kind in ("", ","):
            return Requirement(key, frozenset({None}), is_absent)
        kind, sign = self._take()
        if kind in _COMPARISONS:
            return Requirement(key, frozenset({self._value()}), kind != "!=")
        if kind == "word" and sign in _SETS:
            return Requirement(key, frozenset(self._values()), sign == "in")
        if kind in ("<", ">"):
            not_modelled(f"the comparison of labels by {kind}")
        raise ValueError(f"found '{sign}', expected: {_OPERATORS}")

    def _value(self) -> str:
        if self._kind in ("", ","):
            return ""
        kind, text = self._take()
        if kind != "word":
            raise ValueError(f"found '{text}', expected: identifier")
        return text

    def _values(self) -> Iterator[str | None]:
        """Read what is in parentheses; between two commas is an empty value."""
        kind, text = self._take()
        if kind != "(":
            raise ValueError(f"found '{text}' expected: '('")
        if self._kind not in ("word", ",", ")"):
            raise ValueError(f"found '{self._text}', expected: ',', ')' or identifier")
        while True:
            yield self._take()[1] if self._kind == "word" else ""
            kind, text = self._take()
            if kind == ")":
                return
            if kind != ",":
                raise ValueError(f"found '{text}', expected: ',' or ')'")
