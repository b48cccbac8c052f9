"""What was foreseen against what happened: the same pods, for the same cause, in the same order?

Pure.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum, unique
from itertools import zip_longest
from typing import Final

# Two pods that go so close to each other in reality do so in an order that nothing tells.
TIE: Final = 0.25


@unique
class Cause(StrEnum):
    """Why a pod goes."""

    DELETED = "deleted"
    """By the operator."""
    EVICTED = "evicted"
    SCALED = "scaled away"


@dataclass(frozen=True, slots=True)
class Going:
    """A pod that goes, some seconds after the dump."""

    pod: str
    cause: Cause
    at: float = 0

    @property
    def key(self) -> tuple[str, Cause]:
        """Return what is compared."""
        return (self.pod, self.cause)


@unique
class Match(StrEnum):
    """How near it came."""

    SAME = "same"
    TIE = "same pods, two at the same moment in another order"
    ORDER = "same pods in another order"
    CAUSE = "same pods, some for another cause"
    FEWER = "pods went that were not foreseen"
    MORE = "pods were foreseen that did not go"
    OTHER = "other pods"
    FAILED = "no forecast"


def compare(foreseen: Sequence[Going], happened: Sequence[Going]) -> Match:
    """Return how near a forecast came."""
    wanted, found = ([one.key for one in them] for them in (foreseen, happened))
    if wanted == found:
        return Match.SAME
    if Counter(wanted) == Counter(found):
        return Match.TIE if _is_tie(wanted, happened) else Match.ORDER
    names, others = (Counter(pod for pod, _ in them) for them in (wanted, found))
    if names == others:
        return Match.CAUSE
    if names < others:
        return Match.FEWER
    return Match.MORE if others < names else Match.OTHER


def _is_tie(wanted: Sequence[tuple[str, Cause]], happened: Sequence[Going]) -> bool:
    """Tell whether each pod that is out of its place stands beside one of nearly its time."""
    for place, one in enumerate(happened):
        other = happened[[each.key for each in happened].index(wanted[place])]
        if abs(one.at - other.at) > TIE:
            return False
    return True


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
