"""Records on pods that another author wrote: who may patch pods may write them (D-24, SEC-25)."""

import copy

import msgspec
import pytest

from rollout_operator.model.names import DOWNSCALE_RECORD, PREPARE_DOWNSCALE
from tests.controllers.fake_client import Json
from tests.virtual_time import in_virtual_time
from tests.web.downscale_world import WAIT, World, come_to_rest, part, pod, three_zones

RECORD: Json = {"replicasFrom": 5, "replicasTo": 3, "at": "2026-01-02T03:04:05Z", "by": "another"}
PLACE: Json = {"port": 8080, "path": "ingester/prepare", "service": "zone-a-headless"}


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
