"""Which function of the operator does which step of the model in `grants`.

A step that is done by no function of ours says by whom it is done.
"""

from collections.abc import Mapping
from typing import Final

GATE: Final = "rollout_operator.guards.gate:Gate"
PENDING: Final = "rollout_operator.guards.pending:Pending"
RECORDER: Final = "rollout_operator.guards.recording:Recorder"
TAKER: Final = "rollout_operator.controllers.disruptions:DisruptionController"

FUNCTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "reserve": (f"{GATE}.ask", f"{PENDING}.reserve"),
    "record": (f"{GATE}._record", f"{RECORDER}.write"),
    "be refused the record on": (f"{GATE}._record", f"{PENDING}.release"),
    "give up waiting for the record on": (f"{GATE}._grant", f"{PENDING}.doubt"),
    "miss the answer on": (f"{GATE}._grant", f"{PENDING}.doubt"),
    "list for": (f"{GATE}._confirm", f"{GATE}._look"),
    "miss its record on": (f"{GATE}._confirm",),
    "refuse": (f"{GATE}._confirm",),
    "stall over": (f"{GATE}._confirm",),
    "be too late for": (f"{GATE}._confirm",),
    "allow": (f"{GATE}._confirm", f"{PENDING}.give"),
    "withdraw from": (f"{GATE}._withdraw", f"{RECORDER}.withdraw", f"{PENDING}.release"),
    "give up withdrawing from": (f"{GATE}._withdraw", f"{PENDING}.doubt"),
    "take back": (f"{TAKER}.reconcile", f"{RECORDER}.take_back"),
    "forget": (f"{PENDING}.forget_seen", f"{TAKER}.reconcile", f"{PENDING}.take_back"),
    "end quarantine": (f"{GATE}._record",),
}

OTHERS: Final[Mapping[str, str]] = {
    "delete": "the API server: what was answered takes effect",
    "replace": "the StatefulSet controller and a kubelet",
    "age the record on": "time: what it allowed has happened by now, or never will",
    "end the effect of an answer on": "time: the same, of a record that stands no more",
    "be killed": "whoever kills processes",
    "be killed after sending for": "whoever kills processes",
    "late": "the API server: a call of somebody who does not wait for it any more",
    "lose": "the network",
}
