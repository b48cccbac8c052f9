"""An object that nests as deeply as the API server takes hides no other (LI-09)."""

import sys
from collections.abc import Iterator

import pytest

from rollout_operator.lab.zones import ZoneSpec
from tests.world.api import PATCH_TYPES, PODS, STATEFULSETS, Resource
from tests.world.world import World

pytestmark = [
    pytest.mark.controlplane,
    pytest.mark.skipif(sys.version_info >= (3, 12), reason="the judge could not be let read it"),
]

# Three times what a decoder of Python takes. The API server stores 9,993, and then computes for ten
# seconds at each write of the object: its work grows with the square.
LEVELS = 3_000
# It computes for ten seconds then, and gives up after half a minute where the machine is busy.
BUSY, ATTEMPTS = 504, 10


@pytest.fixture(autouse=True)
def deep() -> Iterator[None]:
    """Let the judge and the kubelet of this process read such objects; the operator is another."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(60_000)
    yield
    sys.setrecursionlimit(before)


@pytest.mark.parametrize(
    ("resource", "name"),
    [
        pytest.param(PODS, "odd-zone-a-0", id="LI-09 a pod"),
        pytest.param(STATEFULSETS, "odd-zone-a", id="LI-09 a StatefulSet"),
    ],
)
async def test_li09_deep_managed_fields_delay_no_task(
    world: World, resource: Resource, name: str
) -> None:
    """Running operators see every change, restarted ones become ready, its own group rolls too."""
    good = await world.create(*(ZoneSpec(name=f"good-zone-{one}", group="good") for one in "ab"))
    odd = await world.create(ZoneSpec(name="odd-zone-a", group="odd", replicas=1))
    operator = await world.operator()
    await _write_deep(world, resource, name)
    await world.roll(good, "v2")
    operator.kill()
    operator.start()
    await operator.wait_ready()
    await world.roll([*good, *odd], "v3")
    await world.judge.assert_clean()


async def _write_deep(world: World, resource: Resource, name: str) -> None:
    version = "v1" if resource is PODS else "apps/v1"
    nested = b'{"f:a":' * LEVELS + b"{}" + b"}" * LEVELS
    body = (
        b'{"metadata":{"managedFields":[{"manager":"x","operation":"Update","apiVersion":"%b",'
        b'"time":"2026-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":%b}]}}'
    ) % (version.encode(), nested)
    path = resource.path(world.namespace, name)
    headers = {"Content-Type": PATCH_TYPES["merge"]}
    for _ in range(ATTEMPTS):
        async with world.api.session.patch(path, data=body, headers=headers) as response:
            text = await response.text()
            if response.status != BUSY:
                break
    assert response.status == 200, text[:300]
    assert text.count('"f:a"') >= LEVELS
