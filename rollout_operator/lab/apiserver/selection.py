"""Which objects a list or a watch asks for: label and field selectors of a query.

Decides by the grammar and the words of the real server; what is asked beyond that is refused with
400, as there. Selectors inside of objects are `lab.schemas.labels`' part.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from rollout_operator.kube.api import JsonObject, Resource
from rollout_operator.lab.model.fields import text
from rollout_operator.lab.model.request import not_modelled
from rollout_operator.lab.schemas.label_grammar import Requirement, parse_requirements
from rollout_operator.lab.schemas.labels import labels_of
from rollout_operator.lab.schemas.refusals import bad_request

_OF_ALL: Final = frozenset({"metadata.name", "metadata.namespace"})
# Fields of a kind that the real server selects by as well, as far as they are texts at that path.
_OF_KIND: Final[Mapping[str, frozenset[str]]] = {
    "Pod": frozenset(
        {
            *("spec.nodeName", "spec.restartPolicy", "spec.schedulerName"),
            *("spec.serviceAccountName", "status.phase", "status.podIP"),
            "status.nominatedNodeName",
        }
    ),
    "Secret": frozenset({"type"}),
    "Namespace": frozenset({"status.phase"}),
    "Node": frozenset(),
    "Service": frozenset({"spec.clusterIP", "spec.type"}),
    "Event": frozenset(
        {
            *("involvedObject.kind", "involvedObject.namespace", "involvedObject.name"),
            *("involvedObject.uid", "involvedObject.apiVersion", "involvedObject.fieldPath"),
            *("involvedObject.resourceVersion", "reason", "reportingComponent", "type"),
        }
    ),
}
_NOT_MODELLED: Final[Mapping[str, frozenset[str]]] = {
    "Pod": frozenset({"spec.hostNetwork", "status.podIPs", "spec.host"}),
    "Node": frozenset({"spec.unschedulable"}),
    "Event": frozenset({"source"}),
}
_TERM: Final = re.compile(r"(?P<field>.*?)(?P<sign>!=|==|=)(?P<value>.*)")


@dataclass(frozen=True, slots=True)
class Selection:
    """What a query asks for; by default everything."""

    labels: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Tell whether it takes everything."""
        return not (self.labels or self.fields)

    def takes(self, obj: JsonObject) -> bool:
        """Tell whether an object is asked for."""
        if self.fields:
            for one in self.fields:
                if not one.holds(text(obj, *one.key.split("."))):
                    return False
        if self.labels:
            labels = labels_of(obj)
            return all(one.holds(labels.get(one.key)) for one in self.labels)
        return True


def read_selection(resource: Resource, query: Mapping[str, str]) -> Selection:
    """Return what a query asks for. Raises Refusal (400)."""
    labels, fields = query.get("labelSelector", ""), query.get("fieldSelector", "")
    if not (labels or fields):
        return _EVERYTHING
    return Selection(parse_labels(labels), parse_fields(resource.kind, fields))


@lru_cache(maxsize=512)
def parse_labels(selector: str) -> tuple[Requirement, ...]:
    """Return the conditions of a label selector. Raises Refusal (400)."""
    try:
        return parse_requirements(selector)
    except ValueError as error:
        raise bad_request(str(error)) from error


@lru_cache(maxsize=512)
def parse_fields(kind: str, selector: str) -> tuple[Requirement, ...]:
    """Return the conditions of a field selector on objects of a kind. Raises Refusal (400)."""
    if "\\" in selector:
        not_modelled(f"escapes in the field selector {selector!r}")
    found = []
    for term in sorted(part for part in selector.split(",") if part):
        match = _TERM.fullmatch(term)
        if match is None:
            text = f"invalid selector: '{selector}'; can't understand '{term}'"
            raise bad_request(text)
        _check_field(kind, match["field"])
        values = frozenset({match["value"]})
        found.append(Requirement(match["field"], values, match["sign"] != "!="))
    return tuple(found)


def _check_field(kind: str, field: str) -> None:
    if field in _NOT_MODELLED.get(kind, ()):
        not_modelled(f"the field selector {field!r} of {kind}")
    own = _OF_KIND.get(kind)
    if field in _OF_ALL or (own is not None and field in own):
        return
    known = '"metadata.name", "metadata.namespace"'
    text = f'"{field}" is not a known field selector: only {known}'
    raise bad_request(text if own is None else f"field label not supported: {field}")


_EVERYTHING: Final = Selection()
