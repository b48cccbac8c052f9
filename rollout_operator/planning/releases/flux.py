"""Objects of Flux and one release: where its tag belongs, what Flux has yet to do, what is written.

A HealthCheck may be healthy while the version before still runs. So before a bake may start, each
OCIRepository that carries the tag must have fetched it, and each Kustomization that has it in a
variable, or applies what one of these fetched, must have applied that. What is suspended never
comes to it: that is reported. A Kustomization that only applies what a managed OCIRepository
fetched carries no tag. It is a place all the same: a bake waits for it, and a retry has Flux
reconcile it.

Each Rollout has a field manager of its own and applies nothing but its own fields: two Rollouts on
one Kustomization keep theirs apart, and a field without its annotation is let go. Then its value
stays: without it Flux would apply another version than the wanted version. What is there
already is not written, so that a plan may be made again after any of its writes.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from rollout_operator.model.releases.flux import (
    FIELDS,
    KUSTOMIZATION,
    OCI_REPOSITORY,
    TAG,
    FluxObject,
    FluxProgress,
    FluxReference,
    FluxWrite,
    FluxWriteCode,
    FluxWrites,
    PatchMethod,
)
from rollout_operator.model.releases.plan import ApplyTag, FluxTarget, ReleasePlan
from rollout_operator.model.releases.rollout import ReleaseHead, ReleaseRollout
from rollout_operator.planning.wording import join_names

_MANAGER: Final = "rollout-controller"
RELEASED: Final = f"{_MANAGER}-released"
"""Holds values that a Rollout let go of. No Rollout has this name: theirs have a slash."""
# The API server refuses a longer name of a field manager.
_LONGEST_MANAGER: Final = 128
_HASH: Final = 10
# What goes before the tag in `spec.ref`.
_SHADOWS: Final = ("digest", "semver")

# What a plan requires; all other writes only tidy up beside a tag that is there.
_TAGS: Final = frozenset(
    {FluxWriteCode.VALUE_SET, FluxWriteCode.VALUE_MOVED, FluxWriteCode.VALUE_TAKEN}
)

# A revision is `tag@digest`; of earlier versions of Flux `tag/digest`.
_AFTER_TAG: Final = ("@", "/")

Waits = Mapping[tuple[str, str], str]
"""By kind and name of an object of Flux, what it has yet to do."""


def name_manager(rollout: str) -> str:
    """Return the field manager of a Rollout; that of a long name is cut, and distinguished."""
    name = f"{_MANAGER}/{rollout}"
    if len(name) <= _LONGEST_MANAGER:
        return name
    digest = hashlib.sha256(rollout.encode()).hexdigest()[:_HASH]
    return f"{name[: _LONGEST_MANAGER - _HASH - 1]}-{digest}"


def plan_flux_writes(rollout: str, tag: str, objects: Iterable[FluxObject]) -> FluxWrites:
    """Return what it takes until all that is annotated for a Rollout has the tag.

    The objects are those of its namespace. Nothing is written to an object that is being deleted.
    """
    flux = tuple(objects)
    return FluxWrites(
        writes=tuple(write for each in flux for write in _plan_object(rollout, tag, each)),
        problems=tuple(
            problem.text for each in flux for problem in each.problems if problem.rollout == rollout
        ),
    )


def _plan_object(rollout: str, tag: str, flux: FluxObject) -> Iterator[FluxWrite]:
    if flux.head.is_terminating:
        return
    manager = name_manager(rollout)
    claimed = sorted(name for name, owner in flux.rollouts.items() if owner == rollout)
    dropped = sorted(
        name
        for name, managers in flux.writers.items()
        if manager in managers and name not in claimed and name in flux.values
    )
    wanted = dict.fromkeys(claimed, tag)
    if any(flux.writers[name] == (manager,) for name in dropped):
        yield _keep(flux, dropped)
    if any(flux.values.get(name) != tag for name in claimed):
        code, text = _explain_change(flux, wanted, manager)
        yield _apply(flux, manager, wanted, code, text)
    elif dropped:
        text = f"{_show(flux, dropped)} of Rollout {rollout} no more: no annotation says so"
        yield _apply(flux, manager, wanted, FluxWriteCode.VALUE_RELEASED, text)
    shadows = [name for name in _SHADOWS if name in flux.values]
    if shadows and TAG in claimed and flux.kind == OCI_REPOSITORY:
        yield _clear(flux, shadows, manager)


def _keep(flux: FluxObject, names: Iterable[str]) -> FluxWrite:
    """Return a write that makes another manager hold values too, beside those that it has."""
    held = (name for name, managers in flux.writers.items() if RELEASED in managers)
    kept = {name: flux.values[name] for name in sorted({*names, *held}) if name in flux.values}
    text = f"{_show(flux, names)} stays: the Rollout lets go of it"
    return _apply(flux, RELEASED, kept, FluxWriteCode.VALUE_KEPT, text)


def _clear(flux: FluxObject, names: Sequence[str], manager: str) -> FluxWrite:
    # A patch by merge: what is applied can give values, and take away only its own.
    return FluxWrite(
        kind=flux.kind,
        head=flux.head,
        manager=manager,
        method=PatchMethod.MERGE,
        body={
            "metadata": {"uid": flux.head.uid},
            **_nest(FIELDS[flux.kind], dict.fromkeys(names)),
        },
        is_forced=False,
        code=FluxWriteCode.CHOICE_CLEARED,
        text=f"{_show(flux, names)} cleared: it would go before the tag",
    )


def _apply(
    flux: FluxObject, manager: str, values: Mapping[str, str], code: FluxWriteCode, text: str
) -> FluxWrite:
    head = flux.head
    metadata = {"name": head.name, "namespace": head.namespace, "uid": head.uid}
    spec = _nest(FIELDS[flux.kind], values) if values else {}
    return FluxWrite(
        kind=flux.kind,
        head=head,
        manager=manager,
        method=PatchMethod.APPLY,
        body={
            "apiVersion": flux.api_version,
            "kind": flux.kind,
            "metadata": metadata,
            **spec,
        },
        # A value that is only kept and has changed meanwhile is planned again.
        is_forced=code is not FluxWriteCode.VALUE_KEPT,
        code=code,
        text=text,
    )


def _explain_change(
    flux: FluxObject, wanted: Mapping[str, str], manager: str
) -> tuple[FluxWriteCode, str]:
    changed = [name for name, tag in wanted.items() if flux.values.get(name) != tag]
    others = sorted(
        {
            writer
            for name in changed
            for writer in flux.writers.get(name, ())
            if name in flux.values and writer not in {"", manager, RELEASED, _MANAGER}
        }
    )
    moves = [f"{name} {flux.values.get(name) or 'empty'} -> {wanted[name]}" for name in changed]
    text = f"{flux.kind} {flux.head.key}: {'.'.join(FIELDS[flux.kind])}: {join_names(moves)}"
    if others:
        return FluxWriteCode.VALUE_TAKEN, f"{text}; written by {join_names(others)}"
    is_new = all(name not in flux.values for name in changed)
    return (FluxWriteCode.VALUE_SET if is_new else FluxWriteCode.VALUE_MOVED), text


def _show(flux: FluxObject, names: Iterable[str]) -> str:
    values = [f"{name} {flux.values[name]}" for name in names]
    return f"{flux.kind} {flux.head.key}: {'.'.join(FIELDS[flux.kind])}: {join_names(values)}"


def _nest(path: Sequence[str], value: Mapping[str, object]) -> Mapping[str, object]:
    for step in reversed(path):
        value = {step: value}
    return value


def list_targets(
    rollout: str, tag: str | None, objects: Iterable[FluxObject]
) -> tuple[FluxTarget, ...]:
    """Return the places of a Rollout whose current release has this tag; None: it has none yet.

    OCIRepositories come first, and each kind by name, as `objects` are ordered.
    """
    flux = tuple(objects)
    waits = {} if tag is None else map_flux_waits(rollout, tag, flux)
    targets = [target for each in flux for target in _list_fields(rollout, each, waits)]
    listed = {(target.kind, target.name) for target in targets}
    targets += [
        FluxTarget(kind=kind, name=name, tag=tag, waiting_for=text)
        for (kind, name), text in waits.items()
        if (kind, name) not in listed
    ]
    return tuple(targets)


def map_flux_waits(rollout: str, tag: str, objects: Iterable[FluxObject]) -> Waits:
    """Return what a bake of a Rollout has to wait for; nothing once all of it runs (RELB-16)."""
    flux = tuple(objects)
    fetched: Mapping[FluxReference | None, str] = {
        each.reference: each.progress.revision
        for each in flux
        if each.kind == OCI_REPOSITORY and rollout in each.rollouts.values()
    }
    waits = {
        (each.kind, each.head.name): _explain(each, tag, fetched)
        for each in flux
        if rollout in each.rollouts.values() or each.source in fetched
    }
    return {place: text for place, text in waits.items() if text}


def plan_due_writes(
    rollout: ReleaseRollout, plan: ReleasePlan, objects: Iterable[FluxObject]
) -> FluxWrites:
    """Return the writes that carry a plan out: those of the tags that it applies, and what is tidy.

    None before the first deployment, and none of a Rollout that is suspended.
    """
    current, name = plan.status.current, rollout.head.name
    writes = plan_flux_writes(name, "" if current is None else current.version.tag, objects)
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


def _list_fields(rollout: str, flux: FluxObject, waits: Waits) -> Iterator[FluxTarget]:
    claims = sorted(field for field, owner in flux.rollouts.items() if owner == rollout)
    for field in () if flux.head.is_terminating else claims:
        yield FluxTarget(
            kind=flux.kind,
            name=flux.head.name,
            variable=field if flux.kind == KUSTOMIZATION else "",
            tag=flux.values.get(field),
            waiting_for=waits.get((flux.kind, flux.head.name), ""),
        )


def _explain(flux: FluxObject, tag: str, fetched: Mapping[FluxReference | None, str]) -> str:
    """Return what one object has yet to do; `fetched` are the revisions of what carries the tag."""
    problem = _explain_unsettled(flux.head, flux.progress)
    if not problem and flux.kind == OCI_REPOSITORY:
        problem = _explain_old(flux.progress.revision, tag)
    elif not problem and flux.source in fetched:
        problem = _explain_unapplied(flux.progress.revision, fetched[flux.source])
    return f"{problem}; it is suspended" if problem and flux.progress.is_suspended else problem


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


def _explain_unapplied(revision: str, wanted: str) -> str:
    return "" if revision == wanted else f"it has applied {revision or 'nothing'}, not {wanted}"
