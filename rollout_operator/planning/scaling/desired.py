"""What the count of one zone is, and what it is to become: words shared by all who decide it.

A count is followed in `following` and mirrored in `mirroring`; what comes of an aim is decided in
`plan`.
"""

from dataclasses import dataclass

from rollout_operator.model.objects import StatefulSet
from rollout_operator.model.outcome import Reason
from rollout_operator.model.scaling import ScalingSnapshot
from rollout_operator.planning.scaling.delays import Delay


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """What the count of one zone should become, whatever holds it back."""

    replicas: int | None = None
    """None where it stays as it is, or cannot be told."""
    what: str = ""
    """Who wants it, such as `zone-b follows zone-a`."""
    note: str = ""
    """What is said after the counts, with its comma; mostly empty."""
    keeps_apart: bool = False
    """Whether a downscale keeps the time between zones, label or not."""
    must_name_time: bool = False
    """Whether the set itself must say how long that is, once any zone has been scaled down."""
    delay: Delay | None = None
    """Of downscales, where pods have a say."""
    may_shrink: bool = True
    """False where a problem forbids every downscale."""
    is_forced: bool = False
    """Whether a person forces it: then a pod that does not run holds nothing back."""
    waits: tuple[Reason, ...] = ()
    problems: tuple[Reason, ...] = ()
    is_failure: bool = False
    """Whether only a person can tell the count."""

    def word(self, replicas_from: int, replicas_to: int) -> str:
        """Return a text such as `zone-b follows zone-a: 5 → 3`."""
        return f"{self.what}: {replicas_from} → {replicas_to}{self.note}"


def count_replicas(sts: StatefulSet, scaling: ScalingSnapshot) -> int:
    """Return the replicas that a set wants, those that we wrote and nobody shows yet included."""
    return scaling.written[sts.uid].replicas if is_unseen(sts, scaling) else sts.replicas


def is_unseen(sts: StatefulSet, scaling: ScalingSnapshot) -> bool:
    """Tell whether a count that we wrote is not shown by the set yet."""
    written = scaling.written.get(sts.uid)
    return written is not None and written.generation > sts.generation
