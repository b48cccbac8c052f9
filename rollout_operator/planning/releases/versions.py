"""Which of two tags is the newer version, by the precedence of Semantic Versioning 2.0.0.

Tags are read as leniently as Flux reads them: with a `v` before, without minor or patch number, and
with zeros before numbers. Build metadata says nothing of precedence.
"""

import re
from typing import Final

_Part = tuple[int, int, str]
VersionKey = tuple[int, int, int, int, tuple[_Part, ...]]
"""Compares as versions do: three numbers, whether it is final, and what stands for it if not."""

# No registry takes longer tags.
_LONGEST_TAG: Final = 128
_WORDS: Final = r"[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*"
_VERSION: Final = re.compile(
    rf"v?([0-9]+)(?:\.([0-9]+))?(?:\.([0-9]+))?(?:-({_WORDS}))?(?:\+{_WORDS})?"
)
_NUMBER: Final = re.compile(r"[0-9]+")


def find_version_key(tag: str) -> VersionKey | None:
    """Return what a tag is compared by; None where it is no version."""
    parsed = _VERSION.fullmatch(tag) if len(tag) <= _LONGEST_TAG else None
    if parsed is None:
        return None
    words = parsed[4].split(".") if parsed[4] else []
    if any(_NUMBER.fullmatch(word) and len(word) > 1 and word[0] == "0" for word in words):
        return None
    numbers = (int(parsed[1]), int(parsed[2] or 0), int(parsed[3] or 0))
    return (*numbers, 0 if words else 1, tuple(_make_part(word) for word in words))


def _make_part(word: str) -> _Part:
    """Numbers are compared as such, and come before words."""
    return (0, int(word), "") if _NUMBER.fullmatch(word) else (1, 0, word)
