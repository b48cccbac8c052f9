"""Several namespaces as one description: what stands in it says where it is."""

from collections.abc import Iterable, Iterator

import msgspec

from rollout_operator.model.description import Description, NamespaceDescription


def merge_descriptions(own: Description, others: Iterable[Description]) -> Description:
    """Return `own`, which says nothing of groups, with the groups and budgets of the others."""
    ordered = sorted(others, key=lambda one: one.namespace)
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
    )


def select_namespace(description: Description, namespace: str) -> Description:
    """Return what is said of one namespace; of another than that of a single one, nothing."""
    if not description.namespaces:
        return description
    return msgspec.structs.replace(
        description,
        namespace=namespace,
        groups=tuple(group for group in description.groups if group.namespace == namespace),
        budgets=tuple(budget for budget in description.budgets if budget.namespace == namespace),
        namespaces=(),
    )


def _list_namespaces(descriptions: Iterable[Description]) -> Iterator[NamespaceDescription]:
    for one in descriptions:
        operator = one.operator
        yield NamespaceDescription(
            name=one.namespace,
            is_ready=operator is not None and operator.is_ready,
            is_acting=operator is not None and operator.is_acting,
            missing=() if operator is None else operator.missing,
        )
