"""Cut JSON that nests too deeply for a decoder, without recursion.

Decoders recurse, so that Python bounds how deep they go: 1,000 levels on Python 3.11, 9,997 on
3.13. The API server stores `managedFields` of up to 9,995 levels, and any client that may patch an
object writes them, and nothing here reads them. So they go, and with them whatever else lies deeper
than any field that is read. What is left keeps its meaning: no field that is read moves or changes.

Only for what a decoder has refused: to walk every bracket in Python is far slower than a decoder.
"""

import re
from collections.abc import Generator
from typing import Final, TypeVar

import msgspec

MANAGED_FIELDS: Final = "managedFields"
DEEPEST: Final = 100
"""Levels that are kept; no field that is read lies deeper than twelve, in a list or not."""
STEP: Final = 2000
"""Brackets and strings between two pauses: about half a millisecond."""

# Possessive, so that a long string with many escapes takes neither time nor memory to go back. A
# string that does not end takes the rest: it is no JSON, and the decoder says so.
_TOKEN: Final = re.compile(rb'[{\[]|[}\]]|"(?:[^"\\]++|\\.)*+(?:"|\Z)', re.DOTALL)
_COLON: Final = re.compile(rb"[ \t\r\n]*:")
_KEY: Final = f'"{MANAGED_FIELDS}"'.encode()
_OPEN: Final = frozenset(b"{[")
_QUOTE: Final = ord('"')

_Shape = TypeVar("_Shape")


def decode_shallow(decoder: "msgspec.json.Decoder[_Shape]", raw: bytes | msgspec.Raw) -> _Shape:
    """Decode JSON; where it nests too deeply, what `cut_deep` leaves of it.

    Raises what the decoder raises, a RecursionError never.
    """
    try:
        return decoder.decode(raw)
    except RecursionError:
        return decoder.decode(cut_deep(raw))


def cut_deep(raw: bytes | msgspec.Raw) -> bytes:
    """Return JSON with null for every container below `managedFields` or `DEEPEST` levels.

    Text that is no JSON stays none, or is cut where a decoder would not have come to its fault.
    """
    steps = cut_in_steps(raw)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            cut: bytes = end.value
            return cut


def cut_in_steps(raw: bytes | msgspec.Raw) -> Generator[None, None, bytes]:
    """Do what `cut_deep` does with a pause after every `STEP` tokens, for an event loop."""
    body = bytes(raw)
    kept: list[bytes] = []
    begin, depth, is_unread = 0, 0, False
    # Where the container that is left out began, and how deep it lies.
    out_from, out_depth = -1, 0
    for number, token in enumerate(_TOKEN.finditer(body), start=1):
        if number % STEP == 0:
            yield
        at = token.start()
        first = body[at]
        if first == _QUOTE:
            is_unread = out_from < 0 and token[0] == _KEY and bool(_COLON.match(body, token.end()))
        elif first in _OPEN:
            depth += 1
            if out_from < 0 and (is_unread or depth > DEEPEST):
                out_from, out_depth = at, depth
            is_unread = False
        else:
            if depth == out_depth and out_from >= 0:
                kept += (body[begin:out_from], b"null")
                begin, out_from = token.end(), -1
            depth -= 1
            is_unread = False
    # A container that never ends was cut off somewhere: no JSON, and none that is deep.
    kept.append(body[begin:] if out_from < 0 else body[begin:out_from])
    return b"".join(kept)
