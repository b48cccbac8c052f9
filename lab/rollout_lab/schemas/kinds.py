"""Which kinds the simulated API server knows, and what it does to their objects.

How an object is made ready is written in `rules` and in the modules of each kind. A kind that is
not here is a 404, as for a resource that no server knows.
"""

from typing import Final

import msgspec

from rollout_lab.schemas.custom import MULTI_AZ_ROLLOUT, REPLICA_TEMPLATE, ZONE_BUDGET
from rollout_lab.schemas.plain_kinds import (
    BUDGET,
    CONFIG_MAP,
    LEASE,
    MUTATING,
    NAMESPACE,
    NODE,
    SECRET,
    VALIDATING,
)
from rollout_lab.schemas.pods import POD
from rollout_lab.schemas.refusals import NoPage, no_resource
from rollout_lab.schemas.rules import (
    Rules,
    check_object,
    create_object,
    default_object,
    update_object,
)
from rollout_lab.schemas.workloads import CONTROLLER_REVISION, STATEFULSET
from rollout_operator.kube.api import (
    CLUSTER_ROLLOUT_SCHEDULES,
    CONFIG_MAPS,
    HEALTH_CHECKS,
    IMAGE_POLICIES,
    IMAGE_REPOSITORIES,
    KUSTOMIZATIONS,
    LEASES,
    MULTI_AZ_ROLLOUTS,
    MUTATING_WEBHOOKS,
    OCI_REPOSITORIES,
    PODS,
    ROLLOUT_GATES,
    ROLLOUT_SCHEDULES,
    ROLLOUTS,
    SECRETS,
    STATEFULSETS,
    VALIDATING_WEBHOOKS,
    ZONE_BUDGETS,
    JsonObject,
    Resource,
)

CONTROLLER_REVISIONS: Final = Resource("apps", "v1", "controllerrevisions", "ControllerRevision")
BUDGETS: Final = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
NAMESPACES: Final = Resource("", "v1", "namespaces", "Namespace", False)
NODES: Final = Resource("", "v1", "nodes", "Node", False)
REPLICA_TEMPLATES: Final = Resource(
    "rollout-operator.grafana.com", "v1", "replicatemplates", "ReplicaTemplate"
)


class ObjectKind(msgspec.Struct, frozen=True):
    """One kind of object, as the API server knows it."""

    resource: Resource
    rules: Rules
    subresources: frozenset[str]
    allows_blind_update: bool
    """Whether a PUT without resourceVersion overwrites whatever is there."""
    tracks_fields: bool = False
    """Whether it is known which field manager owns what: only of these can fields be applied."""

    def prepare_create(self, obj: JsonObject) -> None:
        """Drop, default and check in a new object, a copy as of `tidy.copy_head`.

        Fields that change are made anew.
        """
        create_object(self.rules, obj)

    def prepare_update(self, old: JsonObject, new: JsonObject, subresource: str) -> None:
        """Do so in such a copy of a new version; no subresource for the object and its scale.

        What may not change stays as it was. Raises Refusal (422) for another identity.
        """
        update_object(self.resource, self.rules, old, new, subresource)

    def check(self, obj: JsonObject) -> None:
        """Raise NotModelled, or Refusal (422), for an object that no server would have stored."""
        check_object(self.rules, obj)

    def default(self, obj: JsonObject) -> None:
        """Bring an object, in place, into the form that webhooks are shown."""
        default_object(self.rules, obj)


def _kind(resource: Resource, rules: Rules, *subresources: str, blind: bool = True) -> ObjectKind:
    tracks_fields = resource in _APPLIED
    return ObjectKind(resource, rules, frozenset(subresources), blind, tracks_fields)


# Others are written whole, or by patches that no conflict of managers ends.
_APPLIED: Final = (OCI_REPOSITORIES[0], KUSTOMIZATIONS[0])
# Nothing of them is judged either: what their schemas decide the operator decides again.
_OF_RELEASES: Final = (
    *(ROLLOUTS, ROLLOUT_GATES, ROLLOUT_SCHEDULES, CLUSTER_ROLLOUT_SCHEDULES, HEALTH_CHECKS),
    *(IMAGE_POLICIES[0], IMAGE_REPOSITORIES[0], OCI_REPOSITORIES[0], KUSTOMIZATIONS[0]),
)
_ALL: Final = (
    _kind(STATEFULSETS, STATEFULSET, "status", "scale"),
    _kind(CONTROLLER_REVISIONS, CONTROLLER_REVISION),
    _kind(PODS, POD, "status", "eviction"),
    _kind(SECRETS, SECRET),
    _kind(CONFIG_MAPS, CONFIG_MAP),
    _kind(LEASES, LEASE),
    _kind(BUDGETS, BUDGET, "status", blind=False),
    _kind(NAMESPACES, NAMESPACE, "status"),
    _kind(NODES, NODE, "status"),
    _kind(VALIDATING_WEBHOOKS, VALIDATING, blind=False),
    _kind(MUTATING_WEBHOOKS, MUTATING, blind=False),
    _kind(REPLICA_TEMPLATES, REPLICA_TEMPLATE, "status", "scale", blind=False),
    _kind(ZONE_BUDGETS, ZONE_BUDGET, "status", blind=False),
    _kind(MULTI_AZ_ROLLOUTS, MULTI_AZ_ROLLOUT, "status", blind=False),
    *(_kind(resource, MULTI_AZ_ROLLOUT, "status", blind=False) for resource in _OF_RELEASES),
)
KINDS: Final[dict[tuple[str, str], ObjectKind]] = {
    (kind.resource.group, kind.resource.plural): kind for kind in _ALL
}
"""By group and plural."""


def get_kind(resource: Resource) -> ObjectKind:
    """Return the kind of a resource. Raises Refusal (404) where there is none.

    For custom resources only the HTTP server itself answers.
    """
    kind = KINDS.get((resource.group, resource.plural))
    if kind is None or kind.resource.version != resource.version:
        is_built_in = any(group == resource.group for group, _ in KINDS)
        raise no_resource() if is_built_in and resource.group != REPLICA_TEMPLATES.group else NoPage
    return kind


def learn_scaled_kind(resource: Resource) -> None:
    """Have API servers know one more kind, of which nothing matters but its counts.

    From now on and in all worlds, as for a kind that a cluster has of another operator.
    """
    key = (resource.group, resource.plural)
    KINDS.setdefault(key, _kind(resource, REPLICA_TEMPLATE, "status", "scale", blind=False))
