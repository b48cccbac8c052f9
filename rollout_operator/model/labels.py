"""Labels of a view, and what a selector finds among them.

An object may carry thousands of labels, and a view keeps every label of few objects only: of one
that has too many it keeps those that have a meaning here, and says so (D-68).
"""

from collections.abc import Mapping
from typing import Final

from rollout_operator.model.names import (
    GROUP_LABEL,
    GROUP_LABEL_LONG,
    MIN_TIME_BETWEEN_DOWNSCALES,
    NO_DOWNSCALE,
    PREPARE_DOWNSCALE,
    REVISION_LABEL,
)

# Objects of people have a dozen or two.
MOST_LABELS: Final = 128
# The labels that are read by name.
NAMED_LABELS: Final = frozenset(
    {
        GROUP_LABEL,
        GROUP_LABEL_LONG,
        REVISION_LABEL,
        NO_DOWNSCALE,
        PREPARE_DOWNSCALE,
        MIN_TIME_BETWEEN_DOWNSCALES,
    }
)
# Key of a view that leaves labels out. No label has it: a key has at least one letter.
LEFT_OUT: Final = ""


def bound_labels(labels: Mapping[str, str]) -> Mapping[str, str]:
    """Return the labels that a view keeps: all of them, or the named ones and `LEFT_OUT`."""
    if len(labels) <= MOST_LABELS:
        return labels
    named = {key: labels[key] for key in sorted(NAMED_LABELS) if key in labels}
    return {**named, LEFT_OUT: ""}


def selects(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Tell whether an object with these labels is selected; an empty selector selects all.

    One whose labels are left out may be, unless a label that is kept speaks against it: nothing
    gets past a budget by having too many. Where that it is selected permits anything, ask
    `is_certain` as well.
    """
    if LEFT_OUT not in labels:
        return selector.items() <= labels.items()
    return all(labels.get(key) == value for key, value in selector.items() if key in NAMED_LABELS)


def is_certain(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Tell whether `selects` knows all labels that a selector asks for."""
    return LEFT_OUT not in labels or NAMED_LABELS.issuperset(selector)
