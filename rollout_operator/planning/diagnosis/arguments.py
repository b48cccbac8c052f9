"""What the arguments of an operator's container say, ours or grafana's, of any version.

Flags that are not known are passed over: the grammar of `config` would refuse them.
"""

from collections.abc import Iterator, Sequence

_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})


def find_value(words: Sequence[str], flag: str) -> str | None:
    """Return the value that a flag was given last, None where it was not given.

    A flag that stands alone is `true`.
    """
    found: str | None = None
    for name, value in _list_flags(words):
        if name == flag:
            found = value
    return found


def is_on(words: Sequence[str], flag: str, *, default: bool) -> bool:
    """Tell whether a boolean flag is on."""
    value = find_value(words, flag)
    return default if value is None else value in _TRUE


def _list_flags(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    for place, word in enumerate(words):
        if not word.startswith("-"):
            continue
        name, equals, value = word.removeprefix("-").removeprefix("-").partition("=")
        following = words[place + 1] if place + 1 < len(words) else "-"
        if not equals:
            value = "true" if following.startswith("-") else following
        yield name, value
