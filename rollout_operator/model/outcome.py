"""What a decision says: actions, and the reason for each action and inaction.

One `Reason` feeds log, metric, status page, Event and denial message. `Code` is for machines, the
text for people, with the numbers that decided. `MEANINGS` and `REMEDIES` explain each code in a
line, `docs/monitoring.md` at length. `find_leading` chooses the reason that every outlet shows
first.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum, unique
from types import MappingProxyType
from typing import Final

import msgspec

from rollout_operator.model.names import GroupName, Revision
from rollout_operator.model.objects import Pod, StatefulSet


@unique
class Code(StrEnum):
    """Values are label values of metrics: never renamed."""

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
    """The names are log levels."""

    DEBUG = "debug"
    INFO = "info"
    WARN = "warn"
    ERROR = "error"


class Reason(msgspec.Struct, frozen=True):
    """`text` is lower case, without a full stop, and carries the numbers."""

    code: Code
    text: str
    severity: Severity = Severity.INFO
    zone: str = ""
    """The StatefulSet; empty for the whole group."""
    stable_text: str = ""
    """The text without countdowns, compared with what was logged before."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a review.

    `reason.text` is shown to users. `code` is the HTTP status of a refusal, 0 for the API server's
    default (400).
    """

    is_allowed: bool
    reason: Reason
    warnings: tuple[str, ...] = ()
    code: int = 0
    annotations: Mapping[str, str] = {}
    """To set on the object under review, where its caller takes patches."""
    retry_after: timedelta | None = None
    """Rounded up to seconds. Clients obey it without telling their user."""


class Replacement(msgspec.Struct, frozen=True, kw_only=True):
    pod: Pod
    reason: Reason


class EqualPods(msgspec.Struct, frozen=True, kw_only=True):
    """Pods that may go for the same reason, at most `room` of them.

    They are tried in order, and a refused pod takes no room.
    """

    pods: tuple[Replacement, ...]
    room: int


class ReplacePods(msgspec.Struct, frozen=True, kw_only=True):
    """Delete pods of a zone so that its StatefulSet recreates them at the update revision.

    Room that one share leaves unused is not for another: a refused pod is as much down as before.
    """

    zone: StatefulSet
    shares: tuple[EqualPods, ...]

    @property
    def listed(self) -> tuple[Replacement, ...]:
        """Return all pods that may be tried."""
        return tuple(pod for share in self.shares for pod in share.pods)

    @property
    def going(self) -> tuple[Replacement, ...]:
        """Return the pods that go if none is refused."""
        return tuple(pod for share in self.shares for pod in share.pods[: share.room])


class RecordRevision(msgspec.Struct, frozen=True, kw_only=True):
    """Set `status.currentRevision` to the update revision: the zone is rolled out."""

    zone: StatefulSet
    revision: Revision
    reason: Reason


Action = ReplacePods | RecordRevision


class ZoneProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a zone is, in pods of its desired ordinals."""

    zone: str
    desired: int
    ready: int
    """Proven up, without newcomers (D-67)."""
    updated: int
    """At the update revision, ready or not."""
    outdated: int
    """At another revision."""
    rolled_out: Revision = Revision("")
    """The update revision, once all pods have it and are available, and it is recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The plan for one snapshot of a group.

    `waits` say why no (more) pods go, in the order found; `problems` are warnings. With `failed` a
    person must act. `requeue_after` is when something changes by time alone. `progress` is None
    where no zone was looked at.
    """

    group: GroupName
    actions: tuple[Action, ...] = ()
    waits: tuple[Reason, ...] = ()
    problems: tuple[Reason, ...] = ()
    failed: bool = False
    requeue_after: timedelta | None = None
    progress: tuple[ZoneProgress, ...] | None = field(default=None, compare=False)


MEANINGS: Final[Mapping[Code, str]] = MappingProxyType(
    {
        Code.POD_OUTDATED: (
            "the operator deletes a ready pod because it is not at the update revision"
        ),
        Code.POD_BROKEN_AND_OUTDATED: (
            "the operator deletes an outdated pod that is not ready anyway"
        ),
        Code.ROLLED_OUT: "all pods of a zone are ready at the update revision",
        Code.SCALE_UP: (
            "a zone gets more replicas: as many as the zone that it follows, or the object that it"
            " mirrors"
        ),
        Code.SCALE_DOWN: (
            "a zone gets fewer replicas: as few as the zone that it follows, or the object that it"
            " mirrors"
        ),
        Code.SCALE_PUBLISHED: (
            "the operator writes the replicas of the zones to the status of the object that "
            "they mirror"
        ),
        Code.UP_TO_DATE: "nothing to do",
        Code.BUDGET_USED: (
            "outdated pods wait because as many pods of the zone are unavailable as may be"
        ),
        Code.PODS_STARTING: "outdated pods wait for pods that are only just starting",
        Code.ZONE_NOT_READY: (
            "the zone whose turn it is has nothing outdated left, and not all of its pods are "
            "ready yet"
        ),
        Code.SEVERAL_ZONES_NOT_READY: (
            "two or more zones have unavailable pods: no pod goes that may be up again by itself"
        ),
        Code.PAUSED: "grafana.com/rollout-paused keeps the outdated pods of a zone",
        Code.PAUSED_ZONE_NOT_READY: "a paused zone has unavailable pods, which blocks the others",
        Code.ANOTHER_ZONE_FIRST: "this zone has outdated pods; another zone has its turn",
        Code.STATUS_BEHIND: "the StatefulSet controller has not observed the newest spec",
        Code.SET_TERMINATING: "a StatefulSet of the group is being deleted",
        Code.ZONE_LEFT_SHORT: (
            "a zone was deleted, or left its group, budget or policy, while pods of it were down"
        ),
        Code.OTHER_OPERATOR: "another operator rolls the group out, or a person deletes its pods",
        Code.DRIVEN_BY_POLICY: "a MultiAZRollout replaces the pods of the group, not its label",
        Code.POLICIES_NOT_READ: (
            "the operator does not know yet whether a MultiAZRollout drives the group"
        ),
        Code.POLICY_NOT_OBEYED: "no operator looks after a MultiAZRollout",
        Code.POLICY_PAUSED: "spec.paused of a MultiAZRollout keeps its outdated pods",
        Code.BATCH_OPEN: (
            "a MultiAZRollout begins no batch before all pods of the last batch are available"
        ),
        Code.INTERVAL_WAIT: "a MultiAZRollout lets its pause pass before the next batch",
        Code.BATCH_DUE: "the pause of a MultiAZRollout is over, and its next batch has not begun",
        Code.ZONE_SCALING: "a MultiAZRollout replaces no pod while another zone is being scaled",
        Code.ZONE_NOT_FOUND: (
            "the operator does not know the zone of a StatefulSet of a MultiAZRollout yet"
        ),
        Code.NO_STATEFUL_SETS: "the selector of a MultiAZRollout finds no StatefulSet",
        Code.SHADOW_MODE: (
            "what the sentence names is due, and this operator is in shadow mode: it only reports"
        ),
        Code.SNAPSHOT_STALE: "the cache has not proven for over a minute that it is live",
        Code.SNAPSHOT_CHANGED: "a live read did not confirm the cache; the operator did nothing",
        Code.LIVE_READ_EXPIRED: "a live read of the group was too old before it could be acted on",
        Code.DELETE_REFUSED: (
            "the API server refused to delete a pod; the operator tried the next candidate"
        ),
        Code.BACKING_OFF: "a call failed; the operator repeats it",
        Code.DOWNSCALE_UNDERWAY: (
            "the operator allowed a downscale of the group that may still be written: it "
            "replaces no pod"
        ),
        Code.LEADING_ZONE_NOT_READY: (
            "a zone follows upwards only once the zone that it follows has all its pods ready"
        ),
        Code.ROLLOUT_UNDERWAY: (
            "the operator scales no zone down while another zone has pods down for its rollout"
        ),
        Code.DELAYED_BY_PODS: "pods that are to go have not been prepared for long enough",
        Code.POD_GAVE_NO_TIME: (
            "a pod that is to go did not say since when it is prepared: no pod of the zone goes"
        ),
        Code.REFERENCE_NOT_READ: (
            "the operator could not read the object that a zone mirrors just now"
        ),
        Code.SCALE_REFUSED: (
            "the API server did not take new replicas, or did not let the operator remove a mark"
        ),
        Code.COUNT_CONTESTED: (
            "another client puts the replicas of a zone back each time that the operator "
            "writes them"
        ),
        Code.WRONG_STRATEGY: (
            "a member's update strategy is not OnDelete; the operator leaves the group alone"
        ),
        Code.REVISION_EMPTY: "a member's status names no current or no update revision",
        Code.OBJECT_UNREADABLE: "the operator cannot decode a StatefulSet or a pod of the group",
        Code.STATEFUL_SET_SPANS_ZONES: (
            "a StatefulSet has pods in several zones, and nothing else says its zone"
        ),
        Code.NO_LEADING_ZONE: (
            "the zone that grafana.com/rollout-downscale-leader names is not in the group"
        ),
        Code.LEADING_ZONES_CIRCLE: "zones follow one another in a circle, or a zone follows itself",
        Code.WAIT_TIME_MISSING: (
            "a zone that follows does not say how long to wait after another zone's downscale"
        ),
        Code.BAD_REFERENCE: (
            "the object that a zone mirrors is not there, may not be read, or shows no usable "
            "number of replicas"
        ),
        Code.BAD_DELAY: "the operator cannot read grafana.com/rollout-delayed-downscale or its URL",
        Code.PODS_MISSING: "a zone wants pods and no pod names it as its controlling owner",
        Code.BAD_MAX_UNAVAILABLE: "the operator cannot read rollout-max-unavailable, and uses 1",
        Code.BAD_PAUSED: (
            "grafana.com/rollout-paused is neither true nor false; the zone is paused"
        ),
        Code.BAD_FORCE_REPLICAS: (
            "grafana.com/rollout-force-replicas is no number, or nothing on that zone reads it"
        ),
        Code.BAD_SCALING_SWITCH: "an annotation of scaling is neither true nor false",
        Code.FOLLOWS_AND_MIRRORS: (
            "a zone has annotations for following and for mirroring: it follows"
        ),
        Code.GROUP_LABELS_DIFFER: (
            "both spellings of the group label are present and differ; rollout-group counts"
        ),
        Code.PODS_SHARE_LABELS: (
            "two members select the same pods; the operator distinguishes them by owner"
        ),
        Code.LABEL_MISPLACED: (
            "the label of the hook is not there, and looks as if it was meant to be"
        ),
        Code.NOT_A_DOWNSCALE: "replicas stay or grow",
        Code.NOT_GUARDED: "the label of the hook is not there",
        Code.DRY_RUN: "the operator calls no pod for a dry run",
        Code.CANNOT_CHECK: (
            "the operator cannot read the request, or the labels of its object, and allows it "
            "with a warning"
        ),
        Code.PODS_PREPARED: "every pod that is to go has confirmed",
        Code.ZONE_DOWNSCALED_LATELY: "the time between downscales of two zones has not passed",
        Code.OTHER_ZONE_NOT_READY: (
            "another zone has pods that are not ready or not updated: no zone may scale down"
        ),
        Code.OTHER_DOWNSCALE_UNDERWAY: (
            "the operator allowed another downscale of the group, which has not ended"
        ),
        Code.GROUP_NOT_READ: "the operator could not read the group, or the zone tracker",
        Code.CHANGED_MEANWHILE: "the request no longer fits to what the API server shows",
        Code.POD_NOT_PREPARED: "a pod did not confirm; the operator tells all pods that they stay",
        Code.NOT_RECORDED: (
            "the operator could not write what it needs after a restart, and tells all pods "
            "that they stay"
        ),
        Code.REVIEW_TIMED_OUT: (
            "there was not enough time; the operator tells all pods that they stay"
        ),
        Code.STOPPING: "the operator stops",
        Code.NOT_ELECTED: (
            "this replica does not lead, and could not pass the review on to the replica that does"
        ),
        Code.NO_DOWNSCALE: 'the object carries grafana.com/no-downscale: "true"',
        Code.PREPARE_MISCONFIGURED: "port, path or service name are missing or not usable",
        Code.BAD_DOWNSCALE_TIME: "the operator cannot read a time or a span of a zone of the group",
        Code.OTHER_NAMESPACE: (
            "the webhook sends reviews of a namespace that this operator does not look after"
        ),
        Code.DISRUPTION_GRANTED: "the pod may go",
        Code.POD_NOT_IN_SCOPE: "no budget selects the pod",
        Code.POD_NOT_RUNNING: (
            "the pod is pending, has ended or is terminating: an eviction loses nothing"
        ),
        Code.POD_NOT_FOUND: "there is no such pod; the API server says so itself",
        Code.BUDGET_VALID: "the API server stores a ZoneAwarePodDisruptionBudget as it was sent",
        Code.BUDGET_HAS_ROOM: "pods may go; the sentence says how many, and where",
        Code.DISRUPTION_BUDGET_USED: (
            "as many pods are down, or unaccounted for, as the budget allows"
        ),
        Code.BUDGETS_NOT_READ: (
            "the operator could not read budgets, StatefulSets or pods, or its cache is too "
            "old to be believed"
        ),
        Code.GRANT_NOT_RECORDED: (
            "the operator could not write the record of the grant on the pod, or not confirm "
            "it in time"
        ),
        Code.GRANT_CONTESTED: (
            "another process has let another pod of the budget go at the same moment"
        ),
        Code.START_QUARANTINE: (
            "a new process without the right to patch pods lets none go for its first 12 s"
        ),
        Code.GRANT_UNUSED: "the operator allowed evictions of this pod, and it stayed",
        Code.EVICTION_FIRST: (
            "the rollout pauses for evictions that were refused for lack of room"
        ),
        Code.ROLLOUT_FIRST: (
            "the rollout has held still while evictions had their turn, and has the next place"
        ),
        Code.NOT_AN_EVICTION: "the webhook is registered for something else than evictions",
        Code.BUDGET_ZERO: "the budget allows no disruption",
        Code.BUDGET_INVALID: (
            "the operator cannot read a budget that selects the pod, and never could"
        ),
        Code.BUDGETS_OVERLAP: "more than one budget selects the pod",
        Code.TOO_FEW_ZONES: "the selector of the budget matches one StatefulSet or none",
        Code.OWNER_NOT_STATEFULSET: (
            "the pod belongs to no StatefulSet, or to a StatefulSet that the budget does not select"
        ),
        Code.PARTITION_UNKNOWN: "podNamePartitionRegex finds no partition in the name of the pod",
        Code.BUDGET_SELECTS_NO_PODS: (
            "the labels are on StatefulSets and on none of their pods: the budget holds no eviction"
        ),
        Code.GRANT_TAKEN_BACK: "the pod did not go: the operator released its grant",
        Code.DOWNSCALE_RECORDED: (
            "the operator writes the time of a downscale, which the answer could not carry"
        ),
        Code.DOWNSCALE_UNDONE: (
            "the downscale did not happen: the operator tells its pods that they stay"
        ),
    }
)

REMEDIES: Final[Mapping[Code, str]] = MappingProxyType(
    {
        Code.BUDGET_USED: (
            "find out why the named pods are not ready, or raise rollout-max-unavailable"
        ),
        Code.PODS_STARTING: "when it stays, find out why the named pods are not ready",
        Code.ZONE_NOT_READY: "when it stays, find out why the named pods are not ready",
        Code.SEVERAL_ZONES_NOT_READY: "bring all zones but one back by hand",
        Code.PAUSED: "remove the annotation grafana.com/rollout-paused when the zone may go on",
        Code.PAUSED_ZONE_NOT_READY: (
            "bring its pods back, or remove its annotation grafana.com/rollout-paused"
        ),
        Code.STATUS_BEHIND: "when it stays, find out what keeps the controller manager",
        Code.SET_TERMINATING: "when it stays, look at the finalizers of the StatefulSet",
        Code.ZONE_LEFT_SHORT: (
            "bring its StatefulSet back and its pods up, or wait; scale a zone to 0 to remove it"
        ),
        Code.OTHER_OPERATOR: "stop one of the two operators",
        Code.POLICY_NOT_OBEYED: (
            "set -multi-az-rollouts.enabled, and have an operator watch the namespace"
        ),
        Code.POLICY_PAUSED: "set spec.paused to false when it may go on",
        Code.BATCH_OPEN: "when it stays, find out why the named pods are not ready",
        Code.BATCH_DUE: (
            "when it stays, see that an operator acts, or raise -kubernetes.client-qps"
        ),
        Code.ZONE_SCALING: "when it stays, find out why the zone does not get its number of pods",
        Code.NO_STATEFUL_SETS: (
            "correct spec.statefulSetSelector, or the labels of the StatefulSets"
        ),
        Code.SHADOW_MODE: "nothing, where it is meant to watch only; -mode=active makes it act",
        Code.SNAPSHOT_STALE: "see whether the API server answers this process",
        Code.LIVE_READ_EXPIRED: (
            "raise -kubernetes.client-qps, or find out why the API server takes so long for a list"
        ),
        Code.DELETE_REFUSED: "look at the webhook or policy that the sentence names",
        Code.BACKING_OFF: "fix what the error in the sentence names",
        Code.DOWNSCALE_UNDERWAY: (
            "when it stays, see which pods do not answer, and whether scale_refused stands "
            "beside it"
        ),
        Code.LEADING_ZONE_NOT_READY: "find out why pods of the zone that it follows are not ready",
        Code.POD_GAVE_NO_TIME: "see why the named pod gives that answer",
        Code.REFERENCE_NOT_READ: "when it stays, fix what the error in the sentence names",
        Code.SCALE_REFUSED: "fix what the error in the sentence names",
        Code.COUNT_CONTESTED: "stop the writer that the sentence names from setting the replicas",
        Code.WRONG_STRATEGY: "set spec.updateStrategy.type of that StatefulSet to OnDelete",
        Code.REVISION_EMPTY: "see whether the StatefulSet controller runs",
        Code.OBJECT_UNREADABLE: "correct the field that the sentence names",
        Code.STATEFUL_SET_SPANS_ZONES: (
            "give that StatefulSet the label that spec.rollingUpdate.azTopologyKey names"
        ),
        Code.NO_LEADING_ZONE: "correct the annotation grafana.com/rollout-downscale-leader",
        Code.LEADING_ZONES_CIRCLE: (
            "correct grafana.com/rollout-downscale-leader of one of the zones"
        ),
        Code.WAIT_TIME_MISSING: (
            "set grafana.com/min-time-between-zones-downscale on the zone that follows"
        ),
        Code.BAD_REFERENCE: "correct the annotation, or the Role, that the sentence names",
        Code.BAD_DELAY: "correct the annotation that the sentence names",
        Code.PODS_MISSING: "when it stays, see why the StatefulSet controller creates no pods",
        Code.BAD_MAX_UNAVAILABLE: "correct the annotation rollout-max-unavailable",
        Code.BAD_PAUSED: "set grafana.com/rollout-paused to true, or remove it",
        Code.BAD_FORCE_REPLICAS: (
            "correct the annotation grafana.com/rollout-force-replicas, or remove it"
        ),
        Code.BAD_SCALING_SWITCH: "set the annotation that the sentence names to true or false",
        Code.FOLLOWS_AND_MIRRORS: "remove the annotations of one of the two",
        Code.GROUP_LABELS_DIFFER: "remove one of the two labels",
        Code.PODS_SHARE_LABELS: "give each zone a selector of its own when you create it anew",
        Code.LABEL_MISPLACED: "set the label itself, to true",
        Code.CANNOT_CHECK: "see what the warning names",
        Code.OTHER_ZONE_NOT_READY: "bring that zone back, or wait for its rollout",
        Code.OTHER_DOWNSCALE_UNDERWAY: "try again in a minute",
        Code.GROUP_NOT_READ: "fix what the error in the sentence names",
        Code.CHANGED_MEANWHILE: "send it again",
        Code.POD_NOT_PREPARED: "see why the named pod gives that answer, and try again",
        Code.NOT_RECORDED: "fix what the error in the sentence names, and try again",
        Code.REVIEW_TIMED_OUT: "see which pods are slow, or raise timeoutSeconds of the webhook",
        Code.STOPPING: "try again in a moment",
        Code.NOT_ELECTED: (
            "try again in 20 s; kubectl get lease rollout-operator shows which replica leads"
        ),
        Code.NO_DOWNSCALE: (
            "remove the label grafana.com/no-downscale before you lower the replicas"
        ),
        Code.PREPARE_MISCONFIGURED: "correct the annotation that the sentence names",
        Code.BAD_DOWNSCALE_TIME: (
            "correct the annotation, or the entry of the zone tracker, that the sentence names"
        ),
        Code.OTHER_NAMESPACE: "correct the namespaceSelector of the webhook",
        Code.DISRUPTION_BUDGET_USED: "find out why the named pods are down",
        Code.BUDGETS_NOT_READ: "fix what the error in the sentence names",
        Code.GRANT_NOT_RECORDED: "fix what the error in the sentence names",
        Code.GRANT_CONTESTED: "when it stays, see how many operators run in the namespace",
        Code.START_QUARANTINE: "grant the verb patch on pods in the Role",
        Code.GRANT_UNUSED: "look at the PodDisruptionBudgets and webhooks that select the pod",
        Code.EVICTION_FIRST: (
            "when it stays, look at the drain that waits, and at what keeps its pod"
        ),
        Code.ROLLOUT_FIRST: "when it stays, look at what the rollout waits for",
        Code.NOT_AN_EVICTION: "correct the rules of the webhook",
        Code.BUDGET_ZERO: "raise maxUnavailable of the budget to allow evictions",
        Code.BUDGET_INVALID: "correct the field of the budget that the sentence names",
        Code.BUDGETS_OVERLAP: "change the selectors so that one budget selects the pod",
        Code.TOO_FEW_ZONES: "correct the selector of the budget, or the labels of the StatefulSets",
        Code.OWNER_NOT_STATEFULSET: (
            "correct the labels of the StatefulSet of the pod, or the selector of the budget"
        ),
        Code.PARTITION_UNKNOWN: "correct podNamePartitionRegex of the budget",
        Code.BUDGET_SELECTS_NO_PODS: (
            "put the labels of the selector on spec.template.metadata.labels of the StatefulSets"
        ),
    }
)

# On the admin server.
PAGE: Final = "/reasons"


def render_path(code: Code) -> str:
    """Return the path on the admin server that explains a code."""
    return f"{PAGE}#{code}"


# The group stands still until a person acts.
HOLDING: Final = frozenset(
    {
        Code.WRONG_STRATEGY,
        Code.REVISION_EMPTY,
        Code.OBJECT_UNREADABLE,
        Code.STATEFUL_SET_SPANS_ZONES,
        Code.POLICY_NOT_OBEYED,
        Code.POLICY_PAUSED,
        Code.BUDGET_INVALID,
        Code.BUDGETS_OVERLAP,
        Code.TOO_FEW_ZONES,
        Code.OWNER_NOT_STATEFULSET,
        Code.PARTITION_UNKNOWN,
    }
)
# The same for one zone: it holds the group once no other zone moves.
HOLDING_ZONE: Final = frozenset(
    {
        Code.PAUSED,
        Code.NO_LEADING_ZONE,
        Code.LEADING_ZONES_CIRCLE,
        Code.WAIT_TIME_MISSING,
        Code.BAD_DOWNSCALE_TIME,
        Code.BAD_REFERENCE,
        Code.BAD_DELAY,
        Code.COUNT_CONTESTED,
    }
)
# These do not say what the current zone waits for.
ASIDE: Final = HOLDING_ZONE | {Code.ANOTHER_ZONE_FIRST, Code.UP_TO_DATE}


def find_leading(waits: Sequence[Reason]) -> Reason | None:
    """Return the reason to read first.

    What holds the whole group comes first, then what the current zone waits for.
    """
    choices = (
        (wait for wait in waits if wait.code in HOLDING),
        (wait for wait in waits if wait.code not in ASIDE),
        (wait for wait in waits if wait.code in HOLDING_ZONE),
        (wait for wait in waits if wait.code is not Code.UP_TO_DATE),
        iter(waits),
    )
    return next((wait for choice in choices for wait in choice), None)
