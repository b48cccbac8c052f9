"""Which rights an operator needs as it is started, and which of them it lacks.

They are those of the shipped Roles: `manifests/base`, and of the components `webhooks`,
`zone-tracker`, `multi-az-rollouts` and `releases` where their flags are on. A test compares. Of
what HealthChecks read of an inventory only the kinds that bakes wait for are checked: messages of
the HealthChecks name what else may not be read.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from rollout_operator.model.diagnosis.findings import Finding, FindingCode
from rollout_operator.model.diagnosis.installation import Installation, Right, RightAnswer
from rollout_operator.planning.diagnosis.operators import (
    DEFAULT_LEASE,
    DEFAULT_SECRET,
    LEASE_FLAG,
    METADATA_FLAG,
    NAMES_FLAG,
    POLICIES_FLAG,
    RELEASES_FLAG,
    SECRET_FLAG,
    SELF_SIGNED_FLAG,
    TLS_FLAG,
    find_value,
    is_on,
)
from rollout_operator.planning.diagnosis.remedies import make_finding
from rollout_operator.planning.wording import join_names

# As the shipped Deployment calls it, also inside of other names.
_OWN_NAMESPACE: Final = "$(POD_NAMESPACE)"

_ZONES: Final = "rollout-operator.grafana.com"
_POLICY_GROUP: Final = "rollout.grafana.com"
_KUBERIK: Final = "kuberik.com"
_ADMISSION: Final = "admissionregistration.k8s.io"
_DEFAULT_TRACKER: Final = "rollout-operator-zone-tracker"


class RightNeeds(NamedTuple):
    """For what no flag says whether a right is needed."""

    nodes: bool = False
    """Whether zones of MultiAZRollouts follow from nothing but nodes."""
    secrets: bool = False
    """Whether an image repository names a Secret."""
    cluster: bool = False
    """Whether a schedule is of the cluster, or HealthChecks of other namespaces are selected."""
    inventory: bool = False
    """Whether a HealthCheck looks at a Kustomization."""


NO_NEEDS: Final = RightNeeds()


def list_rights(
    arguments: Sequence[str], namespace: str, needs: RightNeeds = NO_NEEDS
) -> tuple[Right, ...]:
    """Return what an operator with these arguments has to be allowed to do."""
    arguments = [word.replace(_OWN_NAMESPACE, namespace) for word in arguments]
    rights = [*_BASE, *_REPORTS]
    if is_on(arguments, "leader-election.enabled", default=True):
        rights += _lease_rights(find_value(arguments, LEASE_FLAG) or DEFAULT_LEASE)
    if is_on(arguments, TLS_FLAG, default=False):
        rights += _list_webhook_rights(arguments)
    if is_on(arguments, "use-zone-tracker", default=False):
        name = find_value(arguments, "zone-tracker.config-map-name") or _DEFAULT_TRACKER
        purpose = "times of downscales are not recorded, and downscales are refused"
        rights += [
            Right(verb="create", group="", resource="configmaps", purpose=purpose),
            *_of("get patch", "", "configmaps", purpose, name),
        ]
    if is_on(arguments, POLICIES_FLAG, default=False):
        rights += [*_POLICIES, *(_NODES if needs.nodes else ())]
    if is_on(arguments, RELEASES_FLAG, default=False):
        reads_secrets = needs.secrets and find_value(arguments, METADATA_FLAG) != "none"
        rights += [
            *_RELEASES,
            *(_PULL_SECRETS if reads_secrets else ()),
            *(_WIDE_RELEASES if needs.cluster else ()),
            *(_INVENTORY if needs.inventory else ()),
        ]
    return tuple(rights)


def check_rights(installation: Installation) -> Iterator[Finding]:
    """Yield the rights in the namespace that are missing, those of one purpose together."""
    yield from _list_missing(right for right in installation.rights if right.right.is_namespaced)


def check_cluster_rights(installation: Installation) -> Iterator[Finding]:
    """Yield the rights in the cluster that are missing."""
    yield from _list_missing(
        right for right in installation.rights if not right.right.is_namespaced
    )


def _list_missing(answers: Iterable[RightAnswer]) -> Iterator[Finding]:
    missing: dict[tuple[str, str, str, bool], dict[str, list[str]]] = {}
    for answer in answers:
        right = answer.right
        if not answer.is_granted:
            key = answer.account, answer.namespace, right.purpose, right.is_optional
            verbs = missing.setdefault(key, {}).setdefault(_render_object(right), [])
            verbs.append(right.verb)
    for (account, namespace, purpose, is_optional), objects in missing.items():
        code = FindingCode.OPTIONAL_RIGHT_MISSING if is_optional else FindingCode.RIGHT_MISSING
        rights = "; ".join(f"{join_names(verbs)} {what}" for what, verbs in objects.items())
        where = f" in namespace {namespace}" if namespace else ""
        yield make_finding(
            code, f"ServiceAccount {account}", f"it may not {rights}{where}: {purpose}"
        )


def _render_object(right: Right) -> str:
    """Return what a right is about, as a rule of a Role names it."""
    resource = f"{right.resource}/{right.subresource}" if right.subresource else right.resource
    named = f' "{right.name}"' if right.name else ""
    group = f' in API group "{right.group}"' if right.group else ""
    return f"{resource}{named}{group}"


def _of(verbs: str, group: str, resource: str, purpose: str, name: str = "") -> list[Right]:
    resource, _, subresource = resource.partition("/")
    return [
        Right(
            verb=verb,
            group=group,
            resource=resource,
            subresource=subresource,
            name=name,
            purpose=purpose,
            is_namespaced=group != _ADMISSION and resource != "nodes",
        )
        for verb in verbs.split()
    ]


def _optional(rights: Iterable[Right]) -> list[Right]:
    return [replace(right, is_optional=True) for right in rights]


_FROM_MEMORY: Final = (
    "evictions are granted from memory: only one operator may run, and it refuses them for its"
    " first twelve seconds"
)
_BASE: Final = (
    *_of("list watch", "", "pods", "the operator does not become ready"),
    *_of("get delete", "", "pods", "no pod is replaced"),
    *_optional(_of("patch", "", "pods", _FROM_MEMORY)),
    *_of("list watch", "apps", "statefulsets", "the operator does not become ready"),
    *_of("get", "apps", "statefulsets", "finished rollouts are not recorded"),
    *_of("update", "apps", "statefulsets/status", "finished rollouts are not recorded"),
    *_of("list watch", _ZONES, "zoneawarepoddisruptionbudgets", "budgets are not known"),
)


_REPORTS: Final = _optional(
    [
        *_of(
            "create patch",
            "events.k8s.io",
            "events",
            "`kubectl describe` does not show what is done",
        ),
        *_of(
            "patch",
            _ZONES,
            "zoneawarepoddisruptionbudgets/status",
            "`kubectl get zpdb` does not show how many pods may go",
        ),
    ]
)


_POLICIES: Final = (
    *_of("list watch get", _POLICY_GROUP, "multiazrollouts", "no MultiAZRollout is obeyed"),
    *_of(
        "patch",
        _POLICY_GROUP,
        "multiazrollouts/status",
        "no batch of a MultiAZRollout is recorded, and none begins",
    ),
    *_optional(
        _of("patch", "apps", "statefulsets", "`manageUpdateStrategy` does not set `OnDelete`")
    ),
)
_NODES: Final = tuple(
    _optional(_of("list watch", "", "nodes", "zones that only nodes know are taken from names"))
)


_NO_RELEASE: Final = "no Rollout is made to happen"
_NO_SCHEDULE: Final = "schedules of releases keep no gates"
_NO_HEALTH: Final = "HealthChecks are not evaluated, and bakes wait for them"
_NO_VERSION: Final = "no version is announced"
_NO_TAG: Final = "no version is deployed"
_RELEASES: Final = (
    *_of("list watch get patch", _KUBERIK, "rollouts", _NO_RELEASE),
    *_of("patch", _KUBERIK, "rollouts/status", _NO_RELEASE),
    *_of("list watch", _KUBERIK, "rolloutgates", _NO_RELEASE),
    *_of("create patch delete", _KUBERIK, "rolloutgates", _NO_SCHEDULE),
    *_of("list watch get", _KUBERIK, "rolloutschedules", _NO_SCHEDULE),
    *_of("patch", _KUBERIK, "rolloutschedules/status", _NO_SCHEDULE),
    *_of("update", _KUBERIK, "rolloutschedules/finalizers", _NO_SCHEDULE),
    *_of("list watch get", _KUBERIK, "healthchecks", _NO_HEALTH),
    *_of("patch", _KUBERIK, "healthchecks/status", _NO_HEALTH),
    *_of("list watch", "image.toolkit.fluxcd.io", "imagepolicies", _NO_VERSION),
    *_of("list watch", "image.toolkit.fluxcd.io", "imagerepositories", _NO_VERSION),
    *_of("list watch get patch", "source.toolkit.fluxcd.io", "ocirepositories", _NO_TAG),
    *_of("list watch get patch", "kustomize.toolkit.fluxcd.io", "kustomizations", _NO_TAG),
)
_PULL_SECRETS: Final = tuple(
    _optional(_of("get", "", "secrets", "registries are called without their pull secret"))
)
_NO_CLUSTER: Final = "schedules of the cluster, and HealthChecks of other namespaces, do not count"
_WIDE_RELEASES: Final = tuple(
    replace(right, is_namespaced=False)
    for right in (
        *_of("list watch get", _KUBERIK, "clusterrolloutschedules", _NO_CLUSTER),
        *_of("patch", _KUBERIK, "clusterrolloutschedules/status", _NO_CLUSTER),
        *_of("update", _KUBERIK, "clusterrolloutschedules/finalizers", _NO_CLUSTER),
        *_of("list watch", _KUBERIK, "rollouts", _NO_CLUSTER),
        *_of("list watch create patch delete", _KUBERIK, "rolloutgates", _NO_CLUSTER),
        *_of("list watch get", _KUBERIK, "healthchecks", _NO_CLUSTER),
        *_of("patch", _KUBERIK, "healthchecks/status", _NO_CLUSTER),
        *_of("list watch", "", "namespaces", _NO_CLUSTER),
        *_optional(
            _of("create patch", "events.k8s.io", "events", "`kubectl describe` shows no Events")
        ),
    )
)


_UNKNOWN: Final = "bakes wait for such objects where a Kustomization applies them in any namespace"
_INVENTORY: Final = tuple(
    replace(right, is_namespaced=False, is_optional=True)
    for group, kinds in (
        ("", "persistentvolumeclaims pods services"),
        ("apps", "daemonsets deployments replicasets statefulsets"),
        ("batch", "jobs"),
        ("apiextensions.k8s.io", "customresourcedefinitions"),
        ("kustomize.toolkit.fluxcd.io", "kustomizations"),
    )
    for kind in kinds.split()
    for right in _of("get", group, kind, _UNKNOWN)
)


def _lease_rights(name: str) -> list[Right]:
    purpose = "one operator acts without an election, and a second operator would act beside it"
    lease = _of("get patch", "coordination.k8s.io", "leases", purpose, name)
    lease += _of("create", "coordination.k8s.io", "leases", purpose)
    return [replace(right, is_of_process=True) for right in _optional(lease)]


def _list_webhook_rights(arguments: Sequence[str]) -> list[Right]:
    rights = _of("patch", "apps", "statefulsets", "the time of a downscale is not recorded")
    if is_on(arguments, SELF_SIGNED_FLAG, default=True):
        secret = find_value(arguments, SECRET_FLAG) or DEFAULT_SECRET
        certificate = _of("get update", "", "secrets", "there is no certificate to serve", secret)
        rights += [replace(right, is_of_process=True) for right in certificate]
    verbs = "list watch patch" if _writes_bundles(arguments) else "list watch"
    purpose = "the CA does not reach the webhook configurations"
    # Where the flag names them, so may the ClusterRole; each is looked for among both kinds.
    names = (find_value(arguments, NAMES_FLAG) or "").split(",")
    for kind in ("validating", "mutating"):
        for name in names:
            rights += _of(verbs, _ADMISSION, f"{kind}webhookconfigurations", purpose, name.strip())
    return rights


def _writes_bundles(arguments: Sequence[str]) -> bool:
    return is_on(arguments, "webhooks.update-ca-bundle", default=True)
