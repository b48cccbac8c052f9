"""The time zone of a schedule. Its data are files, so that their reader comes as an argument.

`localtime` and `posixrules` are the zone of a machine: a schedule would mean another time on each.
A reader may look for each part of a name as for a folder, or import it: what the database would
never call a zone is not looked for.
"""

import re
from collections.abc import Callable
from datetime import tzinfo
from typing import Final

from rollout_operator.model.errors import InvalidInput
from rollout_operator.model.units import quote

LoadZone = Callable[[str], tzinfo]
"""Returns the zone of a name, such as `zoneinfo.ZoneInfo`; raises OSError or ValueError."""

# The longest has 32 characters and three parts, and one more in the copies below `posix/`.
_LONGEST: Final = 64
_NAME: Final = re.compile(r"[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+){0,3}")
_OF_A_MACHINE: Final = frozenset({"localtime", "posixrules"})


def get_time_zone(name: str, load: LoadZone) -> tzinfo:
    """Return the zone that a schedule names. Raises InvalidInput, which names field and value."""
    if name.lower() in _OF_A_MACHINE:
        raise InvalidInput(f"spec.timezone: {quote(name)} is another time on each machine")
    problem = f"spec.timezone: no time zone is {quote(name)}"
    if len(name) > _LONGEST or not _NAME.fullmatch(name):
        raise InvalidInput(problem)
    try:
        return load(name)
    # `ZoneInfoNotFoundError` is a KeyError.
    except (OSError, ValueError, KeyError) as error:
        raise InvalidInput(problem) from error
