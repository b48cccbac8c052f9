"""Which version of a budget is in force, and for whom (T-10, ZPDB-30 to ZPDB-35, W-17, W-52).

A case is what the informer reports, one after the other: `store 2 uid=u2 most=4` a valid version of
generation 2, `flawed 2` one that is not valid, `blind 2` one without a readable selector,
`unreadable`, and `delete 2`. Of what comes of it: the versions in force for a pod of the zones and
for one of the whole application, what was counted, and the gauges: valid, and the maximum.
"""

from collections.abc import Mapping
from typing import Final

import pytest
from msgspec.structs import replace

from rollout_operator.guards.arbiter import BudgetCatalog
from rollout_operator.kube.store import AnyBudget, BudgetStore
from rollout_operator.model.budget import Budget, BudgetState, FlawedBudget
from rollout_operator.model.names import Uid
from rollout_operator.model.objects import Unreadable
from rollout_operator.telemetry.metrics import BUDGET_RESULTS, Metrics
from tests.planning.tables import read_arguments, read_table

INGESTER: Final = {"rollout-group": "ingester"}
WIDER: Final = {"app": "mimir"}
POD: Final = {**INGESTER, **WIDER, "name": "ingester-zone-a"}
VALID: Final = Budget(
    namespace="prod", name="ingester", uid=Uid("u1"), resource_version="11", generation=1,
    selector=INGESTER, max_unavailable=1,
)  # fmt: skip
FLAWED: Final = FlawedBudget(
    namespace="prod", name="ingester", uid=Uid("u1"), resource_version="11", generation=1,
    selector=INGESTER, problem="invalid",
)  # fmt: skip
UNREADABLE: Final = Unreadable(
    kind="ZoneAwarePodDisruptionBudget", namespace="prod", name="ingester", uid=Uid("u1"),
    resource_version="12", error="metadata.generation: expected int",
)  # fmt: skip
SHORT: Final = {
    "most": "max_unavailable", "share": "percentage", "forgives": "forgives_absent_peers",
    "version": "resource_version",
}  # fmt: skip


class Bench:
    """A catalog, and what it counted, showed and logged."""

    def __init__(self, lines: list[str]) -> None:
        self.metrics = Metrics()
        self.catalog = BudgetCatalog(self.metrics)
        self.lines = lines
        self.stored: AnyBudget | None = None

    def play(self, steps: str) -> "Bench":
        """Take versions as the informer reports them."""
        for step in filter(None, steps.split(", ")):
            (word, *plain), named = read_arguments(step)
            budget = _make(word, plain, named)
            if word == "delete":
                self.catalog.on_change(budget, None)
                self.stored = None
            else:
                self.catalog.on_change(self.stored, budget)
                self.stored = budget
        return self

    def sample(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(f"rollout_operator_zpdb_{name}", labels)

    def outline(self) -> list[str]:
        """Return what holds now, as the tables have it."""
        counts = {
            result: self.sample("configurations_observed_total", result=result) or 0
            for result in BUDGET_RESULTS
        }
        shown = (
            self.sample("valid", zpdb="ingester"),
            self.sample("max_unavailable", zpdb="ingester"),
        )
        return [
            f"pod {self.show(POD)}, app {self.show(WIDER)}",
            ", ".join(f"{result} {number:g}" for result, number in counts.items() if number),
            "valid {}, most {}".format(*("-" if one is None else f"{one:g}" for one in shown)),
        ]

    def show(self, labels: Mapping[str, str]) -> str:
        """Return the versions in force for a pod with these labels."""
        return " and ".join(map(_show, self.catalog.list_selecting(labels))) or "none"


def _make(word: str, plain: list[str], named: dict[str, object]) -> AnyBudget:
    fields = {SHORT.get(key, key): value for key, value in named.items()}
    if word == "unreadable":
        return replace(UNREADABLE, **fields)
    generation = int(plain[0])
    fields = {"generation": generation, "resource_version": f"{10 + generation}", **fields}
    if word == "blind":
        return replace(FLAWED, selector=None, **fields)
    return replace(FLAWED if word == "flawed" else VALID, **fields)


def _show(entry: BudgetState) -> str:
    rule = entry.budget
    version = "nothing" if rule is None else f"{rule.uid}.{rule.generation}"
    forgives = rule is not None and rule.forgives_absent_peers
    return " ".join(
        filter(None, [entry.name, version, "forgives" if forgives else "", entry.problem])
    )


@pytest.fixture
def bench(lines: list[str]) -> Bench:
    return Bench(lines)


VERSIONS = """
T-10 an older generation is ignored
  store 2, store 1 | pod ingester u1.2, app none | updated 1, ignored 1 | valid 1, most 1
T-10 a newer one is stored, and a delete of an older one ignored
  store 2, store 5, delete 1
  | pod ingester u1.5, app none | updated 2, delete-ignored 1 | valid 1, most 1
T-10 a delete of the same generation removes it
  store 5, delete 5 | pod none, app none | updated 1, deleted 1 | valid -, most -
T-10 a delete of a newer one, too
  store 5, delete 6 | pod none, app none | updated 1, deleted 1 | valid -, most -
T-10 what is no object is ignored
  unreadable name=, unreadable name= | pod none, app none | ignored 2 | valid -, most -
ZPDB-31 the same once more is ignored
  store 2, store 2 version=99
  | pod ingester u1.2, app none | updated 1, ignored 1 | valid 1, most 1
ZPDB-33 a delete of an unknown budget is ignored
  delete 5 | pod none, app none | delete-ignored 1 | valid -, most -
W-41 an annotation counts without a new generation
  store 2, store 2 forgives=true
  | pod ingester u1.2 forgives, app none | updated 2 | valid 1, most 1
W-17 another UID replaces whatever the generation: recreated while the delete was missed
  store 7, store 1 uid=u2 most=4 | pod ingester u2.1, app none | updated 2 | valid 1, most 4
W-17 also of the same generation; a late delete of the first one is ignored
  store 7, store 7 uid=u2 most=4, delete 9
  | pod ingester u2.7, app none | updated 2, delete-ignored 1 | valid 1, most 4
W-52 a flawed update keeps the last valid version in force
  store 1 most=3, flawed 2
  | pod ingester u1.1 invalid, app none | updated 1, invalid 1 | valid 0, most 3
W-52 each flaw counts, and a valid version mends them
  flawed 2, flawed 2, flawed 3, flawed 3 problem=another, store 4
  | pod ingester u1.4, app none | updated 1, invalid 4 | valid 1, most 1
W-52 a flawed budget at start is never taken for none
  flawed 1 | pod ingester nothing invalid, app none | invalid 1 | valid 0, most 0
W-52 a flawed version that selects more adds pods without a budget
  store 1, flawed 2 selector=app:mimir
  | pod ingester u1.1 invalid, app ingester nothing invalid | updated 1, invalid 1 | valid 0, most 1
W-52 until a valid version comes
  store 1, flawed 2 selector=app:mimir, store 3
  | pod ingester u1.3, app none | updated 2, invalid 1 | valid 1, most 1
W-52 one without a readable selector guards nothing
  blind 1 | pod none, app none | invalid 1 | valid 0, most 0
an older flawed version changes nothing
  store 3, flawed 2 | pod ingester u1.3, app none | updated 1, invalid 1 | valid 1, most 1
nor does an older valid one after a flawed one
  store 3, flawed 5, store 4
  | pod ingester u1.3 invalid, app none | updated 1, invalid 1, ignored 1 | valid 0, most 1
W-17 one that was recreated flawed has no version in force
  store 3, flawed 1 uid=u2
  | pod ingester nothing invalid, app none | updated 1, invalid 1 | valid 0, most 0
an unreadable object is a flawed one
  store 5, unreadable error=bad
  | pod ingester u1.5 bad, app none | updated 1, invalid 1 | valid 0, most 1
and its end is that of the budget
  store 5, unreadable, delete 5
  | pod none, app none | updated 1, deleted 1, invalid 1 | valid -, most -
none may go
  store 0 most=9, store 1 most=0 | pod ingester u1.1, app none | updated 2 | valid 1, most 0
a percentage is no number of pods
  store 0 most=9, store 1 most=0 share=50
  | pod ingester u1.1, app none | updated 2 | valid 1, most -
"""


@pytest.mark.parametrize(("steps", "expected"), read_table(VERSIONS, str))
def test_which_version_is_in_force(bench: Bench, steps: str, expected: list[str]) -> None:
    assert bench.play(steps).outline() == expected


def test_t10_none_one_or_two_budgets_of_a_pod(bench: Bench) -> None:
    for budget in (
        replace(VALID, name="b"),
        replace(VALID, name="a", uid=Uid("u2"), selector=WIDER),
        replace(VALID, name="all", uid=Uid("u3"), selector={}),
    ):
        bench.catalog.on_change(None, budget)
    for labels, names in ((POD, ["a", "all", "b"]), ({"app": "other"}, ["all"]), ({}, ["all"])):
        assert [entry.name for entry in bench.catalog.list_selecting(labels)] == names
    assert [entry.name for entry in bench.catalog.list_all()] == ["a", "all", "b"]


def test_w17_what_a_relist_does_not_show_is_gone(bench: Bench) -> None:
    store = BudgetStore()
    for listed, shown in (([VALID], "ingester u1.1"), ([], "none")):
        for change in store.replace_all(listed):
            bench.catalog.on_change(*change)
        assert bench.show(POD) == shown


@pytest.mark.parametrize(
    ("steps", "reported"),
    [
        (
            "store 1, flawed 2",
            ["generation=2 generation_in_force=1", 'effect="the version before stays in force"'],
        ),
        ("flawed 1", ['effect="no pod that it selects may go"']),
        ("blind 1", ["it guards nothing"]),
    ],
)
def test_w52_a_flaw_is_reported_once_with_its_effect(
    bench: Bench, steps: str, reported: list[str]
) -> None:
    bench.play(f"{steps}, {steps.rpartition(', ')[2]}")
    (line,) = [line for line in bench.lines if "level=error" in line]
    assert "zpdb=ingester" in line
    assert [text for text in reported if text not in line] == []


def test_w52_another_flaw_is_reported_anew(bench: Bench) -> None:
    bench.play("flawed 2, flawed 3, flawed 3 problem=another")
    reported = [line for line in bench.lines if "level=error" in line]
    assert ["generation=2" in one for one in reported] == [True, False, False]


def test_metr_30_all_results_exist_at_zero(bench: Bench) -> None:
    results = ("updated", "deleted", "invalid", "ignored", "delete-ignored")
    assert results == BUDGET_RESULTS
    for result in results:
        assert bench.sample("configurations_observed_total", result=result) == 0
