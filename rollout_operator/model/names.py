"""Every label, annotation and API path segment that we read or write, once."""

from typing import Final, NewType

GroupName = NewType("GroupName", str)
"""Value of the group label. Empty is a group like any other."""

Uid = NewType("Uid", str)
Revision = NewType("Revision", str)
"""Name of a ControllerRevision, as a pod's hash label and a StatefulSet's status carry it."""

# Both spellings form groups; where both are present the first wins.
GROUP_LABEL: Final = "rollout-group"
GROUP_LABEL_LONG: Final = "grafana.com/rollout-group"

REVISION_LABEL: Final = "controller-revision-hash"

MAX_UNAVAILABLE: Final = "rollout-max-unavailable"
PAUSED: Final = "grafana.com/rollout-paused"

# The annotations of a StatefulSet that a view keeps; all others are dropped when decoding.
STATEFULSET_ANNOTATIONS: Final = frozenset({MAX_UNAVAILABLE, PAUSED})
STATEFULSET_LABELS: Final = frozenset({GROUP_LABEL, GROUP_LABEL_LONG})

ON_DELETE: Final = "OnDelete"
# The pod management policy that creates all absent pods at once; every other one is ordered.
PARALLEL: Final = "Parallel"
CLUSTER_HEADER: Final = "X-Cluster"
