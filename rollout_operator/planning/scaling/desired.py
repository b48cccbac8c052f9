"""What the replicas of one zone are, what they should become, and what annotations are wrong.

Shared by all that decide it: replicas are followed in `following` and mirrored in `mirroring`; what
holds them back is decided in `plan`.
"""

from datetime import timedelta

import msgspec

from rollout_operator.model.errors import InvalidInput
from rollout_operator.model.names import FORCE_REPLICAS
from rollout_operator.model.objects import StatefulSet
from rollout_operator.model.outcome import Code, Reason, Severity
from rollout_operator.model.scaling import ScalingSnapshot
from rollout_operator.model.units import parse_go_int, quote
from rollout_operator.planning.downscales.endpoint import DelayTarget, escape


class Delay(msgspec.Struct, frozen=True, kw_only=True):
    """How long pods must have been prepared before they go, and where they are called."""

    span: timedelta
    """More than zero."""
    target: DelayTarget


class DesiredReplicas(msgspec.Struct, frozen=True, kw_only=True):
    """What the replicas of one zone should become, whatever holds them back."""

    replicas: int | None = None
    """None where it stays as it is, or cannot be known."""
    what: str = ""
    """The cause, such as `zone-b follows zone-a`."""
    suffix: str = ""
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
    """Whether only a person can decide the replicas."""

    def render(self, replicas_from: int, replicas_to: int) -> str:
        """Return a text such as `zone-b follows zone-a: 5 → 3`."""
        return f"{self.what}: {replicas_from} → {replicas_to}{self.suffix}"


def count_replicas(sts: StatefulSet, scaling: ScalingSnapshot) -> int:
    """Return the replicas that a set wants, those that we wrote and no cache shows yet included."""
    return scaling.written[sts.uid].replicas if is_unseen(sts, scaling) else sts.replicas


def is_unseen(sts: StatefulSet, scaling: ScalingSnapshot) -> bool:
    """Return whether a count that we wrote is not shown by the set yet."""
    written = scaling.written.get(sts.uid)
    return written is not None and written.generation > sts.generation


def read_force(sts: StatefulSet) -> int | Reason | None:
    """Return the replicas that a person forces, the problem with them, or None for none.

    SCALE-07: what cannot be read counts as absent.
    """
    text = sts.annotations.get(FORCE_REPLICAS)
    if text is None:
        return None
    try:
        replicas = parse_go_int(text, bits=32)
        if replicas < 0:
            raise InvalidInput(f"{quote(text)} is negative")
    except InvalidInput as error:
        return complain(sts, Code.BAD_FORCE_REPLICAS, FORCE_REPLICAS, f"{error}; it is ignored")
    return replicas


def complain(sts: StatefulSet, code: Code, key: str, why: str) -> Reason:
    """Return what is wrong with an annotation of a zone, on one printable line."""
    text = f"StatefulSet {sts.name}: annotation {key}: {escape(why)}"
    return Reason(code, text, Severity.WARN, sts.name)
