"""What was foreseen against what happened: the same pods, for the same cause, in the same order?

Pure.
"""

import asyncio
import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from enum import StrEnum, unique
from itertools import combinations, zip_longest
from pathlib import Path
from typing import Final

import msgspec

from tests.world.api import Json
from tests.world.forkserver import run_program

# Two pods of a zone that go so soon after each other went by one decision.
TIE: Final = 0.25


@unique
class Cause(StrEnum):
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
        return (self.pod, self.cause)

    @property
    def zone(self) -> str:
        return self.pod.rpartition("-")[0]


@unique
class Match(StrEnum):
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


LIMIT_S = 120


class ForecastFailedError(RuntimeError):
    """The command ended otherwise than with an answer; the text says how."""


async def foresee(dump: Path, changes: Sequence[str], flags: Sequence[str]) -> list[Going]:
    """Return the pods that would go, in order. Raises ForecastFailedError."""
    words = [word for change in changes for word in ("-change", change)]
    command = ("simulate", "-f", str(dump), "-o", "json", *flags, *words)
    ended = await asyncio.to_thread(run_program, *command, env=os.environ, limit_s=LIMIT_S)
    if ended.returncode != 0:
        raise ForecastFailedError(f"{dump}: {ended.stderr}")
    return list(read_goings(json.loads(ended.stdout)))


def read_goings(answer: Json) -> Iterator[Going]:
    """Yield the pods that go, for the cause that was reported.

    One whose eviction is allowed goes only then: it may be going already.
    """
    announced: dict[str, Cause] = {}
    for step in answer["steps"]:
        at, text, what = step["at"], step["text"], step["what"]
        if text.startswith("deletes "):
            pod = text.split()[1].rstrip(":")
            announced[pod] = Cause.DELETED
            yield Going(pod, Cause.DELETED, at)
        elif text == "eviction allowed by the webhook":
            announced.setdefault(what, Cause.EVICTED)
        elif text == "going down":
            cause = announced.pop(what, Cause.SCALED)
            if cause is not Cause.DELETED:
                yield Going(what, cause, at)
        elif text.startswith("created"):
            announced.pop(what, None)
