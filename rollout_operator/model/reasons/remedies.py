"""What a person can do about each reason, in one line. `docs/reasons.md` says the same and more."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from rollout_operator.model.outcome import Code

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
        Code.BACKING_OFF: "mend what the error in the sentence names",
        Code.DOWNSCALE_UNDERWAY: (
            "when it stays, see which pods do not answer, and whether scale_refused stands "
            "beside it"
        ),
        Code.LEADING_ZONE_NOT_READY: "find out why pods of the zone that it follows are not ready",
        Code.POD_GAVE_NO_TIME: "see why the named pod gives that answer",
        Code.REFERENCE_NOT_READ: "when it stays, mend what the error in the sentence names",
        Code.SCALE_REFUSED: "mend what the error in the sentence names",
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
        Code.GROUP_NOT_READ: "mend what the error in the sentence names",
        Code.CHANGED_MEANWHILE: "send it again",
        Code.POD_NOT_PREPARED: "see why the named pod gives that answer, and try again",
        Code.NOT_RECORDED: "mend what the error in the sentence names, and try again",
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
        Code.BUDGETS_NOT_READ: "mend what the error in the sentence names",
        Code.GRANT_NOT_RECORDED: "mend what the error in the sentence names",
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
        Code.OWNER_NOT_STATEFULSET: "correct the selector of the budget",
        Code.PARTITION_UNKNOWN: "correct podNamePartitionRegex of the budget",
        Code.BUDGET_SELECTS_NO_PODS: (
            "put the labels of the selector on spec.template.metadata.labels of the StatefulSets"
        ),
    }
)
"""Of the codes where there is more to do than to wait."""

PAGE: Final = "/reasons"
"""Where the admin server explains all codes."""


def render_path(code: Code) -> str:
    """Return where a code is explained: a path of the admin server."""
    return f"{PAGE}#{code}"
