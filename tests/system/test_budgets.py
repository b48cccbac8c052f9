"""Budgets on the real control plane: drains under kills, a later refusal, and what status shows.

Also where the definition of the kind, or the Role, is that of other releases. The verdicts
themselves are told in `tests/web/budgets` and `tests/planning/budgets`.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from copy import deepcopy
from datetime import timedelta
from typing import Final

import pytest

from tests.system.budgeted import Budgeted, create_budgets, hold
from tests.system.grants import reported, without
from tests.system.waits import show_columns, wait_line, wait_true
from tests.world.api import BUDGETS, PODS, Api, ApiError, Json
from tests.world.budgets import (
    CRDS,
    ZONE_BUDGETS,
    DryRun,
    by_partition,
    grouped_zones,
    native_budget,
    zone_budget,
)
from tests.world.clients import CREATED, UNANSWERED, Drain
from tests.world.judge import Request
from tests.world.kubelet import Behaviour, always
from tests.world.world import World

pytestmark = pytest.mark.controlplane

LABELS: Final = {"rollout-group": "ingester"}
FAST: Final = Behaviour(
    ready_after=timedelta(milliseconds=50), terminates_after=timedelta(milliseconds=20)
)
KILLS: Final = 3
LIMIT: Final = timedelta(seconds=180)
# A record is released after 8 s.
FREED_WITHIN: Final = timedelta(seconds=10)
STATUS: Final = "zoneawarepoddisruptionbudgets/status"
SOON: Final = timedelta(seconds=60)
NOT_WRITTEN: Final = "Status of budgets is not written"
# Valid by the schema: what is wrong with it is found by the operator.
BAD_GROUP: Final = {"podNamePartitionRegex": "x-([0-9]+)", "podNameRegexGroup": 5}
A, B, C = (f"ingester-zone-{letter}-0" for letter in "abc")


@pytest.mark.parametrize(
    ("make", "maximum"),
    [
        pytest.param(zone_budget, 1, id="zones"),
        pytest.param(by_partition, 3, id="partitions", marks=pytest.mark.prove),
    ],
)
async def test_fp21_drains_and_a_rollout_and_kills(
    world: World, make: Callable[..., Json], maximum: int
) -> None:
    """SI-01 to SI-05, SI-17, FP-06, FP-21, FP-35: never beyond the budget, and all of it ends.

    The judge reads the store's own history, of evictions and of deletes.
    """
    budget = make("ingester", LABELS, maxUnavailable=maximum)
    world.kubelet.choose = always(FAST)
    zones = grouped_zones(replicas=6, max_unavailable=maximum)
    held = await hold(world, *zones, budgets=[budget], flags=("-log.level=info",))
    before = await held.victims()
    drain = Drain(world.api, world.namespace)
    async with asyncio.TaskGroup() as tasks:
        await world.set_image(held.names, "v2")
        tasks.create_task(drain.run(before, LIMIT), name="drain")
        tasks.create_task(_kill(held, random.Random(maximum)), name="kills")
    await world.wait_adopted(held.names)
    await world.judge.assert_clean()

    assert drain.unexpected() == []
    answers = [answer.message for _, answer in drain.refusals()]
    assert any(UNANSWERED in each for each in answers), "it was never away while it was called"
    pods = await world.api.items(PODS, world.namespace)
    assert {pod["metadata"]["uid"] for pod in pods} & {pod.uid for pod in before} == set()
    evicted = [one for one in await world.judge.evictions() if one.is_done]
    assert evicted, "the rollout was faster"
    await wait_true("records gone (LI-07)", lambda: _is_unrecorded(held), timedelta(seconds=20))


async def _kill(held: Budgeted, rng: random.Random) -> None:
    for _ in range(KILLS):
        await asyncio.sleep(rng.uniform(0.1, 1.5))  # the moment is what is tested
        held.operator.kill()
        held.operator.start()
        await held.operator.wait_ready()


async def _is_unrecorded(held: Budgeted) -> bool:
    return await held.list_recorded() == []


async def test_li07_dry_runs_grant_nothing_and_a_later_refusal_frees_a_grant(world: World) -> None:
    """LI-07, FP-22, W-51: a PodDisruptionBudget refuses after us: within 10 s others may go.

    SI-15, W-09: as `kubectl drain --dry-run=server` sends it. ZVAL-04: the schema's own error
    comes first.
    """
    held = await hold(world, *grouped_zones(replicas=2), budgets=[zone_budget("one", LABELS)])
    with pytest.raises(ApiError, match="422 Invalid"):
        await world.post(ZONE_BUDGETS, zone_budget("x", LABELS, maxUnavailable=-1))
    for how in (DryRun.QUERY, DryRun.OPTIONS):
        for pod in (A, B):
            assert (await held.evict(pod, how)).status in CREATED
    assert await held.list_recorded() == []

    await world.post(BUDGETS, native_budget("native", {"name": "ingester-zone-a"}, 0))
    answer = await held.evict(A)
    assert (answer.status, "webhook" in answer.message) == (429, False), answer
    assert await held.list_recorded() == [A]
    await held.assert_refuses(B, 429, f"1 pod not ready in ingester-zone-a ({A}: allowed to go)")
    await held.wait_allowed(B, FREED_WITHIN)
    assert await held.list_recorded() == []
    await world.judge.assert_clean()


async def test_valid_used_invalid_and_valid_again(world: World) -> None:
    """ZPDB-01: `kubectl get` shows room, `describe` shows why; no change is no write."""
    await create_budgets(world, [zone_budget("ingester", LABELS, maxUnavailable=1)])
    await world.create(*grouped_zones(replicas=2))
    await world.operator()
    first = await _wait_ready(world, "True", "BudgetHasRoom")
    numbers = {key: first[key] for key in first if key != "conditions"}
    assert numbers == {
        "observedGeneration": 1, "zones": 3, "pods": 6, "currentUnavailable": 0,
        "allowedDisruptions": 1,
    }  # fmt: skip
    assert await show_columns(world, ZONE_BUDGETS) == {
        "Name": "ingester", "Max": 1, "Percent": None, "Unavailable": 0, "Allowed": 1,
        "Ready": "True", "Reason": "BudgetHasRoom",
    }  # fmt: skip

    await world.kubelet.make_unready(C)
    used = await _wait_ready(world, "True", "DisruptionBudgetUsed")
    assert (used["currentUnavailable"], used["allowedDisruptions"]) == (1, 0)
    assert _condition(used)["message"].startswith(f"1 pod not ready in ingester-zone-c ({C}: ")
    since = _condition(first)["lastTransitionTime"]
    assert _condition(used)["lastTransitionTime"] == since, "it is ready as before"
    await world.kubelet.make_ready(C)

    await world.patch(ZONE_BUDGETS, "ingester", {"spec": BAD_GROUP})
    invalid = await _wait_ready(world, "False", "BudgetInvalid")
    text = _condition(invalid)["message"]
    assert text.endswith("the version before, of generation 1, stays in force")
    assert (invalid["observedGeneration"], invalid["allowedDisruptions"]) == (2, 1)
    await world.patch(ZONE_BUDGETS, "ingester", {"spec": dict.fromkeys(BAD_GROUP)})
    await _wait_ready(world, "True", "BudgetHasRoom")
    calls = await _list_writes(world)
    assert {call.code for call in calls} == {200}
    assert len(calls) <= 2 * 5, "one for each of five states, and what lies between"
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
    assert sum(NOT_WRITTEN in line for line in operator.log_lines()) == 1
    await world.judge.assert_clean()


async def _wait_ready(world: World, status: str, reason: str) -> Json:
    """Wait until condition Ready is this, and return the status."""
    seen: Json = {}

    async def is_there() -> bool:
        nonlocal seen
        seen = (await world.get(ZONE_BUDGETS, "ingester")).get("status", {})
        found = _condition(seen)
        return (found.get("status"), found.get("reason")) == (status, reason)

    await wait_true(lambda: f"{status} {reason}: {seen}", is_there, SOON)
    return seen


def _condition(status: Json) -> Json:
    return next((one for one in status.get("conditions", ()) if one["type"] == "Ready"), {})


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
