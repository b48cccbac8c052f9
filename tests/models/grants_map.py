"""Which function of the operator does which step of the model in `grants`.

A step that is done by no function of ours says by whom it is done.
"""

from collections.abc import Mapping
from typing import Final

GATE: Final = "rollout_operator.guards.arbiter:Arbiter"
PENDING: Final = "rollout_operator.guards.grants:InFlight"
RELEASES: Final = "rollout_operator.guards.grants:GrantReleases"
RECORDER: Final = "rollout_operator.guards.grants:Recorder"
SNAPSHOTS: Final = "rollout_operator.guards.arbiter:Snapshots"
READER: Final = "rollout_operator.controllers.observe:GroupReader"
RECLAIMER: Final = "rollout_operator.controllers.budgets:DisruptionController"

FUNCTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "reserve": (f"{GATE}.request", f"{GATE}.reserve", f"{PENDING}.reserve"),
    "record": (f"{GATE}._record", f"{RECORDER}.write"),
    "be refused the record on": (f"{GATE}._record", f"{PENDING}.release_open"),
    "give up waiting for the record on": (f"{GATE}._record", f"{PENDING}.release_open"),
    "miss the answer on": (f"{GATE}._record", f"{PENDING}.release_open"),
    "list for": (f"{GATE}._read_until_sure", f"{SNAPSHOTS}.observe_live", f"{READER}.read"),
    "miss its record on": (f"{GATE}._read_until_sure",),
    "refuse": (f"{GATE}._confirm", f"{GATE}.release"),
    "stall over": (f"{GATE}._read_until_sure",),
    "be too late for": (f"{GATE}._read_until_sure", f"{GATE}.confirm"),
    "allow": (f"{GATE}._read_until_sure", f"{PENDING}.confirm"),
    "release on": (f"{RELEASES}.release", f"{RECORDER}.remove", f"{PENDING}.release"),
    "give up releasing on": (f"{RELEASES}.release", f"{RELEASES}.abandon"),
    "reclaim": (f"{RECLAIMER}.reconcile", f"{RECORDER}.clear"),
    "forget": (f"{PENDING}.forget_seen", f"{RECLAIMER}.reconcile", f"{PENDING}.release_untouched"),
    "end quarantine": (f"{GATE}._record",),
}

OTHERS: Final[Mapping[str, str]] = {
    "delete": "the API server: what was answered takes effect",
    "replace": "the StatefulSet controller and a kubelet",
    "age the record on": "time: what it allowed has happened by now, or never will",
    "end the effect of an answer on": "time: the same, of a record that stands no more",
    "be killed": "what kills processes",
    "be killed after sending for": "what kills processes",
    "late": "the API server: a call of a process that does not wait for it any more",
    "lose": "the network",
}
