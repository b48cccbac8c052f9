"""What is said of the budgets of a running operator: by the caches and grants that decide, too."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from rollout_operator.guards.arbiter import Accounts, ArbiterContext
from rollout_operator.model.budget import Budget, DisruptionSource, FlawedBudget
from rollout_operator.model.names import Uid
from rollout_operator.model.outcome import Code
from rollout_operator.planning.readiness import SNAPSHOT_LIMIT
from tests.guards.arbiter_bench import LABELS, Process, name_of, rule, start
from tests.virtual_time import in_virtual_time


def accounts(process: Process) -> Accounts:
    """Return the accounts of a process."""
    world = process.world
    return Accounts(
        ArbiterContext(
            budgets=process.catalog,
            find_lack=world.lacks.get,
            sets=process.sets,
            pods=process.pods,
            reader=process.observer,
            in_flight=process.in_flight,
            recorder=process.recorder,
            age=lambda: world.age,
            now=world.now,
            clock=process.clock,
            metrics=process.metrics,
            find_downscale=lambda sets: world.downscale,
        )
    )


def describe_account(process: Process, name: str = "ingester") -> str:
    account = accounts(process).find(name)
    assert account is not None
    described = account.described
    return (
        f"{described.unavailable} down, {described.allowed} more: {described.text.split(' (')[0]}"
    )


@in_virtual_time
async def test_what_was_granted_is_not_to_be_had_again() -> None:
    """SI-05: before any cache shows it."""
    _, process = start()
    assert (
        describe_account(process)
        == "0 down, 1 more: 1 more pod may go, of any one zone; 9 of 9 pods up"
    )
    assert await process.evict("a-0") == "allowed"
    assert describe_account(process) == "1 down, 0 more: 1 pod not ready in ingester-zone-a"


@in_virtual_time
async def test_the_sentence_is_that_of_an_eviction() -> None:
    """D-75."""
    here, process = start()
    here.break_pod("c-2")
    process.sync()
    assert (await process.evict("a-0")).endswith("1 pod not ready in ingester-zone-c")
    assert describe_account(process) == "1 down, 0 more: 1 pod not ready in ingester-zone-c"


@in_virtual_time
async def test_each_budget_is_reported_with_its_zones() -> None:
    _, process = start(rule(), rule(name="other", selector={"rollout-group": "querier"}))
    found = accounts(process)

    assert [one.name for one in found.list_descriptions()] == ["ingester", "other"]
    account = found.find("ingester")
    assert account is not None
    assert account.zones == tuple(Uid(f"uid-{name_of(letter)}") for letter in "abc")
    assert found.find("third") is None


@pytest.mark.parametrize(
    ("selector", "text"),
    [
        (LABELS, "budget ingester is not valid: bad; no pod that it selects may go"),
        (None, "budget ingester is not valid: bad; what it selects is unknown"),
    ],
)
def test_a_flawed_budget_is_reported(selector: dict[str, str] | None, text: str) -> None:
    @in_virtual_time
    async def run() -> None:
        _, process = start(rule(name="x", selector={"rollout-group": "x"}))
        flawed = FlawedBudget(
            namespace="test", name="ingester", uid=Uid("u"), resource_version="1", generation=3,
            selector=selector, problem="bad",
        )  # fmt: skip
        process.catalog.on_change(None, flawed)
        account = accounts(process).find("ingester")
        assert account is not None
        assert account.known.generation == 3
        assert account.described.text.startswith(text)

    run()


@in_virtual_time
async def test_what_is_not_known_is_not_reported() -> None:
    """A view that is too old says so; budgets that were not read are none."""
    here, process = start()
    here.age = SNAPSHOT_LIMIT + timedelta(seconds=1)
    account = accounts(process).find("ingester")
    assert account is not None
    assert [wait.code for wait in account.described.waits] == [Code.SNAPSHOT_STALE]
    here.lacks[DisruptionSource.EVICTION] = "no answer yet"
    assert list(accounts(process).list_descriptions()) == []


@in_virtual_time
async def test_budgets_that_overlap_name_each_other() -> None:
    wider: Budget = replace(rule(), name="zz", selector={})
    _, process = start(rule(), wider)
    texts = [one.text for one in accounts(process).list_descriptions()]

    assert [text.rpartition(": ")[2] for text in texts] == ["ingester and zz"] * 2
