"""JSON of a StatefulSet → what adopting reads of it, also where it was never in a cluster."""

from collections.abc import Iterator
from typing import Final, TypedDict

import msgspec

from rollout_operator.model.adoption import AdoptableSet, RolloutProgress
from rollout_operator.model.budget import NodeTerm
from rollout_operator.model.decode.objects import decode_field_writers, read_as
from rollout_operator.model.decode.wire import Int32, JsonBytes, Owner, Strings, Wire, WireSelector


class _Owner(Owner):
    kind: str = ""
    name: str = ""


class _Head(Wire):
    name: str
    namespace: str = ""
    generation: int = 0
    labels: Strings = None
    annotations: Strings = None
    owner_references: list[_Owner] | None = None


class _Required(Wire):
    node_selector_terms: list[WireSelector] | None = None


class _NodeAffinity(Wire):
    required: _Required | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )


class _Affinity(Wire):
    node_affinity: _NodeAffinity | None = None


class _Container(Wire):
    image: str = ""


class _PodSpec(Wire):
    containers: list[_Container] | None = None
    node_selector: Strings = None
    affinity: _Affinity | None = None


class _TemplateHead(Wire):
    labels: Strings = None


class _Template(Wire):
    metadata: _TemplateHead | None = None
    spec: _PodSpec | None = None


# Written back as it was read: an absent key stays absent, a null stays a null.
class _RollingUpdate(TypedDict, total=False):
    partition: Int32 | None
    maxUnavailable: int | str | None


class _Strategy(Wire):
    type: str = "RollingUpdate"
    rolling_update: _RollingUpdate | None = None


class _Spec(Wire):
    template: _Template
    selector: WireSelector | None = None
    replicas: Int32 | None = None
    update_strategy: _Strategy | None = None


class _Set(Wire):
    metadata: _Head
    spec: _Spec
    status: RolloutProgress | None = None
    kind: str | None = None


_SET: Final = msgspec.json.Decoder(_Set)


def decode_adoptable(raw: JsonBytes) -> AdoptableSet:
    """Return a StatefulSet. Raises DecodeError."""
    wire = read_as("StatefulSet", raw, _SET)
    head, spec, status = wire.metadata, wire.spec, wire.status
    template, strategy = spec.template, spec.update_strategy or _Strategy()
    pod = template.spec or _PodSpec()
    return AdoptableSet(
        namespace=head.namespace,
        name=head.name,
        generation=head.generation,
        labels=head.labels or {},
        annotations=head.annotations or {},
        pod_labels=(template.metadata.labels if template.metadata else None) or {},
        node_selector=pod.node_selector or {},
        node_terms=tuple(_list_node_terms(pod)),
        replicas=1 if spec.replicas is None else spec.replicas,
        strategy=strategy.type,
        rolling_update=strategy.rolling_update,
        # What `kubectl create --dry-run -o yaml` writes has an empty status.
        status=status if status is not None and status.update_revision else None,
        selector=(spec.selector.match_labels if spec.selector else None) or {},
        image=pod.containers[0].image if pod.containers else "",
        controller=next(
            (
                f"{owner.kind} {owner.name}"
                for owner in head.owner_references or ()
                if owner.controller
            ),
            "",
        ),
        writers=decode_field_writers(raw, ("spec",)).get("selector", ()),
    )


def _list_node_terms(pod: _PodSpec) -> Iterator[NodeTerm]:
    node = pod.affinity.node_affinity if pod.affinity is not None else None
    required = node.required if node is not None else None
    for term in (required.node_selector_terms if required is not None else None) or ():
        permitted: dict[str, tuple[str, ...]] = {}
        for expression in term.match_expressions or ():
            if expression.operator == "In":
                values = tuple(expression.values or ())
                # All expressions of a term hold at once.
                both = permitted.get(expression.key, values)
                permitted[expression.key] = tuple(value for value in both if value in values)
        yield permitted
