"""The cache of budgets follows the API server, flawed budgets included (W-17, W-52, FP-07)."""

import asyncio
from collections.abc import Callable

from rollout_operator.aio.clock import LoopClock
from rollout_operator.guards.budgets.catalog import BudgetCatalog
from rollout_operator.kube.api import ZONE_BUDGETS, JsonObject
from rollout_operator.kube.cache.collection import Collection
from rollout_operator.kube.cache.informer import RELIST, WATCH_LASTS, Informer
from rollout_operator.kube.cache.store import AnyBudget, BudgetStore
from rollout_operator.lab.model.fields import metadata_of
from rollout_operator.lab.model.request import ApiRequest, Verb
from rollout_operator.model.budget import Budget, FlawedBudget
from rollout_operator.model.decode.budget import decode_budget
from rollout_operator.telemetry.metrics import Metrics
from tests.contract.bodies import zone_budget
from tests.lab.client_world import NAMESPACE, ClientWorld
from tests.virtual_time import in_virtual_time

POD = {"app": "x"}


class Followed:
    """An informer of budgets on a sandbox, and the catalog that it feeds."""

    def __init__(self) -> None:
        self.world = ClientWorld()
        self.store = BudgetStore()
        self.metrics = Metrics()
        self.catalog = BudgetCatalog(self.metrics)
        of: Collection[AnyBudget] = Collection(
            resource=ZONE_BUDGETS, namespace=NAMESPACE, decode=decode_budget, store=self.store
        )
        self.informer: Informer[AnyBudget] = Informer(
            self.world.client, of, self.metrics, LoopClock(), lambda: 0.5
        )
        self.informer.on_change(self.catalog.on_change)
        self._changed = asyncio.Event()
        self.informer.on_change(lambda old, new: self._changed.set())

    async def wait(self, check: Callable[[Budget | None], bool]) -> None:
        """Wait until `check` holds of the budget in force for the pods."""
        async with asyncio.timeout((RELIST * 2).total_seconds()):
            while not check(self.in_force()):
                self._changed.clear()
                await self._changed.wait()

    def write(self, verb: Verb, name: str, body: JsonObject | None = None) -> None:
        answer = self.world.api.call_now(
            ApiRequest(verb=verb, resource=ZONE_BUDGETS, namespace=NAMESPACE, name=name, body=body)
        )
        assert answer.is_ok, answer.body

    def put(self, body: JsonObject) -> None:
        """Store an object as it is, past schema and rules."""
        self.world.api.put(body, actor="backup")

    def in_force(self) -> Budget | None:
        entries = self.catalog.find(POD)
        return entries[0].budget if entries else None


@in_virtual_time
async def test_w17_deleted_and_recreated_while_nobody_watched() -> None:
    followed = Followed()
    followed.write("create", "", zone_budget("a", maxUnavailable=2))
    followed.write("create", "", zone_budget("b", selector={"matchLabels": {"app": "y"}}))
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(followed.informer.run())
        await followed.informer.wait_synced()
        followed.world.link.is_cut = True
        followed.write("delete", "a")
        followed.write("delete", "b")
        followed.write("create", "", zone_budget("a", maxUnavailable=7))
        followed.world.api.compact()
        await asyncio.sleep((WATCH_LASTS * 3).total_seconds())  # so long is the outage
        followed.world.link.is_cut = False
        await followed.wait(lambda found: found is not None and found.max_unavailable == 7)
        assert isinstance(followed.store.get(NAMESPACE, "a"), Budget)
        assert followed.catalog.find({"app": "y"}) == ()
        task.cancel()


@in_virtual_time
async def test_w52_what_was_stored_without_a_schema_is_flawed_and_not_absent() -> None:
    followed = Followed()
    followed.write("create", "", zone_budget("a"))
    made = followed.world.api.get(ZONE_BUDGETS, NAMESPACE, "a")
    assert made is not None
    spec: JsonObject = {"selector": {"matchLabels": POD}, "maxUnavailable": -1}
    head = {**metadata_of(made), "generation": 2}
    followed.put({**made, "metadata": head, "spec": spec})
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(followed.informer.run())
        await followed.informer.wait_synced()
        assert isinstance(followed.store.get(NAMESPACE, "a"), FlawedBudget)
        assert followed.store.unreadable_count == 0
        (entry,) = followed.catalog.find(POD)
        assert entry.budget is None
        assert entry.problem == "invalid value: max unavailable must be 0 <= val, got -1"
        task.cancel()
