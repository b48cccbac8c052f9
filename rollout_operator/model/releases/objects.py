"""The objects of releases that were read once, for commands that people type.

What `doctor` checks, `status` describes and forecasts begin with is all of this shape.
"""

from collections.abc import Iterable, Mapping

import msgspec

from rollout_operator.model.objects import AnyWatched, Unreadable, list_decoded
from rollout_operator.model.releases.flux import FluxObject, ImagePolicy, ImageRepository
from rollout_operator.model.releases.health import HealthCheck
from rollout_operator.model.releases.rollout import (
    LabelledNamespace,
    RefusedRelease,
    ReleaseGate,
    ReleaseRollout,
)
from rollout_operator.model.releases.schedule import ScheduleObject


class ReleaseObjects(msgspec.Struct, frozen=True, kw_only=True):
    """Objects of one namespace or several, and of the cluster, each kind as it was listed."""

    rollouts: tuple[ReleaseRollout | RefusedRelease, ...] = ()
    gates: tuple[ReleaseGate, ...] = ()
    schedules: tuple[ScheduleObject, ...] = ()
    checks: tuple[HealthCheck, ...] = ()
    policies: tuple[ImagePolicy, ...] = ()
    repositories: tuple[ImageRepository, ...] = ()
    flux: tuple[FluxObject, ...] = ()
    namespaces: Mapping[str, Mapping[str, str]] = {}
    """Labels of namespaces."""
    unreadable: tuple[Unreadable, ...] = ()
    """Those of any kind that are in none of the others."""
    absent: tuple[str, ...] = ()
    """Kinds that the cluster does not have."""

    def list_obeyed(self) -> tuple[ReleaseRollout, ...]:
        """Return the Rollouts that can be obeyed."""
        return tuple(each for each in self.rollouts if isinstance(each, ReleaseRollout))

    def list_unreadable(self, *kinds: str) -> tuple[Unreadable, ...]:
        """Return the objects of these kinds that cannot be read."""
        return tuple(each for each in self.unreadable if each.kind in kinds)


def gather_releases(objects: Iterable[AnyWatched], absent: Iterable[str] = ()) -> ReleaseObjects:
    """Return objects of any kinds by what they are."""
    read = tuple(objects)
    namespaces = list_decoded(read, LabelledNamespace)
    return ReleaseObjects(
        rollouts=list_decoded(read, ReleaseRollout, RefusedRelease),
        gates=list_decoded(read, ReleaseGate),
        schedules=list_decoded(read, ScheduleObject),
        checks=list_decoded(read, HealthCheck),
        policies=list_decoded(read, ImagePolicy),
        repositories=list_decoded(read, ImageRepository),
        flux=list_decoded(read, FluxObject),
        namespaces={each.head.name: each.labels for each in namespaces},
        unreadable=tuple(each for each in read if isinstance(each, Unreadable)),
        absent=tuple(absent),
    )
