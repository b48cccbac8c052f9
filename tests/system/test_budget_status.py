"""The status of budgets on the real control plane: `kubectl get` shows room, `describe` shows why.

Also where the definition of the kind, or the Role, is that of other releases.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from copy import deepcopy
from datetime import timedelta
from typing import Final

import pytest

from tests.system.budgeted import create_budgets
from tests.system.grants import reported, without
from tests.system.waits import show_columns, wait_line, wait_true
from tests.world.api import Api, Json
from tests.world.budgets import CRDS, ZONE_BUDGETS, grouped_zones, zone_budget
from tests.world.observed import Request
from tests.world.operatorproc import OperatorProcess
from tests.world.world import World

pytestmark = pytest.mark.controlplane

LABELS: Final = {"rollout-group": "ingester"}
STATUS: Final = "zoneawarepoddisruptionbudgets/status"
SOON: Final = timedelta(seconds=60)
NOT_WRITTEN: Final = "Status of budgets is not written"
# Valid by the schema: what is wrong with it is found by the operator.
BAD_GROUP: Final = {"podNamePartitionRegex": "x-([0-9]+)", "podNameRegexGroup": 5}
POD: Final = "ingester-zone-c-0"


async def test_valid_used_invalid_and_valid_again(world: World) -> None:
    """ZPDB-01: each state with its sentence; a change is one write, and no change is none."""
    await create_budgets(world, [zone_budget("ingester", LABELS, maxUnavailable=1)])
    await world.create(*grouped_zones(replicas=2))
    await world.operator()
    first = await _wait_ready(world, "True", "BudgetHasRoom")
    numbers = {key: first[key] for key in first if key != "conditions"}
    assert numbers == {
        "observedGeneration": 1, "zones": 3, "pods": 6, "currentUnavailable": 0,
        "allowedDisruptions": 1,
    }  # fmt: skip
    message = "1 more pod may go, of any one zone; 6 of 6 pods up"
    assert _condition(first, "Ready")["message"] == message
    assert await show_columns(world, ZONE_BUDGETS) == {
        "Name": "ingester", "Max": 1, "Percent": None, "Unavailable": 0, "Allowed": 1,
        "Ready": "True", "Reason": "BudgetHasRoom",
    }  # fmt: skip

    await world.kubelet.make_unready(POD)
    used = await _wait_ready(world, "True", "DisruptionBudgetUsed")
    assert (used["currentUnavailable"], used["allowedDisruptions"]) == (1, 0)
    start = f"1 pod not ready in ingester-zone-c ({POD}: "
    assert _condition(used, "Ready")["message"].startswith(start)
    assert _since(used) == _since(first), "it is ready as before"
    await world.kubelet.make_ready(POD)
    await _wait_ready(world, "True", "BudgetHasRoom")

    await world.patch(ZONE_BUDGETS, "ingester", {"spec": BAD_GROUP})
    invalid = await _wait_ready(world, "False", "BudgetInvalid")
    assert _condition(invalid, "Valid")["status"] == "False"
    text = _condition(invalid, "Ready")["message"]
    assert text.startswith("budget ingester is not valid: invalid value: regex is not valid")
    assert text.endswith("the version before, of generation 1, stays in force")
    assert (invalid["observedGeneration"], invalid["allowedDisruptions"]) == (2, 1)
    assert _since(invalid) > _since(first)
    await world.patch(ZONE_BUDGETS, "ingester", {"spec": dict.fromkeys(BAD_GROUP)})
    await _wait_ready(world, "True", "BudgetHasRoom")

    await world.post(ZONE_BUDGETS, zone_budget("zz", LABELS))
    overlapping = await _wait_ready(world, "False", "BudgetsOverlap")
    assert _condition(overlapping, "Ready")["message"].endswith(": ingester and zz")
    await world.delete(ZONE_BUDGETS, "zz")
    await _wait_ready(world, "True", "BudgetHasRoom")

    calls = [call for call in await _list_writes(world) if call.name == "ingester"]
    assert {call.code for call in calls} == {200}
    assert len(calls) <= 2 * 7, "one for each of seven states, and what lies between"
    await world.judge.assert_clean()


async def test_without_the_right_and_without_the_fields_it_stays_silent(world: World) -> None:
    """RBAC-10, DEP-33: the Role and the definition of other releases; rollouts go on."""
    await create_budgets(world, [zone_budget("ingester", LABELS)])
    names = await world.create(*grouped_zones(replicas=1))
    async with without(world, ("patch", STATUS)):
        operator = await world.operator()
        await wait_line(operator, NOT_WRITTEN, reported("patch", STATUS))
        await world.roll(names, "v2")
        await operator.terminate()
    assert [call.code for call in await _list_writes(world)] == [403]
    assert "status" not in await world.get(ZONE_BUDGETS, "ingester")

    async with _other_definition(world):
        operator = await world.operator()
        await wait_line(operator, NOT_WRITTEN, "it drops what is written")
        await world.roll(names, "v3")
        await operator.terminate()
    assert [call.code for call in await _list_writes(world)] == [403, 200]
    assert _count_lines(operator) == 1
    await world.judge.assert_clean()


async def _wait_ready(world: World, status: str, reason: str) -> Json:
    """Wait until condition Ready is this, and return the status."""
    seen: Json = {}

    async def is_there() -> bool:
        nonlocal seen
        seen = (await world.get(ZONE_BUDGETS, "ingester")).get("status", {})
        found = _condition(seen, "Ready")
        return (found.get("status"), found.get("reason")) == (status, reason)

    await wait_true(lambda: f"{status} {reason}: {seen}", is_there, SOON)
    return seen


def _condition(status: Json, kind: str) -> Json:
    found = [one for one in status.get("conditions", ()) if one["type"] == kind]
    return found[0] if found else {}


def _since(status: Json) -> str:
    return str(_condition(status, "Ready")["lastTransitionTime"])


async def _list_writes(world: World) -> list[Request]:
    return [call for call in await world.judge.calls() if call.resource == STATUS]


def _count_lines(operator: OperatorProcess) -> int:
    return sum(NOT_WRITTEN in line for line in operator.log_lines())


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
    probe = zone_budget("probe", {"app": "none"})
    await world.post(ZONE_BUDGETS, probe)

    async def is_known() -> bool:
        body = await world.api.patch(
            ZONE_BUDGETS, world.namespace, "probe", {"status": {"zones": 1}}, subresource="status"
        )
        return ("status" in body) is is_kept

    try:
        await wait_true(f"status kept: {is_kept}", is_known, SOON)
    finally:
        await world.delete(ZONE_BUDGETS, "probe")
