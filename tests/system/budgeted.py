"""Budgets of a namespace, and the records of what they allowed."""

from collections.abc import Iterable
from datetime import timedelta
from functools import partial
from typing import Final

from tests.system.waits import read_metric, wait_true
from tests.world.api import Json
from tests.world.budgets import ZONE_BUDGETS, install_kinds
from tests.world.operatorproc import OperatorProcess
from tests.world.world import World

RECORD: Final = "grafana.com/rollout-operator-disruption"
WAIT_LIMIT: Final = timedelta(seconds=60)
OTHER: Final = "other"
"""A set that no budget selects, by which it is proven that webhooks are called."""


def has_record(pod: Json) -> bool:
    """Say whether a pod carries the record of a disruption."""
    return RECORD in pod["metadata"].get("annotations", {})


async def create_budgets(world: World, budgets: Iterable[Json]) -> None:
    """Create budgets; the kind is installed where it is not."""
    await install_kinds(world.api)
    for one in budgets:
        await world.post(ZONE_BUDGETS, one)


async def report_twice(world: World, operator: OperatorProcess, name: str) -> None:
    """Have a budget be invalid, mended, and invalid as before: an Event that goes on."""

    async def is_shown(is_valid: bool) -> bool:
        return await read_metric(operator, "rollout_operator_zpdb_valid", zpdb=name) == is_valid

    async def has_gone_on() -> bool:
        events = "rollout_operator_events_total"
        return (await read_metric(operator, events, outcome="repeated") or 0) > 0

    # Two groups, none of which is named: what the schema of the kind cannot tell.
    for pattern in ("(a)(b)", None, "(a)(b)"):
        await world.patch(ZONE_BUDGETS, name, {"spec": {"podNamePartitionRegex": pattern}})
        await wait_true(f"obeyed: {pattern}", partial(is_shown, pattern is None))
    await wait_true("an Event that goes on", has_gone_on)
