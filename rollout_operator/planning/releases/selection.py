"""Which releases are newer than the current release, and which is to be deployed.

Where the image policy orders tags by version, so is done here: releases may be announced out of
order, and a policy that goes back to an older tag wants no upgrade. All other policies order
tags by what only they know, so that the order of their announcements counts. Versions go by the
precedence of Semantic Versioning 2.0.0, read as leniently as Flux reads them: with a `v` before,
without minor or patch number, and with zeros before numbers. Build metadata says nothing of it.

A release may be requested by name instead: a pin (`spec.wantedVersion`) takes any tag, and goes
back as well as forward; `force-deploy` takes a release that was announced. Neither heeds gates,
health or a bake. Whether what is chosen is deployed now is decided in `plan`.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from typing import Final

import msgspec

from rollout_operator.model.releases.release import (
    AnnouncedReleases,
    PolicyOrder,
    Release,
    ReleaseCandidates,
)
from rollout_operator.model.releases.rollout import OURS, ReleaseCompat, ReleaseIntents, ReleaseSpec
from rollout_operator.model.releases.status import ExcludedRelease, HistoryEntry
from rollout_operator.model.units import quote
from rollout_operator.planning.releases.intents import is_unblocked

_Part = tuple[int, int, str]
VersionKey = tuple[int, int, int, int, tuple[_Part, ...]]
"""Compares as versions do: three numbers, whether it is final, and what stands for it if not."""

# No registry takes longer tags.
_LONGEST_TAG: Final = 128
_WORDS: Final = r"[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*"
_VERSION: Final = re.compile(
    rf"v?([0-9]+)(?:\.([0-9]+))?(?:\.([0-9]+))?(?:-({_WORDS}))?(?:\+{_WORDS})?"
)
_NUMBER: Final = re.compile(r"[0-9]+")

# What is no version ranks below every version.
_Rank = tuple[()] | tuple[VersionKey]


def find_version_key(tag: str) -> VersionKey | None:
    """Return what a tag is compared by; None where it is no version."""
    parsed = _VERSION.fullmatch(tag) if len(tag) <= _LONGEST_TAG else None
    if parsed is None:
        return None
    words = parsed[4].split(".") if parsed[4] else []
    if any(_NUMBER.fullmatch(word) and len(word) > 1 and word[0] == "0" for word in words):
        return None
    numbers = (int(parsed[1]), int(parsed[2] or 0), int(parsed[3] or 0))
    return (*numbers, 0 if words else 1, tuple(_make_part(word) for word in words))


def _make_part(word: str) -> _Part:
    """Numbers are compared as such, and come before words."""
    return (0, int(word), "") if _NUMBER.fullmatch(word) else (1, 0, word)


def choose_candidates(
    announced: AnnouncedReleases, compat: ReleaseCompat = OURS
) -> ReleaseCandidates:
    """Return the releases that may come next, the newest first (REL-41, RELB-03)."""
    later = _find_later(announced)
    if announced.order is PolicyOrder.SEMVER and compat.compares_versions:
        if later is None and not _rank(announced.current or ""):
            return ReleaseCandidates(is_path_unknown=True)
        # A stable sort: of equal versions the last announced goes first.
        newer = sorted(
            _list_newer(announced, later or ()),
            key=lambda release: _rank(release.tag),
            reverse=True,
        )
        return ReleaseCandidates(releases=tuple(newer))
    return ReleaseCandidates(releases=later or (), is_path_unknown=later is None)


def _find_later(announced: AnnouncedReleases) -> tuple[Release, ...] | None:
    """Return what was announced after the current tag, the last first; None if it never was."""
    newest_first = announced.available[::-1]
    if announced.current is None:
        return newest_first
    tags = [release.tag for release in newest_first]
    if announced.current not in tags:
        return None
    return newest_first[: tags.index(announced.current)]


def _list_newer(announced: AnnouncedReleases, later: tuple[Release, ...]) -> Iterator[Release]:
    """Yield the releases above the current and not above the latest, the last first."""
    floor = None if announced.current is None else _rank(announced.current)
    for release in announced.available[::-1]:
        rank = _rank(release.tag)
        if announced.latest is not None and rank > _rank(announced.latest):
            continue
        # Of two tags that are no versions the tag that was announced later is newer.
        is_later = not rank and not floor and release in later
        if floor is None or rank > floor or is_later:
            yield release


def _rank(tag: str) -> _Rank:
    key = find_version_key(tag)
    return () if key is None else (key,)


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


def is_superseded(
    tag: str, current: str | None, available: Iterable[Release], order: PolicyOrder | None
) -> bool:
    """Return whether a tag is known to be the current tag, or older (RELB-11)."""
    if current is None or tag == current:
        return tag == current
    keys = find_version_key(tag), find_version_key(current)
    if order is PolicyOrder.SEMVER and keys[0] is not None and keys[1] is not None:
        return keys[0] <= keys[1]
    tags = [release.tag for release in available]
    return tag in tags and current in tags and tags.index(tag) < tags.index(current)


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
