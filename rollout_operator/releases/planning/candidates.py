"""Which releases of a Rollout come next, what its gates let through, and what a deployment records.

Whether a release is deployed now is decided in `releases`.

Tags are compared as the image policy compares them, since releases may be announced out of order;
of equal tags, the one that the policy selects is newer. Versions are read at least as leniently as
Flux reads them. Without a known policy, the order of announcements counts. A pin
(`spec.wantedVersion`) and `force-deploy` name a release and heed no gates, health or bake.

A history entry is an intent: objects of Flux are written after it, so that a crash in between
leaves a deployment that is completed later. An annotation that had its effect is recorded in the
status before it is removed, so that a crash in between does not apply it twice.
"""

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum, unique
from typing import Final

import msgspec

from rollout_operator.model import names
from rollout_operator.model.budget import StatusCondition
from rollout_operator.model.objects import WatchedHead
from rollout_operator.model.outcome import Severity
from rollout_operator.model.units import compile_extraction, quote
from rollout_operator.planning.conditions import ConditionFinding, stamp_conditions
from rollout_operator.planning.wording import join_names
from rollout_operator.releases.model.plan import HealthCheck, PolicyReading, ReleaseEvent
from rollout_operator.releases.model.releases import (
    OURS,
    AnnouncedReleases,
    BakeStatus,
    ConsumedIntent,
    ExcludedRelease,
    GateSummary,
    HistoryEntry,
    PolicyOrder,
    Release,
    ReleaseCandidates,
    ReleaseCompat,
    ReleaseGate,
    ReleaseMetadata,
    ReleaseRollout,
    ReleaseSpec,
    ReleaseStatus,
    TagOrder,
    TriggeredBy,
    TriggerKind,
)
from rollout_operator.releases.planning.bake import (
    MOST_OF_HISTORY,
    MOST_OF_RELEASES,
    compute_cutoff,
    has_error,
    is_unhealthy,
    keep_first,
    keep_last,
)

# Whatever is deployed, these belonged to it.
ATTRIBUTION: Final = (names.DEPLOY_MESSAGE, names.DEPLOYMENT_MESSAGE, names.DEPLOY_USER)

_Part = tuple[int, int, str]
_VersionKey = tuple[int, int, int, int, tuple[_Part, ...]]
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

_Rank = tuple[object, ...]
"""The newer a tag, the greater. Empty for a tag that cannot be compared: it is below all others."""

_DIGEST_CHANGED: Final = "ReleaseDigestChanged"

MOST_RELEASES: Final = 1000

_BEGINNING: Final = datetime(1, 1, 1, tzinfo=UTC)

_Metadata = Mapping[str, ReleaseMetadata | None]

DEPLOYING: Final = "BakeTimeDeploying"
CANCELLED: Final = "BakeTimeCancelled"
_RETRY_REQUESTED: Final = "RetryRequested"
NOWHERE: Final = "no object of Flux is annotated for it"
RECOVERING: Final = "BakeFailureDisabled"

_SYSTEM: Final = TriggeredBy(kind=TriggerKind.SYSTEM, name="rollout-controller")

READY: Final = "Ready"
RELEASES_UPDATED: Final = "ReleasesUpdated"
GATES_PASSING: Final = "GatesPassing"
DEPLOYMENT_BLOCKED: Final = "DeploymentBlocked"
RECONCILING: Final = "Reconciling"
STALLED: Final = "Stalled"
PATH_UNKNOWN: Final = "UpgradePathUnknown"
WANTED_FOUND: Final = "WantedVersionFound"
TARGET_CONFLICT: Final = "TargetConflict"

FAILED: Final = "RolloutFailed"
WRITING: Final = "WritingTargets"
NO_RELEASES: Final = "NoReleasesAvailable"
INVALID_SPEC: Final = "InvalidSpec"
NO_FLUX: Final = "FluxNotInstalled"
GATES_UNKNOWN: Final = "GateListFailed"
CHECKS_UNKNOWN: Final = "HealthCheckListFailed"
RECOVERY_TIMEOUT: Final = "RecoveryTimeout"
_IDLE: Final = "Idle"

_ORDER: Final[Mapping[str, int]] = {
    kind: place
    for place, kind in enumerate(
        (
            *(READY, RELEASES_UPDATED, GATES_PASSING, DEPLOYMENT_BLOCKED, RECOVERING),
            *(RECONCILING, STALLED, PATH_UNKNOWN, WANTED_FOUND, TARGET_CONFLICT),
        )
    )
}


@unique
class GatesCode(StrEnum):
    """Reasons of the condition `GatesPassing`. Never renamed."""

    PASSING = "AllGatesPassing"
    BYPASSED = "GatesBypassed"
    BLOCKING = "SomeGatesBlocking"
    SCHEDULES = "SchedulesBlocking"
    NONE_ALLOWED = "NoAllowedVersions"
    NO_CANDIDATES = "NoReleaseCandidates"


HOLDING: Final = frozenset({GatesCode.BLOCKING, GatesCode.SCHEDULES, GatesCode.NONE_ALLOWED})
"""What lets no version through."""


class GatesVerdict(msgspec.Struct, frozen=True, kw_only=True):
    code: GatesCode
    text: str
    summaries: tuple[GateSummary, ...]
    passed: tuple[Release, ...]
    """What may be deployed, the newest first."""
    allowed: tuple[Release, ...]
    """What versions leave over, whether or not all gates pass."""
    is_bypass_needed: bool = False
    """Whether without the bypass something else would come next."""

    @property
    def is_passing(self) -> bool:
        return self.code not in HOLDING


def list_gates(head: WatchedHead, gates: Iterable[ReleaseGate]) -> tuple[ReleaseGate, ...]:
    """Return the gates of a Rollout, by name: those of its namespace that name it (REL-49)."""
    own = (gate for gate in gates if gate.head.namespace == head.namespace)
    named = (gate for gate in own if gate.rollout == head.name)
    return tuple(sorted(named, key=lambda gate: gate.head.name))


def assess_gates(
    candidates: Sequence[Release],
    gates: Sequence[ReleaseGate],
    bypass: str | None = None,
    holds: Sequence[str] = (),
) -> GatesVerdict:
    """Return what gates let through (REL-50 to 52); `bypass` is the tag that need not heed them.

    `holds` are what schedules say against versions and no gate does (RELB-42).
    """
    verdict = _assess(candidates, gates, holds)
    requested = tuple(candidate for candidate in candidates if candidate.tag == bypass)
    if not requested:
        return verdict
    return GatesVerdict(
        code=GatesCode.BYPASSED,
        text=f"gates are bypassed for {quote(requested[0].tag)}",
        summaries=_summarise_all(gates, candidates, is_bypassed=True),
        passed=requested,
        allowed=requested,
        is_bypass_needed=verdict.passed[:1] != requested,
    )


def _assess(
    candidates: Sequence[Release], gates: Sequence[ReleaseGate], holds: Sequence[str]
) -> GatesVerdict:
    # A gate may name a hundred thousand versions: each is regarded once.
    tags = {candidate.tag for candidate in candidates}
    for gate in gates:
        if gate.is_passing and gate.allowed_versions is not None:
            tags = tags.intersection(gate.allowed_versions)
    allowed = tuple(candidate for candidate in candidates if candidate.tag in tags)
    code, text = _explain(candidates, gates, allowed, holds)
    return GatesVerdict(
        code=code,
        text=text,
        summaries=_summarise_all(gates, candidates),
        passed=() if code in HOLDING else allowed,
        allowed=allowed,
    )


def _explain(
    candidates: Sequence[Release],
    gates: Sequence[ReleaseGate],
    allowed: Sequence[Release],
    holds: Sequence[str],
) -> tuple[GatesCode, str]:
    closed = [gate.head.name for gate in gates if not gate.is_passing]
    if closed:
        return GatesCode.BLOCKING, f"not passing: {join_names(closed)}"
    if not candidates:
        # In the original this looks as if a gate were in the way (RELB-07).
        return GatesCode.NO_CANDIDATES, "no release is newer than the current release"
    if holds:
        return GatesCode.SCHEDULES, join_names(holds)
    if not allowed:
        return GatesCode.NONE_ALLOWED, "the gates allow none of the candidates"
    return GatesCode.PASSING, "all gates pass"


def _summarise_all(
    gates: Iterable[ReleaseGate], candidates: Iterable[Release], *, is_bypassed: bool = False
) -> tuple[GateSummary, ...]:
    tags = {candidate.tag for candidate in candidates}
    return tuple(_summarise(gate, tags, is_bypassed=is_bypassed) for gate in gates)


def _summarise(gate: ReleaseGate, tags: set[str], *, is_bypassed: bool) -> GateSummary:
    allowed = gate.allowed_versions if gate.is_passing else None
    if is_bypassed:
        message = "the gate is bypassed"
    elif not gate.is_passing:
        message = gate.problem or "the gate is not passing"
    elif tags and allowed is not None and tags.isdisjoint(allowed):
        message = "the gate allows none of the candidates"
    else:
        message = "the gate is passing"
    return GateSummary(
        name=gate.head.name,
        passing=gate.is_passing,
        allowed_versions=allowed,
        message=message,
        bypass_gates=True if is_bypassed else None,
    )


def list_left_over(rollout: ReleaseRollout) -> tuple[ConsumedIntent, ...]:
    """Return intents that had their effect and are not removed yet (RELB-10)."""
    return tuple(
        intent
        for intent in rollout.status.consumed_intents
        if rollout.intents.get(intent.annotation) == intent.value
    )


def without_left_over(rollout: ReleaseRollout) -> Mapping[str, str]:
    return drop_intents(rollout.intents, [one.annotation for one in list_left_over(rollout)])


def drop_intents(intents: Mapping[str, str], annotations: Collection[str]) -> Mapping[str, str]:
    return {key: value for key, value in intents.items() if key not in annotations}


def consume(intents: Mapping[str, str], annotations: Iterable[str]) -> tuple[ConsumedIntent, ...]:
    """Return the record of the annotations that are there."""
    return tuple(
        ConsumedIntent(annotation=annotation, value=intents[annotation])
        for annotation in annotations
        if annotation in intents
    )


def is_unblocked(intents: Mapping[str, str]) -> bool:
    """Return whether a failed release does not stop the next (REL-80)."""
    return intents.get(names.UNBLOCK_FAILED) == "true"


def find_version_key(tag: str) -> _VersionKey | None:
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


def _find_number(text: str) -> float | None:
    read = _FLOAT.fullmatch(text)
    if read is None:
        return None
    try:
        number = float.fromhex(text.replace("_", "")) if read[2] else float(text)
    except OverflowError:
        return None
    return None if math.isinf(number) and read[1] else number


def find_rank(tag: str, order: TagOrder) -> _Rank:
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
            number = _find_number(text)
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
    if latest is None and floor is not None and announced.before is not None:
        # Flux forgets what it selected: a tag from which the policy went back would come again.
        top = max(find_rank(tag, order) for tag in (current or "", *announced.before))
    later_tags = {release.tag for release in later or ()}
    # Otherwise than when one of the two was selected the policy compares tags now.
    is_odd = not top if floor else floor is not None and latest not in later_tags
    if (later is None and not floor) or (latest not in (None, current) and is_odd):
        return ReleaseCandidates(is_path_unknown=True)
    ranked: list[tuple[_Rank, bool, Release]] = []
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
    tag: str = ""
    """Empty where it cannot be deployed."""
    problem: str = ""


def find_manual(
    spec: ReleaseSpec, intents: Mapping[str, str], available: Iterable[Release]
) -> ManualRequest | None:
    """Return the release that is requested by name, None without a request (REL-44, REL-46)."""
    if spec.wanted_version is not None:
        return ManualRequest(tag=spec.wanted_version)
    forced = intents.get(names.FORCE_DEPLOY)
    if not forced:
        return None
    if forced not in {release.tag for release in available}:
        problem = f"force-deploy: {quote(forced)} is none of the available releases"
        return ManualRequest(problem=problem)
    return ManualRequest(tag=forced)


def is_done_already(
    spec: ReleaseSpec, intents: Mapping[str, str], current: HistoryEntry | None
) -> bool:
    """Return whether `force-deploy` wants what is deployed, and no pin hides it (RELB-09)."""
    forced, is_pinned = intents.get(names.FORCE_DEPLOY), spec.wanted_version is not None
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
    intents: Mapping[str, str],
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


def discover(
    status: ReleaseStatus, policy: PolicyReading, metadata: _Metadata
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
    """Return whether a registry has to be asked about a tag (RELB-01).

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
    return (ReleaseEvent(reason=_DIGEST_CHANGED, note=note),)


class DeployRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A release that is to be deployed, and what let it through."""

    release: Release
    is_manual: bool = False
    is_forced: bool = False
    is_bypassing: bool = False
    is_unblocking: bool = False
    is_written: bool = True
    """Whether all objects of Flux carry its tag already."""

    @property
    def is_requested(self) -> bool:
        """Return whether a person has a part in it (RELB-34)."""
        return self.is_manual or self.is_bypassing or self.is_unblocking


def deploy(
    history: tuple[HistoryEntry, ...],
    request: DeployRequest,
    spec: ReleaseSpec,
    intents: Mapping[str, str],
    now: datetime,
) -> tuple[tuple[HistoryEntry, ...], tuple[ReleaseEvent, ...]]:
    """Return the history with a new deployment at its head (REL-59, 63 to 65 and 68)."""
    events: list[ReleaseEvent] = []
    past, tag = history, request.release.tag
    if history and history[0].is_active:
        past = (_cancel(history[0], tag, now), *history[1:])
        note = f"{history[0].version.tag} is superseded by {tag}"
        events.append(ReleaseEvent(reason=CANCELLED, note=note))
    # Without a bake it is over once Flux has it.
    is_over = request.is_written and not spec.has_bake
    entry = HistoryEntry(
        version=request.release,
        timestamp=now,
        id=1 + ((past[0].id if past else 0) or 0),
        message=_choose_message(request, intents),
        triggered_by=_choose_trigger(request, intents),
        bake_status=BakeStatus.SUCCEEDED if is_over else BakeStatus.DEPLOYING,
        bake_status_message="no bake is configured" if is_over else "waiting for the bake to start",
    )
    if spec.has_bake:
        note = f"{tag} is being deployed"
        events.append(ReleaseEvent(reason=DEPLOYING, note=note, is_routine=True))
    kept = keep_first((entry, *past)[: spec.history_limit], MOST_OF_HISTORY)
    return kept, tuple(events)


def list_consumed(request: DeployRequest) -> tuple[str, ...]:
    """Return the annotations that a deployment uses up (REL-70, RELB-11)."""
    used = (
        (names.FORCE_DEPLOY, request.is_forced),
        (names.BYPASS_GATES, request.is_bypassing),
        (names.UNBLOCK_FAILED, request.is_unblocking),
    )
    return (*(annotation for annotation, is_used in used if is_used), *ATTRIBUTION)


def decide_recovery(
    before: HistoryEntry | None,
    checks: Iterable[HealthCheck],
    now: datetime,
    *,
    was_recovering: bool,
    is_manual: bool,
    compat: ReleaseCompat,
) -> ConditionFinding:
    """Return whether failures count for a new deployment, once and for all (REL-67).

    `before` is the entry that it supersedes, as it was, and `checks` are as they are.
    """
    health_checks = tuple(checks)
    if before is not None and before.bake_status not in {None, BakeStatus.SUCCEEDED}:
        is_over = not before.is_active and before.bake_status != BakeStatus.CANCELLED
        cutoff = compute_cutoff(before, now)
        has_failed = was_recovering or any(has_error(check, cutoff, now) for check in health_checks)
        if is_over or has_failed or not compat.trusts_cancelled:
            text = f"{before.version.tag} did not succeed; failures do not count"
            return ConditionFinding(RECOVERING, True, "PreviousBakeFailed", text)
    if is_manual and any(is_unhealthy(check) for check in health_checks):
        text = "HealthChecks were unhealthy before; failures do not count"
        return ConditionFinding(RECOVERING, True, "DeployedWithUnhealthyHealthChecks", text)
    return ConditionFinding(RECOVERING, False, "Normal", "failures count")


def retry(
    entry: HistoryEntry, intents: Mapping[str, str], now: datetime
) -> tuple[HistoryEntry, ReleaseEvent]:
    """Return a failed deployment as it starts anew (REL-81, RELB-35)."""
    entry = msgspec.structs.replace(
        entry,
        bake_status=BakeStatus.DEPLOYING,
        bake_status_message=None,
        bake_start_time=None,
        bake_end_time=None,
        failed_health_checks=(),
        last_retry_timestamp=now,
        retries=entry.retries + 1,
        last_retry_by=intents.get(names.DEPLOY_USER) or None,
    )
    note = f"{entry.version.tag} is tried again"
    return entry, ReleaseEvent(reason=_RETRY_REQUESTED, note=note)


def render_success(entry: HistoryEntry, *, is_written: bool) -> ReleaseEvent:
    """Return the event of a deployment whose objects of Flux are written, where there are any."""
    note = f"{entry.version.tag} is deployed: {entry.message or ''}"
    if is_written:
        return ReleaseEvent(reason="DeploymentSucceeded", note=note)
    note = f"{note}; {NOWHERE}"
    return ReleaseEvent(reason="DeploymentSucceeded", note=note, severity=Severity.WARN)


def render_failure(reason: str, text: str) -> ReleaseEvent:
    return ReleaseEvent(reason=reason, note=text, severity=Severity.WARN)


def _cancel(entry: HistoryEntry, tag: str, now: datetime) -> HistoryEntry:
    return msgspec.structs.replace(
        entry,
        bake_status=BakeStatus.CANCELLED,
        bake_status_message=f"superseded by {tag}",
        bake_end_time=now,
        message=f"Deployment was cancelled by that of {tag}",
    )


def _choose_message(request: DeployRequest, intents: Mapping[str, str]) -> str:
    own = intents.get(names.DEPLOY_MESSAGE) or intents.get(names.DEPLOYMENT_MESSAGE)
    if request.is_requested and own:
        return own
    flags = (
        ("with force deploy", request.is_forced),
        ("with gate bypass", request.is_bypassing),
        ("with failed bake unblock", request.is_unblocking),
    )
    first = "Manual deployment" if request.is_manual else "Automatic deployment"
    return ", ".join((first, *(text for text, is_set in flags if is_set)))


def _choose_trigger(request: DeployRequest, intents: Mapping[str, str]) -> TriggeredBy:
    user = intents.get(names.DEPLOY_USER)
    if request.is_requested and user:
        return TriggeredBy(kind=TriggerKind.USER, name=user)
    return _SYSTEM


def merge_conditions(
    before: Collection[StatusCondition],
    findings: Collection[ConditionFinding],
    *,
    generation: int,
    now: datetime,
) -> tuple[StatusCondition, ...]:
    """Return the conditions with what is found now; those that nothing was found of stay."""
    types = {finding.type for finding in findings}
    merged = stamp_conditions(findings, before, types=types, generation=generation, now=now)
    return tuple(sorted(merged, key=lambda condition: _ORDER.get(condition.type, len(_ORDER))))


def describe_ready(entry: HistoryEntry | None, *, is_writing: bool, note: str) -> ConditionFinding:
    """Return whether the current deployment is in place, as far as it is known (REL-87)."""
    if entry is None:
        return ConditionFinding(READY, False, "NothingDeployed", note or "nothing is deployed yet")
    own = (entry.message, entry.bake_status_message, note)
    version = f"version {entry.version.tag} {entry.bake_status or ''}".rstrip()
    text = "; ".join([version, *(part for part in own if part)])
    if entry.has_failed:
        return ConditionFinding(READY, False, "BakeTimeFailed", text)
    if is_writing:
        return ConditionFinding(READY, False, WRITING, text)
    if entry.is_active and entry.last_retry_timestamp is not None:
        return ConditionFinding(READY, False, "BakeTimeRetrying", text)
    is_baked = entry.bake_status == BakeStatus.SUCCEEDED and entry.bake_end_time is not None
    return ConditionFinding(READY, True, "BakeTimePassed" if is_baked else "RolloutSucceeded", text)


def describe_progress(
    entry: HistoryEntry | None, *, is_writing: bool, is_overdue: bool
) -> tuple[ConditionFinding, ConditionFinding]:
    """Return `Reconciling` and `Stalled`, of which at most one is true (RELB-08)."""
    text = "" if entry is None else entry.bake_status_message or ""
    is_failed = entry is not None and entry.has_failed
    is_busy = entry is not None and entry.is_active and not is_overdue
    busy = WRITING if is_writing else str(entry.bake_status) if entry else ""
    stalled = "BakeTimeFailed" if is_failed else RECOVERY_TIMEOUT
    is_stalled = is_failed or is_overdue
    return (
        ConditionFinding(RECONCILING, is_busy, busy if is_busy else _IDLE, text if is_busy else ""),
        ConditionFinding(
            STALLED, is_stalled, stalled if is_stalled else _IDLE, text if is_stalled else ""
        ),
    )
