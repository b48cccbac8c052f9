"""What a Rollout learns of releases, and what it forgets.

The tag that its image policy selects joins its list. What stays of that is the newest part, so that
the order of announcements is kept: releases that may be deployed or gone back to.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from rollout_operator.model.releases.plan import PolicyReading, ReleaseEvent
from rollout_operator.model.releases.release import Release, ReleaseMetadata
from rollout_operator.model.releases.rollout import ReleaseSpec
from rollout_operator.model.releases.status import ReleaseStatus
from rollout_operator.model.units import quote
from rollout_operator.planning.releases.bounds import MOST_OF_RELEASES, keep_last

DIGEST_CHANGED: Final = "ReleaseDigestChanged"

MOST_RELEASES: Final = 1000

_BEGINNING: Final = datetime(1, 1, 1, tzinfo=UTC)

Metadata = Mapping[str, ReleaseMetadata | None]


def discover(
    status: ReleaseStatus, policy: PolicyReading, metadata: Metadata
) -> tuple[ReleaseStatus, tuple[ReleaseEvent, ...]]:
    """Return the status with the release that the policy selects (REL-34 to 36).

    A release that is known keeps its place. Its metadata are refreshed, and a tag that moved is
    reported and not deployed again (RELB-04).
    """
    if not policy.latest:
        return status, ()
    said = metadata.get(policy.latest)
    release = make_release(policy.latest, said)
    release = msgspec.structs.replace(release, digest=policy.digest or release.digest)
    recorded = next(
        (other for other in status.available_releases if other.tag == release.tag), None
    )
    if recorded is None:
        listed = (*status.available_releases, release)
    else:
        # Of another image nothing is known that was said of the image before.
        has_moved = (
            None not in {release.digest, recorded.digest} and release.digest != recorded.digest
        )
        fresh = release if said or has_moved else recorded
        fresh = msgspec.structs.replace(fresh, digest=release.digest or recorded.digest)
        listed = tuple(
            fresh if release is recorded else release for release in status.available_releases
        )
    status = msgspec.structs.replace(status, available_releases=listed)
    if said:
        status = _describe(status, said)
    return status, _compare(recorded, release)


def needs_metadata(status: ReleaseStatus, tag: str, digest: str | None) -> bool:
    """Return whether a registry has to be queried about a tag: what is on record lasts (RELB-01).

    `digest` is what the policy says of it; another digest is another image.
    """
    recorded = next((release for release in status.available_releases if release.tag == tag), None)
    if recorded is None or recorded.digest is None or digest not in {None, recorded.digest}:
        return True
    # Without any of these the registry may not have answered: the digest is then the policy's.
    return not (recorded.version or recorded.revision or recorded.created)


def make_release(tag: str, metadata: ReleaseMetadata | None) -> Release:
    """Return a release with what its image says of itself, as far as that is known."""
    if metadata is None:
        return Release(tag=tag)
    return Release(
        tag=tag,
        digest=metadata.digest or None,
        version=metadata.version or None,
        revision=metadata.revision or None,
        created=metadata.created,
    )


def forget(
    status: ReleaseStatus, spec: ReleaseSpec | None, latest: str | None, now: datetime
) -> ReleaseStatus:
    """Return the status without releases of which nothing is wanted any more (RELB-22).

    What the policy selects stays: taken off, it would join again as if it were new. Without a spec
    all stay that there is room for.
    """
    in_use = {entry.version.tag for entry in status.history} | ({latest} if latest else set())
    kept = status.available_releases[-MOST_RELEASES:]
    if spec is not None:
        kept = retain_releases(
            status.available_releases,
            in_use,
            horizon=now - min(spec.retention, now - _BEGINNING - timedelta(days=1)),
            least=spec.least_available,
        )
    kept = keep_last(kept, MOST_OF_RELEASES)
    return msgspec.structs.replace(
        status, available_releases=kept, available_releases_count=len(kept)
    )


def retain_releases(
    available: Sequence[Release], deployed: Collection[str], *, horizon: datetime, least: int
) -> tuple[Release, ...]:
    """Return the releases that stay (REL-84).

    These are all since the oldest that is deployed, all after the newest that was created before
    `horizon`, and at least `least`.
    """
    first = len(available) - min(least, len(available))
    in_use = (place for place, release in enumerate(available) if release.tag in deployed)
    expired = (
        place
        for place, release in enumerate(available)
        if release.created is not None and release.created < horizon
    )
    first = min(first, next(in_use, first), max(expired, default=-1) + 1)
    return tuple(available[first:][-MOST_RELEASES:])


def _describe(status: ReleaseStatus, metadata: ReleaseMetadata) -> ReleaseStatus:
    return msgspec.structs.replace(
        status,
        artifact_type=metadata.artifact_type or None,
        source=metadata.source or None,
        title=metadata.title or None,
        description=metadata.description or None,
    )


def _compare(release: Release | None, fresh: Release) -> tuple[ReleaseEvent, ...]:
    if release is None or release.digest is None or fresh.digest in {None, release.digest}:
        return ()
    note = f"the image of {quote(fresh.tag)} is now {fresh.digest}; it is not deployed again"
    return (ReleaseEvent(reason=DIGEST_CHANGED, note=note),)
