"""What each reason means, in one line. `docs/reasons.md` says the same, and more."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from rollout_operator.model.outcome import Code

MEANINGS: Final[Mapping[Code, str]] = MappingProxyType(
    {
        Code.POD_OUTDATED: "a ready pod is deleted because it is not at the update revision",
        Code.POD_BROKEN_AND_OUTDATED: "an outdated pod that is not ready anyway is deleted",
        Code.ROLLED_OUT: "all pods of a zone are ready at the update revision",
        Code.SCALE_UP: (
            "a zone gets the greater count of the zone that it follows, or of the object "
            "that it mirrors"
        ),
        Code.SCALE_DOWN: (
            "a zone gets the smaller count of the zone that it follows, or of the object "
            "that it mirrors"
        ),
        Code.SCALE_PUBLISHED: (
            "the count of the zones is written to the status of the object that they mirror"
        ),
        Code.UP_TO_DATE: "nothing to do",
        Code.BUDGET_USED: (
            "outdated pods wait because as many pods of the zone are unavailable as may be"
        ),
        Code.PODS_STARTING: "outdated pods wait for pods that are only just starting",
        Code.ZONE_NOT_READY: (
            "the zone whose turn it is has nothing outdated left and is not whole yet"
        ),
        Code.SEVERAL_ZONES_NOT_READY: (
            "two or more zones have unavailable pods: nothing may be disturbed"
        ),
        Code.PAUSED: "grafana.com/rollout-paused keeps the outdated pods of a zone",
        Code.PAUSED_ZONE_NOT_READY: "a paused zone has unavailable pods, which blocks the others",
        Code.ANOTHER_ZONE_FIRST: "this zone has outdated pods; another one has its turn",
        Code.STATUS_BEHIND: "the StatefulSet controller has not observed the newest spec",
        Code.SET_TERMINATING: "a StatefulSet of the group is being deleted",
        Code.OTHER_OPERATOR: "another operator rolls the group out, or a person deletes its pods",
        Code.DRIVEN_BY_POLICY: "a MultiAZRollout replaces the pods of the group, not its label",
        Code.POLICIES_NOT_READ: "whether a MultiAZRollout drives the group is not known yet",
        Code.POLICY_PAUSED: "spec.paused of a MultiAZRollout keeps its outdated pods",
        Code.BATCH_OPEN: (
            "a MultiAZRollout begins no batch before all pods of the last one are available"
        ),
        Code.INTERVAL_WAIT: "a MultiAZRollout lets its pause pass before the next batch",
        Code.BATCH_DUE: "the pause of a MultiAZRollout is over, and its next batch has not begun",
        Code.ZONE_SCALING: "a MultiAZRollout replaces no pod while another zone is being scaled",
        Code.ZONE_NOT_FOUND: "the zone of a StatefulSet of a MultiAZRollout is not known yet",
        Code.NO_STATEFUL_SETS: "the selector of a MultiAZRollout finds no StatefulSet",
        Code.SHADOW_MODE: (
            "what the sentence names is due, and this operator is in shadow mode: it only reports"
        ),
        Code.SNAPSHOT_STALE: "no proof for over a minute that the cache is live",
        Code.SNAPSHOT_CHANGED: "a live read did not confirm the cache; nothing was done",
        Code.LIVE_READ_EXPIRED: "a live read of the group was too old before it could be acted on",
        Code.DELETE_REFUSED: "the API server refused to delete a pod; the next candidate was tried",
        Code.BACKING_OFF: "a call failed and will be repeated",
        Code.DOWNSCALE_UNDERWAY: (
            "a downscale of the group was allowed and may still be written: no pod is replaced"
        ),
        Code.LEADING_ZONE_NOT_READY: (
            "a zone follows upwards only once the zone that it follows has all its pods ready"
        ),
        Code.ROLLOUT_UNDERWAY: (
            "a zone is not scaled down while another one has pods down because it is rolled out"
        ),
        Code.DELAYED_BY_PODS: "pods that are to go have not been prepared for long enough",
        Code.POD_GAVE_NO_TIME: (
            "a pod that is to go did not say since when it is prepared: no pod of the zone goes"
        ),
        Code.REFERENCE_NOT_READ: "the object that a zone mirrors could not be read just now",
        Code.SCALE_REFUSED: (
            "the API server did not take a new count, or did not let a mark be removed"
        ),
        Code.COUNT_CONTESTED: (
            "something else puts the count of a zone back each time that it is written"
        ),
        Code.WRONG_STRATEGY: (
            "a member's update strategy is not OnDelete; nothing of the group is touched"
        ),
        Code.REVISION_EMPTY: "a member's status names no current or no update revision",
        Code.OBJECT_UNREADABLE: "a StatefulSet or a pod of the group cannot be decoded",
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
            "the object that a zone mirrors is not there, may not be read, or shows no usable count"
        ),
        Code.BAD_DELAY: "grafana.com/rollout-delayed-downscale or its URL cannot be read",
        Code.PODS_MISSING: "a zone wants pods and no pod names it as its controlling owner",
        Code.BAD_MAX_UNAVAILABLE: "rollout-max-unavailable cannot be read; 1 is used",
        Code.BAD_PAUSED: (
            "grafana.com/rollout-paused is neither true nor false; the zone is not paused"
        ),
        Code.BAD_FORCE_REPLICAS: (
            "grafana.com/rollout-force-replicas is no count, or nothing on that zone reads it"
        ),
        Code.BAD_SCALING_SWITCH: "an annotation of scaling that is to be a boolean cannot be read",
        Code.FOLLOWS_AND_MIRRORS: (
            "a zone has annotations for following and for mirroring: it follows"
        ),
        Code.GROUP_LABELS_DIFFER: (
            "both spellings of the group label are present and differ; rollout-group counts"
        ),
        Code.PODS_SHARE_LABELS: "two members select the same pods; they are distinguished by owner",
        Code.LABEL_MISPLACED: (
            "the label of the hook is not there, and looks as if it was meant to be"
        ),
        Code.NOT_A_DOWNSCALE: "replicas stay or grow",
        Code.NOT_GUARDED: "the label of the hook is not there",
        Code.DRY_RUN: "nothing is asked of pods for a dry run",
        Code.CANNOT_CHECK: (
            "allowed with a warning: the request, or the labels of its object, cannot be read"
        ),
        Code.PODS_PREPARED: "every pod that is to go has confirmed",
        Code.ZONE_DOWNSCALED_LATELY: "the time between downscales of two zones has not passed",
        Code.OTHER_ZONE_NOT_READY: (
            "another zone has pods that are not ready or not updated: no zone is scaled down"
        ),
        Code.OTHER_DOWNSCALE_UNDERWAY: (
            "another downscale of the group was allowed and is not settled"
        ),
        Code.GROUP_NOT_READ: "the group, or the zone tracker, could not be read",
        Code.CHANGED_MEANWHILE: "the request no longer fits to what the API server shows",
        Code.POD_NOT_PREPARED: "a pod did not confirm; all pods are told that they stay",
        Code.NOT_RECORDED: (
            "what a restarted operator needs to know could not be written; all pods are told "
            "that they stay"
        ),
        Code.REVIEW_TIMED_OUT: "there was not enough time; all pods are told that they stay",
        Code.STOPPING: "the operator is being stopped",
        Code.NOT_ELECTED: "this replica does not lead, and the one that does could not be asked",
        Code.NO_DOWNSCALE: 'the object carries grafana.com/no-downscale: "true"',
        Code.PREPARE_MISCONFIGURED: "port, path or service name are missing or not usable",
        Code.BAD_DOWNSCALE_TIME: "a time or a span of a zone of the group cannot be read",
        Code.OTHER_NAMESPACE: (
            "the webhook asks about a namespace that this operator does not look after"
        ),
        Code.DISRUPTION_GRANTED: "the pod may go",
        Code.POD_NOT_IN_SCOPE: "no budget selects the pod",
        Code.POD_NOT_RUNNING: (
            "the pod is pending, has ended or is terminating: nothing is lost by an eviction"
        ),
        Code.POD_NOT_FOUND: "there is no such pod; the API server says so itself",
        Code.BUDGET_VALID: "a ZoneAwarePodDisruptionBudget is stored as it was sent",
        Code.BUDGET_HAS_ROOM: "pods may go; the sentence says how many, and where",
        Code.DISRUPTION_BUDGET_USED: (
            "as many pods are down, or unaccounted for, as the budget allows"
        ),
        Code.BUDGETS_NOT_READ: (
            "budgets, StatefulSets or pods could not be read, or the cache is too old to be "
            "believed"
        ),
        Code.GRANT_NOT_RECORDED: (
            "the record of the grant could not be written on the pod, or not be confirmed in time"
        ),
        Code.GRANT_CONTESTED: (
            "another process has let another pod of the budget go at the same moment"
        ),
        Code.START_QUARANTINE: (
            "a new process without the right to patch pods lets none go for its first 12 s"
        ),
        Code.GRANT_UNUSED: "evictions of this pod were allowed and it stayed",
        Code.EVICTION_FIRST: (
            "the rollout holds still for evictions that were refused for lack of room"
        ),
        Code.ROLLOUT_FIRST: (
            "the rollout has held still while evictions had their turn, and has the next place"
        ),
        Code.NOT_AN_EVICTION: "the webhook is registered for something else than evictions",
        Code.BUDGET_ZERO: "the budget allows none",
        Code.BUDGET_INVALID: "a budget that selects the pod cannot be read, and never could be",
        Code.BUDGETS_OVERLAP: "more than one budget selects the pod",
        Code.TOO_FEW_ZONES: "the selector of the budget matches one StatefulSet or none",
        Code.OWNER_NOT_STATEFULSET: (
            "the pod belongs to no StatefulSet, or to one that the budget does not select"
        ),
        Code.PARTITION_UNKNOWN: "podNamePartitionRegex finds no partition in the name of the pod",
        Code.BUDGET_SELECTS_NO_PODS: (
            "the labels are on StatefulSets and on none of their pods: no eviction is held"
        ),
        Code.GRANT_TAKEN_BACK: "the pod did not go: what was granted no longer counts",
        Code.DOWNSCALE_RECORDED: (
            "the time of a downscale is written where the answer could not carry it"
        ),
        Code.DOWNSCALE_UNDONE: "the downscale did not happen: its pods are told that they stay",
    }
)
"""Of every code; lower case, without a full stop, as the texts of reasons are."""
