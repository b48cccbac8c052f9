"""Patterns that tenants write: RE2 only, of bounded size.

Decides what may be compiled at all. Those of budgets match a whole text: what a match means is left
to `planning.budgets.counting`, which groups there must be to `model.decode.budget`. Those of Flux
match anywhere, and extract.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

from rollout_operator.model.errors import InvalidInput

# No pattern for names of pods is longer by nature; the engine's work grows with it.
LONGEST_PATTERN: Final = 1024
# A DNS subdomain, the longest name that an object can have.
LONGEST_NAME: Final = 253
# Of the engine, for one pattern: `(a{1000}){1000}` takes more and is refused.
_MEMORY: Final = 1 << 20
# What is extracted grows with it: 128 groups of a tag, of a thousand tags.
LONGEST_TEMPLATE: Final = 256
# `$name`, `${name}` and `$$`, as Go's `regexp.Expand` reads them: the longest name counts.
_VARIABLES: Final = r"\$(?:\$|([\pL\d_]+)|\{([\pL\d_]+)\})"
_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,8}")
# A pattern for each budget of a namespace, and for those which were refused lately.
_KEPT: Final = 128

# Quoted and escaped text, sets of characters, and what else groups and alternates.
_TOKEN: Final = re.compile(
    r"\\Q.*?(?:\\E|\Z)|\\.|\[\^?\]?(?:\[:\^?[a-z]+:\]|\\.|[^\]\\])*\]|[()|]", re.DOTALL
)


class Pattern:
    """A compiled pattern."""

    def __init__(self, groups: int, capture: Callable[[str, int], str | None]) -> None:
        self.groups = groups
        """How many capture groups it has."""
        self._capture = capture

    def capture(self, text: str, group: int) -> str | None:
        """Return what a group holds where the pattern matches all of `text`.

        None where it does not match, where the group took no part, or where the text is longer
        than any name.
        """
        return self._capture(text, group) if len(text) <= LONGEST_NAME else None


@lru_cache(maxsize=_KEPT)
def compile_pattern(text: str) -> Pattern:
    """Return the compiled pattern. Raises InvalidInput with the engine's reason."""
    size = len(text.encode("utf-8", "replace"))
    if size > LONGEST_PATTERN:
        raise InvalidInput(f"pattern of {size} bytes is longer than {LONGEST_PATTERN}")
    regexp = _compile(text, memory=_MEMORY)

    def capture(subject: str, group: int) -> str | None:
        # The whole pattern is anchored, alternations at its top included, as `^(?:...)$`.
        match = regexp.fullmatch(subject)
        return None if match is None else match.group(group)

    return Pattern(regexp.groups, capture)


@lru_cache(maxsize=_KEPT)
def compile_extraction(pattern: str, template: str) -> Callable[[str], str | None]:
    """Return what extracts from a text: the template, with the groups of the first match in it.

    None where the pattern matches nowhere; without a template it is the text itself. Both are read
    as Go's `regexp` reads them. Raises InvalidInput with the engine's reason.
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


def _fill(variable: Any, match: Any) -> str:
    """Return what stands for a variable: nothing where its group is missing or took no part."""
    name = variable.group(1) or variable.group(2)
    if name is None:
        return "$"
    index = int(name) if _INDEX.fullmatch(name) else match.re.groupindex.get(name)
    if index is None or index > match.re.groups:
        return ""
    return match.group(index) or ""


def compile_search(text: str) -> Callable[[str], bool]:
    """Return what finds a pattern of the operator's own user anywhere in a text.

    Raises InvalidInput with the engine's reason.
    """
    regexp = _compile(text)
    return lambda subject: regexp.search(subject) is not None


def has_open_alternation(text: str) -> bool:
    """Return whether a pattern has a `|` outside of all groups.

    Between `^` and `$` without a group of its own, as in earlier releases, it matches other texts.
    """
    depth = 0
    for token in _TOKEN.findall(text):
        if token == "|" and depth == 0:  # noqa: S105 (a piece of a pattern)
            return True
        depth += {"(": 1, ")": -1}.get(token, 0)
    return False


def _compile(text: str, *, memory: int | None = None) -> Any:
    import re2  # a library of several MiB that hardly any installation needs

    options = re2.Options()
    options.log_errors = False  # it would write to stderr by itself
    if memory is not None:
        options.max_mem = memory
    try:
        return re2.compile(text, options)
    except re2.error as error:
        raise InvalidInput(_reason(error)) from error


def _reason(error: Exception) -> str:
    cause = error.args[0] if error.args else ""
    return cause.decode(errors="replace") if isinstance(cause, bytes) else str(cause)
