"""Who writes the status of budgets, and upon what; on a simulated cluster with the flag."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import pairwise
from typing import Any, Final

from rollout_lab.model.history import Called
from rollout_lab.model.request import MERGE_PATCH, ApiRequest
from rollout_lab.process import SimulatedProcess
from rollout_lab.world import Sandbox
from rollout_lab.zones import ZoneSpec

from rollout_operator.kube.api import ZONE_BUDGETS
from rollout_operator.operator.features import BudgetReports
from tests.operator.acting import call, change, create, patch
from tests.simulation.drainers import zone_budget
from tests.virtual_time import in_virtual_time

NAMES: Final = ("zone-a", "zone-b", "zone-c")
LABELS: Final = {"rollout-group": "ingester"}
SETTLED: Final = timedelta(seconds=10)


@asynccontextmanager
async def reporting(
    *names: str, elects: bool = False
) -> AsyncIterator[tuple[Sandbox, Sequence[SimulatedProcess]]]:
    """Run three zones of two pods under a budget, and processes that write its status."""
    async with Sandbox() as sandbox:
        zones = (ZoneSpec(name=name, replicas=2, pod_labels=LABELS) for name in NAMES)
        await create(sandbox, *zones)
        budget = zone_budget("ingester", LABELS, maxUnavailable=1)
        await call(sandbox, ApiRequest(verb="create", resource=ZONE_BUDGETS, body=budget))
        processes = [sandbox.process(name, elects=elects) for name in names]
        for process in processes:
            process.start()
            process.add_feature(BudgetReports)
        await asyncio.sleep(120)
        yield sandbox, processes


def read(sandbox: Sandbox) -> str:
    """Return what a budget shows, as `kubectl get` does."""
    body: Any = sandbox.api.get(ZONE_BUDGETS, sandbox.namespace, "ingester")
    status = body["status"]
    ready = next(one for one in status["conditions"] if one["type"] == "Ready")
    numbers = [status[key] for key in ("zones", "currentUnavailable", "allowedDisruptions")]
    return f"{' '.join(map(str, numbers))} {ready['reason']}"


def writes(sandbox: Sandbox) -> list[Called]:
    """Return the writes of a status, whatever became of them."""
    return [
        one
        for one in sandbox.history.list_all(Called)
        if one.request.resource == ZONE_BUDGETS and one.request.subresource == "status"
    ]


@in_virtual_time
async def test_what_concerns_a_budget_is_written_within_moments() -> None:
    """Pods, labels of StatefulSets, the budget itself."""
    async with reporting("operator-1") as (sandbox, _):
        assert read(sandbox) == "3 0 1 BudgetHasRoom"
        reported = len(writes(sandbox))
        await asyncio.sleep(3600)
        assert len(writes(sandbox)) == reported, "nothing happened"

        for group, shown in (("x", "2 0 1 BudgetHasRoom"), ("ingester", "3 0 1 BudgetHasRoom")):
            await patch(sandbox, "zone-c", {"metadata": {"labels": {"rollout-group": group}}})
            await asyncio.sleep(SETTLED.total_seconds())
            assert read(sandbox) == shown
        none = ApiRequest(
            verb="patch",
            resource=ZONE_BUDGETS,
            name="ingester",
            content_type=MERGE_PATCH,
            body={"spec": {"maxUnavailable": 0}},
        )
        await call(sandbox, none)
        await asyncio.sleep(SETTLED.total_seconds())
        assert read(sandbox) == "3 0 0 BudgetZero"
        assert len(writes(sandbox)) <= reported + 6


@in_virtual_time
async def test_a_rollout_is_followed_with_few_writes() -> None:
    """Not more often than every two seconds, whatever its pods do."""
    async with reporting("operator-1") as (sandbox, _):
        reported = len(writes(sandbox))
        await change(sandbox, *NAMES)
        shown = set()
        for _ in range(60):
            await asyncio.sleep(1)
            shown.add(read(sandbox))
        assert read(sandbox) == "3 0 1 BudgetHasRoom"
        assert "3 1 0 DisruptionBudgetUsed" in shown
        times = [one.at for one in writes(sandbox)[reported:]]
        gaps = [after - before for before, after in pairwise(times)]
        assert min(gaps) >= timedelta(seconds=1.9)
        assert {one.status for one in writes(sandbox)} == {200}


@in_virtual_time
async def test_only_the_process_that_acts_writes() -> None:
    async with reporting("operator-1", "operator-2", elects=True) as (sandbox, processes):
        (leader,) = [one.name for one in processes if one.acts]
        assert {one.actor for one in writes(sandbox)} == {leader}
