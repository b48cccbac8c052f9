"""Releases that an image policy announced, and which of them may come next."""

from enum import StrEnum, unique

import msgspec


@unique
class PolicyOrder(StrEnum):
    """By what an image policy chooses among tags: the keys of its `spec.policy`."""

    SEMVER = "semver"
    ALPHABETICAL = "alphabetical"
    NUMERICAL = "numerical"


class Release(msgspec.Struct, frozen=True, kw_only=True):
    """One release, by the tag of its image."""

    tag: str


class AnnouncedReleases(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of releases when the next one is looked for."""

    available: tuple[Release, ...]
    """In the order in which they were announced, the oldest first; no tag twice."""
    current: str | None = None
    """The tag that was deployed last. None before the first deployment."""
    latest: str | None = None
    """The tag that the policy selects now. None while it selects none."""
    order: PolicyOrder | None = None
    """None where the policy says something that is not known here."""


class ReleaseCandidates(msgspec.Struct, frozen=True, kw_only=True):
    """The releases that are newer than the current one, the newest first, before gates."""

    releases: tuple[Release, ...] = ()
    is_path_unknown: bool = False
    """Whether there are none because the current tag can be compared with no release."""
