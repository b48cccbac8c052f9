"""The answer of another replica to a review: whether it is one, and to which question."""

from typing import Final

import msgspec

from rollout_operator.model.decode.review import KIND
from rollout_operator.model.decode.wire import Required, Wire
from rollout_operator.model.errors import DecodeError
from rollout_operator.model.review import Review


class _Response(Wire):
    uid: Required
    allowed: bool


class _Answer(Wire):
    kind: Required
    api_version: Required
    response: _Response


_DECODER: Final = msgspec.json.Decoder(_Answer)


def decode_allowed(body: bytes, review: Review) -> bool:
    """Return whether the answer in `body` allows what `review` requests.

    Raises DecodeError where it is no answer to that.
    """
    try:
        wire = _DECODER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(str(error)) from error
    answered = wire.kind, wire.api_version, wire.response.uid
    if answered != (KIND, review.version, review.uid):
        raise DecodeError("it answers another question")
    return wire.response.allowed
