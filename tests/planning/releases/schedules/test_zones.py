"""The time zone of a schedule, by a loader that comes as an argument."""

from zoneinfo import ZoneInfo

import pytest

from rollout_operator.model.errors import InvalidInput
from rollout_operator.planning.releases.schedules.zones import get_time_zone


def test_a_zone_by_its_name() -> None:
    """REL-91."""
    assert get_time_zone("Europe/Berlin", ZoneInfo) == ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize("name", ["localtime", "posixrules", "LOCALTIME"])
def test_the_zone_of_a_machine_is_refused(name: str) -> None:
    """REL-96."""
    with pytest.raises(InvalidInput, match=rf'^spec\.timezone: "{name}" is another time on each'):
        get_time_zone(name, ZoneInfo)


@pytest.mark.parametrize("name", ["Mars/Olympus", "../etc/passwd", "Europe", "a\0b", "/etc"])
def test_a_zone_that_does_not_exist(name: str) -> None:
    """REL-96."""
    with pytest.raises(InvalidInput, match=r"^spec\.timezone: no time zone is "):
        get_time_zone(name, ZoneInfo)
