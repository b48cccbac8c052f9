"""Several namespaces as one description: what stands in it says where it is."""

from collections.abc import Iterable, Iterator

import msgspec
from msgspec import UNSET, UnsetType

from rollout_operator.model.description import (
    Description,
    NamespaceDescription,
    OperatorDescription,
    PolicyDescription,
)


def merge_descriptions(own: Description, others: Iterable[Description]) -> Description:
    """Return `own`, which says nothing of groups, with the groups and budgets of the others."""
    ordered = sorted(others, key=lambda other: other.namespace)
    return msgspec.structs.replace(
        own,
        groups=tuple(
            msgspec.structs.replace(group, namespace=one.namespace)
            for one in ordered
            for group in one.groups
        ),
        budgets=tuple(
            msgspec.structs.replace(budget, namespace=one.namespace)
            for one in ordered
            for budget in one.budgets
        ),
        namespaces=tuple(_list_namespaces(ordered)),
        policies=_merge_policies(ordered),
    )


def select_namespace(description: Description, namespace: str) -> Description | None:
    """Return what a process of several namespaces says of one, None where that is not of them."""
    if not description.namespaces:
        return description
    found = next((other for other in description.namespaces if other.name == namespace), None)
    if found is None:
        return None
    return msgspec.structs.replace(
        description,
        namespace=namespace,
        operator=_narrow(description.operator, found),
        groups=tuple(group for group in description.groups if group.namespace == namespace),
        budgets=tuple(budget for budget in description.budgets if budget.namespace == namespace),
        namespaces=(),
        policies=(
            UNSET
            if isinstance(description.policies, UnsetType)
            else tuple(one for one in description.policies if one.namespace == namespace)
        ),
    )


def _merge_policies(
    descriptions: Iterable[Description],
) -> tuple[PolicyDescription, ...] | UnsetType:
    """Return the policies of all namespaces, UNSET where they are obeyed in none."""
    if all(isinstance(one.policies, UnsetType) for one in descriptions):
        return UNSET
    return tuple(policy for one in descriptions for policy in one.list_policies())


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
