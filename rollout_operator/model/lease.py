"""What a Lease says, and when another replica may take it.

As in client-go's `tools/leaderelection`: a process may take a Lease that it has seen unchanged for
`Times.lease` on its own clock, and the holder acts for `Times.deadline` after it sent its last
answered renewal. No two clocks are compared; the times in a Lease are for people. The gap between
both spans allows for clocks of different rates and writes in flight.
"""

import ipaddress
import re
from datetime import timedelta
from typing import Final

import msgspec

LEASE_DURATION: Final = timedelta(seconds=15)
RENEW_DEADLINE: Final = timedelta(seconds=10)
RETRY_PERIOD: Final = timedelta(seconds=2)
# The most that a flag allows: another program wrote a Lease that says more.
LONGEST_LEASE: Final = timedelta(minutes=10)
# The API server refuses more.
MOST_TRANSITIONS: Final = 2**31 - 1
_ADDRESS: Final = re.compile(r"([0-9.]+|\[[0-9a-f:]+\]):([1-9][0-9]{0,4})", re.ASCII)
_HIGHEST_PORT: Final = 65535


class Times(msgspec.Struct, frozen=True, kw_only=True):
    lease: timedelta = LEASE_DURATION
    deadline: timedelta = RENEW_DEADLINE
    retry: timedelta = RETRY_PERIOD

    @property
    def read_every(self) -> timedelta:
        """A released Lease is taken at once, and a read costs little."""
        return self.retry / 2


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """A process among the replicas."""

    name: str
    """Of its pod or machine."""
    life: str
    """Unique to the process, also among those of one pod."""
    is_pod: bool = False
    """Whether the name is a pod's: no two processes have it at a time."""
    address: str = ""
    """Where it answers other replicas, by `render_address`."""

    @property
    def holder(self) -> str:
        return f"{self.name}_{self.life}"


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    version: str
    holder: str = ""
    """Empty if it was released."""
    transitions: int = 0
    lasts: timedelta = timedelta(0)
    """By the flags of its holder; zero if absent, or more than a flag may say."""
    renewed: str = ""
    """On the holder's clock: only changes matter."""
    address: str = ""
    """Where its holder answers other replicas. It proves nothing: others may have written it."""

    @property
    def term(self) -> tuple[str, str, int]:
        """Return what changes with each renewal and holder only."""
        return self.holder, self.renewed, self.transitions

    def count_transitions(self, holder: str) -> int:
        """Return the transitions once `holder` has it, as far as a Lease can count."""
        return min(self.transitions + (self.holder != holder), MOST_TRANSITIONS)

    def may_be_taken(self, by: Identity, unchanged_for: timedelta, after: timedelta) -> bool:
        """Return whether a process that has seen it unchanged for so long may take it.

        At once if it was released or held by an earlier process of the same pod, whose container
        has ended.
        """
        if not self.holder or self.holder == by.holder:
            return True
        if by.is_pod and self.holder.startswith(f"{by.name}_"):
            return True
        return unchanged_for >= after


def render_address(ip: str, port: int) -> str:
    """Return `IP:port` or `[IP]:port`; empty unless it is the address of one machine."""
    try:
        address = ipaddress.ip_address(ip)
    except ValueError:
        return ""
    if address.is_unspecified or address.is_multicast or not 0 < port <= _HIGHEST_PORT:
        return ""
    # The zone of an IPv6 address is local to a machine.
    text = f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"
    return text if _ADDRESS.fullmatch(text) else ""


def read_address(text: str) -> str:
    """Return an address in the form of `render_address`, empty for any other text."""
    match = _ADDRESS.fullmatch(text)
    if match is None:
        return ""
    return text if render_address(match[1].strip("[]"), int(match[2])) == text else ""
