"""What an operator must be allowed to do: the rules of the shipped Roles, by `rights.txt`."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from rollout_operator.model.diagnosis import (
    LEASE_FLAG,
    OPERATOR,
    POLICIES_FLAG,
    RELEASES_FLAG,
    Installation,
    OperatorDeployment,
    Right,
)
from rollout_operator.model.names import LEADING_ZONE, MIRROR_KIND
from rollout_operator.model.policy import PolicyOwnership
from rollout_operator.planning.policy_zones import needs_nodes, share_sets
from rollout_operator.planning.wording import read_table

TLS_FLAG: Final = "server-tls.enabled"
SELF_SIGNED_FLAG: Final = "server-tls.self-signed-cert.enabled"
SECRET_FLAG: Final = "server-tls.self-signed-cert.secret-name"  # noqa: S105 (the name of a flag)
DEFAULT_SECRET: Final = "rollout-operator-self-signed-certificate"  # noqa: S105 (a name)
_TRACKER_FLAG: Final = "zone-tracker.config-map-name"
_DEFAULT_TRACKER: Final = "rollout-operator-zone-tracker"
# The only kind of scales that the shipped Role names.
_TEMPLATE: Final = "ReplicaTemplate"
# As the shipped Deployment writes it, also within other values.
_OWN_NAMESPACE: Final = "$(POD_NAMESPACE)"

# Rules of cluster roles, and rules for what one process has for all namespaces that it watches.
_WIDE: Final = frozenset(
    {"hooks", "bundles", "multi-az-rollouts-nodes", "releases-cluster", "releases-inventory"}
)
_OF_PROCESS: Final = frozenset({"election", "certificate"})
# Which of these are needed follows from objects, and not from flags.
_BY_NEED: Final = {
    POLICIES_FLAG: {"multi-az-rollouts-nodes"},
    RELEASES_FLAG: {"releases-registries", "releases-cluster", "releases-inventory"},
}
_TABLE: Final = tuple(read_table("rights.txt"))


def list_rights(
    operator: OperatorDeployment, home: str, needs: frozenset[str] = frozenset()
) -> tuple[Right, ...]:
    """Return what an operator in the namespace `home` has to be allowed to do."""
    components = {*_list_components(operator, needs)}
    names = _map_names(operator, home)
    return tuple(
        Right(
            verb=verb,
            group=kind.partition(".")[2],
            resource=f"{kind.partition('.')[0]}{slash}{subresource}",
            name=name,
            is_namespaced=component not in _WIDE,
            is_of_process=component in _OF_PROCESS,
            is_optional=verbs.startswith("?"),
            purpose=purpose,
        )
        for component, verbs, resources, purpose in _TABLE
        if component in components
        for resource, _, named in (each.partition(":") for each in resources.split())
        for kind, slash, subresource in (resource.partition("/"),)
        for name in names[named]
        for verb in verbs.removeprefix("?").split()
    )


def _list_components(operator: OperatorDeployment, needs: frozenset[str]) -> Iterator[str]:
    yield "base"
    if operator.is_on("leader-election.enabled", default=True):
        yield "election"
    if operator.is_on(TLS_FLAG):
        yield from ("webhooks", "hooks")
        if operator.is_on(SELF_SIGNED_FLAG, default=True):
            yield "certificate"
        if operator.is_on("webhooks.update-ca-bundle", default=True):
            yield "bundles"
    if operator.is_on("use-zone-tracker"):
        yield "zone-tracker"
    yield from needs & {"scaling", "mirroring", "health-checks"}
    if not operator.is_on(POLICIES_FLAG):
        yield "no multi-az-rollouts"
    if operator.find("releases.metadata") == "none":
        needs -= {"releases-registries"}
    for flag, component in ((POLICIES_FLAG, "multi-az-rollouts"), (RELEASES_FLAG, "releases")):
        if operator.is_on(flag):
            yield component
            yield from needs & _BY_NEED[flag]


def _map_names(operator: OperatorDeployment, home: str) -> Mapping[str, Sequence[str]]:
    """Return the objects to which rules are limited, by what follows the colon."""

    def find(flag: str, default: str = "") -> str:
        return (operator.find(flag) or default).replace(_OWN_NAMESPACE, home)

    return {
        "": [""],
        "lease": [find(LEASE_FLAG, OPERATOR)],
        "secret": [find(SECRET_FLAG, DEFAULT_SECRET)],
        "tracker": [find(_TRACKER_FLAG, _DEFAULT_TRACKER)],
        # Where the flag names them, so may the ClusterRole; each is looked for among both kinds.
        "hooks": [name.strip() for name in find("webhooks.ca-bundle-names").split(",")],
    }


def share_policies(installation: Installation) -> PolicyOwnership:
    return share_sets(installation.policies, [each.sts for each in installation.sets])


def list_needs(installation: Installation) -> frozenset[str]:
    """Return the components that no flag asks for, but objects that are here."""
    placed = {each.sts.name: each.placed for each in installation.sets}
    annotations = [each.sts.annotations for each in installation.members]
    needs = {
        "scaling": any(LEADING_ZONE in written for written in annotations),
        "health-checks": bool(installation.gated),
        "mirroring": any(written.get(MIRROR_KIND) == _TEMPLATE for written in annotations),
        # Only where no other place names the zone of a StatefulSet.
        "multi-az-rollouts-nodes": any(
            needs_nodes(scope.policy, [own for sts in scope.sets if (own := placed[sts.name])], {})
            for scope in share_policies(installation).scopes
        ),
    }
    return installation.releases.needs | {name for name, is_needed in needs.items() if is_needed}
