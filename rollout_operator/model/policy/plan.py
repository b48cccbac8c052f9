"""What one decision for a policy works on, and what it comes to.

The decision is made in `planning.policies.plan`; recording a batch, and deleting its pods, is left
to the controllers.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

import msgspec

from rollout_operator.model.group import Group
from rollout_operator.model.names import Revision, Uid
from rollout_operator.model.outcome import Reason, RecordRevision, ReplacePods
from rollout_operator.model.policy.policy import Policy
from rollout_operator.model.policy.zones import ZoneResolution

# Exact in every client. The number after it is 1 again, as where the status was lost.
MOST_BATCHES: Final = 2**53 - 1


class BatchPod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that a batch replaces, as it was when the batch began."""

    name: str
    uid: Uid


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """Pods that go together, as the status of the policy has recorded them before they went."""

    number: int
    """From 1; it never repeats while the status is kept."""
    zone: str
    set_name: str
    revision: Revision
    """The update revision that it was begun for."""
    pods: tuple[BatchPod, ...]
    start: datetime
    completion: datetime | None = None
    """Since when nothing is unavailable, on the server's clock. The pause counts from it. None
    while the batch is open, or open again because a pod failed during the pause."""


class SetCounts(msgspec.Struct, frozen=True, kw_only=True):
    """One StatefulSet of a policy in numbers of its desired pods."""

    name: str
    replicas: int
    updated: int
    outdated: int
    ready: int
    """Proven available; new pods of an upscale are not, and are no reason to wait either (D-67)."""
    unavailable: int
    """Those that others wait for."""
    revision: Revision
    """The update revision."""
    initial: int = 0
    """The fewest replicas since that came: what was added later is no sign that it was begun."""
    is_paused: bool = False


class ZoneCounts(msgspec.Struct, frozen=True, kw_only=True):
    """One zone of a policy in numbers."""

    name: str
    sets: tuple[SetCounts, ...]
    """By name."""

    @property
    def unavailable(self) -> int:
        """Return for how many pods of the zone others wait."""
        return sum(sts.unavailable for sts in self.sets)


class PolicySnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that `plan_policy` reads."""

    policy: Policy
    resolution: ZoneResolution
    group: Group
    """All StatefulSets that the policy owns, each with its pods. `now` is the server's clock."""
    batch: Batch | None = None
    """The last batch, as the status of the policy has it."""
    initial: Mapping[str, int] = {}
    """By StatefulSet the fewest replicas since its update revision came, where they are known."""
    clock_error: timedelta = timedelta(0)
    """By so much the server's clock may show more than `group.now`."""

    @property
    def latest(self) -> datetime:
        """Return the latest time that the server's clock may show now."""
        return self.group.now + self.clock_error


class PolicyPlan(msgspec.Struct, frozen=True, kw_only=True):
    """All that one snapshot of a policy leads to."""

    batch: Batch | None = None
    """The batch to record ahead of any delete, where it is another batch than before."""
    action: ReplacePods | None = None
    """Pods of that batch, and no others."""
    records: tuple[RecordRevision, ...] = ()
    """StatefulSets that are rolled out, and do not say so yet."""
    waits: tuple[Reason, ...] = ()
    """Why nothing, or nothing more, goes now; the first is what holds it. Empty only where pods
    go, and nothing else would."""
    target: str = ""
    """The StatefulSet whose turn it is; empty where none has a turn."""
    next_batch: datetime | None = None
    """When the pause is over, while one is."""
    is_stalled: bool = False
    """Whether the open batch has made no progress for longer than the policy grants."""
    needs_person: bool = False
    """Whether only a person ends what holds it, as far as the pods show."""
    is_open: bool = False
    """Whether a batch is open, and not superseded."""
    requeue_after: timedelta | None = None
    """After what time a deadline falls due that no event announces."""
    zones: tuple[ZoneCounts, ...] = ()
    """In the order of their updates; empty where they are unknown."""

    @property
    def leading(self) -> Reason | None:
        """Return what holds it, None where nothing does."""
        return self.waits[0] if self.waits else None
