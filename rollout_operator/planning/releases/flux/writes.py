"""What a Rollout writes into objects of Flux: one tag, wherever annotations want it.

Each Rollout has a field manager of its own and applies nothing but its own fields: two Rollouts on
one Kustomization keep theirs apart, and a field without its annotation is let go. Then its value
stays: without it Flux would apply another version than the wanted version. What is there
already is not written, so that a plan may be made again after any of its writes.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from rollout_operator.model.releases.flux import (
    KUSTOMIZATION,
    OCI_REPOSITORY,
    FluxWrite,
    FluxWriteCode,
    FluxWrites,
    Kustomization,
    OciRepository,
    PatchMethod,
    Writers,
)
from rollout_operator.model.releases.rollout import ReleaseHead
from rollout_operator.planning.wording import join_names

_MANAGER: Final = "rollout-controller"
RELEASED: Final = f"{_MANAGER}-released"
"""Holds values that a Rollout let go of. No Rollout has this name: theirs have a slash."""
# The API server refuses a longer name of a field manager.
_LONGEST_MANAGER: Final = 128
_HASH: Final = 10
TAG: Final = "tag"
# What goes before the tag in `spec.ref`.
_SHADOWS: Final = ("digest", "semver")


class _Fields(NamedTuple):
    """The fields of one object that a Rollout may write, whatever its kind."""

    kind: str
    head: ReleaseHead
    api_version: str
    path: tuple[str, ...]
    claims: Mapping[str, str]
    """By field, its Rollout."""
    values: Mapping[str, str]
    writers: Writers

    @property
    def place(self) -> str:
        return ".".join(("spec", *self.path))


def name_manager(rollout: str) -> str:
    """Return the field manager of a Rollout; that of a long name is cut, and distinguished."""
    name = f"{_MANAGER}/{rollout}"
    if len(name) <= _LONGEST_MANAGER:
        return name
    digest = hashlib.sha256(rollout.encode()).hexdigest()[:_HASH]
    return f"{name[: _LONGEST_MANAGER - _HASH - 1]}-{digest}"


def plan_flux_writes(
    rollout: str,
    tag: str,
    repositories: Iterable[OciRepository],
    kustomizations: Iterable[Kustomization],
) -> FluxWrites:
    """Return what it takes until all that is annotated for a Rollout has the tag.

    The objects are those of its namespace. Nothing is written to an object that is being deleted.
    """
    oci = sorted(repositories, key=lambda repository: repository.head.name)
    applied = sorted(kustomizations, key=lambda kustomization: kustomization.head.name)
    fields = (*map(_fields_of_repository, oci), *map(_fields_of_kustomization, applied))
    return FluxWrites(
        writes=tuple(write for field in fields for write in _plan_object(rollout, tag, field)),
        problems=tuple(
            problem.text
            for problems in [target.problems for target in oci]
            + [target.problems for target in applied]
            for problem in problems
            if problem.rollout == rollout
        ),
    )


def _fields_of_repository(oci_repository: OciRepository) -> _Fields:
    claims = {} if oci_repository.rollout is None else {TAG: oci_repository.rollout}
    return _Fields(
        OCI_REPOSITORY,
        oci_repository.head,
        oci_repository.api_version,
        ("ref",),
        claims,
        oci_repository.reference,
        oci_repository.writers,
    )


def _fields_of_kustomization(kustomization: Kustomization) -> _Fields:
    path = ("postBuild", "substitute")
    return _Fields(
        KUSTOMIZATION,
        kustomization.head,
        kustomization.api_version,
        path,
        kustomization.rollouts,
        kustomization.substitute,
        kustomization.writers,
    )


def _plan_object(rollout: str, tag: str, fields: _Fields) -> Iterator[FluxWrite]:
    if fields.head.is_terminating:
        return
    manager = name_manager(rollout)
    claimed = sorted(name for name, owner in fields.claims.items() if owner == rollout)
    dropped = sorted(
        name
        for name, managers in fields.writers.items()
        if manager in managers and name not in claimed and name in fields.values
    )
    wanted = dict.fromkeys(claimed, tag)
    if any(fields.writers[name] == (manager,) for name in dropped):
        yield _keep(fields, dropped)
    if any(fields.values.get(name) != tag for name in claimed):
        code, text = _explain_change(fields, wanted, manager)
        yield _apply(fields, manager, wanted, code, text)
    elif dropped:
        text = f"{_show(fields, dropped)} of Rollout {rollout} no more: no annotation says so"
        yield _apply(fields, manager, wanted, FluxWriteCode.VALUE_RELEASED, text)
    shadows = [name for name in _SHADOWS if name in fields.values]
    if shadows and TAG in claimed and fields.kind == OCI_REPOSITORY:
        yield _clear(fields, shadows, manager)


def _keep(fields: _Fields, names: Iterable[str]) -> FluxWrite:
    """Return a write that makes another manager hold values too, beside those that it has."""
    held = (name for name, managers in fields.writers.items() if RELEASED in managers)
    kept = {name: fields.values[name] for name in sorted({*names, *held}) if name in fields.values}
    text = f"{_show(fields, names)} stays: the Rollout lets go of it"
    return _apply(fields, RELEASED, kept, FluxWriteCode.VALUE_KEPT, text)


def _clear(fields: _Fields, names: Sequence[str], manager: str) -> FluxWrite:
    # A patch by merge: what is applied can give values, and take away only its own.
    return FluxWrite(
        kind=fields.kind,
        head=fields.head,
        manager=manager,
        method=PatchMethod.MERGE,
        body={
            "metadata": {"uid": fields.head.uid},
            "spec": _nest(fields.path, dict.fromkeys(names)),
        },
        is_forced=False,
        code=FluxWriteCode.CHOICE_CLEARED,
        text=f"{_show(fields, names)} cleared: it would go before the tag",
    )


def _apply(
    fields: _Fields, manager: str, values: Mapping[str, str], code: FluxWriteCode, text: str
) -> FluxWrite:
    head = fields.head
    metadata = {"name": head.name, "namespace": head.namespace, "uid": head.uid}
    spec = {"spec": _nest(fields.path, values)} if values else {}
    return FluxWrite(
        kind=fields.kind,
        head=head,
        manager=manager,
        method=PatchMethod.APPLY,
        body={
            "apiVersion": fields.api_version,
            "kind": fields.kind,
            "metadata": metadata,
            **spec,
        },
        # A value that is only kept and has changed meanwhile is planned again.
        is_forced=code is not FluxWriteCode.VALUE_KEPT,
        code=code,
        text=text,
    )


def _explain_change(
    fields: _Fields, wanted: Mapping[str, str], manager: str
) -> tuple[FluxWriteCode, str]:
    changed = [name for name, tag in wanted.items() if fields.values.get(name) != tag]
    others = sorted(
        {
            writer
            for name in changed
            for writer in fields.writers.get(name, ())
            if name in fields.values and writer not in {"", manager, RELEASED, _MANAGER}
        }
    )
    moves = [f"{name} {fields.values.get(name) or 'empty'} -> {wanted[name]}" for name in changed]
    text = f"{fields.kind} {fields.head.key}: {fields.place}: {join_names(moves)}"
    if others:
        return FluxWriteCode.VALUE_TAKEN, f"{text}; written by {join_names(others)}"
    is_new = all(name not in fields.values for name in changed)
    return (FluxWriteCode.VALUE_SET if is_new else FluxWriteCode.VALUE_MOVED), text


def _show(fields: _Fields, names: Iterable[str]) -> str:
    values = [f"{name} {fields.values[name]}" for name in names]
    return f"{fields.kind} {fields.head.key}: {fields.place}: {join_names(values)}"


def _nest(path: Sequence[str], value: Mapping[str, object]) -> Mapping[str, object]:
    for step in reversed(path):
        value = {step: value}
    return value
