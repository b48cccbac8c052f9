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


OURS: Final = ReleaseCompat()
KUBERIK: Final = ReleaseCompat(
    windows_keep_their_day=False,
    compares_versions=False,
    skips_failed=False,
    trusts_cancelled=False,
)
