"""Where release rollouts decide otherwise than kuberik's controller, each difference by itself."""

from typing import Final

import msgspec


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
