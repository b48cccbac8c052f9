"""A RolloutGate: what holds releases of one Rollout back."""

import msgspec

from rollout_operator.model.releases.rollout import ReleaseHead


class ReleaseGate(msgspec.Struct, frozen=True, kw_only=True):
    """One gate. People, other controllers and schedules write it; a Rollout only reads it."""

    head: ReleaseHead
    rollout: str
    """The name of a Rollout in the same namespace."""
    is_passing: bool = True
    allowed_versions: tuple[str, ...] | None = None
    """The only tags that may be deployed; an empty list allows none, None all."""
    problem: str = ""
    """Why the rest of it cannot be read; such a gate does not pass."""
