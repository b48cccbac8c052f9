"""Whether Flux runs a tag yet: what it has still to fetch and to apply before a bake may start.

A HealthCheck may be healthy while the version before still runs. So each OCIRepository that carries
the tag must have fetched it, and each Kustomization that has it in a variable, or applies what one
of these fetched, must have applied that. What is suspended never comes to it: that is reported.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from rollout_operator.model.releases.flux import (
    KUSTOMIZATION,
    OCI_REPOSITORY,
    FluxProgress,
    FluxReference,
    Kustomization,
    OciRepository,
)
from rollout_operator.model.releases.rollout import ReleaseHead

# A revision is `tag@digest`; of earlier versions of Flux `tag/digest`.
_AFTER_TAG: Final = ("@", "/")


class FluxWait(msgspec.Struct, frozen=True, kw_only=True):
    """What one object has yet to do."""

    kind: str
    name: str
    text: str
    is_suspended: bool = False
    """Whether a person has to resume it first."""


def list_flux_waits(
    rollout: str,
    tag: str,
    repositories: Iterable[OciRepository],
    kustomizations: Iterable[Kustomization],
) -> tuple[FluxWait, ...]:
    """Return what a bake of a Rollout has to wait for; nothing once all of it runs (RELB-16)."""
    managed = sorted(
        (repository for repository in repositories if repository.rollout == rollout),
        key=lambda repository: repository.head.name,
    )
    fetched = {_refer(target.head): target.progress.revision for target in managed}
    return (
        *_list_waits(managed, tag),
        *_list_unapplied(
            rollout,
            sorted(kustomizations, key=lambda kustomization: kustomization.head.name),
            fetched,
        ),
    )


def _list_waits(repositories: Iterable[OciRepository], tag: str) -> Iterator[FluxWait]:
    for repository in repositories:
        problem = _explain_unsettled(repository.head, repository.progress) or _explain_old(
            repository.progress.revision, tag
        )
        if problem:
            yield _wait(OCI_REPOSITORY, repository.head, repository.progress, problem)


def _list_unapplied(
    rollout: str, kustomizations: Iterable[Kustomization], fetched: Mapping[FluxReference, str]
) -> Iterator[FluxWait]:
    for kustomization in kustomizations:
        if rollout not in kustomization.rollouts.values() and kustomization.source not in fetched:
            continue
        problem = _explain_unsettled(kustomization.head, kustomization.progress)
        wanted = fetched.get(kustomization.source)
        if not problem and wanted is not None and kustomization.progress.revision != wanted:
            problem = f"it has applied {kustomization.progress.revision or 'nothing'}, not {wanted}"
        if problem:
            yield _wait(KUSTOMIZATION, kustomization.head, kustomization.progress, problem)


def _explain_unsettled(head: ReleaseHead, progress: FluxProgress) -> str:
    if progress.observed_generation != head.generation != progress.failed_generation:
        only = f", only {progress.observed_generation}" if progress.observed_generation else ""
        return f"generation {head.generation} is not observed yet{only}"
    if not progress.is_ready:
        return f"it is not ready: {progress.message}" if progress.message else "it is not ready"
    return ""


def _explain_old(revision: str, tag: str) -> str:
    if revision == tag or revision.startswith(tuple(f"{tag}{end}" for end in _AFTER_TAG)):
        return ""
    return f"it has fetched {revision or 'nothing'}, not {tag}"


def _wait(kind: str, head: ReleaseHead, progress: FluxProgress, problem: str) -> FluxWait:
    suspended = "; it is suspended" if progress.is_suspended else ""
    return FluxWait(
        kind=kind,
        name=head.name,
        text=f"{problem}{suspended}",
        is_suspended=progress.is_suspended,
    )


def _refer(head: ReleaseHead) -> FluxReference:
    return FluxReference(kind=OCI_REPOSITORY, namespace=head.namespace, name=head.name)
