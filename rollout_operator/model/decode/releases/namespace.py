"""JSON of a Namespace → `LabelledNamespace`."""

from rollout_operator.model.decode.releases.head import read_head
from rollout_operator.model.decode.wire import JsonBytes
from rollout_operator.model.releases.namespace import LabelledNamespace


def decode_labelled_namespace(raw: JsonBytes) -> LabelledNamespace:
    """Return a namespace with its labels. Raises DecodeError."""
    read = read_head("Namespace", raw)
    return LabelledNamespace(head=read.head, labels=read.labels)
