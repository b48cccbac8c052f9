"""Which release is to be deployed: the release that is requested by name, or the newest that may.

A pin (`spec.wantedVersion`) takes any tag, and goes back as well as forward; `force-deploy` takes a
release that was announced. Neither heeds gates, health or a bake. Whether what is chosen is
deployed now is decided in `plan`.
"""

from collections.abc import Collection, Iterable

import msgspec

from rollout_operator.model.releases.compat import ReleaseCompat
from rollout_operator.model.releases.release import PolicyOrder, Release
from rollout_operator.model.releases.rollout import ReleaseIntents, ReleaseSpec
from rollout_operator.model.releases.status import ExcludedRelease, HistoryEntry
from rollout_operator.model.units import quote
from rollout_operator.planning.releases.intents import is_unblocked
from rollout_operator.planning.releases.versions import find_version_key


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
