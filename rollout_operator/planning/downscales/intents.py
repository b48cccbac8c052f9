"""Marks of downscales that the operator is about to write itself (SI-02).

A write without an answer may be stored late, also when the process that sent it is gone. So a mark,
an annotation of the set, is written before, and the write holds only while that very mark is there.
A process that finds the mark of another reckons with the downscale until the mark is gone.
Downscales that a review of ours announces need none: the API server sends the review again when
they come late.
"""

from typing import Final

import msgspec
from msgspec.structs import replace

from rollout_operator.model.decode.wire import Int32
from rollout_operator.model.downscale import Underway
from rollout_operator.model.names import DOWNSCALE_INTENT, PREPARE_DOWNSCALE
from rollout_operator.model.objects import StatefulSet
from rollout_operator.model.units import quote
from rollout_operator.planning.downscales.request import is_labelled


class Intent(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a mark says. Its text has none of the characters that JSON of Go writes otherwise."""

    id: str
    """Of the attempt: no two of any processes are equal."""
    replicas_from: Int32
    replicas_to: Int32


_INTENT: Final = msgspec.json.Decoder(Intent)


def needs_intent(sts: StatefulSet) -> bool:
    """Return whether no review of ours announces the downscales of a set."""
    return not is_labelled(sts.labels, PREPARE_DOWNSCALE)


def render_intent(sts: StatefulSet, replicas: int, attempt: str) -> str:
    """Return the mark of an attempt to scale a set down."""
    intent = Intent(id=attempt, replicas_from=sts.replicas, replicas_to=replicas)
    return msgspec.json.encode(intent).decode()


def find_intent(sts: StatefulSet) -> Underway | None:
    """Return the downscale that the mark of a set announces; an unreadable mark takes all."""
    text = sts.annotations.get(DOWNSCALE_INTENT)
    if text is None:
        return None
    unreadable = Underway(
        zone=sts.name,
        replicas_from=sts.replicas,
        replicas_to=0,
        is_marked=True,
        unreadable=quote(text),
    )
    try:
        intent = _INTENT.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return unreadable
    if intent.replicas_to >= intent.replicas_from:
        return unreadable
    return Underway(
        zone=sts.name,
        replicas_from=intent.replicas_from,
        replicas_to=intent.replicas_to,
        is_marked=True,
    )


def announces(sts: StatefulSet, replicas: int) -> bool:
    """Return whether the mark of a set announces its downscale to so many replicas."""
    intent = find_intent(sts)
    return intent is not None and (intent.replicas_from, intent.replicas_to) == (
        sts.replicas,
        replicas,
    )


def differ_in_intent(old: StatefulSet, new: StatefulSet) -> bool:
    """Return whether a mark is all that makes two versions of a set different."""
    return _unmark(old, new.resource_version) == _unmark(new, new.resource_version)


def _unmark(sts: StatefulSet, version: str) -> StatefulSet:
    left = {key: text for key, text in sts.annotations.items() if key != DOWNSCALE_INTENT}
    return replace(sts, annotations=left, resource_version=version)
