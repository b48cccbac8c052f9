"""The time zone of a schedule. Its data are files, so that their reader comes as an argument.

`localtime` and `posixrules` are the zone of a machine: a schedule would mean another time on each.
"""

from collections.abc import Callable
from datetime import tzinfo
from typing import Final

from rollout_operator.model.errors import InvalidInput
from rollout_operator.model.units import quote

LoadZone = Callable[[str], tzinfo]
"""Returns the zone of a name, such as `zoneinfo.ZoneInfo`; raises OSError or ValueError."""

_OF_A_MACHINE: Final = frozenset({"localtime", "posixrules"})


def get_time_zone(name: str, load: LoadZone) -> tzinfo:
    """Return the zone that a schedule names. Raises InvalidInput, which names field and value."""
    if name.lower() in _OF_A_MACHINE:
        raise InvalidInput(f"spec.timezone: {quote(name)} is another time on each machine")
    try:
        return load(name)
    # `ZoneInfoNotFoundError` is a KeyError.
    except (OSError, ValueError, KeyError) as error:
        raise InvalidInput(f"spec.timezone: no time zone is {quote(name)}") from error
