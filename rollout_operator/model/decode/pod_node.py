"""JSON of a pod → on which node it runs, which no cache holds."""

from typing import Final

import msgspec

from rollout_operator.model.decode.broken import bound_text
from rollout_operator.model.decode.objects import read_as
from rollout_operator.model.decode.wire import JsonBytes, Required, Wire
from rollout_operator.model.names import Uid


class _Head(Wire):
    uid: Required


class _Spec(Wire):
    node_name: str | None = None


class _ScheduledPod(Wire):
    metadata: _Head
    spec: _Spec | None = None
    kind: str | None = None


_POD: Final = msgspec.json.Decoder(_ScheduledPod)


def decode_pod_node(raw: JsonBytes) -> tuple[Uid, str]:
    """Return the UID of a pod and its node, empty where it has none yet. Raises DecodeError."""
    wire = read_as("Pod", raw, _POD)
    return Uid(wire.metadata.uid), bound_text((wire.spec.node_name if wire.spec else None) or "")
