"""`status` of a Rollout, as kuberik's users read it; the operator reads all of it to decide.

What stands in it is decided in `planning.releases`. Fields without a value are left out.
"""

from enum import StrEnum, unique

import msgspec

from rollout_operator.model.condition import StatusCondition
from rollout_operator.model.releases.release import Instant, Release


@unique
class BakeStatus(StrEnum):
    """What a deployment is at. Never renamed."""

    DEPLOYING = "Deploying"
    IN_PROGRESS = "InProgress"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELLED = "Cancelled"


ACTIVE = frozenset({BakeStatus.DEPLOYING, BakeStatus.IN_PROGRESS})
"""While one of these holds, no other release is deployed by itself."""


@unique
class TriggerKind(StrEnum):
    """Whether a person requested a deployment."""

    USER = "User"
    SYSTEM = "System"


class TriggeredBy(msgspec.Struct, frozen=True, kw_only=True):
    """What requested a deployment. A claim, and no proof."""

    kind: TriggerKind
    name: str


class FailedHealthCheck(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A HealthCheck for which a deployment failed, and its words."""

    name: str
    namespace: str
    message: str | None = None


class HistoryEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """One deployment. Only the newest ever changes."""

    version: Release
    timestamp: Instant
    id: int | None = None
    """Absent in entries of earlier releases of kuberik."""
    message: str | None = None
    triggered_by: TriggeredBy | None = None
    bake_status: str | None = None
    """One of `BakeStatus`; anything else counts as over, and not as failed."""
    bake_status_message: str | None = None
    bake_start_time: Instant | None = None
    bake_end_time: Instant | None = None
    failed_health_checks: tuple[FailedHealthCheck, ...] = ()
    last_retry_timestamp: Instant | None = None
    retries: int = 0
    last_retry_by: str | None = None

    @property
    def is_active(self) -> bool:
        """Return whether it is not decided yet how it ends."""
        return self.bake_status in ACTIVE

    @property
    def has_failed(self) -> bool:
        """Return whether its health was found wanting."""
        return self.bake_status == BakeStatus.FAILED


class GateSummary(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What one gate says of the candidates."""

    name: str
    passing: bool | None = None
    allowed_versions: tuple[str, ...] | None = None
    message: str | None = None
    bypass_gates: bool | None = None


class ExcludedRelease(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate that is not deployed by itself, and why."""

    tag: str
    reason: str


class ConsumedIntent(msgspec.Struct, frozen=True, kw_only=True):
    """An annotation that has had its effect, and is to be removed."""

    annotation: str
    value: str


class ReleaseStatus(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """All of it. Empty where nothing was written."""

    observed_generation: int = 0
    conditions: tuple[StatusCondition, ...] = ()
    history: tuple[HistoryEntry, ...] = ()
    """The newest first."""
    available_releases: tuple[Release, ...] = ()
    """In the order in which they were announced, the oldest first."""
    available_releases_count: int = 0
    release_candidates: tuple[Release, ...] = ()
    gated_release_candidates: tuple[Release, ...] = ()
    excluded_releases: tuple[ExcludedRelease, ...] = ()
    gates: tuple[GateSummary, ...] = ()
    artifact_type: str | None = None
    source: str | None = None
    title: str | None = None
    description: str | None = None
    consumed_intents: tuple[ConsumedIntent, ...] = ()

    @property
    def current(self) -> HistoryEntry | None:
        """Return the deployment that is in place."""
        return self.history[0] if self.history else None

    def find_condition(self, kind: str) -> StatusCondition | None:
        """Return a condition by its type."""
        return next((condition for condition in self.conditions if condition.type == kind), None)

    def has_condition(self, kind: str) -> bool:
        """Return whether a condition is true."""
        condition = self.find_condition(kind)
        return condition is not None and condition.status == "True"
