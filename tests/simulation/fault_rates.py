"""How much goes wrong in a schedule: how often each kind of fault strikes, and how hard.

What happens to calls, events and pods is drawn by the sandbox's own `FaultRates`; what happens to a
process, a pod or the API server as a whole is a blow (see `chaos`), and what happens to a review is
in `chaos`, too. The usual profile has a little of everything; one schedule in five has another,
which is far more of one kind.
"""

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from tests.simulation.random_faults import FaultRates
from tests.simulation.runtime import split


class Blows(msgspec.Struct, frozen=True, kw_only=True):
    """How many of each are expected in one schedule, before all heals."""

    crash: float = 0
    """The process is gone at an instant; it comes back after 0 to 120 s."""
    crash_at_step: float = 0
    """The same between any two steps of the event loop."""
    stop: float = 0
    """SIGTERM."""
    partition: float = 0
    """Process and API server do not hear one another for 1 s to 10 min."""
    pods_cut: float = 0
    """The process does not reach any pod."""
    clock_jump: float = 0
    """Of the process, by 1 s to 6 h, in either direction."""
    clock_rate: float = 0
    """Between half and double."""
    pod_fails: float = 0
    compact: float = 0
    """The API server forgets old versions."""
    controller_lags: float = 0
    """The StatefulSet controller sees all 1 to 60 s late, for 1 s to 10 min."""


class HookFaults(msgspec.Struct, frozen=True, kw_only=True):
    """The chance of each, per call of a webhook."""

    repeated: float = 0
    """Sent once more with another review UID, before or after."""
    timed_out: float = 0
    """The answer does not arrive in time; the hook has worked all the same."""
    unreachable: float = 0
    refused_later: float = 0
    """Another webhook, that comes last, says no."""
    forged: float = 0
    """Before it, a client that is not the API server sends one like it, with lies in it."""


class FaultProfile(msgspec.Struct, frozen=True, kw_only=True):
    """All that goes wrong."""

    calls: FaultRates
    blows: Blows
    hooks: HookFaults


NORMAL: Final = FaultProfile(
    calls=FaultRates(),
    blows=Blows(
        crash=0.5,
        crash_at_step=0.7,
        stop=0.2,
        partition=0.4,
        pods_cut=0.2,
        clock_jump=0.4,
        clock_rate=0.2,
        pod_fails=0.5,
        compact=0.4,
        controller_lags=0.3,
    ),
    hooks=HookFaults(
        repeated=0.1, timed_out=0.03, unreachable=0.03, refused_later=0.08, forged=0.05
    ),
)
_OLD_CACHES: Final = replace(NORMAL.calls, freeze=0.03, delay_event=0.1)
# Most reads are made only where the view is too old to answer.
_LOST_CALLS: Final = replace(NORMAL.calls, lost=0.1, server_error=0.1, delay_event=0.1)
PROFILE_SHARE: Final = 0.2
# Of what strikes everywhere, and of what strikes only where webhooks are called.
PROFILES: Final[Mapping[str, FaultProfile]] = {
    "late writes": replace(NORMAL, calls=replace(NORMAL.calls, late=0.2)),
    "old views": replace(NORMAL, calls=_OLD_CACHES),
    "lost events": replace(NORMAL, calls=replace(NORMAL.calls, drop_event=0.05)),
    "lost calls": replace(NORMAL, calls=_LOST_CALLS),
    "late controller": FaultProfile(
        calls=_OLD_CACHES, blows=replace(NORMAL.blows, controller_lags=3), hooks=NORMAL.hooks
    ),
}
REVIEW_PROFILES: Final[Mapping[str, FaultProfile]] = {
    **PROFILES,
    "lost pods": replace(NORMAL, calls=replace(NORMAL.calls, pod_failure=0.3, pod_slow=0.3)),
    "late pods": replace(NORMAL, calls=replace(NORMAL.calls, pod_late=0.3)),
    "slow reviews": replace(NORMAL, calls=replace(NORMAL.calls, review_slow=0.3)),
    "forged reviews": replace(NORMAL, hooks=replace(NORMAL.hooks, forged=0.6)),
}


def name_profile(seed: int, *, has_webhooks: bool = False) -> str:
    """Return the name of a schedule's fault profile, by its seed; empty for the usual one."""
    rng = split(seed, "storm")
    profiles = [*(REVIEW_PROFILES if has_webhooks else PROFILES)]
    return rng.choice(profiles) if rng.random() < PROFILE_SHARE else ""


def choose_profile(name: str) -> FaultProfile:
    """Return a fault profile by name, the usual one for none."""
    return REVIEW_PROFILES[name] if name else NORMAL
