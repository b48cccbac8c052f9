"""The cache of zone-aware disruption budgets of one namespace.

What they mean together, flawed ones included, is kept in `guards.budgets.catalog`.
"""

from typing import TypeAlias

from rollout_operator.kube.cache.store import Store
from rollout_operator.model.budget import Budget, FlawedBudget
from rollout_operator.model.objects import Unreadable

AnyBudget: TypeAlias = Budget | FlawedBudget | Unreadable


class BudgetStore(Store[AnyBudget]):
    """Budgets. A namespace has some dozens of them: they are looked through."""
