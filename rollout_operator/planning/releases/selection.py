"""Which releases are newer than the current release, and which is to be deployed.

Tags are compared as the image policy compares them: releases may be announced out of order, and a
policy that goes back to an older tag wants no upgrade. What it extracts of a tag is compared, as a
version, a number or a text. Of tags that are equal so, the tag that it selects is newer than a
tag that was announced before. Versions go by the precedence of Semantic Versioning 2.0.0, read at
least as leniently as Flux reads them: with a `v` before, without minor or patch number, and with
zeros before numbers. Build metadata says nothing of it. Of a policy that is not known here the
order of announcements counts.

A release may be requested by name instead: a pin (`spec.wantedVersion`) takes any tag, and goes
back as well as forward; `force-deploy` takes a release that was announced. Neither heeds gates,
health or a bake. Whether what is chosen is deployed now is decided in `plan`.
"""

import math
import re
from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from rollout_operator.model.pattern import compile_extraction
from rollout_operator.model.releases.release import (
    AnnouncedReleases,
    PolicyOrder,
    Release,
    ReleaseCandidates,
    TagOrder,
)
from rollout_operator.model.releases.rollout import OURS, ReleaseCompat, ReleaseIntents, ReleaseSpec
from rollout_operator.model.releases.status import ExcludedRelease, HistoryEntry
from rollout_operator.model.units import quote
from rollout_operator.planning.releases.intents import is_unblocked

_Part = tuple[int, int, str]
VersionKey = tuple[int, int, int, int, tuple[_Part, ...]]
"""Compares as versions do: three numbers, whether it is final, and what stands for it if not."""

# Flux reads no longer versions.
_LONGEST_VERSION: Final = 256
_WORDS: Final = r"[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*"
_VERSION: Final = re.compile(
    rf"v?([0-9]+)(?:\.([0-9]+))?(?:\.([0-9]+))?(?:-({_WORDS}))?(?:\+{_WORDS})?"
)
_NUMBER: Final = re.compile(r"[0-9]+")
# Longer numbers within a pre-release are words to Flux.
_MOST: Final = 2**64 - 1

_DIGITS: Final = "[0-9](?:_?[0-9])*"
_HEX: Final = "[0-9a-f](?:_?[0-9a-f])*"
_DECIMAL: Final = rf"(?:{_DIGITS}(?:\.(?:{_DIGITS})?)?|\.{_DIGITS})(?:e[+-]?{_DIGITS})?"
_HEXADECIMAL: Final = rf"0x(?:_?{_HEX}(?:\.(?:{_HEX})?)?|\.{_HEX})p[+-]?{_DIGITS}"
_FLOAT: Final = re.compile(
    rf"[+-]?(?:({_DECIMAL})|({_HEXADECIMAL})|inf|infinity)", re.IGNORECASE | re.ASCII
)
"""Numbers as Go's `strconv.ParseFloat` reads them."""
_INVERTED: Final = bytes(range(255, -1, -1))

Rank = tuple[object, ...]
"""The newer a tag, the greater. Empty for a tag that cannot be compared: it is below all others."""


def find_version_key(tag: str) -> VersionKey | None:
    """Return what a tag is compared by; None where it is no version."""
    parsed = _VERSION.fullmatch(tag) if len(tag) <= _LONGEST_VERSION else None
    if parsed is None:
        return None
    words = parsed[4].split(".") if parsed[4] else []
    if any(_NUMBER.fullmatch(word) and len(word) > 1 and word[0] == "0" for word in words):
        return None
    numbers = (int(parsed[1]), int(parsed[2] or 0), int(parsed[3] or 0))
    return (*numbers, 0 if words else 1, tuple(_make_part(word) for word in words))


def _make_part(word: str) -> _Part:
    """Numbers are compared as such, and come before words."""
    is_number = _NUMBER.fullmatch(word) is not None and int(word) <= _MOST
    return (0, int(word), "") if is_number else (1, 0, word)


def find_number(text: str) -> float | None:
    """Return a number that Flux can compare; None where it is none."""
    read = _FLOAT.fullmatch(text)
    if read is None:
        return None
    try:
        number = float.fromhex(text.replace("_", "")) if read[2] else float(text)
    except OverflowError:
        return None
    return None if math.isinf(number) and read[1] else number


def find_rank(tag: str, order: TagOrder) -> Rank:
    """Return what a tag is compared by, as Flux compares it."""
    text: str | None = tag
    if order.pattern or order.extract:
        text = compile_extraction(order.pattern, order.extract)(tag)
    if text is None:
        return ()
    match order.by:
        case PolicyOrder.SEMVER:
            key = find_version_key(text)
            return () if key is None else (key,)
        case PolicyOrder.NUMERICAL:
            number = find_number(text)
            return () if number is None else (-number if order.is_descending else number,)
        case PolicyOrder.ALPHABETICAL:
            encoded = text.encode()
            # The end of a text comes after all that may go on there.
            return (encoded.translate(_INVERTED) + b"\xff" if order.is_descending else encoded,)


def choose_candidates(
    announced: AnnouncedReleases, compat: ReleaseCompat = OURS
) -> ReleaseCandidates:
    """Return the releases that may come next, the newest first (REL-41, RELB-03)."""
    order, current, latest = announced.order, announced.current, announced.latest
    later = _find_later(announced)
    if order is None or not compat.compares_versions or (order.problem and current is None):
        return ReleaseCandidates(releases=later or (), is_path_unknown=later is None)
    if order.problem:
        return ReleaseCandidates(is_path_unknown=True)
    floor, top = (None if tag is None else find_rank(tag, order) for tag in (current, latest))
    later_tags = {release.tag for release in later or ()}
    # Otherwise than when one of the two was selected the policy compares tags now.
    is_odd = not top if floor else floor is not None and latest not in later_tags
    if (later is None and not floor) or (latest not in (None, current) and is_odd):
        return ReleaseCandidates(is_path_unknown=True)
    ranked: list[tuple[Rank, bool, Release]] = []
    for release in announced.available[::-1]:
        rank, is_latest = find_rank(release.tag, order), release.tag == latest
        if floor is None:
            is_newer = True
        elif not floor or (rank == floor and is_latest):
            is_newer = release.tag in later_tags
        else:
            is_newer = rank > floor
        if is_newer and (top is None or rank <= top):
            ranked.append((rank, is_latest, release))
    # A stable sort: of others that are equal the last announced goes first.
    ranked.sort(key=lambda each: each[:2], reverse=True)
    return ReleaseCandidates(releases=tuple(release for _, _, release in ranked))


def _find_later(announced: AnnouncedReleases) -> tuple[Release, ...] | None:
    """Return what was announced after the current tag, the last first; None if it never was."""
    newest_first = announced.available[::-1]
    if announced.current is None:
        return newest_first
    tags = [release.tag for release in newest_first]
    if announced.current not in tags:
        return None
    return newest_first[: tags.index(announced.current)]


class ManualRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A release that is requested by name."""

    tag: str = ""
    """Empty where it cannot be deployed."""
    problem: str = ""


def find_manual(
    spec: ReleaseSpec, intents: ReleaseIntents, available: Iterable[Release]
) -> ManualRequest | None:
    """Return the release that is requested by name, None without a request (REL-44, REL-46)."""
    if spec.wanted_version is not None:
        return ManualRequest(tag=spec.wanted_version)
    forced = intents.force_deploy
    if not forced:
        return None
    if forced not in {release.tag for release in available}:
        problem = f"force-deploy: {quote(forced)} is none of the available releases"
        return ManualRequest(problem=problem)
    return ManualRequest(tag=forced)


def is_done_already(
    spec: ReleaseSpec, intents: ReleaseIntents, current: HistoryEntry | None
) -> bool:
    """Return whether `force-deploy` wants what is deployed, and no pin hides it (RELB-09)."""
    forced, is_pinned = intents.force_deploy, spec.wanted_version is not None
    return bool(forced) and not is_pinned and current is not None and current.version.tag == forced


def is_superseded(tag: str, announced: AnnouncedReleases, compat: ReleaseCompat) -> bool:
    """Return whether a tag is known to be the current tag, or older (RELB-11)."""
    current, order = announced.current, announced.order
    if current is None or tag == current:
        return tag == current
    tags = [release.tag for release in announced.available]
    is_known = tag in tags and current in tags
    if order is not None and not order.problem and compat.compares_versions:
        rank, floor = find_rank(tag, order), find_rank(current, order)
        if rank and floor and (rank != floor or not is_known):
            return rank <= floor
    return is_known and tags.index(tag) < tags.index(current)


def list_excluded(
    candidates: Iterable[Release],
    history: Collection[HistoryEntry],
    intents: ReleaseIntents,
    compat: ReleaseCompat,
) -> tuple[ExcludedRelease, ...]:
    """Return the candidates that failed when they were deployed last (RELB-24)."""
    if not compat.skips_failed or is_unblocked(intents):
        return ()
    newest: dict[str, HistoryEntry] = {}
    for entry in history:
        newest.setdefault(entry.version.tag, entry)
    return tuple(
        ExcludedRelease(tag=candidate.tag, reason="it failed when it was deployed last")
        for candidate in candidates
        if candidate.tag in newest and newest[candidate.tag].has_failed
    )
