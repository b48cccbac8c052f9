"""Times that tenants write, from the first year to the last: nothing fails by any of them.

SEC-25. Annotations of sets and pods, records on pods, and entries of the zone tracker.
"""

import copy
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec
import pytest

from rollout_operator.controllers.downscales import DownscaleController
from rollout_operator.guards.grants import is_recorded, read_record
from rollout_operator.model.decode.objects import decode_pod
from rollout_operator.model.names import (
    DISRUPTION_RECORD,
    DOWNSCALE_RECORD,
    LAST_DOWNSCALE,
    READY_TIME,
    InvalidInput,
)
from rollout_operator.model.objects import Pod, StatefulSet
from rollout_operator.model.scaling import format_entry
from rollout_operator.model.units import format_next_second, format_rfc3339, parse_rfc3339
from tests.virtual_time import in_virtual_time
from tests.web.downscale_world import WAIT, World, pod, three_zones, tracked

pytestmark = pytest.mark.thorough

TIMES: Final = [
    f"{year}-{day}T{hour}{offset}"
    for year in ("0001", "1969", "2999", "9998", "9999")
    for day, hour in (("01-01", "00:00:00"), ("12-31", "23:59:59.9"))
    for offset in ("Z", "+14:00", "-12:00")
]
# They have no place in UTC, or no room for what is added to them.
UNFIT: Final = {
    "0001-01-01T00:00:00+14:00",
    "9998-12-31T23:59:59.9-12:00",
    *(one for one in TIMES if one.startswith("9999") and one != "9999-01-01T00:00:00+14:00"),
}
NOW: Final = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
each_time: Final = pytest.mark.parametrize("at", TIMES)


@each_time
def test_sec25_whatever_time_is_read_has_room_for_what_is_added(at: str) -> None:
    """SEC-25: in a status, and in a record, which counts until it is removed where it is none."""
    raw = pod("zone-a", 1)
    raw["status"] = {
        "phase": "Running",
        "startTime": at,
        "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": at}],
    }
    record = {"uid": raw["metadata"]["uid"], "by": "x", "at": at}
    text = msgspec.json.encode(record).decode()
    raw["metadata"]["annotations"] = {DISRUPTION_RECORD: text, READY_TIME: at}
    found = decode_pod(msgspec.json.encode(raw))
    assert found.was_ready is False
    if at in UNFIT:
        assert is_recorded(found, NOW)
        with pytest.raises(InvalidInput):
            read_record(found)
        with pytest.raises(InvalidInput, match="no RFC 3339 time: not in the years 1 to 9998"):
            parse_rfc3339(at)
    else:
        assert read_record(found) is not None
        assert is_recorded(found, NOW) == (parse_rfc3339(at) > NOW)
        assert format_rfc3339(parse_rfc3339(at) + timedelta(days=300))
        assert format_next_second(parse_rfc3339(at))


def _annotate(world: World, kind: str, name: str, **annotations: str) -> None:
    one = copy.deepcopy(world.client.objects[kind, name])
    meta = one["metadata"]
    meta["annotations"] = {**{"annotations": {}, **meta}["annotations"], **annotations}
    world.client.put(kind, one)
    world.sync()


def _record(at: str) -> str:
    return msgspec.json.encode({"replicasFrom": 6, "replicasTo": 5, "at": at}).decode()


@pytest.mark.parametrize("is_leaving", [False, True], ids=["stays", "terminating"])
@pytest.mark.parametrize("is_new", [False, True], ids=["running", "at its start"])
@each_time
@in_virtual_time
async def test_sec25_a_record_and_a_downscale_of_any_time(
    at: str, is_leaving: bool, is_new: bool, lines: list[str]
) -> None:
    """SEC-25, LI-05: the record is removed, also from a pod that never goes; no pod waits."""
    world = three_zones()

    def forge() -> None:
        if is_leaving:
            one = copy.deepcopy(world.client.objects["pods", "zone-a-4"])
            one["metadata"]["deletionTimestamp"] = "2026-01-02T03:00:00Z"
            world.client.put("pods", one)
        _annotate(world, "statefulsets", "zone-a", **{LAST_DOWNSCALE: at})
        _annotate(world, "pods", "zone-a-4", **{DOWNSCALE_RECORD: _record(at)})

    if is_new:
        forge()
        world.restart()
    async with world.controlling():
        if not is_new:
            forge()
        await world.watch()
        await world.pass_time(180)
        assert world.recorded() == []
        assert world.context.downscales.list_sets() == []
    assert not [line for line in lines if "level=error" in line]


@each_time
@in_virtual_time
async def test_sec25_a_downscale_beside_a_zone_of_any_time(at: str, lines: list[str]) -> None:
    """SEC-25: it is allowed, refused by its wait, or refused as the time cannot be read."""
    for world in (
        three_zones(a=WAIT),
        tracked(three_zones(tracker="zones", a=WAIT), {"zone-b": format_entry(at)}),
    ):
        _annotate(world, "statefulsets", "zone-b", **{LAST_DOWNSCALE: at})
        async with world.controlling():
            verdict = await world.send_request("zone-a", 3)
            await world.pass_time(60)
        assert verdict.is_allowed == (at not in UNFIT and parse_rfc3339(at) < NOW)
    assert not [line for line in lines if "level=error" in line]


@in_virtual_time
async def test_si12_a_step_that_fails_by_a_bug_holds_no_other_back(lines: list[str]) -> None:
    """LI-05, SI-12: pods are told that they stay, though the time cannot be recorded before."""
    world = three_zones()

    def fail(call: str) -> None:
        if call == "patch statefulsets/zone-a":
            raise ZeroDivisionError

    world.client.before = fail
    async with world.controlling():
        assert (await world.send_request("zone-a", 3)).is_allowed
        world.commit("zone-a", 3)
        await world.pass_time(5)
        world.commit("zone-a", 5)
        await world.pass_time(100)
        assert sorted(set(world.calls.names("DELETE"))) == ["zone-a-3", "zone-a-4"]
        world.client.before = lambda call: None
        await world.pass_time(60)
        assert world.annotation("zone-a")
    assert [line for line in lines if "ZeroDivisionError" in line]


@in_virtual_time
async def test_sec25_a_set_whose_records_fail_by_a_bug_holds_no_start_up(
    lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """SEC-25: the log names the set; the records of all others are read, and its own are kept."""
    world = three_zones()
    for name in ("zone-a-4", "zone-c-4"):
        _annotate(world, "pods", name, **{DOWNSCALE_RECORD: _record("2026-01-02T03:00:00Z")})
    adopt = DownscaleController._adopt

    def fail(self: DownscaleController, sts: StatefulSet, pods: Sequence[Pod]) -> None:
        if sts.name == "zone-a":
            raise ZeroDivisionError
        adopt(self, sts, pods)

    monkeypatch.setattr(DownscaleController, "_adopt", fail)
    world.restart()
    async with world.controlling():
        assert world.context.downscales.list_sets() == ["uid-zone-c"]
        (line,) = [line for line in lines if "Cannot adopt" in line]
        assert "zone=zone-a" in line
        await world.pass_time(120)
        assert world.recorded() == ["zone-a-4"]
