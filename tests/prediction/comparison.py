"""What was foreseen against what happened: the same pods, for the same cause, in the same order?

Pure.
"""

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum, unique
from itertools import combinations, zip_longest
from typing import Final

import msgspec

# Two pods of a zone that go so soon after each other went by one decision.
TIE: Final = 0.25


@unique
class Cause(StrEnum):
    """Why a pod goes."""

    DELETED = "deleted"
    """By the operator."""
    EVICTED = "evicted"
    SCALED = "scaled away"


class Going(msgspec.Struct, frozen=True):
    """A pod that goes, some seconds after the dump."""

    pod: str
    cause: Cause
    at: float = 0

    @property
    def key(self) -> tuple[str, Cause]:
        """Return what is compared."""
        return (self.pod, self.cause)

    @property
    def zone(self) -> str:
        """Return the StatefulSet of the pod."""
        return self.pod.rpartition("-")[0]


@unique
class Match(StrEnum):
    """How near it came."""

    SAME = "same"
    TIE = "same, but for the order of pods that went together"
    ORDER = "same pods in another order"
    CAUSE = "same pods, some for another cause"
    FEWER = "pods went that were not foreseen"
    MORE = "pods were foreseen that did not go"
    OTHER = "other pods"
    FAILED = "no forecast"

    @property
    def agrees(self) -> bool:
        """Return whether what was foreseen is what happened."""
        return self in (Match.SAME, Match.TIE)


def compare(foreseen: Sequence[Going], happened: Sequence[Going]) -> Match:
    """Return how near a forecast came."""
    wanted, found = ([one.key for one in them] for them in (foreseen, happened))
    if wanted == found:
        return Match.SAME
    if Counter(wanted) == Counter(found):
        return Match.TIE if _is_tie(foreseen, happened) else Match.ORDER
    names, others = (Counter(pod for pod, _ in them) for them in (wanted, found))
    if names == others:
        return Match.CAUSE
    if names < others:
        return Match.FEWER
    return Match.MORE if others < names else Match.OTHER


def _is_tie(foreseen: Sequence[Going], happened: Sequence[Going]) -> bool:
    """Return whether all pods that changed places went together, in the forecast and in reality.

    Those are pods of one zone that went for one cause at one moment: the limit of the zone lets
    several go by one decision.
    """
    wanted, found = _by_turn(foreseen), _by_turn(happened)
    places = {key: place for place, key in enumerate(found)}
    return all(
        _went_together(one, other) and _went_together(found[key], found[later])
        for (key, one), (later, other) in combinations(wanted.items(), 2)
        if places[key] > places[later]
    )


def _by_turn(goings: Sequence[Going]) -> dict[tuple[str, Cause, int], Going]:
    """Return them in order, by what goes why and for which time."""
    turns: Counter[tuple[str, Cause]] = Counter()
    found: dict[tuple[str, Cause, int], Going] = {}
    for one in goings:
        found[(*one.key, turns[one.key])] = one
        turns[one.key] += 1
    return found


def _went_together(one: Going, other: Going) -> bool:
    is_moment = abs(one.at - other.at) <= TIE
    return is_moment and (one.zone, one.cause) == (other.zone, other.cause)


def describe(foreseen: Sequence[Going], happened: Sequence[Going]) -> list[str]:
    """Return both side by side, from the first difference on."""
    lines: list[str] = []
    for one, other in zip_longest(foreseen, happened):
        is_same = one is not None and other is not None and one.key == other.key
        if is_same and not lines:
            continue
        lines.append(f"  foreseen {_show(one):44} happened {_show(other)}")
    return lines


def _show(going: Going | None) -> str:
    return "-" if going is None else f"{going.at:6.2f} s {going.pod} {going.cause}"
