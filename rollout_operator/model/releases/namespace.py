"""What selectors read of a namespace."""

from collections.abc import Mapping

import msgspec

from rollout_operator.model.releases.rollout import ReleaseHead


class LabelledNamespace(msgspec.Struct, frozen=True, kw_only=True):
    """Its name and labels."""

    head: ReleaseHead
    labels: Mapping[str, str] = {}
