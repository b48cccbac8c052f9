"""Which objects a list or a watch selects: label and field selectors of a query.

Decides for the forms that clients of the lab send; any other is not modelled. Selectors inside of
objects are `lab.schemas.labels`' part.
"""

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Final

import msgspec

from rollout_lab.model.fields import text
from rollout_lab.model.request import not_modelled
from rollout_lab.schemas.labels import labels_of
from rollout_operator.kube.api import JsonObject, Resource

_OF_ALL: Final = frozenset({"metadata.name", "metadata.namespace"})
_OF_PODS: Final = frozenset({"spec.nodeName", "status.phase"})
_WORD: Final = r"[^\s=!(),<>]+"
# One requirement up to the comma that ends it; only a set holds commas of its own.
_LABELS: Final = re.compile(
    rf"\s*(?:(?P<absent>!)\s*)?(?P<key>{_WORD})\s*"
    rf"(?:(?P<sign>==?|!=)\s*(?P<value>{_WORD})?|(?P<set>in|notin)\s*\((?P<values>[^()=!<>]*)\))?"
    r"\s*(?:,(?=.)|$)"
)
_FIELD: Final = re.compile(r"(?P<field>[^=!\\]+)(?P<sign>!=|==|=)(?P<value>[^\\]*)")


class Requirement(msgspec.Struct, frozen=True):
    """One condition: the value is among `values`, or is not. None stands for no value at all."""

    key: str
    values: frozenset[str | None]
    is_among: bool

    def holds(self, value: str | None) -> bool:
        """Return whether a value meets it."""
        return (value in self.values) is self.is_among


class Selection(msgspec.Struct, frozen=True):
    """What a query selects; by default everything."""

    labels: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Return whether it takes everything."""
        return not (self.labels or self.fields)

    def takes(self, obj: JsonObject) -> bool:
        """Return whether an object is selected."""
        if self.fields:
            for field in self.fields:
                if not field.holds(text(obj, *field.key.split("."))):
                    return False
        if self.labels:
            labels = labels_of(obj)
            return all(label.holds(labels.get(label.key)) for label in self.labels)
        return True


def read_selection(resource: Resource, query: Mapping[str, str]) -> Selection:
    """Return what a query selects. Raises NotModelled."""
    labels, fields = query.get("labelSelector", ""), query.get("fieldSelector", "")
    if not (labels or fields):
        return _EVERYTHING
    return Selection(_parse_labels(labels), _parse_fields(resource.kind, fields))


@lru_cache(maxsize=512)
def _parse_labels(selector: str) -> tuple[Requirement, ...]:
    return tuple(_read_labels(selector))


def _read_labels(selector: str) -> Iterator[Requirement]:
    at = 0
    while at < len(selector):
        match = _LABELS.match(selector, at)
        if match is None or (match["absent"] and (match["sign"] or match["set"])):
            not_modelled(f"the label selector {selector!r}")
        at = match.end()
        key = match["key"]
        if match["sign"]:
            yield Requirement(key, frozenset({match["value"] or ""}), match["sign"] != "!=")
        elif match["set"]:
            values = frozenset(value.strip() for value in match["values"].split(","))
            yield Requirement(key, values, match["set"] == "in")
        else:
            yield Requirement(key, frozenset({None}), bool(match["absent"]))


@lru_cache(maxsize=512)
def _parse_fields(kind: str, selector: str) -> tuple[Requirement, ...]:
    known = _OF_ALL | _OF_PODS if kind == "Pod" else _OF_ALL
    found = []
    for term in sorted(part for part in selector.split(",") if part):
        match = _FIELD.fullmatch(term)
        if match is None or match["field"] not in known:
            not_modelled(f"the field selector {selector!r} of {kind}")
        values = frozenset({match["value"]})
        found.append(Requirement(match["field"], values, match["sign"] != "!="))
    return tuple(found)


_EVERYTHING: Final = Selection()
