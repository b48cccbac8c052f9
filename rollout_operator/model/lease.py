"""Which replica acts: what a Lease says, and when another replica may take it.

The protocol is that of client-go (`tools/leaderelection`): a process that may take a Lease has seen
it unchanged for `Times.lease` on its own clock, and its holder acts for `Times.deadline` after
it sent the last renewal that was answered. No two clocks are compared; the times in a Lease are for
people. What lies between both spans is for clocks that run at different rates, and for writes that
are on their way.
"""

import ipaddress
import re
from datetime import timedelta
from typing import Final

import msgspec

LEASE_DURATION: Final = timedelta(seconds=15)
RENEW_DEADLINE: Final = timedelta(seconds=10)
RETRY_PERIOD: Final = timedelta(seconds=2)
# The longest that a flag may say. A Lease that says more was written by another program.
LONGEST_LEASE: Final = timedelta(minutes=10)
# The API server refuses more: a Lease that says this much could never be taken again.
MOST_TRANSITIONS: Final = 2**31 - 1

_ADDRESS: Final = re.compile(r"([0-9.]+|\[[0-9a-f:]+\]):([1-9][0-9]{0,4})", re.ASCII)
_HIGHEST_PORT: Final = 65535


def render_address(ip: str, port: int) -> str:
    """Return `IP:port`, or `[IP]:port` for IPv6; empty where it is no address of one machine."""
    try:
        address = ipaddress.ip_address(ip)
    except ValueError:
        return ""
    if address.is_unspecified or address.is_multicast or not 0 < port <= _HIGHEST_PORT:
        return ""
    # Not the zone of an IPv6 address: it means something on one machine only.
    text = f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"
    return text if _ADDRESS.fullmatch(text) else ""


def read_address(text: str) -> str:
    """Return an address as `render_address` writes it, and empty for any other text."""
    match = _ADDRESS.fullmatch(text)
    if match is None:
        return ""
    return text if render_address(match[1].strip("[]"), int(match[2])) == text else ""


class Times(msgspec.Struct, frozen=True, kw_only=True):
    """How a process takes part in an election."""

    lease: timedelta = LEASE_DURATION
    deadline: timedelta = RENEW_DEADLINE
    retry: timedelta = RETRY_PERIOD

    @property
    def read_every(self) -> timedelta:
        """A Lease that is released is to be taken at once; a read of one costs next to nothing."""
        return self.retry / 2


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """A process among the replicas."""

    name: str
    """Of its pod, or of the machine that it runs on."""
    life: str
    """Different in each process, also of the same pod."""
    is_pod: bool = False
    """Whether the name is a pod's: then no two processes have it at the same time."""
    address: str = ""
    """Where it answers other replicas, as `render_address` writes it; empty: nowhere."""

    @property
    def holder(self) -> str:
        """Return what a Lease says where this process holds it."""
        return f"{self.name}_{self.life}"


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """A Lease as the API server has it."""

    version: str
    """`metadata.resourceVersion`"""
    holder: str = ""
    """Empty where it was released."""
    transitions: int = 0
    lasts: timedelta = timedelta(0)
    """By the flags of its holder; zero where it does not say, or more than a flag may."""
    renewed: str = ""
    """When, on the holder's clock: only that it changes counts."""
    address: str = ""
    """Where its holder answers other replicas. Others may have written it: it proves nothing."""

    @property
    def term(self) -> tuple[str, str, int]:
        """Return what changes with each renewal and each holder, and with nothing else."""
        return self.holder, self.renewed, self.transitions

    def count_transitions(self, holder: str) -> int:
        """Return how often it has changed hands once `holder` has it, as far as a Lease can say."""
        return min(self.transitions + (self.holder != holder), MOST_TRANSITIONS)

    def may_be_taken(self, by: Identity, unchanged_for: timedelta, after: timedelta) -> bool:
        """Return whether a process that has seen it unchanged for so long may take it.

        At once where it was released, and where an earlier process of the same pod held it: its
        container has ended before another is started.
        """
        if not self.holder or self.holder == by.holder:
            return True
        if by.is_pod and self.holder.startswith(f"{by.name}_"):
            return True
        return unchanged_for >= after
