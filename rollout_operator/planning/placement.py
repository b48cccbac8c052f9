"""What labels, and what a node affinity, say of the zone of a StatefulSet.

Which of them counts more is left to `adoption.zones` and `policies.zones`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from rollout_operator.model.placement import NodeTerm

ZONE_LABEL: Final = "zone"
"""What people call the label of a zone where they do not take that of nodes."""


def choose_label(keys: Sequence[str], *labelled: Mapping[str, str]) -> str:
    """Return the first value that is not empty, by carrier and then by key; empty where none is."""
    return next((labels[key] for labels in labelled for key in keys if labels.get(key)), "")


def choose_permitted_zone(terms: Iterable[NodeTerm], keys: Sequence[str]) -> str:
    """Return the one zone that a required node affinity allows; empty where that is not one.

    Each term is enough for a node: a term that does not name the zone allows every zone.
    """
    permitted: set[str] = set()
    for term in terms:
        values = [{*term[key]} for key in keys if key in term]
        if not values:
            return ""
        permitted |= set.intersection(*values)
    return permitted.pop() if len(permitted) == 1 else ""
