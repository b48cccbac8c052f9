"""The commands of stories of the catalog of budgets: what its informer reports, one by one.

`store 2 uid=u2 most=4` is a valid version of generation 2, `flawed 2` one that is not valid,
`blind 2` one without a readable selector. What is shown are the versions in force for a pod of the
zones and one of the whole application, all that was counted, and the gauges: valid, and maximum.
"""

import re
from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from rollout_operator.guards.arbiter import BudgetCatalog
from rollout_operator.kube.store import AnyBudget, BudgetStore
from rollout_operator.model.budget import Budget, BudgetState, FlawedBudget
from rollout_operator.model.names import Uid
from rollout_operator.model.objects import Unreadable
from rollout_operator.telemetry.metrics import BUDGET_RESULTS, Metrics
from tests import stories
from tests.planning.tables import read_arguments

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
_ERROR: Final = re.compile(r"level=error .*?(zpdb=\S+ .*)")


class CatalogStage(stories.Steps):
    """An empty catalog."""

    def __init__(self, lines: list[str]) -> None:
        self.metrics, self.lines = Metrics(), lines
        self.catalog = BudgetCatalog(self.metrics)
        self.stored: AnyBudget | None = None
        self.is_told = False
        """The last command has shown what it asked for."""

    def look(self) -> list[str]:
        if self.is_told:
            self.is_told = False
            return []
        counts = {
            result: self._sample("configurations_observed_total", result=result)
            for result in BUDGET_RESULTS
        }
        gauges = [self._sample(name, zpdb="ingester") for name in ("valid", "max_unavailable")]
        errors = [found[1] for one in self.lines if (found := _ERROR.search(one))]
        self.lines.clear()
        return [
            f"pod {self._show(POD)}, app {self._show(WIDER)}",
            ", ".join(f"{result} {number:g}" for result, number in counts.items() if number),
            "valid {}, most {}".format(*("-" if one is None else f"{one:g}" for one in gauges)),
            *errors,
        ]

    def _sample(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(f"rollout_operator_zpdb_{name}", labels)

    def _show(self, labels: Mapping[str, str]) -> str:
        return " and ".join(map(_render, self.catalog.list_selecting(labels))) or "none"

    def _report(self, budget: AnyBudget) -> None:
        self.catalog.on_change(self.stored, budget)
        self.stored = budget

    async def do_store(self, *words: str) -> None:
        self._report(_make(VALID, words))

    async def do_flawed(self, *words: str) -> None:
        self._report(_make(FLAWED, words))

    async def do_blind(self, *words: str) -> None:
        self._report(_make(replace(FLAWED, selector=None), words))

    async def do_unreadable(self, *words: str) -> None:
        self._report(replace(UNREADABLE, **_read(words)))

    async def do_delete(self, *words: str) -> None:
        self.catalog.on_change(_make(VALID, words), None)
        self.stored = None

    async def do_add(self, name: str, *words: str) -> None:
        """Have another budget be reported."""
        self.catalog.on_change(None, _make(replace(VALID, name=name, uid=Uid(name)), words))

    async def do_selecting(self, *labels: str) -> str:
        """Show which budgets select a pod with these labels."""
        self.is_told = True
        found = self.catalog.list_selecting(dict(one.split("=") for one in labels))
        return " ".join(entry.name for entry in found) or "none"

    async def do_all(self) -> str:
        self.is_told = True
        return " ".join(entry.name for entry in self.catalog.list_all())

    async def do_results(self) -> str:
        """Show all that is counted, at zero too."""
        self.is_told = True
        name = "configurations_observed_total"
        return ", ".join(f"{one} {self._sample(name, result=one)}" for one in BUDGET_RESULTS)

    async def do_relist(self) -> None:
        """Have a list show the budget, and the next one not."""
        store = BudgetStore()
        for listed in ([VALID], []):
            for change in store.replace_all(listed):
                self.catalog.on_change(*change)


def _make(plain: AnyBudget, words: tuple[str, ...]) -> AnyBudget:
    fields = {"generation": 1, **_read(words)}
    if words and words[0].isdigit():
        fields["generation"] = int(words[0])
    return replace(
        plain, **{"resource_version": f"{10 + int(str(fields['generation']))}", **fields}
    )


def _read(words: tuple[str, ...]) -> dict[str, object]:
    named = read_arguments(" ".join(words))[1]
    return {SHORT.get(key, key): value for key, value in named.items()}


def _render(entry: BudgetState) -> str:
    rule = entry.budget
    version = "nothing" if rule is None else f"{rule.uid}.{rule.generation}"
    forgives = rule is not None and rule.forgives_absent_peers
    words = [entry.name, version, "forgives" if forgives else "", entry.problem]
    return " ".join(filter(None, words))
