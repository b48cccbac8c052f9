"""Flags that matter where several replicas run."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from rollout_operator.config.grammar import BOOL, DURATION, INT, TEXT, flag

_REPLICAS: Final = "Several replicas"


# fmt: off
@dataclass(frozen=True, kw_only=True)
class ReplicaFlags:
    """Which replica acts, and what the others do."""

    election_enabled: bool = flag(
        "leader-election.enabled", BOOL, True, _REPLICAS,
        "Act only as the holder of a Lease, so that several replicas may run. Where the role"
        " does not allow Leases, the operator says so once and acts: only one replica may run"
        " then.",
    )
    lease_name: str = flag(
        "leader-election.lease-name", TEXT, "rollout-operator", _REPLICAS,
        "Name of that Lease, in the namespace of -kubernetes.namespace: the same in all"
        " operators that manage it.",
    )
    peer_port: int = flag(
        "server-tls.peer-port", INT, 8444, _REPLICAS,
        "TCP port, on all addresses, on which the replica that holds the Lease answers"
        " reviews of the other replicas. It serves only replicas with a certificate of its own"
        " CA. Needs POD_IP in the environment. With 0 the other replicas refuse such reviews,"
        " to be tried again.",
    )
    shutdown_delay: timedelta = flag(
        "server-tls.shutdown-delay", DURATION, timedelta(seconds=5), _REPLICAS,
        "How long the operator answers webhooks after SIGTERM, until API servers call the"
        " other replicas. It releases the Lease before that, as soon as the work underway has"
        " ended; the next replica that acts then decides what no other may. At most 10s.",
    )
# fmt: on
