"""Releases that an image policy announced, what their images say, and which may come next."""

from datetime import datetime
from enum import StrEnum, unique
from typing import Annotated

import msgspec
from msgspec import Meta

Instant = Annotated[datetime, Meta(tz=True)]


@unique
class PolicyOrder(StrEnum):
    """By what an image policy chooses among tags: the keys of its `spec.policy`."""

    SEMVER = "semver"
    ALPHABETICAL = "alphabetical"
    NUMERICAL = "numerical"


class TagOrder(msgspec.Struct, frozen=True, kw_only=True):
    """How an image policy compares tags: the tag that it selects is the greatest, or the least."""

    by: PolicyOrder
    is_descending: bool = False
    """Whether the least is the newest; versions are never selected so."""
    pattern: str = ""
    """Tags that it matches nowhere are not selected."""
    extract: str = ""
    """What of a match is compared, by its groups; empty for the tag."""
    problem: str = ""
    """Why Flux compares no tag by it; names object, field and value."""


class Release(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One release, by the tag of its image, as the API's `VersionInfo` has it."""

    tag: str
    digest: str | None = None
    version: str | None = None
    """What the image says of itself, as are revision and time."""
    revision: str | None = None
    created: Instant | None = None


class AnnouncedReleases(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of releases when the next is looked for."""

    available: tuple[Release, ...]
    """In the order in which they were announced, the oldest first; no tag twice."""
    current: str | None = None
    """The tag that was deployed last. None before the first deployment."""
    latest: str | None = None
    """The tag that the policy selects now. None while it selects none."""
    order: TagOrder | None = None
    """None where the policy says something that is not known here."""


class ReleaseCandidates(msgspec.Struct, frozen=True, kw_only=True):
    """The releases that are newer than the current release, the newest first, before gates."""

    releases: tuple[Release, ...] = ()
    is_path_unknown: bool = False
    """Whether a release may be missing because it cannot be compared with the current tag."""


class ReleaseMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """One version of an image. A text that the image does not have is empty."""

    digest: str
    """Of what the tag names: of the index, where the image is for several platforms."""
    artifact_type: str = ""
    version: str = ""
    revision: str = ""
    source: str = ""
    title: str = ""
    description: str = ""
    created: datetime | None = None
