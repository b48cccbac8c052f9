"""Cut JSON that nests too deeply for the decoders: an object may nest as deeply as it is large."""

import asyncio
from typing import Final

import msgspec

from rollout_operator.model.decode.nesting import cut_in_steps

_ANYTHING: Final = msgspec.json.Decoder(msgspec.Raw)
# Python 3.11 counts frames and levels together: a caller may decode so much deeper in its stack,
# and no field that is read lies deeper in a body.
_HEADROOM: Final = 200
_OPEN: Final = b"[" * _HEADROOM
_CLOSE: Final = b"]" * _HEADROOM
# Cutting so many bytes at once takes 20 ms at most, were they all brackets.
LARGE: Final = 64 * 1024


async def level(body: bytes) -> bytes:
    """Return JSON that nests no deeper than any later decoder goes, however deep its stack is.

    A later cut gives no turns: 1.2 MB of brackets would hold the event loop for 0.3 s.
    What is no JSON is returned as it is.
    """
    try:
        _ANYTHING.decode(b"".join((_OPEN, body, _CLOSE)))
    except RecursionError:
        return await cut_deep(body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        pass  # what it is instead is for the caller to say
    return body


async def level_large(item: msgspec.Raw) -> msgspec.Raw:
    """Do the same for an object whose cutting takes long: hardly any is as large."""
    if memoryview(item).nbytes <= LARGE:
        return item
    return msgspec.Raw(await level(bytes(item)))


async def cut_deep(body: bytes) -> bytes:
    """Cut what nests too deeply, in turns with everything else on the event loop."""
    steps = cut_in_steps(body)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            cut: bytes = end.value
            return cut
        await asyncio.sleep(0)
