"""A HealthCheck: what it looks at and found, and what objects say of themselves, by kstatus."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum, unique

import msgspec

from rollout_operator.model.releases.release import Instant
from rollout_operator.model.releases.rollout import ReleaseHead


@unique
class ObjectStatus(StrEnum):
    """Whether an object is what its spec wants."""

    CURRENT = "Current"
    IN_PROGRESS = "InProgress"
    FAILED = "Failed"
    TERMINATING = "Terminating"
    UNKNOWN = "Unknown"


class StatusVerdict(msgspec.Struct, frozen=True):
    """What it is at, and why."""

    status: ObjectStatus
    text: str = ""


@unique
class HealthStatus(StrEnum):
    """What a HealthCheck found. Empty before the first time. Never renamed."""

    HEALTHY = "Healthy"
    UNHEALTHY = "Unhealthy"
    PENDING = "Pending"


@unique
class CheckClass(StrEnum):
    """Classes of HealthChecks whose status this operator writes. Never renamed."""

    KUSTOMIZATION = "kustomization"
    ROLLOUT_GROUP = "rollout-group"
    MULTI_AZ_ROLLOUT = "multi-az-rollout"


class CheckFinding(msgspec.Struct, frozen=True, kw_only=True):
    """What one evaluation of an object found."""

    status: HealthStatus
    text: str = ""
    failed_at: datetime | None = None
    """When the newest failure happened, as far as anything says so."""


class HealthCheckStatus(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"
):
    """`status` of a HealthCheck. Other controllers may write it as well."""

    status: str = ""
    last_error_time: Instant | None = None
    """When the newest failure that was seen happened."""
    last_change_time: Instant | None = None
    """When `status` changed last."""
    message: str | None = None


class HealthCheck(msgspec.Struct, frozen=True, kw_only=True):
    """A HealthCheck, as it was read."""

    head: ReleaseHead
    labels: Mapping[str, str] = {}
    check_class: str = ""
    """By what its status is written; empty for anything outside."""
    kustomization: str | None = None
    """What its annotation names: `name` or `namespace/name`; so the next two."""
    rollout_group: str | None = None
    policy: str | None = None
    interval: timedelta = timedelta(seconds=30)
    """From one evaluation to the next."""
    failure_grace: timedelta = timedelta(minutes=2)
    """How long Flux may fail to apply a Kustomization until that is a failure."""
    status: HealthCheckStatus = HealthCheckStatus()
