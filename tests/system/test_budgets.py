"""Budgets where the definition of their kind is that of other releases; all else: `budgets.txt`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from copy import deepcopy
from datetime import timedelta
from typing import Final

import pytest

from tests.system.budgeted import create_budgets
from tests.system.waits import wait_line, wait_true
from tests.world.api import Api, Json
from tests.world.budgets import CRDS, ZONE_BUDGETS, grouped_zones, zone_budget
from tests.world.judge import Request
from tests.world.world import World

pytestmark = pytest.mark.controlplane

LABELS: Final = {"rollout-group": "ingester"}
STATUS: Final = "zoneawarepoddisruptionbudgets/status"
SOON: Final = timedelta(seconds=60)
NOT_WRITTEN: Final = "Status of budgets is not written"


async def test_without_the_fields_it_stays_silent(world: World) -> None:
    """DEP-33: the definition of other releases; rollouts go on."""
    await create_budgets(world, [zone_budget("ingester", LABELS)])
    names = await world.create(*grouped_zones(replicas=1))
    async with _other_definition(world):
        operator = await world.operator()
        await wait_line(operator, NOT_WRITTEN, "it drops what is written")
        await world.roll(names, "v2")
        await operator.terminate()
    assert [call.code for call in await _list_writes(world)] == [200]
    assert sum(NOT_WRITTEN in line for line in operator.log_lines()) == 1
    await world.judge.assert_clean()


async def _list_writes(world: World) -> list[Request]:
    return [call for call in await world.judge.calls() if call.resource == STATUS]


@asynccontextmanager
async def _other_definition(world: World) -> AsyncIterator[None]:
    """Let the kind have neither columns nor fields of a status inside of the block."""
    name = f"{ZONE_BUDGETS.plural}.rollout-operator.grafana.com"
    shipped = await world.api.get(CRDS, "", name)
    plain = deepcopy(shipped)
    (version,) = plain["spec"]["versions"]
    del version["additionalPrinterColumns"]
    del version["schema"]["openAPIV3Schema"]["properties"]["status"]
    await _replace(world.api, name, plain)
    await _wait_kept(world, is_kept=False)
    try:
        yield
    finally:
        await _replace(world.api, name, shipped)
        await _wait_kept(world, is_kept=True)


async def _replace(api: Api, name: str, crd: Json) -> None:
    newest = await api.get(CRDS, "", name)
    await api.replace(CRDS, "", name, {**newest, "spec": crd["spec"]})


async def _wait_kept(world: World, *, is_kept: bool) -> None:
    """Wait until the API server goes by the definition: a status is kept, or is dropped."""
    await world.post(ZONE_BUDGETS, zone_budget("probe", {"app": "none"}))

    async def is_known() -> bool:
        body = await world.api.patch(
            ZONE_BUDGETS, world.namespace, "probe", {"status": {"zones": 1}}, subresource="status"
        )
        return ("status" in body) is is_kept

    try:
        await wait_true(f"status kept: {is_kept}", is_known, SOON)
    finally:
        await world.delete(ZONE_BUDGETS, "probe")
