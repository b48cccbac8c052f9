"""What `rollout-operator doctor` has read of releases: a part of the snapshot."""

import msgspec

from rollout_operator.model.objects import Unreadable
from rollout_operator.model.releases.flux import FluxObject, ImagePolicy, ImageRepository
from rollout_operator.model.releases.health import HealthCheck
from rollout_operator.model.releases.rollout import RefusedRelease, ReleaseGate, ReleaseRollout
from rollout_operator.model.releases.schedule import ScheduleObject


class InstalledReleases(msgspec.Struct, frozen=True, kw_only=True):
    """The objects of one namespace, and the schedules of the cluster."""

    missing: tuple[str, ...] = ()
    """Kinds of `kuberik.com` that the API server does not know."""
    missing_of_flux: tuple[str, ...] = ()
    rollouts: tuple[ReleaseRollout | RefusedRelease, ...] = ()
    gates: tuple[ReleaseGate, ...] = ()
    checks: tuple[HealthCheck, ...] = ()
    schedules: tuple[ScheduleObject, ...] = ()
    policies: tuple[ImagePolicy, ...] = ()
    repositories: tuple[ImageRepository, ...] = ()
    sources: tuple[FluxObject, ...] = ()
    kustomizations: tuple[FluxObject, ...] = ()
    unreadable: tuple[Unreadable, ...] = ()
    """Those of these kinds that are in none of the others, but for Rollouts."""
    others: tuple[str, ...] = ()
    """Deployments of kuberik's controller, by namespace and name."""
