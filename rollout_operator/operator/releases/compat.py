"""The rules by which releases are decided, as the flags say."""

import msgspec

from rollout_operator.config.operator_flags import AS_ANNOUNCED
from rollout_operator.config.operator_flags import KUBERIK as FOLLOWING
from rollout_operator.model.releases.rollout import KUBERIK, OURS, ReleaseCompat


def get_compat(system: str, order: str) -> ReleaseCompat:
    """Return the rules: ours, kuberik's, or ours with versions as they are announced (RELB-03).

    The arguments are the values of `-releases.compat` and `-releases.order`.
    """
    compat = KUBERIK if system == FOLLOWING else OURS
    if order == AS_ANNOUNCED:
        return msgspec.structs.replace(compat, compares_versions=False)
    return compat
