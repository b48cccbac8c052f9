"""What a decision says: actions, and the reason for each action and for each inaction.

One `Reason` feeds log, metric, status page, Event and denial message. `Code` is for machines and is
documented in `docs/reasons.md`; the text is for people, with the numbers that decided.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum, unique
from typing import Final

import msgspec

from rollout_operator.model.names import GroupName, Revision
from rollout_operator.model.objects import Pod, StatefulSet


@unique
class Code(StrEnum):
    """Why a group moves or does not move. Values are label values of metrics: never renamed."""

    # moving
    POD_OUTDATED = "pod_outdated"
    POD_BROKEN_AND_OUTDATED = "pod_broken_and_outdated"
    ROLLED_OUT = "rolled_out"
    SCALE_UP = "scale_up"
    SCALE_DOWN = "scale_down"
    SCALE_PUBLISHED = "scale_published"
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
    ZONE_LEFT_SHORT = "zone_left_short"
    OTHER_OPERATOR = "other_operator"
    DRIVEN_BY_POLICY = "driven_by_policy"
    POLICIES_NOT_READ = "policies_not_read"
    POLICY_NOT_OBEYED = "policy_not_obeyed"
    POLICY_PAUSED = "policy_paused"
    BATCH_OPEN = "batch_open"
    INTERVAL_WAIT = "interval_wait"
    BATCH_DUE = "batch_due"
    ZONE_SCALING = "zone_scaling"
    ZONE_NOT_FOUND = "zone_not_found"
    NO_STATEFUL_SETS = "no_stateful_sets"
    SHADOW_MODE = "shadow_mode"
    SNAPSHOT_STALE = "view_stale"
    SNAPSHOT_CHANGED = "view_changed"
    LIVE_READ_EXPIRED = "live_read_expired"
    DELETE_REFUSED = "delete_refused"
    BACKING_OFF = "backing_off"
    DOWNSCALE_UNDERWAY = "downscale_underway"
    LEADING_ZONE_NOT_READY = "leading_zone_not_ready"
    ROLLOUT_UNDERWAY = "rollout_underway"
    DELAYED_BY_PODS = "delayed_by_pods"
    POD_GAVE_NO_TIME = "pod_gave_no_time"
    REFERENCE_NOT_READ = "reference_not_read"
    SCALE_REFUSED = "scale_refused"
    COUNT_CONTESTED = "count_contested"
    # failing: a person must change something
    WRONG_STRATEGY = "wrong_strategy"
    REVISION_EMPTY = "revision_empty"
    OBJECT_UNREADABLE = "object_unreadable"
    STATEFUL_SET_SPANS_ZONES = "stateful_set_spans_zones"
    NO_LEADING_ZONE = "no_leading_zone"
    LEADING_ZONES_CIRCLE = "leading_zones_circle"
    WAIT_TIME_MISSING = "wait_time_missing"
    BAD_REFERENCE = "bad_reference"
    BAD_DELAY = "bad_delay"
    PODS_MISSING = "pods_missing"
    # warnings that change no decision
    BAD_MAX_UNAVAILABLE = "bad_max_unavailable"
    BAD_PAUSED = "bad_paused"
    BAD_FORCE_REPLICAS = "bad_force_replicas"
    BAD_SCALING_SWITCH = "bad_scaling_switch"
    FOLLOWS_AND_MIRRORS = "follows_and_mirrors"
    GROUP_LABELS_DIFFER = "group_labels_differ"
    PODS_SHARE_LABELS = "pods_share_labels"
    LABEL_MISPLACED = "label_misplaced"
    # reviews that are allowed
    NOT_A_DOWNSCALE = "not_a_downscale"
    NOT_GUARDED = "not_guarded"
    DRY_RUN = "dry_run"
    CANNOT_CHECK = "cannot_check"
    PODS_PREPARED = "pods_prepared"
    # reviews that are refused: time or the cluster will change it
    ZONE_DOWNSCALED_LATELY = "zone_downscaled_lately"
    OTHER_ZONE_NOT_READY = "other_zone_not_ready"
    OTHER_DOWNSCALE_UNDERWAY = "other_downscale_underway"
    GROUP_NOT_READ = "group_not_read"
    CHANGED_MEANWHILE = "changed_meanwhile"
    POD_NOT_PREPARED = "pod_not_prepared"
    NOT_RECORDED = "not_recorded"
    REVIEW_TIMED_OUT = "review_timed_out"
    STOPPING = "stopping"
    NOT_ELECTED = "not_elected"
    # reviews that are refused: a person must change something
    NO_DOWNSCALE = "no_downscale"
    PREPARE_MISCONFIGURED = "prepare_misconfigured"
    BAD_DOWNSCALE_TIME = "bad_downscale_time"
    OTHER_NAMESPACE = "other_namespace"
    # disruption budgets: reviews that are allowed
    DISRUPTION_GRANTED = "disruption_granted"
    POD_NOT_IN_SCOPE = "pod_not_in_scope"
    POD_NOT_RUNNING = "pod_not_running"
    POD_NOT_FOUND = "pod_not_found"
    BUDGET_VALID = "budget_valid"
    # disruption budgets as a whole: nothing is held
    BUDGET_HAS_ROOM = "budget_has_room"
    # disruption budgets: time or the cluster will change it
    DISRUPTION_BUDGET_USED = "disruption_budget_used"
    BUDGETS_NOT_READ = "budgets_not_read"
    GRANT_NOT_RECORDED = "grant_not_recorded"
    GRANT_CONTESTED = "grant_contested"
    START_QUARANTINE = "start_quarantine"
    GRANT_UNUSED = "grant_unused"
    EVICTION_FIRST = "eviction_first"
    ROLLOUT_FIRST = "rollout_first"
    # disruption budgets: a person must change something
    NOT_AN_EVICTION = "not_an_eviction"
    BUDGET_ZERO = "budget_zero"
    BUDGET_INVALID = "budget_invalid"
    BUDGETS_OVERLAP = "budgets_overlap"
    TOO_FEW_ZONES = "too_few_zones"
    OWNER_NOT_STATEFULSET = "owner_not_statefulset"
    PARTITION_UNKNOWN = "partition_unknown"
    BUDGET_SELECTS_NO_PODS = "budget_selects_no_pods"
    # after a disruption was allowed
    GRANT_TAKEN_BACK = "grant_taken_back"
    # after a downscale was allowed
    DOWNSCALE_RECORDED = "downscale_recorded"
    DOWNSCALE_UNDONE = "downscale_undone"


def _choose_family(first: Code, *, before: Code) -> frozenset[Code]:
    codes = tuple(Code)
    return frozenset(codes[codes.index(first) : codes.index(before)])


NEVER_HOLDING: Final = _choose_family(Code.POD_OUTDATED, before=Code.UP_TO_DATE) | _choose_family(
    Code.BAD_MAX_UNAVAILABLE, before=Code.NOT_A_DOWNSCALE
)
"""Codes that move a group, or that are odd and change nothing: the families of these names."""

REVIEW_CODES: Final = frozenset(
    {
        Code.LABEL_MISPLACED,
        Code.NOT_A_DOWNSCALE,
        Code.NOT_GUARDED,
        Code.DRY_RUN,
        Code.CANNOT_CHECK,
        Code.PODS_PREPARED,
        Code.OTHER_DOWNSCALE_UNDERWAY,
        Code.GROUP_NOT_READ,
        Code.CHANGED_MEANWHILE,
        Code.POD_NOT_PREPARED,
        Code.NOT_RECORDED,
        Code.REVIEW_TIMED_OUT,
        Code.STOPPING,
        Code.NOT_ELECTED,
        Code.NO_DOWNSCALE,
        Code.PREPARE_MISCONFIGURED,
        Code.OTHER_NAMESPACE,
        Code.DISRUPTION_GRANTED,
        Code.POD_NOT_IN_SCOPE,
        Code.POD_NOT_RUNNING,
        Code.POD_NOT_FOUND,
        Code.BUDGET_VALID,
        Code.BUDGET_HAS_ROOM,
        Code.BUDGET_SELECTS_NO_PODS,
        Code.NOT_AN_EVICTION,
        Code.GRANT_UNUSED,
        Code.ROLLOUT_FIRST,
        Code.GRANT_TAKEN_BACK,
        Code.DOWNSCALE_RECORDED,
        Code.DOWNSCALE_UNDONE,
    }
)
"""Codes that say why a review was answered as it was, or what a budget is; none holds a group."""

POLICY_CODES: Final = frozenset(
    {
        Code.POLICY_NOT_OBEYED,
        Code.POLICY_PAUSED,
        Code.BATCH_OPEN,
        Code.INTERVAL_WAIT,
        Code.BATCH_DUE,
        Code.ZONE_SCALING,
        Code.ZONE_NOT_FOUND,
        Code.NO_STATEFUL_SETS,
        Code.STATEFUL_SET_SPANS_ZONES,
    }
)
"""Codes that hold a MultiAZRollout and never a label group."""


@unique
class Severity(StrEnum):
    """How loudly a reason is logged; the names are those of the log levels."""

    DEBUG = "debug"
    INFO = "info"
    WARN = "warn"
    ERROR = "error"


class Reason(msgspec.Struct, frozen=True):
    """Why something is done or left undone.

    `text` is lower case, without a full stop, and carries the numbers.
    """

    code: Code
    text: str
    severity: Severity = Severity.INFO
    zone: str = ""
    """Name of the StatefulSet that it is about; empty where it is about the group."""
    stable_text: str = ""
    """The part of the text that is compared with what was logged before, without countdowns; empty
    for all of it."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a review.

    `reason.text` is the message that users see, empty where there is nothing to say. `code` is the
    HTTP status that the API server passes on with a refusal, 0 for its own choice (400).
    """

    is_allowed: bool
    reason: Reason
    warnings: tuple[str, ...] = ()
    code: int = 0
    annotations: Mapping[str, str] = {}
    """To be set on the object under review, where its caller takes patches."""
    retry_after: timedelta | None = None
    """When to try again, rounded up to seconds. Clients obey it without telling their user."""


class Replacement(msgspec.Struct, frozen=True, kw_only=True):
    """One pod that may be deleted, and why this pod."""

    pod: Pod
    reason: Reason


class EqualPods(msgspec.Struct, frozen=True, kw_only=True):
    """Pods that may go for one and the same reason, at most `room` of them.

    They are tried in order, and only what really goes takes room: a pod that is refused does not
    hide the next.
    """

    pods: tuple[Replacement, ...]
    room: int


class ReplacePods(msgspec.Struct, frozen=True, kw_only=True):
    """Delete pods of one zone so that its StatefulSet recreates them at the update revision.

    Each share is bounded by itself: what one leaves unused is of no use to another, because a pod
    that was refused is as much down as before.
    """

    zone: StatefulSet
    shares: tuple[EqualPods, ...]

    @property
    def listed(self) -> tuple[Replacement, ...]:
        """Return all pods that may be tried."""
        return tuple(pod for share in self.shares for pod in share.pods)

    @property
    def going(self) -> tuple[Replacement, ...]:
        """Return the pods that go where none is refused."""
        return tuple(pod for share in self.shares for pod in share.pods[: share.room])


class RecordRevision(msgspec.Struct, frozen=True, kw_only=True):
    """Set `status.currentRevision` to the update revision: the zone is rolled out and whole."""

    zone: StatefulSet
    revision: Revision
    reason: Reason


Action = ReplacePods | RecordRevision


class ZoneProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far one zone is, in pods of its desired ordinals."""

    zone: str
    """Name of the StatefulSet."""
    desired: int
    ready: int
    """Proven up; none of an upscale that never was (D-67)."""
    updated: int
    """They exist at the update revision, ready or not."""
    outdated: int
    """They exist at another revision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """All that one snapshot of a group leads to.

    `waits` holds why nothing (more) is done, in the order in which it was found; `problems` hold
    warnings that change no decision beyond what they say. `failed` makes it a failed reconcile: a
    person must act. `look_again` is the time after which a deadline falls due that no event
    announces. `progress` is no part of what is decided, None where no zone was looked at.
    """

    group: GroupName
    actions: tuple[Action, ...] = ()
    waits: tuple[Reason, ...] = ()
    problems: tuple[Reason, ...] = ()
    failed: bool = False
    requeue_after: timedelta | None = None
    progress: tuple[ZoneProgress, ...] | None = field(default=None, compare=False)
