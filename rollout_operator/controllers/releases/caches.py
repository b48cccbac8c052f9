"""The caches for releases: the kinds of `kuberik.com` and of Flux, each where it is there.

Decides whether the caches may be used for decisions; `observe` decides what their absence means.
"""

from dataclasses import dataclass

from rollout_operator.controllers.releases.tags import tag_labels
from rollout_operator.kube.cache.followed import FollowedKind
from rollout_operator.model.objects import list_decoded
from rollout_operator.model.releases.flux import ImagePolicy, OciRepository
from rollout_operator.model.releases.health import HealthCheck
from rollout_operator.model.releases.rollout import ReleaseRollout
from rollout_operator.planning.releases.health import takes_check
from rollout_operator.planning.rollout.zones import SNAPSHOT_LIMIT


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseCaches:
    """The caches of one namespace."""

    rollouts: FollowedKind
    gates: FollowedKind
    checks: FollowedKind
    policies: FollowedKind
    image_repositories: FollowedKind
    oci_repositories: FollowedKind
    kustomizations: FollowedKind
    schedules: FollowedKind

    def list_kinds(self) -> tuple[FollowedKind, ...]:
        """Return all followed kinds."""
        return (
            *(self.rollouts, self.gates, self.checks, self.policies),
            *(self.image_repositories, self.oci_repositories, self.kustomizations),
            self.schedules,
        )

    def list_rollouts(self) -> tuple[ReleaseRollout, ...]:
        """Return the Rollouts that can be obeyed."""
        return list_decoded(self.rollouts.store.list_all(), ReleaseRollout)

    def list_selecting(self, check: HealthCheck) -> tuple[ReleaseRollout, ...]:
        """Return the Rollouts that may select a HealthCheck, by its labels alone."""
        selecting = self.rollouts.store.list_tagged(*tag_labels(check.labels))
        return tuple(
            rollout
            for rollout in list_decoded(selecting, ReleaseRollout)
            if takes_check(rollout, check)
        )

    def list_policies(self) -> tuple[ImagePolicy, ...]:
        """Return the image policies."""
        return list_decoded(self.policies.store.list_all(), ImagePolicy)

    def list_repositories(self) -> tuple[OciRepository, ...]:
        """Return the OCIRepositories."""
        return list_decoded(self.oci_repositories.store.list_all(), OciRepository)

    def find_lack(self) -> str | None:
        """Say why nothing may be decided yet: a kind is not known, or its cache is too old.

        A kind that may not be read is shown in statuses, and holds only the Rollouts that need it.
        What is not known of schedules holds new versions alone.
        """
        for kind in self.list_kinds():
            if kind is self.schedules:
                continue
            if kind.lack is not None and not kind.is_forbidden:
                return kind.lack
            if kind.age > SNAPSHOT_LIMIT:
                return f"{kind.kind}: the cache is {kind.age.total_seconds():.0f}s old"
        return None
