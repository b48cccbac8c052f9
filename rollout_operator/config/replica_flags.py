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
        " does not allow Leases, the operator says so once and acts: only one may run then.",
    )
    lease_name: str = flag(
        "leader-election.lease-name", TEXT, "rollout-operator", _REPLICAS,
        "Name of that Lease, in the namespace of -kubernetes.namespace: the same in all"
        " operators that look after it.",
    )
    peer_port: int = flag(
        "server-tls.peer-port", INT, 8444, _REPLICAS,
        "TCP port on which the replica that holds the Lease answers reviews that others pass on"
        " to it, on all addresses. Only replicas with a certificate of our own CA are served."
        " Needs POD_IP in the environment. 0: none are passed on, and the others refuse them, to"
        " be tried again.",
    )
    shutdown_delay: timedelta = flag(
        "server-tls.shutdown-delay", DURATION, timedelta(seconds=5), _REPLICAS,
        "How long webhooks are answered after SIGTERM, by which time API servers ask the other"
        " replicas. The Lease is released before that, as soon as what is underway has ended; what"
        " the replica that acts has to decide is passed on to the next one. At most 10s.",
    )
# fmt: on
