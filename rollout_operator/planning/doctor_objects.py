"""Checks of MultiAZRollouts, and of the Rollouts of `kuberik.com`: are they obeyed, or refused?

What a policy owns and why it is refused is decided in `planning.policies`, as by the operator
itself. Why a Rollout waits is left to `status` and `explain`.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from rollout_operator.model.diagnosis import Finding, FindingCode, Installation, OperatorDeployment
from rollout_operator.model.names import ON_DELETE
from rollout_operator.model.objects import StatefulSet
from rollout_operator.model.policy import PolicyOwnership
from rollout_operator.model.release_plan import (
    IMAGE_POLICY,
    IMAGE_REPOSITORY,
    KUSTOMIZATION,
    OCI_REPOSITORY,
    CheckClass,
    ReleaseObjects,
)
from rollout_operator.model.releases import RefusedRelease
from rollout_operator.planning.bake import list_checks, selects_namespaces
from rollout_operator.planning.doctor_install import (
    POLICIES_FLAG,
    RELEASES_FLAG,
    is_on,
    list_acting,
    list_arguments,
    list_watched,
)
from rollout_operator.planning.doctor_remedies import make_finding
from rollout_operator.planning.health_checks import find_class
from rollout_operator.planning.policy_zones import needs_nodes, share_sets
from rollout_operator.planning.schedules import describe_refusal
from rollout_operator.planning.wording import join_names, verb

_KIND: Final = "MultiAZRollout"
_VERSION: Final = "v1alpha1"
OF_FLUX: Final = (IMAGE_POLICY, IMAGE_REPOSITORY, OCI_REPOSITORY, KUSTOMIZATION)
"""Kinds of Flux, as findings name those that are missing."""

# A Rollout writes to either of the two.
_WRITTEN: Final = frozenset({OCI_REPOSITORY, KUSTOMIZATION})
_ROLLOUT: Final = "Rollout"
_CHECKED: Final = "HealthCheck"


def obeys(installation: Installation) -> bool:
    """Return whether an operator here is to obey policies."""
    return bool(_list_obeying(list_acting(installation)))


def _list_obeying(operators: Sequence[OperatorDeployment]) -> Sequence[OperatorDeployment]:
    return [
        operator
        for operator in operators
        if is_on(list_arguments(operator), POLICIES_FLAG, default=False)
    ]


def check_kind(installation: Installation) -> Iterator[Finding]:
    kind = installation.policy_kind
    if kind.is_served or not obeys(installation):
        return
    text = "the API server does not know the kind"
    if kind.versions:
        text = f"the API server knows {join_names(kind.versions)} of it, and not {_VERSION}"
    yield make_finding(FindingCode.POLICY_KIND_MISSING, _KIND, text)


def check_fields(installation: Installation) -> Iterator[Finding]:
    for kind, missing in installation.missing_fields.items():
        text = f"its CustomResourceDefinition lacks {join_names(missing, shown=len(missing))}"
        yield make_finding(FindingCode.KIND_OUTDATED, kind, text)


def check_obeyed(installation: Installation) -> Iterator[Finding]:
    """Yield that policies are here, and that no operator looks after them.

    An operator that may not be seen, in another namespace or on a person's machine, shows in what
    it has written into their status.
    """
    names = [policy.head.name for policy in installation.policies]
    here = installation.namespace
    watching = [
        operator
        for operator in list_acting(installation)
        # Those of other namespaces are read only where they watch this.
        if operator.namespace or here in list_watched(operator, here)
    ]
    title, problem = f"Namespace {here}", "seen by no operator that obeys policies"
    if watching:
        if _list_obeying(watching):
            return
        title, problem = watching[0].title, "ignored"
    else:
        names = [name for name in names if name in installation.unobeyed]
    if names:
        text = f"{join_names(names)} {verb(len(names), 'is', 'are')} {problem}"
        yield make_finding(FindingCode.POLICIES_NOT_OBEYED, title, text)


def check_policies_accepted(installation: Installation) -> Iterator[Finding]:
    for policy in _share(installation).refused:
        text = "; ".join(refusal.text for refusal in policy.refusals)
        yield make_finding(FindingCode.POLICY_REFUSED, f"{_KIND} {policy.head.name}", text)


def check_policies_select(installation: Installation) -> Iterator[Finding]:
    for scope in _share(installation).scopes:
        if not scope.sets:
            name = f"{_KIND} {scope.policy.head.name}"
            text = "spec.statefulSetSelector selects no StatefulSet of the namespace"
            yield make_finding(FindingCode.POLICY_SELECTS_NOTHING, name, text)


def check_strategies(installation: Installation) -> Iterator[Finding]:
    """Yield StatefulSets of policies, of no group, that Kubernetes replaces the pods of."""
    for scope in _share(installation).scopes:
        own = [
            member
            for member in scope.sets
            if isinstance(member, StatefulSet) and member.group is None
        ]
        for sts in own:
            if sts.strategy != ON_DELETE and not scope.policy.may_switch_strategy:
                text = f"its update strategy is {sts.strategy}"
                yield make_finding(FindingCode.NOT_ON_DELETE, f"StatefulSet {sts.name}", text)


def reads_nodes(installation: Installation) -> bool:
    """Return whether a policy has StatefulSets whose zones only nodes know."""
    placed = {sts.sts.name: sts.placed for sts in installation.sets}
    for scope in _share(installation).scopes:
        own = [placed.get(sts.name) for sts in scope.sets]
        if needs_nodes(scope.policy, [member for member in own if member is not None], {}):
            return True
    return False


def _share(installation: Installation) -> PolicyOwnership:
    return share_sets(installation.policies, [sts.sts for sts in installation.sets])


def makes(installation: Installation) -> bool:
    """Return whether an operator here is to make Rollouts happen."""
    return any(
        is_on(list_arguments(operator), RELEASES_FLAG, default=False)
        for operator in list_acting(installation)
    )


def check_kinds(installation: Installation) -> Iterator[Finding]:
    missing = [kind for kind in installation.releases.absent if kind not in OF_FLUX]
    if missing and makes(installation):
        text = f"the API server does not know {join_names(missing, shown=len(missing))}"
        yield make_finding(FindingCode.RELEASE_KIND_MISSING, "kuberik.com", text)


def check_made(installation: Installation) -> Iterator[Finding]:
    acting, others = list_acting(installation), installation.kuberik
    names = _list_names(installation.releases)
    if names and acting and not makes(installation) and not others:
        text = f"{join_names(names)} {verb(len(names), 'is', 'are')} ignored"
        yield make_finding(FindingCode.RELEASES_NOT_MADE, acting[0].title, text)
    if others and makes(installation):
        text = f"Deployment {join_names(others)} runs kuberik's controller"
        yield make_finding(FindingCode.RELEASES_MADE_TWICE, acting[0].title, text)


def check_flux(installation: Installation) -> Iterator[Finding]:
    """Yield that Flux lacks what announces versions, or anything to write them to."""
    releases = installation.releases
    missing = [kind for kind in releases.absent if kind in OF_FLUX]
    is_needed = IMAGE_POLICY in missing or _WRITTEN.issubset(missing)
    if _list_names(releases) and is_needed:
        text = f"the API server does not know {join_names(missing, shown=len(OF_FLUX))}"
        yield make_finding(FindingCode.FLUX_KIND_MISSING, "Flux", text)


def check_releases_accepted(installation: Installation) -> Iterator[Finding]:
    for broken in installation.releases.unreadable:
        is_refused, code = broken.kind == _ROLLOUT, FindingCode.RELEASE_OBJECT_UNREADABLE
        name = f"{broken.kind} {broken.name}"
        yield make_finding(FindingCode.RELEASE_REFUSED if is_refused else code, name, broken.error)
    for release in installation.releases.rollouts:
        if isinstance(release, RefusedRelease):
            yield make_finding(
                FindingCode.RELEASE_REFUSED, f"Rollout {release.head.name}", release.problem
            )
    for schedule in installation.releases.schedules:
        # Some, such as an unknown time zone, only the operator finds.
        if problem := schedule.problem or describe_refusal(schedule.status):
            name = f"{schedule.kind} {schedule.head.name}"
            yield make_finding(FindingCode.SCHEDULE_INVALID, name, problem)


def check_announced(installation: Installation) -> Iterator[Finding]:
    releases = installation.releases
    if IMAGE_POLICY in releases.absent:
        return
    policies = {policy.head.name: policy for policy in releases.policies}
    unreadable = {broken.name for broken in releases.list_unreadable(IMAGE_POLICY)}
    for release in releases.list_obeyed():
        name, spec = f"Rollout {release.head.name}", release.spec
        if spec.policy_namespace not in {"", installation.namespace}:
            continue
        if spec.policy_name in unreadable:
            continue
        policy = policies.get(spec.policy_name)
        if policy is None:
            text = f"there is no ImagePolicy {spec.policy_name}"
            yield make_finding(FindingCode.IMAGE_POLICY_MISSING, name, text)
        elif policy.latest is None and spec.wanted_version is None:
            text = f"ImagePolicy {spec.policy_name} selects no tag"
            yield make_finding(FindingCode.IMAGE_POLICY_EMPTY, name, text)


def check_written(installation: Installation) -> Iterator[Finding]:
    releases = installation.releases
    if _WRITTEN.issubset(releases.absent) or releases.list_unreadable(*_WRITTEN):
        return
    named = {name for name, _ in _list_annotated(releases)}
    for release in releases.list_obeyed():
        if release.head.name not in named:
            text = "no OCIRepository and no Kustomization names it"
            yield make_finding(
                FindingCode.RELEASE_WRITES_NOTHING, f"Rollout {release.head.name}", text
            )


def check_named(installation: Installation) -> Iterator[Finding]:
    releases = installation.releases
    rollouts = _list_names(releases)
    named = [(gate.rollout, f"RolloutGate {gate.head.name}") for gate in releases.gates]
    for name, what in (*named, *_list_annotated(releases)):
        if name not in rollouts:
            yield make_finding(FindingCode.ROLLOUT_UNKNOWN, what, f'there is no Rollout "{name}"')


def check_selected(installation: Installation) -> Iterator[Finding]:
    releases = installation.releases
    for release in releases.list_obeyed():
        checks = release.spec.checks
        if checks is None or checks.selector is None or selects_namespaces(release):
            continue
        if releases.list_unreadable(_CHECKED):
            continue
        if not list_checks(release.head, checks, releases.checks, {}):
            text = "spec.healthCheckSelector selects none"
            yield make_finding(FindingCode.RELEASE_UNCHECKED, f"Rollout {release.head.name}", text)
    for schedule in releases.schedules:
        selector = schedule.rollouts
        if selector is None or schedule.problem or not schedule.head.namespace:
            continue
        labelled = (*releases.rollouts, *releases.list_unreadable(_ROLLOUT))
        if not any(selector.takes(release.labels) for release in labelled):
            name = f"{schedule.kind} {schedule.head.name}"
            text = "spec.rolloutSelector selects no Rollout of the namespace"
            yield make_finding(FindingCode.SCHEDULE_SELECTS_NOTHING, name, text)


def reads_secrets(installation: Installation) -> bool:
    return any(
        repository.pull_secret or repository.certificates or repository.proxy
        for repository in installation.releases.repositories
    )


def reads_inventory(installation: Installation) -> bool:
    checks = installation.releases.checks
    return any(find_class(check) is CheckClass.KUSTOMIZATION for check in checks)


def reads_cluster(installation: Installation) -> bool:
    """Return whether a schedule is of the cluster, or a Rollout selects namespaces."""
    releases = installation.releases
    return any(not schedule.head.namespace for schedule in releases.schedules) or any(
        map(selects_namespaces, releases.list_obeyed())
    )


def _list_names(releases: ReleaseObjects) -> list[str]:
    """Return the names of all Rollouts, also of those that cannot be read."""
    broken = [each.name for each in releases.list_unreadable(_ROLLOUT)]
    return [*(each.head.name for each in releases.rollouts), *broken]


def _list_annotated(releases: ReleaseObjects) -> Iterator[tuple[str, str]]:
    """Yield which Rollouts objects of Flux name, and the objects."""
    for flux in releases.flux:
        for name in dict.fromkeys(flux.rollouts.values()):
            yield name, f"{flux.kind} {flux.head.name}"
