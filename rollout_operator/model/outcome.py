"""What a decision says: actions, and the reason for each action and for each inaction.

One `Reason` feeds log, metric, status page, Event and denial message. `Code` is for machines and is
documented in `docs/reasons.md`; the text is for people, with the numbers that decided.
"""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum, unique

from rollout_operator.model.names import GroupName, Revision
from rollout_operator.model.objects import Pod, StatefulSet


@unique
class Code(StrEnum):
    """Why a group moves or does not move. Values are label values of metrics: never renamed."""

    # moving
    POD_OUTDATED = "pod_outdated"
    POD_BROKEN_AND_OUTDATED = "pod_broken_and_outdated"
    ROLLED_OUT = "rolled_out"
    # waiting: time or the cluster will change it
    UP_TO_DATE = "up_to_date"
    BUDGET_USED = "budget_used"
    PODS_STARTING = "pods_starting"
    ZONE_NOT_READY = "zone_not_ready"
    SEVERAL_ZONES_NOT_READY = "several_zones_not_ready"
    PAUSED = "paused"
    PAUSED_ZONE_NOT_READY = "paused_zone_not_ready"
    ANOTHER_ZONE_FIRST = "another_zone_first"
    STATUS_BEHIND = "status_behind"
    SET_TERMINATING = "set_terminating"
    VIEW_STALE = "view_stale"
    VIEW_CHANGED = "view_changed"
    DELETE_REFUSED = "delete_refused"
    BACKING_OFF = "backing_off"
    # failing: a person must change something
    WRONG_STRATEGY = "wrong_strategy"
    REVISION_EMPTY = "revision_empty"
    OBJECT_UNREADABLE = "object_unreadable"
    PODS_MISSING = "pods_missing"
    # oddities that change no decision
    BAD_MAX_UNAVAILABLE = "bad_max_unavailable"
    BAD_PAUSED = "bad_paused"
    GROUP_LABELS_DIFFER = "group_labels_differ"
    PODS_SHARE_LABELS = "pods_share_labels"


@unique
class Severity(StrEnum):
    """How loudly a reason is told; the names are those of the log levels."""

    DEBUG = "debug"
    INFO = "info"
    WARN = "warn"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why something is done or left undone.

    `text` is lower case, without a full stop, and carries the numbers.
    """

    code: Code
    text: str
    severity: Severity = Severity.INFO
    zone: str = ""
    """Name of the StatefulSet that it is about; empty where it is about the group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """One pod that may be deleted, and why this one."""

    pod: Pod
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Pods that may go for one and the same reason, at most `room` of them.

    They are tried in order, and only what really goes takes room: one that is refused does not hide
    the next.
    """

    pods: tuple[Replacement, ...]
    room: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacePods:
    """Delete pods of one zone so that its StatefulSet recreates them at the update revision.

    Each share is bounded by itself: what one leaves unused is of no use to another, because a pod
    that was refused is as much down as before.
    """

    zone: StatefulSet
    shares: tuple[Share, ...]

    @property
    def listed(self) -> tuple[Replacement, ...]:
        """Return all pods that may be tried."""
        return tuple(one for share in self.shares for one in share.pods)

    @property
    def going(self) -> tuple[Replacement, ...]:
        """Return the pods that go where none is refused."""
        return tuple(one for share in self.shares for one in share.pods[: share.room])


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordRevision:
    """Set `status.currentRevision` to the update revision: the zone is rolled out and whole."""

    zone: StatefulSet
    revision: Revision
    reason: Reason


Action = ReplacePods | RecordRevision


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All that one look at a group leads to.

    `waits` holds why nothing (more) is done, in the order in which it was found; `problems` hold
    what is odd with the input but changes no decision beyond what they say. `failed` counts the
    look as a failed reconcile: a person must act. `look_again` is the time after which a deadline
    falls due that no event announces.
    """

    group: GroupName
    actions: tuple[Action, ...] = ()
    waits: tuple[Reason, ...] = ()
    problems: tuple[Reason, ...] = ()
    failed: bool = False
    look_again: timedelta | None = None
