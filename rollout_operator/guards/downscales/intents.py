"""The state of the marks of downscales, as far as this process knows.

A mark on a set means that its downscale may still happen, unless this process knows better: it has
got the answer to the write, has removed the mark, or was refused that for longer than a write that
holds by it can take. What a mark is stands in `planning.downscales.intents`;
`controllers.scaling.intents` writes and removes them.
"""

from collections.abc import Iterable
from datetime import timedelta
from typing import Final

import msgspec
from msgspec.structs import replace

from rollout_operator.aio.clock import Clock
from rollout_operator.kube.cache.store import is_older
from rollout_operator.model.downscale import Underway
from rollout_operator.model.names import DOWNSCALE_INTENT, Uid
from rollout_operator.model.objects import StatefulSet
from rollout_operator.planning.downscales.intents import differ_in_intent, find_intent

# The writer of a mark that is not ours has ended, or leads no more, and sends nothing by it. What
# it sent is stored within 90 s (`COMMIT_LIMIT`) or never.
REFUSED_LIMIT: Final = timedelta(minutes=5)


class _KnownMark(msgspec.Struct, frozen=True):
    text: str
    is_ours: bool = True
    """Whether this process wrote it, or a write that rests on it."""
    is_void: bool = False
    """Whether no write rests on it any more, or ever will."""
    gone_from: str = ""
    """The version of the set since which the mark is gone; empty where it may be there."""
    refused_at: timedelta | None = None
    """When the API server refused for the first time to remove it, on the clock's `elapsed`."""


class Intents:
    """The mark of each set that this process wrote, read or removed last."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._marks: dict[Uid, _KnownMark] = {}

    def begin(self, set_uid: Uid, text: str) -> None:
        """Record that this process is about to write a mark, or a write that rests on a mark."""
        self._marks[set_uid] = _KnownMark(text)

    def record_void(self, set_uid: Uid, text: str) -> None:
        """Record that the write that rests on a mark has its answer, or is not sent at all."""
        mark = self._marks.get(set_uid)
        if mark is not None and mark.text == text:
            self._marks[set_uid] = replace(mark, is_void=True)

    def record_gone(self, set_uid: Uid, text: str, version: str) -> None:
        """Record that a mark is not on its set any more, from that version on."""
        is_ours = self.is_ours(set_uid, text)
        self._marks[set_uid] = _KnownMark(text, is_ours=is_ours, gone_from=version)

    def record_refused(self, set_uid: Uid, text: str) -> bool:
        """Record that the API server will not remove a mark; return whether that is new.

        On a mark of ours this process may still write: nothing but its removal shows its end.
        """
        mark = self._marks.get(set_uid)
        if mark is None or mark.text != text:
            mark = _KnownMark(text, is_ours=False)
        may_be_sent = mark.is_ours and not mark.gone_from
        if may_be_sent or mark.refused_at is not None:
            return False
        self._marks[set_uid] = replace(mark, refused_at=self._clock.elapsed())
        return True

    def forget(self, set_uid: Uid) -> None:
        """Forget a set that is gone."""
        self._marks.pop(set_uid, None)

    def find(self, sets: Iterable[StatefulSet], *, but: Uid | None = None) -> Underway | None:
        """Return a downscale that a mark announces and that may still happen."""
        marked = [sts for sts in sets if sts.uid != but and self._may_happen(sts)]
        if not marked:
            return None
        first = min(marked, key=lambda sts: sts.name)
        underway = find_intent(first)
        return None if underway is None else replace(underway, left=self.time_left(first))

    def time_left(self, sts: StatefulSet) -> timedelta | None:
        """Return for how long the mark of a set counts still, zero: no longer (SI-18).

        None where it counts until it is removed.
        """
        mark = self._marks.get(sts.uid)
        is_same = mark is not None and mark.text == sts.annotations.get(DOWNSCALE_INTENT)
        if mark is None or not is_same or mark.refused_at is None:
            return None
        return max(mark.refused_at + REFUSED_LIMIT - self._clock.elapsed(), timedelta(0))

    def list_left(self, sets: Iterable[StatefulSet]) -> list[StatefulSet]:
        """Return the sets that carry a mark, as far as is known, which is to be removed."""
        return [sts for sts in sets if self._is_there(sts)]

    def is_ours(self, set_uid: Uid, text: str | None) -> bool:
        """Return whether a mark is the last that this process wrote on a set, or a copy of that."""
        mark = self._marks.get(set_uid)
        return mark is not None and mark.text == text and mark.is_ours

    def is_idle(self, sts: StatefulSet) -> bool:
        """Return whether a set carries a mark of this process on which no write rests any more."""
        mark = self._marks.get(sts.uid)
        is_void = mark is not None and mark.is_void
        is_same = mark is not None and mark.text == sts.annotations.get(DOWNSCALE_INTENT)
        return is_void and is_same and self._is_there(sts)

    def concerns_us_only(self, old: StatefulSet, new: StatefulSet) -> bool:
        """Return whether all that has changed of a set is a mark of this process."""
        texts = {version.annotations.get(DOWNSCALE_INTENT) for version in (old, new)} - {None}
        is_ours = len(texts) == 1 and self.is_ours(new.uid, texts.pop())
        return is_ours and differ_in_intent(old, new)

    def _is_there(self, sts: StatefulSet) -> bool:
        text, mark = sts.annotations.get(DOWNSCALE_INTENT), self._marks.get(sts.uid)
        if text is None or mark is None or mark.text != text:
            return text is not None
        # Seen again in a version after its removal, it has come back: a write rests on it again.
        return not (mark.gone_from and is_older(sts.resource_version, than=mark.gone_from))

    def _may_happen(self, sts: StatefulSet) -> bool:
        is_over = self.is_idle(sts) or self.time_left(sts) == timedelta(0)
        return self._is_there(sts) and not is_over
