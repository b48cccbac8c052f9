"""What the budgets of a running operator are like now, for those who read its pages.

Made of the same caches, grants and records as decisions, and by the same counting. Nothing here
decides.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from rollout_operator.guards.budgets.request import DisruptionRequest
from rollout_operator.guards.budgets.snapshots import ArbiterContext, Snapshots
from rollout_operator.model.budget import Budget, BudgetVersions, DisruptionSource
from rollout_operator.model.description import BudgetDescription
from rollout_operator.model.names import Uid
from rollout_operator.model.objects import Pod
from rollout_operator.planning.budgets.rule import BudgetSnapshot
from rollout_operator.planning.description.budgets import describe_budget

# A snapshot is about one pod; this pod is in no zone.
_NO_POD: Final = Pod(namespace="", name="", uid=Uid(""), resource_version="")


class BudgetAccount(msgspec.Struct, frozen=True, kw_only=True):
    """One budget: its versions, its description, and the snapshot that this rests on."""

    known: BudgetVersions
    described: BudgetDescription
    zones: tuple[Uid, ...]
    """The StatefulSets that it selects."""


class Accounts:
    """The budgets of one namespace, described one at a time: each takes milliseconds."""

    def __init__(self, context: ArbiterContext) -> None:
        self._budgets = context.budgets
        self._find_lack = context.find_lack
        self._snapshots = Snapshots(context)

    def find(self, name: str) -> BudgetAccount | None:
        """Return the account of a budget, None where there is none, or none is known."""
        budget = self._budgets.get(name)
        if budget is None or self._find_lack(DisruptionSource.EVICTION) is not None:
            return None
        snapshot = self._observe(budget)
        return BudgetAccount(
            known=budget,
            described=describe_budget(budget, snapshot, self._budgets.list_all()),
            zones=() if snapshot is None else tuple(zone.sts.uid for zone in snapshot.zones),
        )

    def list_descriptions(self) -> Iterator[BudgetDescription]:
        """Yield the description of each budget, by name; other tasks may run in between."""
        for versions in self._budgets.list_all():
            account = self.find(versions.name)
            if account is not None:
                yield account.described

    def _observe(self, versions: BudgetVersions) -> BudgetSnapshot | None:
        budget = versions.budget or _stand_in(versions)
        if budget is None:
            return None
        request = DisruptionRequest(pod=_NO_POD, engine=DisruptionSource.EVICTION)
        return self._snapshots.observe(budget, request)


def _stand_in(versions: BudgetVersions) -> Budget | None:
    """Return a stand-in, to count the pods of a budget that cannot be obeyed."""
    if versions.flawed_selector is None:
        return None
    return Budget(
        namespace=versions.namespace,
        name=versions.name,
        uid=versions.uid,
        resource_version="",
        selector=versions.flawed_selector,
        max_unavailable=0,
    )
