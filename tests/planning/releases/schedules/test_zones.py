"""The time zone of a schedule, by a loader that comes as an argument."""

from datetime import UTC
from zoneinfo import ZoneInfo, available_timezones

import pytest

from rollout_operator.model.names import InvalidInput
from rollout_operator.planning.schedules import get_time_zone


def test_a_zone_by_its_name() -> None:
    """REL-91."""
    assert get_time_zone("Europe/Berlin", ZoneInfo) == ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize("name", ["localtime", "posixrules", "LOCALTIME", "Local"])
def test_the_zone_of_a_machine_is_refused(name: str) -> None:
    """REL-96."""
    with pytest.raises(InvalidInput, match=rf'^spec\.timezone: "{name}" is another time on each'):
        get_time_zone(name, ZoneInfo)


@pytest.mark.parametrize("name", ["Mars/Olympus", "../etc/passwd", "Europe", "a\0b", "/etc"])
def test_a_zone_that_does_not_exist(name: str) -> None:
    """REL-96."""
    with pytest.raises(InvalidInput, match=r"^spec\.timezone: no time zone is "):
        get_time_zone(name, ZoneInfo)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("/".join("a" * 400), id="parts"),
        pytest.param(".".join("a" * 400) + "/b", id="packages"),
        pytest.param("a" * 65, id="long"),
        pytest.param("a/b/c/d/e", id="five parts"),
        pytest.param("Europe/Berlin\n", id="line"),
        pytest.param("", id="none"),
    ],
)
def test_a_name_that_no_zone_has_is_not_searched(name: str) -> None:
    """REL-96, LI-09: to look for hundreds of parts ends in a RecursionError."""

    def load(name: str) -> ZoneInfo:
        raise AssertionError(name)

    with pytest.raises(InvalidInput, match=r"^spec\.timezone: no time zone is "):
        get_time_zone(name, load)


def test_each_zone_of_the_database_has_a_name_that_is_searched() -> None:
    """REL-91: also in the copies that some systems keep."""
    for name in sorted(available_timezones() - {"localtime", "posixrules"}):
        for copy in (name, f"posix/{name}", f"right/{name}"):
            assert get_time_zone(copy, lambda _: UTC) is UTC
