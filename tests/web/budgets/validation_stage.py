"""The commands of stories of the review of budgets, `create maxUnavailable=-1`.

Fields are of the spec, `meta.` ones of the metadata, `top.` ones of the object, and `object=` is
all of it; `@namespace=other` is of the review. Values are JSON, or text.
"""

import json
from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from rollout_operator.guards.arbiter import BudgetCatalog
from rollout_operator.kube.store import PodStore
from rollout_operator.model.decode.custom import decode_budget
from rollout_operator.model.decode.review import decode_review
from rollout_operator.model.names import Uid
from rollout_operator.model.objects import Unreadable, bound_labels
from rollout_operator.telemetry.metrics import Metrics
from rollout_operator.web.eviction import ZpdbValidation
from tests import stories
from tests.builders import pod
from tests.model.budget_trees import budget_tree
from tests.model.review_trees import review_tree
from tests.model.wire_trees import as_json, with_metadata
from tests.samples import read_samples

KIND = {
    "group": "rollout-operator.grafana.com", "version": "v1",
    "resource": "zoneawarepoddisruptionbudgets",
}  # fmt: skip


class ValidationStage(stories.Steps):
    """The hook, without budgets and pods."""

    def __init__(self, lines: list[str]) -> None:
        self.metrics = Metrics()
        self.catalog = BudgetCatalog(self.metrics)
        self.pods = PodStore()

    async def do_known(self, name: str, label: str, *words: str) -> None:
        """Have a budget over pods with a label be known."""
        selector = {"matchLabels": dict([label.split("=")])}
        tree = with_metadata({**_make(words)}, name=name)
        tree["spec"]["selector"] = selector
        self.catalog.on_change(None, decode_budget(as_json(tree)))

    async def do_pods(self, count: str) -> None:
        for ordinal in range(int(count)):
            await self.do_pod(f"a-{ordinal}", "rollout-group=ingester")

    async def do_pod(self, name: str, *words: str) -> None:
        """Have a pod with labels, `many=200` of which are made up; `unreadable`."""
        labels = stories.read_words(words)
        unreadable = labels.pop("unreadable", None) is not None
        labels |= {f"l{number}": "" for number in range(int(labels.pop("many", 0)))}
        letter, _, ordinal = name.partition("-")
        one = replace(pod(letter, int(ordinal)), labels=bound_labels(labels))
        lost = Unreadable(
            kind="Pod", namespace="prod", name=one.name, uid=Uid("p"), resource_version="1",
            labels=labels, error="spec",
        )  # fmt: skip
        self.pods.upsert(lost if unreadable else one)

    async def do_create(self, *words: str) -> str:
        return await self._review("CREATE", words)

    async def do_update(self, *words: str) -> str:
        return await self._review("UPDATE", words)

    async def _review(self, operation: str, words: tuple[str, ...]) -> str:
        request = {key[1:]: value for key, value in _read(words) if key.startswith("@")}
        fields = {"operation": operation, "resource": KIND, "name": "ingester", **request}
        tree = review_tree(**{"object": _make(words), "oldObject": None, **fields})
        hook = ZpdbValidation(self.catalog, self.pods, namespace="prod")
        verdict = await hook.review(decode_review(as_json(tree)), timedelta(seconds=9))
        said = f"{verdict.code} {verdict.reason.code}: {verdict.reason.text}"
        return "; ".join(["allowed" if verdict.is_allowed else said, *verdict.warnings])

    async def do_kept(self) -> str:
        """Show which budgets are in force, and what was counted."""
        known = self.catalog.list_all()
        counted = read_samples(self.metrics, "zpdb_configurations_observed_total")
        names = " ".join(one.name for one in known) or "none"
        return f"{names}, counted {sum(counted.values()):g}"


def _make(words: tuple[str, ...]) -> Any:
    spec: dict[str, Any] = {}
    meta: dict[str, Any] = {}
    top: dict[str, Any] = {}
    for key, value in _read(words):
        if key == "object":
            return value
        if not key.startswith("@"):
            where, _, name = key.rpartition(".")
            {"": spec, "meta": meta, "top": top}[where][name] = value
    return {**with_metadata(budget_tree(**spec), **meta), **top}


def _read(words: tuple[str, ...]) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for word in words:
        key, _, text = word.partition("=")
        try:
            found.append((key, json.loads(text)))
        except ValueError:
            found.append((key, text))
    return found
