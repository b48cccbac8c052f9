"""What the arbiter reads before a decision, and what follows from roles and flags
(SI-15, ROLL-36, W-09, W-52, FP-31, FP-40).
"""

from collections.abc import Callable
from datetime import timedelta

import pytest

from rollout_operator.guards.grants import QUARANTINE, TRY_AGAIN, GrantState
from rollout_operator.model.budget import Budget, DisruptionSource
from rollout_operator.model.names import Denied
from rollout_operator.model.objects import Underway
from rollout_operator.planning.readiness import SNAPSHOT_LIMIT
from tests.guards.arbiter_bench import (
    LABELS,
    SECOND,
    Process,
    World,
    failing,
    part,
    render_answer,
    rule,
    start,
    world,
)
from tests.planning.disruptions import PATTERN
from tests.virtual_time import in_virtual_time

USED = "429 disruption_budget_used: 1 pod not ready in ingester-zone-a"
FORBIDDEN = Denied("patch pods: forbidden", status=403)
Change = Callable[[World], None]


@in_virtual_time
async def test_si15_a_dry_run_leaves_no_trace() -> None:
    """W-09: no call, no reservation, and the next verdict is the same."""
    here, x = start()
    assert await x.evict("a-0", dry_run=True) == "allowed"
    assert (here.client.calls, len(x.in_flight)) == ([], 0)
    assert await x.evict("b-0") == "allowed"
    assert await x.evict("a-0", dry_run=True) == USED.replace("zone-a", "zone-b")
    assert here.client.verbs() == ["patch", "list"]


# Without the verb `patch` on pods


@in_virtual_time
async def test_fp40_without_the_verb_nothing_goes_in_the_first_seconds() -> None:
    """It is not known what an earlier process has granted a moment ago."""
    here, x = start()
    here.client.before = failing("patch", FORBIDDEN)
    assert (await x.evict("a-0")).startswith("429 start_quarantine: the operator has just started")
    assert len(x.in_flight) == 0
    x.clock.ahead = QUARANTINE
    assert await x.evict("a-0") == "allowed"
    assert x.state("a-0") is GrantState.GRANTED
    assert await x.evict("b-0") == USED


@in_virtual_time
async def test_fp40_that_records_are_forbidden_is_reported_once_and_tried_again(
    lines: list[str],
) -> None:
    """A minute later the role may have been changed."""
    here, x = start(rule(2))
    here.client.before = failing("patch", FORBIDDEN)
    x.clock.ahead = QUARANTINE
    assert await x.evict("a-0") == "allowed"
    assert await x.evict("a-1") == "allowed"
    # Read live all the same.
    assert here.client.verbs() == ["patch", "list", "list"]
    x.clock.ahead += TRY_AGAIN
    here.replace("a-0")
    here.replace("a-1")
    x.sync()
    assert await x.evict("a-2") == "allowed"
    assert here.client.verbs()[3:] == ["patch", "list"]
    here.client.before = lambda call: None
    x.clock.ahead += TRY_AGAIN
    assert await x.evict("a-1") == "allowed"
    assert here.recorded() == ["a-1"]
    (line,) = [line for line in lines if "not recorded on pods" in line]
    assert "level=warn" in line


# What is not known


@pytest.mark.parametrize("engine", list(DisruptionSource))
@in_virtual_time
async def test_w52_nothing_goes_while_the_budgets_are_not_known(engine: DisruptionSource) -> None:
    """FP-31: unknown is not none, also for pods that no budget may cover."""
    here, x = start(rule(selector={"app": "another"}))
    here.lacks[engine] = "list: connection refused"
    answers = {
        DisruptionSource.EVICTION: await x.evict("a-0"),
        DisruptionSource.ROLLOUT: render_answer(await x.roll("a-0")),
    }
    assert answers.pop(engine) == (
        "429 budgets_not_read: the budgets are not known yet: list: connection refused"
    )
    assert [*answers.values()] == ["not in scope"]
    assert here.client.calls == []


def _crash(pod: str) -> Change:
    return lambda here: here.break_pod(pod)


def _age(here: World) -> None:
    here.age = SNAPSHOT_LIMIT + SECOND


def _scale_down(here: World) -> None:
    here.downscale = Underway(zone="ingester-zone-b", replicas_from=3, replicas_to=2)


def _spoil(here: World) -> None:
    held = here.client.objects["statefulsets", "ingester-zone-c"]
    here.client.put("statefulsets", {**held, "spec": {**part(held, "spec"), "replicas": "three"}})


@pytest.mark.parametrize(
    ("budgets", "change", "eviction", "rollout"),
    [
        pytest.param([rule()], _age, "429 view_stale", "429 view_stale", id="LI-13 an old view"),
        pytest.param(
            [rule(selector={"app": "another"})], _age, "429 view_stale", "429 view_stale",
            id="LI-13 of a pod that is not covered, too",
        ),
        pytest.param(
            [rule(), rule(name="other")], _crash("a-2"), "400 budgets_overlap",
            "400 budgets_overlap", id="ZPDB-55 two budgets",
        ),
        pytest.param(
            [rule()], _spoil, "500 object_unreadable", "500 object_unreadable",
            id="ZPDB-64 a zone that cannot be read",
        ),
        pytest.param(
            [rule()], _scale_down, "429 downscale_underway", "429 downscale_underway",
            id="D-25 a zone is scaled down",
        ),
        pytest.param(
            [rule()], _crash("c-2"), "429 disruption_budget_used", "429 disruption_budget_used",
            id="W-34 another zone is short",
        ),
        pytest.param(
            [rule()], _crash("a-0"), "allowed", "allowed",
            id="LI-10 D-14 it is down already, and the only one",
        ),
    ],
)  # fmt: skip
@in_virtual_time
async def test_what_the_caches_show_is_decided_without_a_call_or_a_reservation(
    budgets: list[Budget], change: Change, eviction: str, rollout: str
) -> None:
    """W-34: the arbiter hands the planner all that it needs, for any caller."""
    here = world(*budgets)
    change(here)
    x = here.start()
    assert (await x.evict("a-0", dry_run=True)).split(":")[0] == eviction
    if eviction != "allowed":
        assert (await x.evict("a-0", within=timedelta(0))).split(":")[0] == eviction
    if rollout != "allowed":
        assert render_answer(await x.roll("a-0")).split(":")[0] == rollout
    assert (here.client.calls, len(x.in_flight)) == ([], 0)


@pytest.mark.parametrize(
    ("selector", "answer"), [(LABELS, "allowed"), ({"app": "another"}, "not in scope")]
)
@in_virtual_time
async def test_li13_a_snapshot_of_just_the_limit_is_used(
    selector: dict[str, str], answer: str
) -> None:
    here, x = start(rule(selector=selector))
    here.age = SNAPSHOT_LIMIT
    assert await x.evict("a-0") == answer


@pytest.mark.parametrize(
    ("budget", "limit", "pods", "answers"),
    [
        pytest.param(rule(0), 2, "a-0 a-1 a-2 b-0", "++--", id="ZPDB-82: none: the zone's limit"),
        pytest.param(rule(0, pattern=PATTERN), 3, "a-0 b-0 b-1", "+-+", id="by partition: one"),
        pytest.param(rule(1), 3, "a-0 a-1", "+-", id="ZPDB-82: what permits some stays"),
    ],
)
@in_virtual_time
async def test_roll36_a_rollout_under_a_budget_of_none(
    budget: Budget, limit: int, pods: str, answers: str
) -> None:
    """ROLL-36: an effective maximum of 0 is replaced."""
    _, x = start(budget)
    expected = {"+": "allowed", "-": "429 disruption_budget_used"}
    for pod, answer in zip(pods.split(), answers, strict=True):
        assert render_answer(await x.roll(pod, limit=limit)).split(":")[0] == expected[answer], pod


@in_virtual_time
async def test_t11_8_an_eviction_has_no_override() -> None:
    _, x = start(rule(0))
    assert await x.evict("a-0") == "403 budget_zero: max unavailable = 0"
    assert x.requests("max-unavailable-0", 403) == 1


@in_virtual_time
async def test_zpdb90_by_partition_the_own_set_need_not_be_selected() -> None:
    """Its pod is read all the same."""
    here = world(rule(pattern=PATTERN, selector={"part": "ingester"}))
    for letter in "abc":
        held = here.client.objects["statefulsets", f"ingester-zone-{letter}"]
        labels = {**LABELS, **({} if letter == "a" else {"part": "ingester"})}
        meta = {**part(held, "metadata"), "labels": labels}
        here.client.put("statefulsets", {**held, "metadata": meta})
    pod = part(here.client.objects["pods", "ingester-zone-a-0"], "metadata")
    here.change("a-0", labels={**part(pod, "labels"), "part": "ingester"})
    assert await here.start().evict("a-0") == "allowed"
    assert here.recorded() == ["a-0"]


@in_virtual_time
async def test_li10_a_pod_that_is_down_already_may_be_replaced_by_a_rollout() -> None:
    """D-14: its deletion adds nothing. An eviction of it is counted like any other (ZPDB-59)."""
    here = world()
    here.break_pod("a-0")
    here.break_pod("a-1")
    x = here.start()
    assert render_answer(await x.roll("a-0")) == "allowed"
    assert (await x.evict("a-1")).startswith("429 disruption_budget_used")


def _forbid_all(here: World, x: Process) -> None:
    x.catalog.on_change(None, rule(0, generation=2))


def _overlap(here: World, x: Process) -> None:
    x.catalog.on_change(None, rule(0, name="other"))


def _lose_budgets(here: World, x: Process) -> None:
    here.lacks[DisruptionSource.EVICTION] = "no list"


@pytest.mark.parametrize(
    ("change", "answer"),
    [
        pytest.param(_forbid_all, "403 budget_zero: max unavailable = 0", id="FP-31, SI-03: newer"),
        pytest.param(_overlap, "400 budgets_overlap", id="W-52: they overlap"),
        pytest.param(_lose_budgets, "429 budgets_not_read", id="W-52: not known any more"),
    ],
)
@in_virtual_time
async def test_fp31_budgets_that_change_while_a_grant_is_recorded_are_obeyed(
    change: Callable[[World, Process], None], answer: str
) -> None:
    """FP-31, W-52: the second decision is made with what rules by then."""
    here, x = start(rule(3, generation=1))
    async with x.evicting("a-0", "patch") as requested:
        change(here, x)
    assert requested.result().startswith(answer)
    assert here.recorded() == []
