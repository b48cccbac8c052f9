"""A RolloutGate: what holds releases of one Rollout back."""

from collections.abc import Mapping

import msgspec

from rollout_operator.model.names import Uid
from rollout_operator.model.releases.rollout import ReleaseHead


class OwnerReference(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """An owner: an object that takes its dependents with it when it is deleted."""

    api_version: str
    kind: str
    name: str
    uid: Uid
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class GateOrigin(msgspec.Struct, frozen=True, kw_only=True):
    """Where a gate comes from, as it says itself."""

    labels: Mapping[str, str] = {}
    """Those by which a schedule knows its gates; no others."""
    pretty_name: str | None = None
    description: str | None = None
    owners: tuple[OwnerReference, ...] = ()

    @property
    def controller(self) -> OwnerReference | None:
        """Return the owner that keeps it, None where a person keeps it."""
        return next((owner for owner in self.owners if owner.controller), None)


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
    origin: GateOrigin = GateOrigin()
