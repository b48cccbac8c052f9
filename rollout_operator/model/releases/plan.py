"""What one decision on a Rollout is made of, and what comes out of it."""

from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec

from rollout_operator.model.event import ObjectEvent
from rollout_operator.model.releases.health import HealthCheck
from rollout_operator.model.releases.release import ReleaseMetadata, TagOrder
from rollout_operator.model.releases.rollout import (
    OURS,
    RefusedRelease,
    ReleaseCompat,
    ReleaseGate,
    ReleaseRollout,
)
from rollout_operator.model.releases.status import ConsumedIntent, ReleaseStatus


class FluxTarget(msgspec.Struct, frozen=True, kw_only=True):
    """One place of an object of Flux that an annotation gives to the Rollout."""

    kind: str
    name: str
    variable: str = ""
    """Of a Kustomization: what is substituted."""
    tag: str | None = None
    """What stands there now."""
    waiting_for: str = ""
    """What Flux has yet to do until the tag runs; empty where it is through."""


class Correction(msgspec.Struct, frozen=True, kw_only=True):
    """An object of Flux that had another tag than it should, and got the right tag."""

    kind: str
    name: str
    at: datetime


class PolicyReading(msgspec.Struct, frozen=True, kw_only=True):
    """What the image policy of a Rollout says."""

    latest: str | None = None
    """The tag that it selects. None while it selects none."""
    digest: str | None = None
    order: TagOrder | None = None
    problem: str = ""
    """Why it cannot be read."""
    reason: str = ""
    """The reason of `Ready` for that; empty for `RolloutFailed`."""


class ReleaseSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """All that one decision works on."""

    rollout: ReleaseRollout | RefusedRelease
    now: datetime
    policy: PolicyReading = PolicyReading()
    metadata: Mapping[str, ReleaseMetadata | None] = {}
    """By tag. None where the registry has no such tag; absent where it did not answer yet."""
    gates: tuple[ReleaseGate, ...] = ()
    """All that are known, of all Rollouts."""
    schedule_holds: tuple[str, ...] = ()
    """What schedules say against new versions, and no gate does."""
    checks: tuple[HealthCheck, ...] = ()
    """All that are known."""
    namespaces: Mapping[str, Mapping[str, str]] = {}
    """Labels of namespaces."""
    targets: tuple[FluxTarget, ...] = ()
    write_problem: str = ""
    """Why a target could not be written, until it could."""
    refused: Mapping[str, str] = {}
    """By tag, why objects of Flux would not take it, as far as that was tried."""
    corrections: tuple[Correction, ...] = ()
    """Those that this process has made lately, for this Rollout."""
    verifies_wanted: bool = False
    """Whether a pin of a tag that the registry does not have is held."""
    compat: ReleaseCompat = OURS


class ApplyTag(msgspec.Struct, frozen=True, kw_only=True):
    """Write a tag into an object of Flux."""

    target: FluxTarget
    tag: str
    is_drift: bool = False
    """Whether the object had it before, or came after the deployment."""


class RemoveIntents(msgspec.Struct, frozen=True, kw_only=True):
    """Remove annotations that had their effect, as far as their values are still these."""

    intents: tuple[ConsumedIntent, ...]


class RequestReconcile(msgspec.Struct, frozen=True, kw_only=True):
    """Have Flux reconcile an object now."""

    target: FluxTarget


ReleaseAction = ApplyTag | RemoveIntents | RequestReconcile


class ReleaseEvent(ObjectEvent, frozen=True, kw_only=True):
    """Something that happened to a Rollout; each release has a routine one, or each correction."""


class ReleasePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be done. The status is written first: it records what the actions carry out."""

    status: ReleaseStatus
    actions: tuple[ReleaseAction, ...] = ()
    events: tuple[ReleaseEvent, ...] = ()
    tag: str = ""
    """What is deployed anew; empty for nothing."""
    requeue_after: timedelta | None = None
    """When time alone changes something. None until anything else does."""
    problem: str = ""
    """Why the pass failed, and is to be tried again with growing pauses."""
