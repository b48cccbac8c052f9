"""What the arguments of an operator's container say, ours or grafana's, of any version.

Flags that are not known are passed over: the grammar of `config` would refuse them.
"""

from collections.abc import Iterator, Sequence

_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})


def find_value(arguments: Sequence[str], flag: str) -> str | None:
    """Return the value that a flag was given last, None where it was not given.

    A flag that stands alone is `true`.
    """
    last: str | None = None
    for name, value in _list_flags(arguments):
        if name == flag:
            last = value
    return last


def is_on(arguments: Sequence[str], flag: str, *, default: bool) -> bool:
    """Return whether a boolean flag is on."""
    value = find_value(arguments, flag)
    return default if value is None else value in _TRUE


def _list_flags(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    for place, word in enumerate(arguments):
        if not word.startswith("-"):
            continue
        name, equals, value = word.removeprefix("-").removeprefix("-").partition("=")
        following = arguments[place + 1] if place + 1 < len(arguments) else "-"
        if not equals:
            value = "true" if following.startswith("-") else following
        yield name, value
