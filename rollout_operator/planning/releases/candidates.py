"""Which releases are newer than the release that was deployed last.

Where the image policy orders tags by version, so is done here: releases may be announced out of
order, and a policy that goes back to an older tag wants no upgrade. All other policies order
tags by what only they know, so that the order of their announcements counts. Which candidate may
be deployed is left to gates, health and pins.
"""

from collections.abc import Iterator

from rollout_operator.model.releases.compat import OURS, ReleaseCompat
from rollout_operator.model.releases.release import (
    AnnouncedReleases,
    PolicyOrder,
    Release,
    ReleaseCandidates,
)
from rollout_operator.planning.releases.versions import VersionKey, find_version_key

# What is no version ranks below every version.
_Rank = tuple[()] | tuple[VersionKey]


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
