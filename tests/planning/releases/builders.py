"""Objects of releases in a line each: `release("1.0.0")`, `gate("g", allowed="1.0.0 1.1.0")`."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from rollout_operator.model.names import Uid
from rollout_operator.model.objects import LabelSelector, SelectorTerm, WatchedHead
from rollout_operator.releases.model.plan import HealthCheck, HealthCheckStatus
from rollout_operator.releases.model.releases import (
    BakeStatus,
    CheckSelector,
    HistoryEntry,
    Release,
    ReleaseGate,
    ReleaseRollout,
    ReleaseSpec,
    ReleaseStatus,
)

START: Final = datetime(2025, 1, 1, tzinfo=UTC)
MINUTE: Final = timedelta(minutes=1)
ALL_CHECKS: Final = CheckSelector(selector=LabelSelector())


def at(minutes: float) -> datetime:
    """Return a moment in minutes from the start."""
    return START + timedelta(minutes=minutes)


def read_minutes(text: str) -> float:
    """Return minutes of `1`, or of `1+0.3s`."""
    [(minutes, seconds)] = re.findall(r"^(-?[\d.]+)(?:([+-][\d.]+)s)?$", text)
    return float(minutes) + float(seconds or 0) / 60


def show_minutes(moment: datetime | None) -> str:
    return "" if moment is None else f"{(moment - START) / MINUTE:.4g}"


def read_selector(text: str) -> LabelSelector | None:
    """Read `a=b`, `all`, `none`, or a term such as `app NotIn a,c`."""
    if text in ("all", "none"):
        return LabelSelector() if text == "all" else None
    if "=" in text:
        return LabelSelector(labels=dict([text.split("=")]))
    key, operator, *values = text.split()
    texts = tuple(values[0].split(",")) if values else ()
    return LabelSelector(terms=(SelectorTerm(key=key, operator=operator, values=texts),))


def head(name: str = "app", namespace: str = "prod", generation: int = 1) -> WatchedHead:
    return WatchedHead(
        name=name,
        namespace=namespace,
        uid=Uid(f"uid-{name}"),
        resource_version="1",
        generation=generation,
    )


def releases(tags: str) -> tuple[Release, ...]:
    """Return releases by their tags, the oldest first."""
    return tuple(Release(tag=tag) for tag in tags.split())


def entry(
    tag: str, status: str | None = BakeStatus.SUCCEEDED, minutes: float = 0, **more: Any
) -> HistoryEntry:
    """Return a deployment that began at so many minutes."""
    return HistoryEntry(
        version=Release(tag=tag), timestamp=at(minutes), bake_status=status, **{"id": 1, **more}
    )


def gate(
    name: str = "gate",
    *,
    passing: bool = True,
    allowed: str | None = None,
    rollout: str = "app",
    namespace: str = "prod",
) -> ReleaseGate:
    return ReleaseGate(
        head=head(name, namespace),
        rollout=rollout,
        is_passing=passing,
        allowed_versions=None if allowed is None else tuple(allowed.split()),
    )


def check(
    name: str = "check",
    status: str = "",
    *,
    error: float | None = None,
    change: float | None = None,
    message: str | None = None,
    labels: Mapping[str, str] | None = None,
    namespace: str = "prod",
) -> HealthCheck:
    """Return a HealthCheck; times in minutes from the start."""
    return HealthCheck(
        head=head(name, namespace),
        labels=labels or {},
        status=HealthCheckStatus(
            status=status,
            last_error_time=None if error is None else at(error),
            last_change_time=None if change is None else at(change),
            message=message,
        ),
    )


def rollout(
    *,
    intents: Mapping[str, str] | None = None,
    status: ReleaseStatus | None = None,
    waits_for_flux: bool = True,
    **spec: Any,
) -> ReleaseRollout:
    """Return a Rollout; fields of its spec by name."""
    return ReleaseRollout(
        head=head(),
        spec=ReleaseSpec(policy_name="app", **spec),
        intents=intents or {},
        status=status or ReleaseStatus(),
        waits_for_flux=waits_for_flux,
    )
