"""Where the tag of a Rollout belongs, and which writes a plan of it makes due.

A Kustomization that only applies what a managed OCIRepository fetched carries no tag. It is a place
all the same: a bake waits for it, and a retry has Flux reconcile it.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from rollout_operator.model.releases.flux import Kustomization, OciRepository
from rollout_operator.model.releases.flux_write import FluxWriteCode, FluxWrites
from rollout_operator.model.releases.plan import ApplyTag, FluxKind, FluxTarget, ReleasePlan
from rollout_operator.model.releases.rollout import ReleaseRollout
from rollout_operator.planning.releases.flux.progress import FluxWait, list_flux_waits
from rollout_operator.planning.releases.flux.writes import TAG, plan_flux_writes

# What a plan requires; all other writes only tidy up beside a tag that is there.
_TAGS: Final = frozenset(
    {FluxWriteCode.VALUE_SET, FluxWriteCode.VALUE_MOVED, FluxWriteCode.VALUE_TAKEN}
)


def list_targets(
    rollout: str,
    tag: str | None,
    repositories: Sequence[OciRepository],
    kustomizations: Sequence[Kustomization],
) -> tuple[FluxTarget, ...]:
    """Return the places of a Rollout whose current release has this tag; None: it has none yet."""
    waits = list_flux_waits(rollout, tag, repositories, kustomizations) if tag is not None else ()
    texts = {(wait.kind, wait.name): wait.text for wait in waits}
    targets = [
        *_list_repositories(rollout, texts, repositories),
        *_list_variables(rollout, texts, kustomizations),
    ]
    listed = {(target.kind, target.name) for target in targets}
    targets += [_place(wait, tag) for wait in waits if (wait.kind, wait.name) not in listed]
    return tuple(targets)


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
    rollout: str, waits: dict[tuple[str, str], str], repositories: Iterable[OciRepository]
) -> Iterator[FluxTarget]:
    for repository in sorted(repositories, key=lambda each: each.head.name):
        if repository.rollout == rollout and not repository.head.is_terminating:
            kind = FluxKind.OCI_REPOSITORY
            yield FluxTarget(
                kind=kind,
                name=repository.head.name,
                tag=repository.reference.get(TAG),
                waiting_for=waits.get((kind, repository.head.name), ""),
            )


def _list_variables(
    rollout: str, waits: dict[tuple[str, str], str], kustomizations: Iterable[Kustomization]
) -> Iterator[FluxTarget]:
    kind = FluxKind.KUSTOMIZATION
    for kustomization in sorted(kustomizations, key=lambda each: each.head.name):
        claims = sorted(name for name, owner in kustomization.rollouts.items() if owner == rollout)
        for variable in () if kustomization.head.is_terminating else claims:
            yield FluxTarget(
                kind=kind,
                name=kustomization.head.name,
                variable=variable,
                tag=kustomization.substitute.get(variable),
                waiting_for=waits.get((kind, kustomization.head.name), ""),
            )


def _place(wait: FluxWait, tag: str | None) -> FluxTarget:
    return FluxTarget(kind=FluxKind(wait.kind), name=wait.name, tag=tag, waiting_for=wait.text)
