"""Where the tag of a Rollout belongs, what Flux has yet to do there, and which writes are due.

A HealthCheck may be healthy while the version before still runs. So before a bake may start, each
OCIRepository that carries the tag must have fetched it, and each Kustomization that has it in a
variable, or applies what one of these fetched, must have applied that. What is suspended never
comes to it: that is reported.

A Kustomization that only applies what a managed OCIRepository fetched carries no tag. It is a place
all the same: a bake waits for it, and a retry has Flux reconcile it.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from rollout_operator.model.releases.flux import (
    KUSTOMIZATION,
    OCI_REPOSITORY,
    FluxProgress,
    FluxReference,
    FluxWriteCode,
    FluxWrites,
    Kustomization,
    OciRepository,
)
from rollout_operator.model.releases.plan import ApplyTag, FluxKind, FluxTarget, ReleasePlan
from rollout_operator.model.releases.rollout import ReleaseHead, ReleaseRollout
from rollout_operator.planning.releases.flux.writes import TAG, plan_flux_writes

# What a plan requires; all other writes only tidy up beside a tag that is there.
_TAGS: Final = frozenset(
    {FluxWriteCode.VALUE_SET, FluxWriteCode.VALUE_MOVED, FluxWriteCode.VALUE_TAKEN}
)

# A revision is `tag@digest`; of earlier versions of Flux `tag/digest`.
_AFTER_TAG: Final = ("@", "/")

Waits = Mapping[tuple[str, str], str]
"""By kind and name of an object of Flux, what it has yet to do."""


def list_targets(
    rollout: str,
    tag: str | None,
    repositories: Iterable[OciRepository],
    kustomizations: Iterable[Kustomization],
) -> tuple[FluxTarget, ...]:
    """Return the places of a Rollout whose current release has this tag; None: it has none yet."""
    oci = sorted(repositories, key=lambda repository: repository.head.name)
    applied = sorted(kustomizations, key=lambda kustomization: kustomization.head.name)
    waits = {} if tag is None else map_flux_waits(rollout, tag, oci, applied)
    targets = [*_list_repositories(rollout, waits, oci), *_list_variables(rollout, waits, applied)]
    listed = {(target.kind, target.name) for target in targets}
    targets += [
        FluxTarget(kind=FluxKind(kind), name=name, tag=tag, waiting_for=text)
        for (kind, name), text in waits.items()
        if (kind, name) not in listed
    ]
    return tuple(targets)


def map_flux_waits(
    rollout: str,
    tag: str,
    repositories: Iterable[OciRepository],
    kustomizations: Iterable[Kustomization],
) -> Waits:
    """Return what a bake of a Rollout has to wait for; nothing once all of it runs (RELB-16)."""
    managed = [repository for repository in repositories if repository.rollout == rollout]
    fetched = {_refer(source.head): source.progress.revision for source in managed}
    waits = {
        (OCI_REPOSITORY, source.head.name): _explain(
            source.head, source.progress, _explain_old(source.progress.revision, tag)
        )
        for source in managed
    }
    for applied in kustomizations:
        wanted = fetched.get(applied.source)
        if rollout in applied.rollouts.values() or applied.source in fetched:
            waits[KUSTOMIZATION, applied.head.name] = _explain(
                applied.head,
                applied.progress,
                _explain_unapplied(applied.progress.revision, wanted),
            )
    return {place: text for place, text in waits.items() if text}


def plan_due_writes(
    rollout: ReleaseRollout,
    plan: ReleasePlan,
    repositories: Iterable[OciRepository],
    kustomizations: Iterable[Kustomization],
) -> FluxWrites:
    """Return the writes that carry a plan out: those of the tags that it applies, and what is tidy.

    None before the first deployment, and none of a Rollout that is suspended.
    """
    current, name = plan.status.current, rollout.head.name
    tag = "" if current is None else current.version.tag
    writes = plan_flux_writes(name, tag, repositories, kustomizations)
    if current is None or rollout.spec.is_suspended:
        return msgspec.structs.replace(writes, writes=())
    applied = {
        (action.target.kind, action.target.name)
        for action in plan.actions
        if isinstance(action, ApplyTag)
    }
    due = (
        write
        for write in writes.writes
        if write.code not in _TAGS or (write.kind, write.head.name) in applied
    )
    return msgspec.structs.replace(writes, writes=tuple(due))


def _list_repositories(
    rollout: str, waits: Waits, repositories: Iterable[OciRepository]
) -> Iterator[FluxTarget]:
    kind = FluxKind.OCI_REPOSITORY
    for repository in repositories:
        name = repository.head.name
        if repository.rollout == rollout and not repository.head.is_terminating:
            tag, wait = repository.reference.get(TAG), waits.get((kind, name), "")
            yield FluxTarget(kind=kind, name=name, tag=tag, waiting_for=wait)


def _list_variables(
    rollout: str, waits: Waits, kustomizations: Iterable[Kustomization]
) -> Iterator[FluxTarget]:
    kind = FluxKind.KUSTOMIZATION
    for kustomization in kustomizations:
        name = kustomization.head.name
        claims = sorted(key for key, owner in kustomization.rollouts.items() if owner == rollout)
        for variable in () if kustomization.head.is_terminating else claims:
            yield FluxTarget(
                kind=kind,
                name=name,
                variable=variable,
                tag=kustomization.substitute.get(variable),
                waiting_for=waits.get((kind, name), ""),
            )


def _explain(head: ReleaseHead, progress: FluxProgress, unfinished: str) -> str:
    """Return what one object has yet to do; `unfinished` is what it has, where it is settled."""
    problem = _explain_unsettled(head, progress) or unfinished
    return f"{problem}; it is suspended" if problem and progress.is_suspended else problem


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


def _explain_unapplied(revision: str, wanted: str | None) -> str:
    """`wanted` is what the source has fetched; None where it carries no tag."""
    if wanted is None or revision == wanted:
        return ""
    return f"it has applied {revision or 'nothing'}, not {wanted}"


def _refer(head: ReleaseHead) -> FluxReference:
    return FluxReference(kind=OCI_REPOSITORY, namespace=head.namespace, name=head.name)
