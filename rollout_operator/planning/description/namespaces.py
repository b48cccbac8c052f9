"""Several namespaces as one description: what stands in it says where it is."""

from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from rollout_operator.model.description import (
    Description,
    NamespaceDescription,
    OperatorDescription,
)


class _Located(Protocol):
    @property
    def namespace(self) -> str: ...

    @property
    def title(self) -> str: ...


Located = TypeVar("Located", bound=_Located)


def merge_descriptions(own: Description, others: Iterable[Description]) -> Description:
    """Return `own`, which says nothing of groups, with the groups and budgets of the others."""
    ordered = sorted(others, key=lambda other: other.namespace)
    return msgspec.structs.replace(
        own,
        groups=tuple(
            msgspec.structs.replace(group, namespace=description.namespace)
            for description in ordered
            for group in description.groups
        ),
        budgets=tuple(
            msgspec.structs.replace(budget, namespace=description.namespace)
            for description in ordered
            for budget in description.budgets
        ),
        namespaces=tuple(_list_namespaces(ordered)),
        policies=_merge(description.policies for description in ordered),
        releases=_merge(description.releases for description in ordered),
        # What is of the cluster is described with each namespace.
        schedules=_merge(description.schedules for description in ordered),
        health_checks=_merge(description.health_checks for description in ordered),
    )


def select_namespace(description: Description, namespace: str) -> Description | None:
    """Return what a process of several namespaces says of this, None where it does not watch it."""
    if not description.namespaces:
        return description
    chosen = next((other for other in description.namespaces if other.name == namespace), None)
    if chosen is None:
        return None
    return msgspec.structs.replace(
        description,
        namespace=namespace,
        operator=_narrow(description.operator, chosen),
        groups=tuple(group for group in description.groups if group.namespace == namespace),
        budgets=tuple(budget for budget in description.budgets if budget.namespace == namespace),
        namespaces=(),
        policies=_select(description.policies, namespace),
        releases=_select(description.releases, namespace),
        schedules=_select(description.schedules, namespace, ""),
        health_checks=_select(description.health_checks, namespace),
    )


def _merge(described: Iterable[tuple[Located, ...] | UnsetType]) -> tuple[Located, ...] | UnsetType:
    """Return what all namespaces have, each once; UNSET where none has anything of the kind."""
    given = [some for some in described if not isinstance(some, UnsetType)]
    merged = {(located.title, located.namespace): located for some in given for located in some}
    return tuple(merged.values()) if given else UNSET


def _select(
    entries: tuple[Located, ...] | UnsetType, *namespaces: str
) -> tuple[Located, ...] | UnsetType:
    if isinstance(entries, UnsetType):
        return UNSET
    return tuple(located for located in entries if located.namespace in namespaces)


def _narrow(
    operator: OperatorDescription | None, namespace: NamespaceDescription
) -> OperatorDescription | None:
    """Return what the process is to one of its namespaces."""
    if operator is None:
        return None
    return msgspec.structs.replace(
        operator,
        is_ready=operator.is_ready and namespace.is_ready,
        is_acting=namespace.is_acting,
        missing=(*operator.missing, *namespace.missing),
    )


def _list_namespaces(descriptions: Iterable[Description]) -> Iterator[NamespaceDescription]:
    for description in descriptions:
        operator = description.operator
        yield NamespaceDescription(
            name=description.namespace,
            is_ready=operator is not None and operator.is_ready,
            is_acting=operator is not None and operator.is_acting,
            missing=() if operator is None else operator.missing,
        )
