"""What the gates of a Rollout let through.

All must pass, and where several name versions, only those that all name are left. A gate that
does not pass says nothing of versions. A person may request one tag by name past all of them.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum, unique
from typing import Final

import msgspec

from rollout_operator.model.releases.release import Release
from rollout_operator.model.releases.rollout import ReleaseGate, ReleaseHead
from rollout_operator.model.releases.status import GateSummary
from rollout_operator.model.units import quote
from rollout_operator.planning.wording import join_names


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
    """What all gates together say of the candidates."""

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
        """Return what the condition says."""
        return self.code not in HOLDING


def list_gates(head: ReleaseHead, gates: Iterable[ReleaseGate]) -> tuple[ReleaseGate, ...]:
    """Return the gates of a Rollout, by name: those of its namespace that name it (REL-49)."""
    own = (gate for gate in gates if gate.head.namespace == head.namespace)
    return tuple(sorted((gate for gate in own if gate.rollout == head.name), key=_name))


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


def _name(gate: ReleaseGate) -> str:
    return gate.head.name
