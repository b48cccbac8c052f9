"""When an object failed, as far as it says so."""

from collections.abc import Mapping
from datetime import datetime

from rollout_operator.planning.releases.kstatus.fields import ApiObject


def get_failure_time(tree: Mapping[str, object]) -> datetime | None:
    """Return when the newest failure of an object was seen (REL-111).

    That is when it stalled; where it does not say so, when any of its conditions changed last.
    """
    conditions = ApiObject(tree).conditions
    stalled = [
        condition
        for condition in conditions
        if (condition.type, condition.status) == ("Stalled", "True")
    ]
    times = [condition.since for condition in stalled or conditions if condition.since is not None]
    return max(times, default=None)
