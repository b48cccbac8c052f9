"""Whether Rollouts of `kuberik.com` are made to happen, and which of them never will be.

Why a Rollout that is made waits is no matter of an installation: `status` and `explain` say that.
"""

from collections.abc import Collection, Iterator
from typing import Final

from rollout_operator.model.diagnosis.findings import Finding, FindingCode
from rollout_operator.model.diagnosis.installation import Installation
from rollout_operator.model.diagnosis.releases import InstalledReleases
from rollout_operator.model.releases.rollout import RefusedRelease, ReleaseRollout
from rollout_operator.planning.diagnosis.operators import (
    RELEASES_FLAG,
    is_on,
    list_acting,
    list_arguments,
)
from rollout_operator.planning.diagnosis.remedies import find
from rollout_operator.planning.releases.health import list_checks, selects_namespaces
from rollout_operator.planning.releases.schedules.status import describe_refusal
from rollout_operator.planning.wording import join_names, verb

# A Rollout writes to either of the two.
_WRITTEN: Final = frozenset({"OCIRepository", "Kustomization"})
_ANNOUNCING: Final = frozenset({"ImagePolicy"})
_CHECKED: Final = frozenset({"HealthCheck"})


def makes(installation: Installation) -> bool:
    """Return whether an operator here is to make Rollouts happen."""
    return any(
        is_on(list_arguments(operator), RELEASES_FLAG, default=False)
        for operator in list_acting(installation)
    )


def check_kinds(installation: Installation) -> Iterator[Finding]:
    """Yield the kinds that the API server does not know, though they are to be obeyed."""
    missing = installation.releases.missing
    if missing and makes(installation):
        text = f"the API server does not know {join_names(missing, shown=len(missing))}"
        yield find(FindingCode.RELEASE_KIND_MISSING, "kuberik.com", text)


def check_made(installation: Installation) -> Iterator[Finding]:
    """Yield that Rollouts are here which no operator makes, or which two make."""
    releases, acting = installation.releases, list_acting(installation)
    names = [release.head.name for release in releases.rollouts]
    if names and acting and not makes(installation) and not releases.others:
        text = f"{join_names(names)} {verb(len(names), 'is', 'are')} passed over"
        yield find(FindingCode.RELEASES_NOT_MADE, acting[0].title, text)
    if releases.others and makes(installation):
        text = f"Deployment {join_names(releases.others)} runs kuberik's controller"
        yield find(FindingCode.RELEASES_MADE_TWICE, acting[0].title, text)


def check_flux(installation: Installation) -> Iterator[Finding]:
    """Yield that Flux lacks what announces versions, or anything to write them to."""
    releases = installation.releases
    missing = {*releases.missing_of_flux}
    if releases.rollouts and (missing >= _ANNOUNCING or missing >= _WRITTEN):
        text = f"the API server does not know {join_names(releases.missing_of_flux, shown=4)}"
        yield find(FindingCode.FLUX_KIND_MISSING, "Flux", text)


def check_accepted(installation: Installation) -> Iterator[Finding]:
    """Yield the Rollouts and schedules whose spec cannot be obeyed, and what cannot be read."""
    for broken in installation.releases.unreadable:
        name = f"{broken.kind} {broken.name}"
        yield find(FindingCode.RELEASE_OBJECT_UNREADABLE, name, broken.error)
    for release in installation.releases.rollouts:
        if isinstance(release, RefusedRelease):
            yield find(FindingCode.RELEASE_REFUSED, f"Rollout {release.head.name}", release.problem)
    for schedule in installation.releases.schedules:
        # Some, such as an unknown time zone, only the operator finds.
        if problem := schedule.problem or describe_refusal(schedule.status):
            name = f"{schedule.kind} {schedule.head.name}"
            yield find(FindingCode.SCHEDULE_INVALID, name, problem)


def check_announced(installation: Installation) -> Iterator[Finding]:
    """Yield the Rollouts whose image policy is not there, or selects no tag."""
    releases = installation.releases
    if {*releases.missing_of_flux} >= _ANNOUNCING:
        return
    policies = {policy.head.name: policy for policy in releases.policies}
    unreadable = {broken.name for broken in releases.unreadable if broken.kind in _ANNOUNCING}
    for release in _list_obeyed(releases):
        name, spec = f"Rollout {release.head.name}", release.spec
        if spec.policy_namespace not in {"", installation.namespace}:
            continue
        if spec.policy_name in unreadable:
            continue
        policy = policies.get(spec.policy_name)
        if policy is None:
            text = f"there is no ImagePolicy {spec.policy_name}"
            yield find(FindingCode.IMAGE_POLICY_MISSING, name, text)
        elif policy.latest is None and spec.wanted_version is None:
            text = f"ImagePolicy {spec.policy_name} selects no tag"
            yield find(FindingCode.IMAGE_POLICY_EMPTY, name, text)


def check_written(installation: Installation) -> Iterator[Finding]:
    """Yield the Rollouts that no object of Flux is annotated for."""
    releases = installation.releases
    if {*releases.missing_of_flux} >= _WRITTEN or _has_unreadable(releases, _WRITTEN):
        return
    named = {name for name, _ in _list_annotated(releases)}
    for release in _list_obeyed(releases):
        if release.head.name not in named:
            text = "no OCIRepository and no Kustomization names it"
            yield find(FindingCode.RELEASE_WRITES_NOTHING, f"Rollout {release.head.name}", text)


def check_named(installation: Installation) -> Iterator[Finding]:
    """Yield gates and objects of Flux that name a Rollout which is not there."""
    releases = installation.releases
    rollouts = {release.head.name for release in releases.rollouts}
    named = [(gate.rollout, f"RolloutGate {gate.head.name}") for gate in releases.gates]
    for name, what in (*named, *_list_annotated(releases)):
        if name not in rollouts:
            yield find(FindingCode.ROLLOUT_UNKNOWN, what, f'there is no Rollout "{name}"')


def check_selected(installation: Installation) -> Iterator[Finding]:
    """Yield Rollouts that select no HealthCheck, and schedules that concern no Rollout."""
    releases = installation.releases
    for release in _list_obeyed(releases):
        checks = release.spec.checks
        if checks is None or checks.selector is None or selects_namespaces(release):
            continue
        if _has_unreadable(releases, _CHECKED):
            continue
        if not list_checks(release.head, checks, releases.checks, {}):
            text = "spec.healthCheckSelector selects none"
            yield find(FindingCode.RELEASE_UNCHECKED, f"Rollout {release.head.name}", text)
    for schedule in releases.schedules:
        selector = schedule.rollouts
        if selector is None or schedule.problem or not schedule.head.namespace:
            continue
        if not any(selector.takes(release.labels) for release in releases.rollouts):
            name = f"{schedule.kind} {schedule.head.name}"
            text = "spec.rolloutSelector selects no Rollout of the namespace"
            yield find(FindingCode.SCHEDULE_SELECTS_NOTHING, name, text)


def reads_secrets(installation: Installation) -> bool:
    """Return whether an image repository names a Secret."""
    return any(
        repository.pull_secret or repository.certificates or repository.proxy
        for repository in installation.releases.repositories
    )


def reads_cluster(installation: Installation) -> bool:
    """Return whether a schedule is of the cluster, or a Rollout selects namespaces."""
    releases = installation.releases
    return any(not schedule.head.namespace for schedule in releases.schedules) or any(
        map(selects_namespaces, _list_obeyed(releases))
    )


def _has_unreadable(releases: InstalledReleases, kinds: Collection[str]) -> bool:
    """Return whether any object of these kinds may be what a check looks for."""
    return any(broken.kind in kinds for broken in releases.unreadable)


def _list_obeyed(releases: InstalledReleases) -> Iterator[ReleaseRollout]:
    for release in releases.rollouts:
        if isinstance(release, ReleaseRollout):
            yield release


def _list_annotated(releases: InstalledReleases) -> Iterator[tuple[str, str]]:
    """Yield which Rollouts objects of Flux name, and the objects."""
    for flux in (*releases.sources, *releases.kustomizations):
        for name in dict.fromkeys(flux.rollouts.values()):
            yield name, f"{flux.kind} {flux.head.name}"
