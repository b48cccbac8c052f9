"""By whose rules releases are decided, as the flags say."""

import msgspec

from rollout_operator.config.rollout_flags import AS_ANNOUNCED
from rollout_operator.config.rollout_flags import KUBERIK as FOLLOWING
from rollout_operator.model.releases.compat import KUBERIK, OURS, ReleaseCompat
from rollout_operator.operator.process import EngineSettings


def get_compat(settings: EngineSettings) -> ReleaseCompat:
    """Return the rules: ours, kuberik's, or ours with versions as they are announced (RELB-03)."""
    compat = KUBERIK if settings.release_compat == FOLLOWING else OURS
    if settings.release_order == AS_ANNOUNCED:
        return msgspec.structs.replace(compat, compares_versions=False)
    return compat
