"""Which version of a budget is in force, and for whom (T-10, ZPDB-30 to ZPDB-35, W-17, W-52)."""

from collections.abc import Iterator, Mapping

import msgspec
import pytest

from rollout_operator.guards.budgets.catalog import BudgetCatalog
from rollout_operator.kube.cache.store import AnyBudget, BudgetStore
from rollout_operator.model.budget import Budget, BudgetState, FlawedBudget
from rollout_operator.model.names import Uid
from rollout_operator.model.objects import Unreadable
from rollout_operator.telemetry import logs
from rollout_operator.telemetry.budgets import BUDGET_RESULTS
from rollout_operator.telemetry.metrics import Metrics

INGESTER = {"rollout-group": "ingester"}
WIDER = {"app": "mimir"}
POD = {**INGESTER, **WIDER, "name": "ingester-zone-a"}


def budget(
    generation: int = 1,
    *,
    name: str = "ingester",
    uid: str = "u1",
    selector: Mapping[str, str] = INGESTER,
    most: int = 1,
    share: int | None = None,
    forgives: bool = False,
) -> Budget:
    return Budget(
        namespace="prod", name=name, uid=Uid(uid), resource_version=str(10 + generation),
        generation=generation, selector=selector, max_unavailable=most, percentage=share,
        forgives_absent_peers=forgives,
    )  # fmt: skip


def flawed(
    generation: int = 1,
    *,
    uid: str = "u1",
    selector: Mapping[str, str] | None = INGESTER,
    problem: str = "invalid value: it is",
) -> FlawedBudget:
    return FlawedBudget(
        namespace="prod", name="ingester", uid=Uid(uid), resource_version=str(10 + generation),
        generation=generation, selector=selector, problem=problem,
    )  # fmt: skip


def unreadable(name: str = "ingester") -> Unreadable:
    return Unreadable(
        kind="ZoneAwarePodDisruptionBudget", namespace="prod", name=name, uid=Uid("u1"),
        resource_version="12", error="metadata.generation: expected int",
    )  # fmt: skip


class Bench:
    """A catalog, and what it counted, showed and said."""

    def __init__(self, lines: list[str]) -> None:
        self.metrics = Metrics()
        self.catalog = BudgetCatalog(self.metrics)
        self.lines = lines
        self.stored: AnyBudget | None = None

    def store(self, *views: AnyBudget) -> None:
        """Take versions as the informer tells them."""
        for view in views:
            self.catalog.on_change(self.stored, view)
            self.stored = view

    def delete(self, view: AnyBudget) -> None:
        self.catalog.on_change(view, None)
        self.stored = None

    @property
    def counts(self) -> dict[str, float]:
        """Return what was counted at least once."""
        found = {
            result: self.sample("configurations_observed_total", result=result)
            for result in BUDGET_RESULTS
        }
        return {result: number for result, number in found.items() if number}

    def sample(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(f"rollout_operator_zpdb_{name}", labels)

    def shown(self, name: str = "ingester") -> tuple[float | None, float | None]:
        """Return the gauges: valid, and the maximum in force."""
        return self.sample("valid", zpdb=name), self.sample("max_unavailable", zpdb=name)

    def generation(self, labels: Mapping[str, str] = POD) -> int | None:
        """Return the generation that is in force for a pod under one budget."""
        (entry,) = self.catalog.find(labels)
        return entry.budget.generation if entry.budget is not None else None


@pytest.fixture
def bench() -> Iterator[Bench]:
    lines: list[str] = []
    logs.configure(write=lambda line: lines.append(line.decode()))
    yield Bench(lines)
    logs.configure()


def test_t10_older_generations_are_ignored_and_newer_ones_stored(bench: Bench) -> None:
    bench.store(budget(2), budget(1))
    assert bench.generation() == 2
    bench.store(budget(5))
    assert bench.generation() == 5
    bench.delete(budget(1))
    assert bench.generation() == 5
    assert bench.counts == {"updated": 2, "ignored": 1, "delete-ignored": 1}


@pytest.mark.parametrize("generation", [5, 6])
def test_t10_a_delete_removes_what_is_not_newer(bench: Bench, generation: int) -> None:
    bench.store(budget(5))
    bench.delete(budget(generation))
    assert bench.catalog.find(POD) == ()
    assert bench.counts == {"updated": 1, "deleted": 1}
    assert bench.shown() == (None, None)


def test_t10_what_is_no_object_is_ignored(bench: Bench) -> None:
    bench.catalog.on_change(None, unreadable(name=""))
    bench.catalog.on_change(unreadable(name=""), unreadable(name=""))
    bench.catalog.on_change(unreadable(name=""), None)
    assert bench.counts == {"ignored": 3}


def test_zpdb_31_the_same_once_more_is_ignored(bench: Bench) -> None:
    """So is a delete of an unknown budget (ZPDB-33)."""
    bench.delete(budget(5))
    bench.store(budget(2), msgspec.structs.replace(budget(2), resource_version="99"))
    assert bench.counts == {"updated": 1, "ignored": 1, "delete-ignored": 1}


def test_w41_an_annotation_counts_without_a_new_generation(bench: Bench) -> None:
    bench.store(budget(2), budget(2, forgives=True))
    (entry,) = bench.catalog.find(POD)
    assert entry.budget == budget(2, forgives=True)
    assert bench.counts == {"updated": 2}


def test_t10_none_one_or_two_budgets_of_a_pod(bench: Bench) -> None:
    bench.store(budget(name="b"))
    bench.catalog.on_change(None, budget(name="a", uid="u2", selector=WIDER))
    bench.catalog.on_change(None, budget(name="all", uid="u3", selector={}))
    assert [entry.name for entry in bench.catalog.find(POD)] == ["a", "all", "b"]
    assert [entry.name for entry in bench.catalog.find({"app": "other"})] == ["all"]
    assert [entry.name for entry in bench.catalog.find({})] == ["all"]
    assert [entry.name for entry in bench.catalog.list_all()] == ["a", "all", "b"]


@pytest.mark.parametrize("generation", [1, 7])
def test_w17_another_uid_replaces_whatever_the_generation(bench: Bench, generation: int) -> None:
    """Recreated while the delete was missed: generation 1 is the newer one."""
    bench.store(budget(7), budget(generation, uid="u2", most=4))
    (entry,) = bench.catalog.find(POD)
    assert entry.budget == budget(generation, uid="u2", most=4)
    bench.delete(budget(9))  # of the first one, late
    assert bench.catalog.find(POD) == (entry,)
    assert bench.counts == {"updated": 2, "delete-ignored": 1}


def test_w17_what_a_relist_does_not_show_is_gone(bench: Bench) -> None:
    store = BudgetStore()
    for change in store.upsert(budget(3)):
        bench.catalog.on_change(*change)
    assert bench.generation() == 3
    for change in store.replace_all([]):
        bench.catalog.on_change(*change)
    assert bench.catalog.find(POD) == ()
    for change in store.replace_all([budget(1, uid="u2")]):
        bench.catalog.on_change(*change)
    assert bench.generation() == 1


def test_w52_a_flawed_update_keeps_the_last_valid_version_in_force(bench: Bench) -> None:
    bench.store(budget(1, most=3), flawed(2))
    assert bench.catalog.find(POD) == (
        BudgetState(name="ingester", budget=budget(1, most=3), problem="invalid value: it is"),
    )
    assert bench.counts == {"updated": 1, "invalid": 1}
    assert bench.shown() == (0, 3)
    (line,) = [line for line in bench.lines if "level=error" in line]
    assert "zpdb=ingester" in line
    assert "generation=2 generation_in_force=1" in line
    assert 'effect="the version before stays in force"' in line


def test_w52_each_flaw_is_told_once(bench: Bench) -> None:
    bench.store(flawed(2), flawed(2), flawed(3), flawed(3, problem="another"), budget(4))
    assert bench.counts == {"invalid": 4, "updated": 1}
    told = [line for line in bench.lines if "level=error" in line]
    assert ["generation=2" in one for one in told] == [True, False, False]
    assert bench.shown() == (1, 1)
    assert bench.catalog.find(POD) == (BudgetState(name="ingester", budget=budget(4)),)


def test_w52_a_flawed_budget_at_start_is_never_taken_for_none(bench: Bench) -> None:
    bench.store(flawed(1))
    assert bench.catalog.find(POD) == (
        BudgetState(name="ingester", budget=None, problem="invalid value: it is"),
    )
    assert bench.catalog.find(WIDER) == ()
    assert bench.shown() == (0, 0)
    assert 'effect="no pod that it selects may go"' in bench.lines[-1]


def test_w52_a_flawed_version_that_selects_more_adds_pods_without_a_budget(bench: Bench) -> None:
    """Nobody can say how many of them may go; the pods of the version in force keep theirs."""
    bench.store(budget(1), flawed(2, selector=WIDER))
    (entry,) = bench.catalog.find(POD)
    assert entry.budget == budget(1)
    (entry,) = bench.catalog.find(WIDER)
    assert (entry.budget, entry.problem) == (None, "invalid value: it is")
    bench.store(budget(3))
    assert bench.catalog.find(WIDER) == ()


def test_w52_an_unreadable_selector_says_that_it_guards_nothing(bench: Bench) -> None:
    bench.store(flawed(1, selector=None))
    assert bench.catalog.find(POD) == ()
    assert "it guards nothing" in bench.lines[-1]
    assert bench.shown() == (0, 0)


def test_an_older_version_changes_nothing(bench: Bench) -> None:
    """A flawed one after a valid one, or a valid one after a flawed one."""
    bench.store(budget(3), flawed(2))
    assert bench.catalog.find(POD) == (BudgetState(name="ingester", budget=budget(3)),)
    assert bench.counts == {"updated": 1, "invalid": 1}
    bench.store(flawed(5), budget(4))
    assert bench.generation() == 3
    assert bench.counts == {"updated": 1, "invalid": 2, "ignored": 1}
    # W-17: one that was recreated flawed has no version in force.
    bench.store(flawed(1, uid="u2"))
    assert bench.generation() is None


def test_an_unreadable_object_is_a_flawed_one(bench: Bench) -> None:
    bench.store(budget(5), unreadable())
    (entry,) = bench.catalog.find(POD)
    assert (entry.budget, entry.problem) == (budget(5), unreadable().error)
    assert bench.shown() == (0, 1)
    bench.delete(unreadable())
    assert bench.catalog.find(POD) == ()
    assert bench.counts == {"updated": 1, "invalid": 1, "deleted": 1}


@pytest.mark.parametrize(
    ("view", "shown"),
    [(budget(most=0), (1, 0)), (budget(most=4), (1, 4)), (budget(most=0, share=50), (1, None))],
    ids=["none may go", "a number", "a percentage is no number of pods"],
)
def test_gauges(bench: Bench, view: Budget, shown: tuple[float, float | None]) -> None:
    bench.store(budget(0, most=9), view)
    assert bench.shown() == shown


def test_metr_30_all_results_exist_at_zero(bench: Bench) -> None:
    results = ("updated", "deleted", "invalid", "ignored", "delete-ignored")
    assert results == BUDGET_RESULTS
    for result in results:
        assert bench.sample("configurations_observed_total", result=result) == 0
