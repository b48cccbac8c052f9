"""Which Rollouts an object concerns: those to reconcile when it changes (REL-89)."""

from collections.abc import Iterable, Iterator
from typing import Protocol

from rollout_operator.model.releases.flux import (
    OCI_REPOSITORY,
    ImagePolicy,
    ImageRepository,
    Kustomization,
    OciRepository,
)
from rollout_operator.model.releases.gate import ReleaseGate
from rollout_operator.model.releases.health import HealthCheck
from rollout_operator.model.releases.rollout import RefusedRelease, ReleaseRollout
from rollout_operator.model.releases.schedule import ScheduleObject
from rollout_operator.planning.releases.health import takes_check


class KnownObjects(Protocol):
    """The other objects of a namespace."""

    def list_rollouts(self) -> Iterable[ReleaseRollout]:
        """Return the Rollouts that can be obeyed."""
        ...

    def list_policies(self) -> Iterable[ImagePolicy]:
        """Return the image policies."""
        ...

    def list_repositories(self) -> Iterable[OciRepository]:
        """Return the OCIRepositories."""
        ...


def list_concerned(decoded: object, objects: KnownObjects) -> Iterator[str]:
    """Yield the names of the Rollouts that an object of their namespace concerns."""
    match decoded:
        case ReleaseRollout() | RefusedRelease():
            yield decoded.head.name
        case ReleaseGate():
            yield decoded.rollout
        case ScheduleObject():
            yield from _list_selected(decoded, objects.list_rollouts())
        case HealthCheck():
            yield from (
                rollout.head.name
                for rollout in objects.list_rollouts()
                if takes_check(rollout, decoded)
            )
        case ImagePolicy():
            yield from _list_of_policies(objects.list_rollouts(), [decoded])
        case ImageRepository():
            of_it = [policy for policy in objects.list_policies() if _reads(policy, decoded)]
            yield from _list_of_policies(objects.list_rollouts(), of_it)
        case OciRepository():
            if decoded.rollout is not None:
                yield decoded.rollout
        case Kustomization():
            yield from decoded.rollouts.values()
            yield from _list_feeding(decoded, objects.list_repositories())


def _list_selected(schedule: ScheduleObject, rollouts: Iterable[ReleaseRollout]) -> Iterator[str]:
    """Yield the Rollouts that a schedule may hold, by their labels alone."""
    selector = schedule.rollouts
    for rollout in rollouts:
        if selector is None or selector.takes(rollout.labels):
            yield rollout.head.name


def _reads(policy: ImagePolicy, repository: ImageRepository) -> bool:
    place = (policy.repository.namespace, policy.repository.name)
    return place == (repository.head.namespace, repository.head.name)


def _list_of_policies(
    rollouts: Iterable[ReleaseRollout], policies: Iterable[ImagePolicy]
) -> Iterator[str]:
    places = {(policy.head.namespace, policy.head.name) for policy in policies}
    for rollout in rollouts:
        namespace = rollout.spec.policy_namespace or rollout.head.namespace
        if (namespace, rollout.spec.policy_name) in places:
            yield rollout.head.name


def _list_feeding(
    kustomization: Kustomization, repositories: Iterable[OciRepository]
) -> Iterator[str]:
    """Yield the Rollouts whose objects a Kustomization applies: their bakes wait for that."""
    source = kustomization.source
    for repository in repositories:
        is_source = (source.kind, source.namespace, source.name) == (
            OCI_REPOSITORY,
            repository.head.namespace,
            repository.head.name,
        )
        if is_source and repository.rollout is not None:
            yield repository.rollout
