"""A namespace under budgets: zones, an operator that reviews evictions, and those who evict."""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from functools import partial
from typing import Final

import msgspec
from rollout_lab.zones import ZoneSpec

from tests.system.hooked import hook_up
from tests.system.waits import read_metric, wait_true
from tests.world.api import PODS, Answer, Json
from tests.world.budgets import ZONE_BUDGETS, DryRun, evict, install_kinds
from tests.world.clients import CREATED, Drain, Victim, list_victims
from tests.world.hooks import BUDGET_HOOKS, Hooks
from tests.world.operatorproc import OperatorProcess
from tests.world.world import World

RECORD: Final = "grafana.com/rollout-operator-disruption"
WAIT_LIMIT: Final = timedelta(seconds=60)
OTHER: Final = "other"
"""A set that no budget selects, by which it is proven that webhooks are called."""


class Budgeted(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a test of budgets plays with."""

    world: World
    operator: OperatorProcess
    hooks: Hooks
    names: list[str]
    """Of the zones."""

    async def evict(self, pod: str, dry_run: DryRun = DryRun.NO) -> Answer:
        """Request an eviction, once."""
        return await evict(self.world.api, self.world.namespace, pod, dry_run=dry_run)

    async def assert_refuses(self, pod: str, status: int, *parts: str) -> Answer:
        """Request an eviction that must be refused in these words."""
        answer = await self.evict(pod)
        start = f'admission webhook "{self.hooks.name("pod-eviction")}.grafana.com" denied the'
        assert answer.status == status, answer
        assert answer.message.startswith(start), answer
        for part in parts:
            assert part in answer.message, answer.message
        return answer

    async def wait_ready(self) -> None:
        """Wait until all zones are whole."""
        await self.world.wait_ready(self.names)

    async def list_recorded(self) -> list[str]:
        """Return the names of the pods that stand and carry a record."""
        pods = await self.world.api.items(PODS, self.world.namespace)
        return [
            pod["metadata"]["name"]
            for pod in pods
            if has_record(pod) and "deletionTimestamp" not in pod["metadata"]
        ]

    async def set_budget(self, name: str, **spec: object) -> None:
        """Change fields of a budget."""
        await self.world.patch(ZONE_BUDGETS, name, {"spec": spec})

    async def wait_allowed(self, pod: str, limit: timedelta = WAIT_LIMIT) -> None:
        """Request an eviction until it is allowed."""

        async def is_allowed() -> bool:
            return (await self.evict(pod)).status in CREATED

        await wait_true(f"{pod} evicted", is_allowed, limit)

    async def wait_answer(self, pod: str, status: int, limit: timedelta = WAIT_LIMIT) -> None:
        """Try by dry runs, which change nothing, until the answer has this status."""

        async def is_answered() -> bool:
            return (await self.evict(pod, DryRun.QUERY)).status == status

        await wait_true(f"{pod} answered with {status}", is_answered, limit)

    async def drain(self, *zones: str, limit: timedelta = WAIT_LIMIT) -> Drain:
        """Drain all pods of these zones, or of all of them, side by side."""
        drain = Drain(self.world.api, self.world.namespace)
        await drain.run(await self.victims(*zones), limit)
        return drain

    async def victims(self, *zones: str) -> list[Victim]:
        """Return the pods that a drain of these zones, or of all, would evict."""
        return await list_victims(self.world.api, self.world.namespace, zones or self.names)


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


async def hold(
    world: World,
    *zones: ZoneSpec,
    budgets: Iterable[Json] = (),
    flags: tuple[str, ...] = (),
    registration: Mapping[str, object] | None = None,
    is_through_proxy: bool = False,
) -> Budgeted:
    """Create zones and budgets, start an operator, and return once its webhooks are called."""
    await create_budgets(world, budgets)
    hooked = await hook_up(
        world,
        ZoneSpec(name=OTHER, group=None, replicas=1),
        *zones,
        flags=flags,
        is_through_proxy=is_through_proxy,
        registration={"hooks": BUDGET_HOOKS, **(registration or {})},
    )
    names = [zone.name for zone in zones]
    return Budgeted(world=world, operator=hooked.operator, hooks=hooked.hooks, names=names)
