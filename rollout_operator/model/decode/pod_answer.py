"""What a pod answers when it is called to prepare for a delayed downscale → `PodAnswer`.

Decides which answers give a time (DELAY-07). A pod is a stranger: what it says is quoted in part
only, on one printable line. When that time allows the pod to go is left to the planner.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from rollout_operator.model.scaling import PodAnswer
from rollout_operator.model.units import format_duration

LONGEST_BODY: Final = 64 * 1024
"""Bytes; a good answer has about thirty."""

# The clocks of a cluster agree within seconds. What lies further ahead is no time in seconds, and
# would hold a downscale back for ever: 13 digits, for example.
FURTHEST_AHEAD: Final = timedelta(days=1)

# Of an offending value so much is shown that a person recognises it.
_LONGEST_SHOWN: Final = 40

# A whole number above 0, as JSON has it: no sign, no fraction, no exponent.
_SECONDS: Final = re.compile(rb"[1-9][0-9]*")
# Enough for milliseconds and more; Python refuses to read numbers of thousands of digits.
_MOST_DIGITS: Final = 18


class _Body(msgspec.Struct):
    timestamp: msgspec.Raw = msgspec.Raw()


_BODY: Final = msgspec.json.Decoder(_Body)


def decode_pod_answer(pod: str, status: int, body: bytes, called_at: datetime) -> PodAnswer:
    """Return since when a pod is prepared, or why that is not known.

    `body` may be cut after LONGEST_BODY + 1 bytes. `called_at` also decides which times lie ahead.
    """
    time = _read_time(status, body, called_at)
    if isinstance(time, datetime):
        return PodAnswer(called_at=called_at, since=time)
    return PodAnswer(called_at=called_at, since=None, problem=f"POST {pod}: {time}")


def _read_time(status: int, body: bytes, called_at: datetime) -> datetime | str:
    if not 200 <= status < 300:
        return f"HTTP status {status}"
    if len(body) > LONGEST_BODY:
        return f"the answer is longer than {LONGEST_BODY} bytes"
    try:
        value = bytes(_BODY.decode(body).timestamp)
    except (msgspec.MsgspecError, RecursionError):
        return f"the answer is no JSON object: {_show(body)}" if body else "the answer is empty"
    if not value:
        return f"the answer has no timestamp: {_show(body)}"
    if not _SECONDS.fullmatch(value):
        return f"timestamp is no whole number of seconds above 0: {_show(value)}"
    if len(value) > _MOST_DIGITS or int(value) > (called_at + FURTHEST_AHEAD).timestamp():
        ahead = format_duration(FURTHEST_AHEAD)
        return f"timestamp is more than {ahead} ahead, perhaps in milliseconds: {_show(value)}"
    return datetime.fromtimestamp(int(value), UTC)


def _show(data: bytes) -> str:
    text = data[:_LONGEST_SHOWN].decode("utf-8", "replace").encode("unicode_escape").decode()
    is_cut = len(text) > _LONGEST_SHOWN or len(data) > _LONGEST_SHOWN
    return f"{text[:_LONGEST_SHOWN]}..." if is_cut else text
