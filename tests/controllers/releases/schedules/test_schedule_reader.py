"""Schedules are read once a minute, however many Rollouts they select (LI-09, RELB-42)."""

from datetime import timedelta
from zoneinfo import ZoneInfo

import msgspec

from rollout_operator.controllers.schedules import ScheduleReader
from rollout_operator.model.releases import OURS, MinuteRange, ReleaseSchedule, ScheduleRule
from tests.planning.releases.builders import START
from tests.planning.releases.schedules.schedule_builders import schedule

SECOND = timedelta(seconds=1)
MINUTE = START.hour * 60 + START.minute
NOW = ReleaseSchedule(rules=(ScheduleRule(times=MinuteRange(MINUTE, MINUTE + 1)),))


def test_each_version_is_read_once_a_minute() -> None:
    loaded: list[str] = []

    def load(name: str) -> ZoneInfo:
        loaded.append(name)
        return ZoneInfo(name)

    reader = ScheduleReader(OURS, load)
    first = schedule(time_zone="Atlantis")
    for _ in range(500):
        assert "Atlantis" in reader.read(first, START + 59 * SECOND).problem
    assert len(loaded) == 1

    reader.read(msgspec.structs.replace(first), START + 59 * SECOND)
    assert len(loaded) == 2, "another version, of the same UID"
    reader.read(first, START + 60 * SECOND)
    assert len(loaded) == 3


def test_a_window_ends_with_its_minute() -> None:
    reader = ScheduleReader(OURS)
    closed = msgspec.structs.replace(schedule(), schedule=NOW)
    begin = START.replace(second=0)

    times = (begin, begin + 59 * SECOND, begin + 60 * SECOND, begin - SECOND)
    assert [reader.read(closed, now).is_open for now in times] == [False, False, True, True]
