"""Flags that say which rollouts are carried out, of pods and of releases."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from rollout_operator.config.grammar import BOOL, DURATION, TEXT, flag

ACTIVE: Final = "active"
SHADOW: Final = "shadow"
REGISTRY: Final = "registry"
KUBERIK: Final = "kuberik"
BY_VERSION: Final = "version"
AS_ANNOUNCED: Final = "announced"

_ROLLOUTS: Final = "Rollouts"
_RELEASES: Final = "Releases"


# fmt: off
@dataclass(frozen=True, kw_only=True)
class RolloutFlags:
    """Which rollouts are carried out."""

    reconcile_interval: timedelta = flag(
        "reconcile.interval", DURATION, timedelta(seconds=5), _ROLLOUTS,
        "Longest time until the operator reconciles a group again after an error. Must be"
        " positive. Without errors the operator acts on changes as they happen, and waits for"
        " no interval.",
    )
    multi_az_rollouts: bool = flag(
        "multi-az-rollouts.enabled", BOOL, False, _ROLLOUTS,
        "Obey MultiAZRollouts. Also on where the environment has one of the variables"
        " WATCH_NAMESPACE, LOG_LEVEL, OPERATOR_NAME and METRICS_PORT. Without effect in shadow"
        " mode.",
    )
    mode: str = flag(
        "mode", TEXT, ACTIVE, _ROLLOUTS,
        "active, or shadow: decide, report in log, metrics and status page what the operator"
        " would do, and count where another operator does otherwise. In shadow mode the"
        " operator writes nothing, calls no pod and answers no webhook; rights to read are"
        " enough.",
    )
    releases: bool = flag(
        "releases.enabled", BOOL, False, _RELEASES,
        "Make the Rollouts of kuberik.com happen. Without effect in shadow mode.",
    )
    release_compat: str = flag(
        "releases.compat", TEXT, "", _RELEASES,
        "kuberik: decide as kuberik's own controller does about the order of versions, those that"
        " failed or follow a superseded release, windows over midnight, schedules without a"
        " namespaceSelector, and bakes and HealthChecks while Flux is busy or fails.",
    )
    release_order: str = flag(
        "releases.order", TEXT, BY_VERSION, _RELEASES,
        "version: versions of an image policy by semver are ordered as versions; announced: all are"
        " ordered by when they were announced.",
    )
    keeps_to_namespace: bool = flag(
        "releases.no-cross-namespace-refs", BOOL, False, _RELEASES,
        "Refuse image policies, their ImageRepositories, and what HealthChecks look at, where these"
        " are in another namespace than the object that names them.",
    )
    verifies_wanted: bool = flag(
        "releases.verify-wanted-version", BOOL, False, _RELEASES,
        "Hold a wantedVersion until the registry has said that it is there.",
    )
    release_metadata: str = flag(
        "releases.metadata", TEXT, REGISTRY, _RELEASES,
        "registry: registries say what releases are; none: no registry, and no Secret is read.",
    )
# fmt: on
