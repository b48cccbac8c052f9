"""Flags that say how pods are called, and where the times of their downscales are kept."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from rollout_operator.config.grammar import BOOL, DURATION, TEXT, flag

_PODS: Final = "Requests to pods"
_TRACKER: Final = "Zone tracker"
_BUDGETS: Final = "Disruption budgets"


# fmt: off
@dataclass(frozen=True, kw_only=True)
class PodFlags:
    """How pods are called, and where the times of their downscales are kept."""

    pods_timeout: timedelta = flag(
        "pods.client-timeout", DURATION, timedelta(seconds=5), _PODS,
        "Time of one request to a pod. Must be positive.",
    )
    cluster_domain: str = flag(
        "kubernetes.cluster-domain", TEXT, "cluster.local.", _PODS,
        "DNS domain of the cluster, for the names by which the operator calls pods.",
    )
    use_zone_tracker: bool = flag(
        "use-zone-tracker", BOOL, False, _TRACKER,
        "Keep the times of downscales in a ConfigMap, and not in annotations of StatefulSets.",
    )
    zone_tracker_name: str = flag(
        "zone-tracker.config-map-name", TEXT, "rollout-operator-zone-tracker", _TRACKER,
        "Name of that ConfigMap, in the namespace of -kubernetes.namespace. Where there is"
        " none, the operator creates it, and each zone counts as just scaled down.",
    )
    patch_timeout: timedelta = flag(
        "zpdb.pod-ready-annotation-patch-timeout", DURATION, timedelta(seconds=5), _BUDGETS,
        "Has no effect: the operator reads since when a pod is ready from the pod's status,"
        " and writes nothing for it. Must be positive.",
    )
# fmt: on
