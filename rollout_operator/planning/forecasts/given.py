"""All that a forecast of Rollouts is made of."""

from collections.abc import Mapping
from datetime import datetime, timedelta

import msgspec

from rollout_operator.model.releases.health import HealthCheck
from rollout_operator.model.releases.plan import FluxTarget, PolicyReading
from rollout_operator.model.releases.rollout import (
    OURS,
    RefusedRelease,
    ReleaseCompat,
    ReleaseGate,
    ReleaseRollout,
)
from rollout_operator.model.releases.schedule import ScheduleObject


class ForecastRollout(msgspec.Struct, frozen=True, kw_only=True):
    """One Rollout, with what belongs to it alone."""

    rollout: ReleaseRollout | RefusedRelease
    policy: PolicyReading = PolicyReading()
    targets: tuple[FluxTarget, ...] = ()
    suspended: frozenset[tuple[str, str]] = frozenset()
    """Objects of Flux, by kind and name, that do nothing until a person resumes them."""


class ForecastInput(msgspec.Struct, frozen=True, kw_only=True):
    """Objects as they are at the start, and how far ahead is looked."""

    begins: datetime
    ends: datetime
    rollouts: tuple[ForecastRollout, ...]
    gates: tuple[ReleaseGate, ...] = ()
    schedules: tuple[ScheduleObject, ...] = ()
    checks: tuple[HealthCheck, ...] = ()
    namespaces: Mapping[str, Mapping[str, str]] = {}
    """Labels of namespaces."""
    compat: ReleaseCompat = OURS
    verifies_wanted: bool = False
    """Whether a pin waits until a registry says that it has the tag: here it says nothing."""
    settles_after: timedelta = timedelta(seconds=30)
    """After which Flux runs a tag that is written, and a HealthCheck that waits is healthy."""
