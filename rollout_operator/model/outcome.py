"""What a decision says: actions, and the reason for each action and inaction.

One `Reason` feeds log, metric, status page, Event and denial message. `Code` is for machines, the
text for people, with the numbers that decided. `docs/monitoring.md` explains each code at length.
`find_leading` chooses the reason that every outlet shows first.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum, unique
from typing import Final

import msgspec

from rollout_operator.model.names import GroupName, Revision, Uid
from rollout_operator.model.objects import Pod, StatefulSet


@unique
class Family(StrEnum):
    """What a code holds, and for how long."""

    MOVES = "moves"
    WAITS = "waits"
    """Holds a group, or a zone of it, until time or the cluster changes that."""
    HELD = "held"
    """The group stands still until a person acts."""
    ZONE_HELD = "zone held"
    """The same for one zone: it holds the group once no other zone moves."""
    POLICY_WAITS = "policy waits"
    """Holds a MultiAZRollout, and never a label group."""
    POLICY_HELD = "policy held"
    ODD = "odd"
    """A setting that changes no decision."""
    REVIEW = "review"
    """Says why a review was answered as it was, or what a budget is; holds no group."""


@unique
class Code(StrEnum):
    """What each means, in a line, and what to do about it, where there is something to do.

    Values are label values of metrics: never renamed.
    """

    family: Family
    meaning: str
    remedy: str

    def __new__(cls, value: str, family: Family, meaning: str, remedy: str = "") -> "Code":
        code = str.__new__(cls, value)
        code._value_ = value
        code.family, code.meaning, code.remedy = family, meaning, remedy
        return code

    # fmt: off
    # moving
    POD_OUTDATED = ("pod_outdated", Family.MOVES,
        "the operator deletes a ready pod because it is not at the update revision")
    POD_BROKEN_AND_OUTDATED = ("pod_broken_and_outdated", Family.MOVES,
        "the operator deletes an outdated pod that is not ready anyway")
    ROLLED_OUT = "rolled_out", Family.MOVES, "all pods of a zone are ready at the update revision"
    SCALE_UP = ("scale_up", Family.MOVES,
        "a zone gets more replicas: as many as the zone it follows, or the object it mirrors")
    SCALE_DOWN = ("scale_down", Family.MOVES,
        "a zone gets fewer replicas: as few as the zone it follows, or the object it mirrors")
    SCALE_PUBLISHED = ("scale_published", Family.MOVES,
        "the operator writes the replicas of the zones to the status of the object they mirror")
    # waiting: time or the cluster will change it
    UP_TO_DATE = "up_to_date", Family.WAITS, "nothing to do"
    BUDGET_USED = ("budget_used", Family.WAITS,
        "outdated pods wait because as many pods of the zone are unavailable as may be",
        "find out why the named pods are not ready; correct or revert the template if it is the "
        "cause")
    PODS_STARTING = ("pods_starting", Family.WAITS,
        "outdated pods wait for pods that are only just starting",
        "when it stays, find out why the named pods are not ready")
    ZONE_NOT_READY = ("zone_not_ready", Family.WAITS,
        "the zone being rolled out has nothing outdated left, and not all its pods are ready yet",
        "when it stays, find out why the named pods are not ready")
    SEVERAL_ZONES_NOT_READY = ("several_zones_not_ready", Family.WAITS,
        "two or more zones have unavailable pods: no pod goes that may be up again by itself",
        "correct or revert the template if it is the cause, or bring all zones but one back by "
        "hand")
    PAUSED = ("paused", Family.ZONE_HELD,
        "grafana.com/rollout-paused keeps the outdated pods of a zone",
        "remove the annotation grafana.com/rollout-paused when the zone may go on")
    PAUSED_ZONE_NOT_READY = ("paused_zone_not_ready", Family.WAITS,
        "a paused zone has unavailable pods, which blocks the others",
        "bring its pods back; outdated ones go once its annotation grafana.com/rollout-paused is "
        "removed")
    ZONE_SOAK = ("zone_soak", Family.WAITS,
        "no zone is begun before the others have been whole for as long as requested",
        "wait, or shorten grafana.com/rollout-zone-soak or zoneIntervalSeconds")
    HEALTH_CHECK_WAIT = ("health_check_wait", Family.WAITS,
        "no zone is begun before its RolloutHealthCheck has passed, which needs another look",
        "wait until the time that the message names")
    HEALTH_CHECK_FAILED = ("health_check_failed", Family.WAITS,
        "no zone is begun: a check of its RolloutHealthCheck fails, finds no data, or gets errors",
        "when it stays, revert, mend the check, or set"
        " grafana.com/rollout-health-check-bypass-until")
    HEALTH_CHECK_UNKNOWN = ("health_check_unknown", Family.WAITS,
        "no zone is begun: its RolloutHealthCheck is not known yet, or its status not written",
        "when it stays, fix what the error in the message names")
    ANOTHER_ZONE_FIRST = ("another_zone_first", Family.WAITS,
        "this zone has outdated pods; another zone goes first")
    STATUS_BEHIND = ("status_behind", Family.WAITS,
        "the StatefulSet controller has not observed the newest spec",
        "when it stays, find out what keeps the controller manager")
    SET_TERMINATING = ("set_terminating", Family.WAITS,
        "a StatefulSet of the group is being deleted",
        "when it stays, look at the finalizers of the StatefulSet")
    ZONE_LEFT_SHORT = ("zone_left_short", Family.WAITS,
        "a zone was deleted, or left its group, budget or policy, while pods of it were down",
        "bring its StatefulSet back and its pods up, or wait; scale a zone to 0 to remove it")
    OTHER_OPERATOR = ("other_operator", Family.WAITS,
        "another operator rolls the group out, or somebody deletes its pods",
        "stop the other operator, if there is one")
    DRIVEN_BY_POLICY = ("driven_by_policy", Family.WAITS,
        "a MultiAZRollout replaces the pods of the group, not its label")
    POLICIES_NOT_READ = ("policies_not_read", Family.WAITS,
        "the operator does not know yet whether a MultiAZRollout drives the group")
    POLICY_NOT_OBEYED = ("policy_not_obeyed", Family.POLICY_HELD,
        "no operator looks after a MultiAZRollout",
        "set -multi-az-rollouts.enabled, and have an operator watch the namespace")
    POLICY_PAUSED = ("policy_paused", Family.POLICY_HELD,
        "spec.paused of a MultiAZRollout keeps its outdated pods",
        "set spec.paused to false when it may go on")
    BATCH_OPEN = ("batch_open", Family.POLICY_WAITS,
        "a MultiAZRollout begins no batch before all pods of the last batch are available",
        "when it stays, find out why the named pods are not ready")
    INTERVAL_WAIT = ("interval_wait", Family.POLICY_WAITS,
        "a MultiAZRollout lets its pause pass before the next batch")
    BATCH_DUE = ("batch_due", Family.POLICY_WAITS,
        "the pause of a MultiAZRollout is over, and its next batch has not begun",
        "when it stays, see that an operator acts, or raise -kubernetes.client-qps")
    ZONE_SCALING = ("zone_scaling", Family.POLICY_WAITS,
        "a MultiAZRollout replaces no pod while another zone is being scaled",
        "when it stays, find out why the zone does not get its number of pods")
    ZONE_NOT_FOUND = ("zone_not_found", Family.POLICY_WAITS,
        "the operator does not know the zone of a StatefulSet of a MultiAZRollout yet")
    NO_STATEFUL_SETS = ("no_stateful_sets", Family.POLICY_WAITS,
        "the selector of a MultiAZRollout finds no StatefulSet",
        "correct spec.statefulSetSelector, or the labels of the StatefulSets")
    SHADOW_MODE = ("shadow_mode", Family.WAITS,
        "what the message names is due, and this operator is in shadow mode: it only reports",
        "nothing, where it is meant to watch only; -mode=active makes it act")
    SNAPSHOT_STALE = ("view_stale", Family.WAITS,
        "the cache has not proven for over a minute that it is live",
        "see whether the API server answers this process")
    SNAPSHOT_CHANGED = ("view_changed", Family.WAITS,
        "a live read did not confirm the cache; the operator did nothing")
    LIVE_READ_EXPIRED = ("live_read_expired", Family.WAITS,
        "a live read of the group was too old before it could be acted on",
        "raise -kubernetes.client-qps, or find out why the API server takes so long for a list")
    DELETE_REFUSED = ("delete_refused", Family.WAITS,
        "the API server refused to delete a pod; the operator tried the next candidate",
        "look at the webhook or policy that the message names")
    BACKING_OFF = ("backing_off", Family.WAITS,
        "a call failed; the operator repeats it",
        "fix what the error in the message names")
    DOWNSCALE_UNDERWAY = ("downscale_underway", Family.WAITS,
        "the operator allowed a downscale that may still be written: it replaces no pod meanwhile",
        "when it stays, see which pods do not answer, and whether scale_refused stands beside it")
    LEADING_ZONE_NOT_READY = ("leading_zone_not_ready", Family.WAITS,
        "a zone follows upwards only once the zone that it follows has all its pods ready",
        "find out why pods of the zone that it follows are not ready")
    ROLLOUT_UNDERWAY = ("rollout_underway", Family.WAITS,
        "the operator scales no zone down while another zone has pods down for its rollout")
    DELAYED_BY_PODS = ("delayed_by_pods", Family.WAITS,
        "pods that are to go have not been prepared for long enough")
    POD_GAVE_NO_TIME = ("pod_gave_no_time", Family.WAITS,
        "a pod that is to go did not say since when it is prepared: no pod of the zone goes",
        "see why the named pod gives that answer")
    REFERENCE_NOT_READ = ("reference_not_read", Family.WAITS,
        "the operator could not read the object that a zone mirrors just now",
        "when it stays, fix what the error in the message names")
    SCALE_REFUSED = ("scale_refused", Family.WAITS,
        "the API server did not take new replicas, or did not let the operator remove a mark",
        "fix what the error in the message names")
    COUNT_CONTESTED = ("count_contested", Family.ZONE_HELD,
        "another client puts the replicas of a zone back each time that the operator writes them",
        "stop the writer that the message names from setting the replicas")
    # failing: a person must change something
    WRONG_STRATEGY = ("wrong_strategy", Family.HELD,
        "a member's update strategy is not OnDelete; the operator leaves the group alone",
        "set spec.updateStrategy of that StatefulSet to {type: OnDelete, rollingUpdate: null}")
    REVISION_EMPTY = ("revision_empty", Family.HELD,
        "a member's status names no current or no update revision",
        "see whether the StatefulSet controller runs")
    OBJECT_UNREADABLE = ("object_unreadable", Family.HELD,
        "the operator cannot decode a StatefulSet or a pod of the group",
        "correct the field that the message names")
    STATEFUL_SET_SPANS_ZONES = ("stateful_set_spans_zones", Family.POLICY_HELD,
        "a StatefulSet has pods in several zones, and nothing else says its zone",
        "give that StatefulSet the label that spec.rollingUpdate.azTopologyKey names")
    NO_LEADING_ZONE = ("no_leading_zone", Family.ZONE_HELD,
        "the zone that grafana.com/rollout-downscale-leader names is not in the group",
        "correct the annotation grafana.com/rollout-downscale-leader")
    LEADING_ZONES_CIRCLE = ("leading_zones_circle", Family.ZONE_HELD,
        "zones follow one another in a circle, or a zone follows itself",
        "correct grafana.com/rollout-downscale-leader of one of the zones")
    WAIT_TIME_MISSING = ("wait_time_missing", Family.ZONE_HELD,
        "a zone that follows does not say how long to wait after another zone's downscale",
        "set grafana.com/min-time-between-zones-downscale on the zone that follows")
    BAD_REFERENCE = ("bad_reference", Family.ZONE_HELD,
        "the object that a zone mirrors is absent, may not be read, or shows no usable replicas",
        "correct the annotation, or the Role, that the message names")
    HEALTH_CHECK_BROKEN = ("health_check_broken", Family.WAITS,
        "the RolloutHealthCheck of a zone cannot be obeyed, and its spec.onMisconfigured is Pause",
        "correct what the message names")
    BAD_DELAY = ("bad_delay", Family.ZONE_HELD,
        "the operator cannot read grafana.com/rollout-delayed-downscale or its URL, or ignores it",
        "correct the annotation that the message names")
    PODS_MISSING = ("pods_missing", Family.WAITS,
        "a zone wants pods and no pod names it as its controlling owner",
        "when it stays, see why the StatefulSet controller creates no pods")
    # warnings that change no decision
    BAD_MAX_UNAVAILABLE = ("bad_max_unavailable", Family.ODD,
        "the operator cannot read rollout-max-unavailable, and uses 1",
        "correct the annotation rollout-max-unavailable")
    BAD_PAUSED = ("bad_paused", Family.ODD,
        "grafana.com/rollout-paused is neither true nor false; the zone is paused",
        "set grafana.com/rollout-paused to true, or remove it")
    BAD_ZONE_SOAK = ("bad_zone_soak", Family.ODD,
        "grafana.com/rollout-zone-soak is no span of time; no further zone is begun",
        "set grafana.com/rollout-zone-soak to a span such as 15m, or remove it")
    BAD_HEALTH_CHECK = ("bad_health_check", Family.ODD,
        "the RolloutHealthCheck of a zone is absent or cannot be obeyed; the rollout goes on",
        "correct what the message names, or remove grafana.com/rollout-health-check")
    BAD_HEALTH_CHECK_BYPASS = ("bad_health_check_bypass", Family.ODD,
        "grafana.com/rollout-health-check-bypass-until is no time; nothing is bypassed",
        "set grafana.com/rollout-health-check-bypass-until to a time such as 2026-01-02T15:04:05Z")
    HEALTH_CHECK_WARNING = ("health_check_warning", Family.ODD,
        "a check of the RolloutHealthCheck of a zone fails, and its policy lets the rollout go on",
        "look at what the check found")
    BAD_FORCE_REPLICAS = ("bad_force_replicas", Family.ODD,
        "grafana.com/rollout-force-replicas is no number, or nothing on that zone reads it",
        "correct the annotation grafana.com/rollout-force-replicas, or remove it")
    BAD_SCALING_SWITCH = ("bad_scaling_switch", Family.ODD,
        "an annotation of scaling is neither true nor false",
        "set the annotation that the message names to true or false")
    FOLLOWS_AND_MIRRORS = ("follows_and_mirrors", Family.ODD,
        "a zone has annotations for following and for mirroring: it follows",
        "remove the annotations of one of the two")
    GROUP_LABELS_DIFFER = ("group_labels_differ", Family.ODD,
        "both spellings of the group label are present and differ; rollout-group counts",
        "remove one of the two labels")
    PODS_SHARE_LABELS = ("pods_share_labels", Family.ODD,
        "two members select the same pods; the operator distinguishes them by owner",
        "give each zone a selector of its own when you create it anew")
    LABEL_MISPLACED = ("label_misplaced", Family.REVIEW,
        "the label of the hook is not there, and looks as if it was meant to be",
        "set the label itself, to true")
    # reviews that are allowed
    NOT_A_DOWNSCALE = "not_a_downscale", Family.REVIEW, "replicas stay or grow"
    NOT_GUARDED = "not_guarded", Family.REVIEW, "the label of the hook is not there"
    DRY_RUN = "dry_run", Family.REVIEW, "the operator calls no pod for a dry run"
    CANNOT_CHECK = ("cannot_check", Family.REVIEW,
        "the operator cannot read the request or its object's labels: allowed with a warning",
        "see what the warning names")
    PODS_PREPARED = "pods_prepared", Family.REVIEW, "every pod that is to go has confirmed"
    # reviews that are refused: time or the cluster will change it
    ZONE_DOWNSCALED_LATELY = ("zone_downscaled_lately", Family.WAITS,
        "the time between downscales of two zones has not passed")
    OTHER_ZONE_NOT_READY = ("other_zone_not_ready", Family.WAITS,
        "another zone has pods that are not ready or not updated: no zone may scale down",
        "bring that zone back, or wait for its rollout")
    OTHER_DOWNSCALE_UNDERWAY = ("other_downscale_underway", Family.REVIEW,
        "the operator allowed another downscale of the group, which has not ended",
        "try again in a minute")
    GROUP_NOT_READ = ("group_not_read", Family.REVIEW,
        "the operator could not read the group, or the zone tracker",
        "fix what the error in the message names")
    CHANGED_MEANWHILE = ("changed_meanwhile", Family.REVIEW,
        "the request no longer fits to what the API server shows",
        "send it again")
    POD_NOT_PREPARED = ("pod_not_prepared", Family.REVIEW,
        "a pod did not confirm; the operator tells all pods that they stay",
        "see why the named pod gives that answer, and try again")
    NOT_RECORDED = ("not_recorded", Family.REVIEW,
        "the operator could not write what a restart needs; it tells all pods that they stay",
        "fix what the error in the message names, and try again")
    REVIEW_TIMED_OUT = ("review_timed_out", Family.REVIEW,
        "there was not enough time; the operator tells all pods that they stay",
        "see which pods are slow, or raise timeoutSeconds of the webhook")
    STOPPING = "stopping", Family.REVIEW, "the operator stops", "try again in a moment"
    NOT_ELECTED = ("not_elected", Family.REVIEW,
        "this replica does not lead, and could not pass the review on to the replica that does",
        "try again in 20 s; kubectl get lease rollout-operator shows which replica leads")
    # reviews that are refused: a person must change something
    NO_DOWNSCALE = ("no_downscale", Family.REVIEW,
        'the object carries grafana.com/no-downscale: "true"',
        "remove the label grafana.com/no-downscale before you lower the replicas")
    PREPARE_MISCONFIGURED = ("prepare_misconfigured", Family.REVIEW,
        "port, path or service name are missing or not usable",
        "correct the annotation that the message names")
    BAD_DOWNSCALE_TIME = ("bad_downscale_time", Family.ZONE_HELD,
        "the operator cannot read a time or a span of a zone of the group",
        "correct the annotation, or the entry of the zone tracker, that the message names")
    OTHER_NAMESPACE = ("other_namespace", Family.REVIEW,
        "the webhook sends reviews of a namespace that this operator does not look after",
        "correct the namespaceSelector of the webhook")
    # health checks between zones: their reviews
    HEALTH_CHECK_VALID = ("health_check_valid", Family.REVIEW,
        "the API server stores a RolloutHealthCheck as it was sent")
    HEALTH_CHECK_INVALID = ("health_check_invalid", Family.REVIEW,
        "the operator could not obey the RolloutHealthCheck",
        "correct the field that the message names")
    # disruption budgets: reviews that are allowed
    DISRUPTION_GRANTED = "disruption_granted", Family.REVIEW, "the pod may go"
    POD_NOT_IN_SCOPE = "pod_not_in_scope", Family.REVIEW, "no budget selects the pod"
    POD_NOT_RUNNING = ("pod_not_running", Family.REVIEW,
        "the pod is pending, has ended or is terminating: an eviction loses nothing")
    POD_NOT_FOUND = ("pod_not_found", Family.REVIEW,
        "there is no such pod; the API server says so itself")
    BUDGET_VALID = ("budget_valid", Family.REVIEW,
        "the API server stores a ZoneAwarePodDisruptionBudget as it was sent")
    # disruption budgets as a whole: nothing is held
    BUDGET_HAS_ROOM = ("budget_has_room", Family.REVIEW,
        "pods may go; the message says how many, and where")
    # disruption budgets: time or the cluster will change it
    DISRUPTION_BUDGET_USED = ("disruption_budget_used", Family.WAITS,
        "as many pods are down, or unaccounted for, as the budget allows",
        "find out why the named pods are down")
    BUDGETS_NOT_READ = ("budgets_not_read", Family.WAITS,
        "the operator could not read budgets, StatefulSets or pods, or its cache is too old",
        "fix what the error in the message names")
    GRANT_NOT_RECORDED = ("grant_not_recorded", Family.WAITS,
        "the operator could not write the record of the grant on the pod, or confirm it in time",
        "fix what the error in the message names")
    GRANT_CONTESTED = ("grant_contested", Family.WAITS,
        "another process has let another pod of the budget go at the same moment",
        "when it stays, see how many operators run in the namespace")
    START_QUARANTINE = ("start_quarantine", Family.WAITS,
        "a new process without the right to patch pods lets none go for its first 12 s",
        "grant the verb patch on pods in the Role")
    GRANT_UNUSED = ("grant_unused", Family.REVIEW,
        "the operator allowed evictions of this pod, and it stayed",
        "look at the PodDisruptionBudgets and webhooks that select the pod")
    EVICTION_FIRST = ("eviction_first", Family.WAITS,
        "the rollout pauses for evictions that were refused for lack of room",
        "when it stays, look at the drain that waits, and at what keeps its pod")
    ROLLOUT_FIRST = ("rollout_first", Family.REVIEW,
        "the rollout has held still while evictions had their turn, and has the next place",
        "when it stays, look at what the rollout waits for")
    # disruption budgets: a person must change something
    NOT_AN_EVICTION = ("not_an_eviction", Family.REVIEW,
        "the webhook is registered for something else than evictions",
        "correct the rules of the webhook")
    BUDGET_ZERO = ("budget_zero", Family.WAITS,
        "the budget allows no disruption",
        "raise maxUnavailable of the budget to allow evictions")
    BUDGET_INVALID = ("budget_invalid", Family.HELD,
        "the operator cannot read a budget that selects the pod, and never could",
        "correct the field of the budget that the message names")
    BUDGETS_OVERLAP = ("budgets_overlap", Family.HELD,
        "more than one budget selects the pod",
        "change the selectors so that one budget selects the pod")
    TOO_FEW_ZONES = ("too_few_zones", Family.HELD,
        "the selector of the budget matches one StatefulSet or none",
        "correct the selector of the budget, or the labels of the StatefulSets")
    OWNER_NOT_STATEFULSET = ("owner_not_statefulset", Family.HELD,
        "the pod belongs to no StatefulSet, or to a StatefulSet that the budget does not select",
        "correct the labels of the StatefulSet of the pod, or the selector of the budget")
    PARTITION_UNKNOWN = ("partition_unknown", Family.HELD,
        "podNamePartitionRegex finds no partition in the name of the pod",
        "correct podNamePartitionRegex of the budget")
    BUDGET_SELECTS_NO_PODS = ("budget_selects_no_pods", Family.REVIEW,
        "the labels are on StatefulSets and on none of their pods: the budget holds no eviction",
        "put the labels of the selector on spec.template.metadata.labels of the StatefulSets")
    # after a disruption was allowed
    GRANT_TAKEN_BACK = ("grant_taken_back", Family.REVIEW,
        "the pod did not go: the operator released its grant")
    # after a downscale was allowed
    DOWNSCALE_RECORDED = ("downscale_recorded", Family.REVIEW,
        "the operator writes the time of a downscale, which the answer could not carry")
    DOWNSCALE_UNDONE = ("downscale_undone", Family.REVIEW,
        "the downscale did not happen: the operator tells its pods that they stay")
    # fmt: on


def list_codes(*families: Family) -> tuple[Code, ...]:
    return tuple(code for code in Code if code.family in families)


HOLDING: Final = frozenset(list_codes(Family.HELD, Family.POLICY_HELD))
HOLDING_ZONE: Final = frozenset(list_codes(Family.ZONE_HELD))


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
    uid: Uid
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


# On the admin server.
PAGE: Final = "/reasons"


def render_path(code: Code) -> str:
    """Return the path on the admin server that explains a code."""
    return f"{PAGE}#{code}"


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
