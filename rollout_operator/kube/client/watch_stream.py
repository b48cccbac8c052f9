"""Cut the body of a watch into lines and lines into events, whatever chunks it arrives in.

Pure: bytes in, events out. Opening the stream and noticing that it is silent is `client`'s part.
"""

from typing import Final

import msgspec

from rollout_operator.kube.api import WatchEvent
from rollout_operator.kube.call import Call
from rollout_operator.kube.client.responses import Status, error_of, excerpt
from rollout_operator.model.errors import Unreachable

# An object in etcd is 1.5 MiB by default; ten times that in one line is no watch.
MAX_LINE: Final = 16 * 1024 * 1024

_TYPES: Final = frozenset({"ADDED", "MODIFIED", "DELETED", "BOOKMARK"})


class _Line(msgspec.Struct):
    type: str
    object: msgspec.Raw


_LINE: Final = msgspec.json.Decoder(_Line)
_STATUS: Final = msgspec.json.Decoder(Status)


class Splitter:
    """Lines of one stream. Bytes of an unfinished line are kept until its end arrives."""

    def __init__(self, *, limit: int = MAX_LINE) -> None:
        self._parts: list[bytes] = []
        self._length = 0
        self._limit = limit

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that `chunk` completes, blank lines left out.

        Raises ValueError where a line is longer than the limit.
        """
        *ends, rest = chunk.split(b"\n")
        lines: list[bytes] = []
        for end in ends:
            self._keep(end)
            lines.append(self._take())
        self._keep(rest)
        return [line for line in lines if line.strip()]

    def finish(self) -> list[bytes]:
        """Return the last line where the stream ended without its line feed."""
        line = self._take()
        return [line] if line.strip() else []

    def _keep(self, part: bytes) -> None:
        self._length += len(part)
        if self._length > self._limit:
            raise ValueError(f"a line is longer than {self._limit} bytes")
        if part:
            self._parts.append(part)

    def _take(self) -> bytes:
        line = b"".join(self._parts)
        self._parts.clear()
        self._length = 0
        return line


def decode_event(line: bytes, call: Call) -> WatchEvent:
    """Return the event of one line.

    Raises what an HTTP answer with the same Status would raise for an ERROR line (Gone for code
    410), and Unreachable for a line that is no event, e.g. because the stream was cut within it.
    RecursionError passes through: an object may nest more deeply than can be decoded.
    """
    try:
        event = _LINE.decode(line)
    except msgspec.MsgspecError as error:
        raise _garbage(call, f"{error}", line) from error
    if event.type in _TYPES:
        return WatchEvent(type=event.type, object=event.object)
    if event.type != "ERROR":
        raise _garbage(call, f"type {excerpt(event.type)!r} is unknown", line)
    try:
        status = _STATUS.decode(event.object)
    except msgspec.MsgspecError as error:
        raise _garbage(call, f"{error}", line) from error
    raise error_of(call, status.code, status)


def _garbage(call: Call, problem: str, line: bytes) -> Unreachable:
    text = excerpt(line.decode("utf-8", "replace"))
    return Unreachable.of(call.text, f"no watch event: {problem}: {text}")
