"""A Rollout of `kuberik.com`, what holds it back, and by which rules its releases are decided.

It says which releases go where; annotations of it are what a person requests. `Rollout` is the name
of the API's kind. Here it is a release rollout: a rollout replaces pods.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

import msgspec

from rollout_operator.model.labels import LabelSelector
from rollout_operator.model.names import Uid
from rollout_operator.model.releases.status import ReleaseStatus


class ReleaseHead(msgspec.Struct, frozen=True, kw_only=True):
    """Which object of `kuberik.com` it is, whatever its spec says."""

    name: str
    uid: Uid
    resource_version: str
    namespace: str = ""
    """Empty for an object of the cluster."""
    generation: int = 0
    is_terminating: bool = False

    @property
    def key(self) -> str:
        """Return namespace and name, as every text names an object."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class ReleaseIntents(msgspec.Struct, frozen=True, kw_only=True):
    """What annotations of a Rollout request once, as they were written; None where absent."""

    force_deploy: str | None = None
    """The tag that is deployed, if it was announced."""
    bypass_gates: str | None = None
    """The tag for which gates do not count."""
    unblock_failed: str | None = None
    """`true` where a failed release does not stop the next release."""
    retry: str | None = None
    """Any value: a failed release is tried once more."""
    deploy_message: str | None = None
    deployment_message: str | None = None
    """The message, by the name that it has in kuberik's documents."""
    deploy_user: str | None = None


class CheckSelector(msgspec.Struct, frozen=True, kw_only=True):
    """Which HealthChecks belong to a Rollout."""

    selector: LabelSelector | None = None
    """None selects none; an empty selector all."""
    namespaces: LabelSelector | None = None
    """None is the Rollout's own namespace alone."""


class ReleaseSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What a Rollout wants. What it leaves out has the default of its field."""

    policy_name: str
    policy_namespace: str = ""
    """Empty for the namespace of the Rollout."""
    wanted_version: str | None = None
    history_limit: int = 10
    retention: timedelta = timedelta(days=7)
    least_available: int = 30
    bake_time: timedelta | None = None
    deploy_timeout: timedelta | None = None
    checks: CheckSelector | None = None
    update_interval: timedelta = timedelta(minutes=1)
    """From one read of the registry to the next."""
    is_suspended: bool = False
    """Whether nothing is deployed. What is deployed goes on baking."""

    @property
    def has_bake(self) -> bool:
        """Return whether a release must show its health before it counts as deployed."""
        return any(
            setting is not None for setting in (self.bake_time, self.deploy_timeout, self.checks)
        )


class ReleaseRollout(msgspec.Struct, frozen=True, kw_only=True):
    """A Rollout that can be obeyed."""

    head: ReleaseHead
    spec: ReleaseSpec
    intents: ReleaseIntents = ReleaseIntents()
    status: ReleaseStatus = ReleaseStatus()
    waits_for_flux: bool = True
    """Whether a bake starts only once Flux has fetched and applied the release."""
    labels: Mapping[str, str] = {}


class RefusedRelease(msgspec.Struct, frozen=True, kw_only=True):
    """A Rollout whose spec cannot be obeyed: nothing is deployed for it."""

    head: ReleaseHead
    problem: str
    """Names object, field and value."""
    status: ReleaseStatus = ReleaseStatus()
    labels: Mapping[str, str] = {}
    announced: ReleaseRollout | None = None
    """What it would be with nothing but its image policy, by which versions go on being announced;
    None where that cannot be read either."""


class LabelledNamespace(msgspec.Struct, frozen=True, kw_only=True):
    """Its name and labels."""

    head: ReleaseHead
    labels: Mapping[str, str] = {}


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


class ReleaseCompat(msgspec.Struct, frozen=True, kw_only=True):
    """Which outcomes are ours; the defaults are what the operator does without a flag."""

    windows_keep_their_day: bool = True
    """Whether the hours after midnight belong to the day on which their window began (RELB-31)."""
    compares_versions: bool = True
    """Whether releases of a policy by version are ordered as versions (RELB-03)."""
    skips_failed: bool = True
    """Whether a release that failed before is not deployed again by itself (RELB-24)."""
    trusts_cancelled: bool = True
    """Whether a healthy release that was superseded leaves its successor judged (RELB-17)."""
    waits_for_flux: bool = True
    """Whether a bake starts only once Flux has applied the release (RELB-16)."""
    fails_with_flux: bool = True
    """Whether a HealthCheck is unhealthy where Flux fails for long (RELB-37)."""
    gates_all_namespaces: bool = True
    """Whether a schedule without a selector of namespaces concerns all (RELB-31)."""


OURS: Final = ReleaseCompat()
KUBERIK: Final = ReleaseCompat(
    windows_keep_their_day=False,
    compares_versions=False,
    skips_failed=False,
    trusts_cancelled=False,
    waits_for_flux=False,
    fails_with_flux=False,
    gates_all_namespaces=False,
)
