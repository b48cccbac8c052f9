"""Which disruption budgets there are, and which of them select a pod.

Decides which version of a budget is in force: the newest that can be obeyed, for as long as the
budget exists. Which pods it selects is found by their labels; what it allows is decided in
`planning.budgets.rule`, that two of them select one pod is refused there.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from rollout_operator.kube.cache.store import AnyBudget, decides
from rollout_operator.model.budget import Budget, BudgetState, BudgetVersions, FlawedBudget
from rollout_operator.model.objects import Unreadable
from rollout_operator.telemetry.logs import log
from rollout_operator.telemetry.metrics import Metrics

_UPDATED: Final = "updated"
_DELETED: Final = "deleted"
_INVALID: Final = "invalid"
_IGNORED: Final = "ignored"
_DELETE_IGNORED: Final = "delete-ignored"


class BudgetCatalog:
    """The budgets of one namespace, fed by their informer."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics.budgets
        self._known: dict[str, BudgetVersions] = {}

    def on_change(self, old: AnyBudget | None, new: AnyBudget | None) -> None:
        """Take a change of the cache: what was stored and what is stored now."""
        last = new or old
        if last is None or not last.name:  # without a name it cannot be distinguished
            self._metrics.count(_IGNORED)
        elif new is None:
            self._forget(last)
        elif isinstance(new, Budget):
            self._take(new)
        else:
            self._take_flawed(new)

    def list_selecting(self, labels: Mapping[str, str]) -> tuple[BudgetState, ...]:
        """Return the budgets that select a pod with these labels, by name."""
        entries = [versions.find_state(labels) for versions in self._known.values()]
        return tuple(
            sorted((entry for entry in entries if entry is not None), key=lambda state: state.name)
        )

    def get(self, name: str) -> BudgetVersions | None:
        """Return the known versions of a budget."""
        return self._known.get(name)

    def list_all(self) -> Sequence[BudgetVersions]:
        """Return the known versions of all budgets, by name."""
        return tuple(versions for _, versions in sorted(self._known.items()))

    def _take(self, budget: Budget) -> None:
        versions = self._find_same(budget)
        if versions is not None and not _is_news(versions, budget):
            if budget.generation < versions.generation:
                log.warn(
                    "Ignoring an older version of a budget",
                    zpdb=budget.name,
                    generation=budget.generation,
                    known_generation=versions.generation,
                )
            self._metrics.count(_IGNORED)
            return
        self._known[budget.name] = BudgetVersions(
            namespace=budget.namespace,
            name=budget.name,
            uid=budget.uid,
            generation=budget.generation,
            budget=budget,
        )
        log.info(
            "Obeying budget",
            zpdb=budget.name,
            generation=budget.generation,
            max_unavailable=budget.maximum,
            partition_pattern=budget.pattern,
        )
        self._metrics.count(_UPDATED)
        self._show(budget.name)

    def _take_flawed(self, flawed: FlawedBudget | Unreadable) -> None:
        self._metrics.count(_INVALID)
        versions = self._find_same(flawed)
        generation = flawed.generation if isinstance(flawed, FlawedBudget) else 0
        if versions is not None and 0 < generation < versions.generation:
            return
        base = versions or BudgetVersions(
            namespace=flawed.namespace, name=flawed.name, uid=flawed.uid, generation=generation
        )
        problem = flawed.problem if isinstance(flawed, FlawedBudget) else flawed.error
        now = replace(
            base,
            generation=max(generation, base.generation),
            problem=problem,
            flawed_selector=flawed.selector if isinstance(flawed, FlawedBudget) else None,
        )
        self._known[flawed.name] = now
        self._show(flawed.name)
        if (now.generation, now.problem) != (base.generation, base.problem) or versions is None:
            self._report_flawed(flawed.name, now)

    def _report_flawed(self, name: str, now: BudgetVersions) -> None:
        stays = now.budget
        effect = "the version before stays in force"
        if stays is None:
            effect = "no pod that it selects may go"
            if now.flawed_selector is None:
                effect = "what it selects is unknown: it guards nothing"
        log.error(
            "Budget cannot be obeyed",
            zpdb=name,
            generation=now.generation,
            generation_in_force=stays.generation if stays is not None else None,
            effect=effect,
            err=now.problem,
        )

    def _forget(self, last: AnyBudget) -> None:
        versions = self._find_same(last)
        generation = 0 if isinstance(last, Unreadable) else last.generation
        if versions is None or 0 < generation < versions.generation:
            self._metrics.count(_DELETE_IGNORED)
            return
        del self._known[last.name]
        log.info("Budget is gone", zpdb=last.name, generation=versions.generation)
        self._metrics.count(_DELETED)
        self._metrics.forget(last.name)

    def _find_same(self, budget: AnyBudget) -> BudgetVersions | None:
        """Return the known versions of this very object: another UID is another budget."""
        versions = self._known.get(budget.name)
        return versions if versions is not None and versions.uid == budget.uid else None

    def _show(self, name: str) -> None:
        versions = self._known[name]
        maximum: int | None = 0
        if versions.budget is not None:
            is_share = versions.budget.percentage is not None
            maximum = None if is_share else versions.budget.max_unavailable
        self._metrics.show(name, maximum=maximum, is_valid=not versions.problem)


def _is_news(versions: BudgetVersions, budget: Budget) -> bool:
    """Return whether a version replaces the known version of the same budget.

    Annotations change without a new generation.
    """
    if budget.generation != versions.generation or versions.budget is None:
        return budget.generation >= versions.generation
    return bool(versions.problem) or decides(versions.budget, budget)
