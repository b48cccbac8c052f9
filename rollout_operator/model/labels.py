"""Labels of a cached object, and what a selector finds among them.

An object may carry thousands of labels, and the cache keeps every label of few objects only. Of an
object that has too many it keeps those that have a meaning here, and says so (D-68).
"""

from collections.abc import Mapping
from typing import Final

import msgspec

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
# Key of a cached object that leaves labels out. No label has it: a key has at least one letter.
LEFT_OUT: Final = ""


def bound_labels(labels: Mapping[str, str]) -> Mapping[str, str]:
    """Return the labels that the cache keeps: all, or those with a meaning and `LEFT_OUT`."""
    if len(labels) <= MOST_LABELS:
        return labels
    named = {key: labels[key] for key in sorted(NAMED_LABELS) if key in labels}
    return {**named, LEFT_OUT: ""}


def selects(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Return whether an object with these labels is selected; an empty selector selects all.

    An object whose labels are left out may be, unless a label that is kept speaks against it:
    nothing gets past a budget by having too many. Where being selected allows something, call
    `is_certain` as well.
    """
    if LEFT_OUT not in labels:
        return selector.items() <= labels.items()
    return all(labels.get(key) == value for key, value in selector.items() if key in NAMED_LABELS)


def is_certain(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Return whether `selects` knows all labels that a selector reads."""
    return LEFT_OUT not in labels or NAMED_LABELS.issuperset(selector)


class SelectorTerm(msgspec.Struct, frozen=True, kw_only=True):
    """One of the `matchExpressions` of a selector."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Return whether labels fit; an operator that is not known is taken to fit."""
        match self.operator:
            case "In":
                return labels.get(self.key) in self.values
            case "NotIn":
                return labels.get(self.key) not in self.values
            case "Exists":
                return self.key in labels
            case "DoesNotExist":
                return self.key not in labels
            case _:
                return True

    def render(self) -> str:
        """Return it as a list call takes it."""
        match self.operator:
            case "In" | "NotIn":
                return f"{self.key} {self.operator.lower()} ({','.join(self.values)})"
            case "DoesNotExist":
                return f"!{self.key}"
            case _:
                return self.key


class LabelSelector(msgspec.Struct, frozen=True, kw_only=True):
    """A selector of the API's own kinds; an empty selector selects everything."""

    labels: Mapping[str, str] = {}
    terms: tuple[SelectorTerm, ...] = ()

    def takes(self, labels: Mapping[str, str]) -> bool:
        """Return whether an object with these labels is selected; all its labels must be known."""
        return self.labels.items() <= labels.items() and all(
            term.holds(labels) for term in self.terms
        )

    def may_take(self, labels: Mapping[str, str]) -> bool:
        """Return whether such an object is or may be selected, where some labels are left out."""
        if LEFT_OUT not in labels:
            return self.takes(labels)
        kept = LabelSelector(
            labels={key: self.labels[key] for key in self.labels if key in NAMED_LABELS},
            terms=tuple(term for term in self.terms if term.key in NAMED_LABELS),
        )
        return kept.takes(labels)

    def render(self) -> str:
        """Return it as a list call takes it."""
        parts = [f"{key}={value}" for key, value in sorted(self.labels.items())]
        return ",".join([*parts, *(term.render() for term in self.terms)])

    def is_certain(self, labels: Mapping[str, str]) -> bool:
        """Return whether `may_take` knows all labels that it reads."""
        keys = {*self.labels, *(term.key for term in self.terms)}
        return LEFT_OUT not in labels or keys <= NAMED_LABELS
