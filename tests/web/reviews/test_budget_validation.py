"""A budget that cannot be obeyed is not stored (T-12, ZVAL-01 to ZVAL-03, W-28, SEC-09)."""

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from rollout_operator.guards.arbiter import BudgetCatalog
from rollout_operator.kube.store import PodStore
from rollout_operator.model.decode.custom import decode_budget
from rollout_operator.model.decode.review import decode_review
from rollout_operator.model.names import ABSENT_PEERS, Uid
from rollout_operator.model.objects import Pod, Unreadable, bound_labels
from rollout_operator.model.outcome import Code, Verdict
from rollout_operator.telemetry.metrics import Metrics
from rollout_operator.web.eviction import ZpdbValidation
from tests.builders import pod
from tests.model.budget_trees import LABELS, REGEX, Tree, as_json, budget_tree, with_head
from tests.model.review_trees import review_tree

BUDGETS = "zoneawarepoddisruptionbudgets"
BOTH = {**LABELS, "app": "mimir"}
UNTIL = timedelta(seconds=9)


def question(tree: Any, **request: Any) -> bytes:
    """Return an AdmissionReview of a budget as the API server sends it."""
    kind = {"group": "rollout-operator.grafana.com", "version": "v1", "resource": BUDGETS}
    fields = {"operation": "CREATE", "resource": kind, "name": "ingester", "object": tree}
    return as_json(review_tree(**{**fields, "oldObject": None, **request}))


def labelled(letter: str, ordinal: int, labels: dict[str, str]) -> Pod:
    return replace(pod(letter, ordinal), labels=labels)


class Bench:
    """The hook, with the budgets and pods that it knows."""

    def __init__(self, *known: Tree, pods: tuple[Pod | Unreadable, ...] = ()) -> None:
        self.metrics = Metrics()
        self.catalog = BudgetCatalog(self.metrics)
        self.store = PodStore()
        for tree in known:
            self.catalog.on_change(None, decode_budget(as_json(tree)))
        for one in pods:
            self.store.upsert(one)

    async def send_request(self, tree: Any, **request: Any) -> Verdict:
        hook = ZpdbValidation(self.catalog, self.store, namespace="prod")
        return await hook.review(decode_review(question(tree, **request)), UNTIL)


def seen(verdict: Verdict) -> tuple[bool, int, str]:
    return verdict.is_allowed, verdict.code, verdict.reason.text


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
@pytest.mark.parametrize(
    "tree",
    [
        budget_tree(),
        budget_tree(maxUnavailable=0),
        budget_tree(podNamePartitionRegex=REGEX, crossZoneEvictionDelay="20m"),
    ],
    ids=["T-12 valid", "none may go", "T-12 valid with delay"],
)
async def test_t12_a_valid_budget_is_stored(tree: Tree, operation: str) -> None:
    verdict = await Bench().send_request(tree, operation=operation)
    assert seen(verdict) == (True, 0, "")
    assert (verdict.reason.code, verdict.warnings) == (Code.BUDGET_VALID, ())


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        pytest.param(
            budget_tree(maxUnavailable=-1),
            "invalid value: max unavailable must be 0 <= val, got -1",
            id="T-12 -1",
        ),
        pytest.param(
            budget_tree(crossZoneEvictionDelay="20m"),
            "invalid value: crossZoneEvictionDelay requires podNamePartitionRegex to be set",
            id="T-12 delay without regex",
        ),
        pytest.param(None, "unexpected end of JSON input", id="T-12 ZVAL-02 no object"),
        pytest.param(
            {**budget_tree(), "kind": "Foo"},
            "unexpected object kind - expecting ZoneAwarePodDisruptionBudget",
            id="ZPDB-11",
        ),
        pytest.param({"kind": "Foo"}, "no spec found in unstructured object", id="ZPDB-10"),
    ],
)
async def test_t12_what_is_refused(tree: Any, message: str) -> None:
    """ZVAL-01: with 400."""
    verdict = await Bench().send_request(tree)
    assert seen(verdict) == (False, 400, message)
    assert verdict.reason.code is Code.BUDGET_INVALID


@pytest.mark.parametrize("operation", ["DELETE", "CONNECT", ""])
async def test_other_operations_are_not_judged(operation: str) -> None:
    verdict = await Bench().send_request(budget_tree(maxUnavailable=-1), operation=operation)
    assert seen(verdict) == (True, 0, "")


async def test_a_status_is_not_judged() -> None:
    tree = budget_tree(maxUnavailable=-1)
    verdict = await Bench().send_request(tree, operation="UPDATE", subResource="status")
    assert verdict.is_allowed


async def test_a_budget_on_its_way_out_may_lose_its_finalizers() -> None:
    """Refused, it would stay for ever."""
    tree = with_head(budget_tree(maxUnavailable=-1), deletionTimestamp="2026-01-01T00:00:00Z")
    assert (await Bench().send_request(tree, operation="UPDATE")).is_allowed


async def test_sec_09_budgets_of_other_namespaces_are_refused() -> None:
    verdict = await Bench().send_request(budget_tree(), namespace="other")
    assert seen(verdict) == (
        False,
        400,
        "namespace other is not looked after by this operator",
    )
    assert verdict.reason.code is Code.OTHER_NAMESPACE


async def test_w28_an_empty_selector_is_refused() -> None:
    verdict = await Bench().send_request(budget_tree(selector={"matchLabels": {}}))
    assert (verdict.is_allowed, verdict.code) == (False, 400)
    assert "selector is empty" in verdict.reason.text


class TestOverlap:
    """W-28: two budgets on one pod would keep it from going for ever."""

    other = budget_tree("mimir", selector={"matchLabels": {"app": "mimir"}})

    async def test_a_pod_under_both_is_certain(self) -> None:
        bench = Bench(self.other, pods=(labelled("b", 1, BOTH), labelled("a", 2, BOTH)))
        verdict = await bench.send_request(budget_tree())
        assert verdict.reason.code is Code.BUDGETS_OVERLAP
        assert seen(verdict) == (
            False,
            400,
            'budget "ingester" selects pod zone-a-2, which budget "mimir" selects as well: a pod'
            " may be under one budget only",
        )

    async def test_no_pod_under_both(self) -> None:
        pods = (labelled("a", 0, dict(LABELS)), labelled("b", 0, {"app": "mimir"}))
        assert (await Bench(self.other, pods=pods).send_request(budget_tree())).is_allowed

    async def test_a_budget_does_not_overlap_itself(self) -> None:
        bench = Bench(budget_tree(), pods=(labelled("a", 0, dict(LABELS)),))
        assert (
            await bench.send_request(budget_tree(maxUnavailable=2), operation="UPDATE")
        ).is_allowed

    async def test_a_flawed_one_counts_by_what_it_selects(self) -> None:
        flawed = budget_tree("mimir", selector=self.other["spec"]["selector"], maxUnavailable=-1)
        bench = Bench(flawed, pods=(labelled("a", 0, BOTH),))
        assert (await bench.send_request(budget_tree())).reason.code is Code.BUDGETS_OVERLAP

    async def test_d68_a_pod_of_too_many_labels_keeps_no_budget_away(self) -> None:
        """Who may create a pod would else stop every change of a budget; it cannot be evicted."""
        many = bound_labels({f"l{number}": "" for number in range(200)})
        bench = Bench(self.other, pods=(labelled("a", 0, dict(many)),))
        assert (await bench.send_request(budget_tree())).is_allowed

    async def test_a_pod_that_cannot_be_read_is_not_certain(self) -> None:
        lost = Unreadable(
            kind="Pod", namespace="prod", name="a-0", uid=Uid("p"), resource_version="1",
            labels=BOTH, error="spec",
        )  # fmt: skip
        assert (await Bench(self.other, pods=(lost,)).send_request(budget_tree())).is_allowed


async def test_warnings_reach_the_author() -> None:
    spec = {"podNamePartitionRegex": "a-([0-9]+)|b"}
    tree = with_head(budget_tree(**spec), annotations={ABSENT_PEERS: "maybe"})
    bench = Bench(pods=tuple(labelled("a", ordinal, dict(LABELS)) for ordinal in range(3)))
    verdict = await bench.send_request(tree)
    assert verdict.is_allowed
    assert [text.partition(":")[0] for text in verdict.warnings] == [
        "spec.podNamePartitionRegex",
        f"annotation {ABSENT_PEERS}",
    ]
    shared = await bench.send_request(budget_tree(maxUnavailablePercentage=1))
    assert "less than one" in shared.warnings[0]


async def test_zval_03_nothing_is_kept_and_no_server_is_called() -> None:
    bench = Bench(pods=(labelled("a", 0, dict(LABELS)),))
    for tree in (budget_tree(), budget_tree(maxUnavailable=-1)):
        await bench.send_request(tree)
    assert bench.catalog.list_all() == ()
    name = "rollout_operator_zpdb_configurations_observed_total"
    for result in ("updated", "invalid"):
        assert bench.metrics.registry.get_sample_value(name, {"result": result}) == 0


@pytest.mark.parametrize(
    "tree",
    [
        [],
        "text",
        7,
        {**budget_tree(), "metadata": []},
        {**budget_tree(), "metadata": {"annotations": {ABSENT_PEERS: 1}}},
        {**budget_tree(), "metadata": {"deletionTimestamp": 5}},
        {**budget_tree(), "spec": {"selector": [[[[]]]]}},
    ],
    ids=str,
)
async def test_sec_09_forged_objects_break_nothing(tree: Any) -> None:
    verdict = await Bench().send_request(tree)
    assert verdict.is_allowed or verdict.code == 400
