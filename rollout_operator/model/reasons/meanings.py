"""What each reason means, in one line. `docs/reasons.md` says the same, and more."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from rollout_operator.model.outcome import Code

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
            "the rollout holds still for evictions that were refused for lack of room"
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
"""Of every code; lower case, without a full stop, as the texts of reasons are."""
