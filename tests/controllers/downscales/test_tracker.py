"""What becomes of a record of another author: in the zone tracker, or on pods.

D-23, SI-11, LI-05, FP-06, FP-15, FP-22 with `-use-zone-tracker`. Who may patch pods may write
records on them (D-24, SEC-25).
"""

import copy
from collections.abc import Mapping
from typing import Final

import msgspec
import pytest

from rollout_operator.model.names import DOWNSCALE_RECORD, PREPARE_DOWNSCALE, Denied, Unreachable
from rollout_operator.model.outcome import Code
from rollout_operator.model.scaling import format_entry
from tests.controllers.downscales.granted import granted, write
from tests.controllers.fake_client import Json
from tests.virtual_time import in_virtual_time
from tests.web.downscale_world import WAIT, World, come_to_rest, part, pod, three_zones
from tests.web.reviews.test_prepare_tracker import ANSWERED, MAP, OLD, data_of, tracked

pytestmark = pytest.mark.thorough

PATCH: Final = f"patch configmaps/{MAP}"
FORMER: Final = [
    pytest.param({}, id="there was no entry"),
    pytest.param({"zone-a": OLD, "zone-b": OLD}, id="there was one"),
]

RECORD: Json = {"replicasFrom": 5, "replicasTo": 3, "at": "2026-01-02T03:04:05Z", "by": "another"}
PLACE: Json = {"port": 8080, "path": "ingester/prepare", "service": "zone-a-headless"}


@pytest.mark.parametrize("data", FORMER)
@in_virtual_time
async def test_refused_by_another_client_afterwards(data: Mapping[str, str]) -> None:
    """LI-05, FP-22: the former entry comes back, and the other zone may go."""
    async with granted(tracked(data, a=WAIT, b=WAIT)) as world:
        assert data_of(world) == {**data, "zone-a": ANSWERED}
        await world.pass_time(35)
        assert data_of(world) == {**data, "zone-a": ANSWERED}, "it may still happen"
        await world.pass_time(10)
        assert data_of(world) == data
        assert (await world.send_request("zone-b", 3)).is_allowed
        await write(world, 3, "zone-b")
        for ordinal in (3, 4):
            world.remove_pod(f"zone-b-{ordinal}")
        await come_to_rest(world)


@in_virtual_time
async def test_a_downscale_that_happens_at_once_is_written_once() -> None:
    """D-23: no annotation either."""
    world = tracked()
    async with world.controlling():
        assert (await world.send_request("zone-a", 3, whole=True)).is_allowed
        await write(world, 3)
        for ordinal in (3, 4):
            world.remove_pod(f"zone-a-{ordinal}")
        await come_to_rest(world)
    assert data_of(world) == {"zone-a": ANSWERED}
    assert world.client.calls.count(PATCH) == 1
    assert world.annotation("zone-a") is None
    assert "patch statefulsets/zone-a" not in world.client.calls


@in_virtual_time
async def test_si11_a_downscale_that_happens_late_is_recorded_as_of_then() -> None:
    """SI-11: granted at 03:04:05, written 20 s later: from then on the others wait."""
    async with granted(tracked()) as world:
        await world.pass_time(20)
        await write(world, 3)
        await world.pass_time(60)
    assert data_of(world) == {"zone-a": format_entry("2026-01-02T03:04:26Z")}
    assert world.client.calls.count(PATCH) == 2


@in_virtual_time
async def test_si11_what_cannot_be_recorded_yet_is_remembered() -> None:
    """SI-11: the other zone waits by what this process knows."""
    async with granted(tracked({}, a=WAIT, b=WAIT)) as world:
        world.fail(Unreachable("down"), PATCH)
        await world.pass_time(20)
        await write(world, 3)
        await world.pass_time(60)
        verdict = await world.send_request("zone-b", 3)
        assert "2026-01-02 03:04:25" in verdict.reason.text
        world.client.before = lambda call: None
        await world.pass_time(20)
    assert data_of(world) == {"zone-a": format_entry("2026-01-02T03:04:26Z")}


@in_virtual_time
async def test_a_record_that_cannot_be_restored_delays_no_pod() -> None:
    """LI-05, D-18: pods are un-prepared; the record is tried until it works."""
    async with granted(tracked({"zone-a": OLD})) as world:
        world.fail(Denied("no", status=403), f"get configmaps/{MAP}")
        await world.pass_time(60)
        assert world.calls.names("DELETE") == ["zone-a-3", "zone-a-4"]
        assert data_of(world) == {"zone-a": ANSWERED}
        world.client.before = lambda call: None
        await world.pass_time(20)
        assert data_of(world) == {"zone-a": OLD}
        await come_to_rest(world)


@pytest.mark.parametrize("happens", [True, False])
@in_virtual_time
async def test_fp06_a_crash_between_record_and_write(happens: bool) -> None:
    """FP-06, SI-11, LI-05: the entry stands, pods are un-prepared; the own zone may go at once."""
    world = tracked({}, a=WAIT, b=WAIT)
    assert (await world.send_request("zone-a", 3)).is_allowed
    await world.pass_time(10)
    if happens:
        world.commit("zone-a", 3)
    world.restart()
    async with world.controlling():
        await world.pass_time(60)
        verdict = await world.send_request("zone-b", 3)
        assert verdict.reason.code is Code.ZONE_DOWNSCALED_LATELY
        if happens:
            assert f"{data_of(world)['zone-a']}" >= format_entry("2026-01-02T03:04:15Z")
            return
        assert world.calls.names("DELETE") == ["zone-a-3", "zone-a-4"]
        assert data_of(world) == {"zone-a": ANSWERED}
        assert (await world.send_request("zone-a", 3)).is_allowed


def _service(world: World) -> object:
    return part(world.client.objects["statefulsets", "zone-a"], "spec")["serviceName"]


def _put_record(world: World, name: str, **changes: object) -> None:
    one = copy.deepcopy(world.client.objects["pods", name])
    text = msgspec.json.encode({**RECORD, **changes}).decode()
    part(one, "metadata")["annotations"] = {DOWNSCALE_RECORD: text}
    world.client.put("pods", one)
    world.sync()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param({"port": 9090}, "port: ", id="port"),
        pytest.param({"service": "any-host-i-like"}, "service: ", id="service"),
        pytest.param({"scheme": "https"}, "scheme: ", id="scheme"),
    ],
)
@pytest.mark.parametrize("field", ["target", "earlier"])
@in_virtual_time
async def test_d24_a_place_that_nothing_confirms_is_not_called(
    change: Json, message: str, field: str, lines: list[str]
) -> None:
    """D-24, SEC-25: one warning names pod, field and value; no pod is called, the record goes."""
    world = three_zones()
    place = {**PLACE, "service": _service(world), **change}
    _put_record(world, "zone-a-4", **{field: place if field == "target" else [place]})
    world.restart()
    async with world.controlling():
        await world.pass_time(120)
        await come_to_rest(world)
    assert world.calls.calls == []
    (warning,) = [line for line in lines if "level=warn" in line]
    (value,) = change.values()
    assert "zone-a-4" in warning
    assert message in warning
    assert str(value) in warning


@in_virtual_time
async def test_d24_a_set_that_is_not_prepared_adopts_no_record(lines: list[str]) -> None:
    """D-24: pods of a set without the label are never called, whatever a record says."""
    world = three_zones()
    world.label("zone-a", PREPARE_DOWNSCALE, None)
    _put_record(world, "zone-a-4", target={**PLACE, "service": _service(world)})
    world.restart()
    async with world.controlling():
        assert world.memory.downscales.list_sets() == []
        await world.pass_time(120)
        await come_to_rest(world)
    assert world.calls.calls == []
    (warning,) = [line for line in lines if "level=warn" in line]
    assert PREPARE_DOWNSCALE in warning


@pytest.mark.parametrize("port", [8080, 9090], ids=["of the set", "of a container"])
@in_virtual_time
async def test_li05_a_place_that_set_or_pod_confirm_is_called(port: int) -> None:
    """LI-05: the set may name another port by now; the pod's own spec cannot have changed."""
    world = three_zones()
    one = world.client.objects["pods", "zone-a-4"]
    one["spec"] = {"initContainers": [{"name": "side", "ports": [{"containerPort": 9090}]}]}
    _put_record(world, "zone-a-4", target={**PLACE, "port": port, "service": _service(world)})
    world.restart()
    async with world.controlling():
        await world.pass_time(120)
        assert world.calls.names("DELETE") == ["zone-a-3", "zone-a-4"]


@pytest.mark.parametrize("at", ["2025-06-01T00:00:00Z", "2026-01-02T03:04:05Z"])
@in_virtual_time
async def test_si11_the_time_in_a_record_is_no_time_of_a_downscale(at: str) -> None:
    """SI-11: it counts from when it is found: a forged time cannot let another zone go earlier."""
    world = three_zones(3, a=WAIT, b=WAIT)
    world.client.put("pods", pod("zone-a", 3))
    _put_record(world, "zone-a-3", at=at)
    await world.pass_time(600)
    world.restart()
    async with world.controlling():
        await world.pass_time(5)
        assert str(world.annotation("zone-a")) >= "2026-01-02T03:14:05Z"


@in_virtual_time
async def test_si11_a_downscale_on_record_is_not_recorded_anew_at_each_start() -> None:
    """SI-11: pods may be on their way out for an hour; restarts meanwhile prolong a wait once.

    By as long as the same may have been repeated after the answer that is on record.
    """
    world = three_zones(a=WAIT, b=WAIT)
    assert (await world.send_request("zone-a", 3, whole=True)).is_allowed
    world.commit("zone-a", 3, stamp="2026-01-02T03:04:06Z")
    await world.pass_time(600)
    for _ in range(3):
        world.restart()
        async with world.controlling():
            await world.pass_time(60)
            assert world.annotation("zone-a") == "2026-01-02T03:05:48Z"


@pytest.mark.parametrize("at", ["2025-06-01T00:00:00Z", "2026-01-02T03:04:05Z"])
@in_virtual_time
async def test_si11_a_made_up_uid_proves_no_downscale(at: str) -> None:
    """SI-11: `first` names a pod that never was; all pods are there since long ago."""
    world = three_zones(a=WAIT, b=WAIT)
    _put_record(world, "zone-a-4", at=at, first="uid-of-no-pod")
    world.restart()
    async with world.controlling():
        await world.pass_time(120)
        assert (await world.send_request("zone-b", 3)).is_allowed
        assert str(world.annotation("zone-a") or "") < "2025-12-25"
