"""What the gate asks before a decision, and what follows from roles and flags
(SI-15, ROLL-36, W-09, W-52, FP-31, FP-40).
"""

import asyncio
from collections.abc import Iterator
from datetime import timedelta

import pytest

from rollout_operator.guards.budgets.in_flight import GrantState
from rollout_operator.guards.budgets.pod_records import ASK_AGAIN
from rollout_operator.guards.budgets.refusals import QUARANTINE
from rollout_operator.model.budget import DisruptionSource
from rollout_operator.model.downscale import Underway
from rollout_operator.model.errors import Denied
from rollout_operator.planning.rollout.zones import VIEW_LIMIT
from rollout_operator.telemetry import logs
from tests.guards.arbiter_bench import LABELS, SECOND, Hold, World, failing, part, rule, tell, world
from tests.planning.disruptions import PATTERN
from tests.virtual_time import in_virtual_time

USED = "429 disruption_budget_used: 1 pod not ready in ingester-zone-a"
FORBIDDEN = Denied("patch pods: forbidden", status=403)


@pytest.fixture
def told() -> Iterator[list[str]]:
    """Collect the lines of the log."""
    lines: list[str] = []
    logs.configure(write=lambda line: lines.append(line.decode()))
    yield lines
    logs.configure()


# Dry runs


@in_virtual_time
async def test_si15_a_dry_run_leaves_no_trace() -> None:
    """W-09: no call, no reservation, and the next verdict is the same."""
    here = world()
    x = here.start()
    assert await x.evict("a-0", dry_run=True) == "allowed"
    assert here.client.calls == []
    assert len(x.pending) == 0
    assert await x.evict("b-0") == "allowed"
    assert await x.evict("a-0", dry_run=True) == USED.replace("zone-a", "zone-b")
    assert here.client.verbs() == ["patch", "list"]


# Without the verb `patch` on pods


@in_virtual_time
async def test_fp40_without_the_verb_nothing_goes_in_the_first_seconds() -> None:
    """Nobody knows what an earlier process has granted a moment ago."""
    here = world()
    here.client.before = failing("patch", FORBIDDEN)
    x = here.start()
    assert (await x.evict("a-0")).startswith("429 start_quarantine: the operator has just started")
    assert len(x.pending) == 0
    x.clock.ahead = QUARANTINE
    assert await x.evict("a-0") == "allowed"
    grant = x.pending.get(x.cached("a-0").uid)
    assert grant is not None
    assert grant.stage is GrantState.GIVEN
    assert await x.evict("b-0") == USED


def test_fp40_that_records_are_forbidden_is_told_once_and_tried_again(told: list[str]) -> None:
    """A minute later the role may have been changed."""
    _check_forbidden()
    assert [line for line in told if "not recorded on pods" in line and "level=warn" in line]
    assert len([line for line in told if "not recorded on pods" in line]) == 1


@in_virtual_time
async def _check_forbidden() -> None:
    here = world(rule(2))
    here.client.before = failing("patch", FORBIDDEN)
    x = here.start()
    x.clock.ahead = QUARANTINE
    assert await x.evict("a-0") == "allowed"
    assert await x.evict("a-1") == "allowed"
    # Looked at live all the same.
    assert here.client.verbs() == ["patch", "list", "list"]
    x.clock.ahead += ASK_AGAIN
    here.replace("a-0")
    here.replace("a-1")
    x.sync()
    assert await x.evict("a-2") == "allowed"
    assert here.client.verbs()[3:] == ["patch", "list"]


@in_virtual_time
async def test_fp40_a_role_that_may_patch_again_is_used() -> None:
    here = world()
    here.client.before = failing("patch", FORBIDDEN)
    x = here.start()
    assert (await x.evict("a-0")).startswith("429 start_quarantine")
    here.client.before = lambda call: None
    x.clock.ahead = ASK_AGAIN
    assert await x.evict("a-0") == "allowed"
    assert here.recorded() == ["a-0"]


# What is not known


@pytest.mark.parametrize("engine", list(DisruptionSource))
@in_virtual_time
async def test_w52_nothing_goes_while_the_budgets_are_not_known(engine: DisruptionSource) -> None:
    """FP-31: unknown is not none, also for pods that no budget may cover."""
    here = world(rule(selector={"app": "another"}))
    here.lacks[engine] = "list: connection refused"
    x = here.start()
    answer = (
        await x.evict("a-0") if engine is DisruptionSource.EVICTION else tell(await x.roll("a-0"))
    )
    assert answer == (
        "429 budgets_not_read: the budgets are not known yet: list: connection refused"
    )
    other = (
        tell(await x.roll("a-0")) if engine is DisruptionSource.EVICTION else await x.evict("a-0")
    )
    assert other == "not in scope"
    assert here.client.calls == []


@pytest.mark.parametrize("selector", [LABELS, {"app": "another"}], ids=["covered", "not covered"])
@in_virtual_time
async def test_li13_nothing_goes_by_a_view_that_may_be_old(selector: dict[str, str]) -> None:
    here = world(rule(selector=selector))
    here.age = VIEW_LIMIT + SECOND
    x = here.start()
    assert (await x.evict("a-0")).startswith("429 view_stale")
    assert here.client.calls == []
    here.age = VIEW_LIMIT
    assert await x.evict("a-0") in ("allowed", "not in scope")


@in_virtual_time
async def test_zpdb55_a_pod_under_two_budgets_does_not_go() -> None:
    here = world(rule(), rule(name="other"))
    x = here.start()
    assert await x.evict("a-0") == (
        "400 budgets_overlap: multiple zoned pod disruption budgets found for pod"
        " ingester-zone-a-0: ingester and other"
    )


@in_virtual_time
async def test_zpdb64_a_zone_that_cannot_be_read_refuses() -> None:
    here = world()
    held = here.client.objects["statefulsets", "ingester-zone-c"]
    here.client.put("statefulsets", {**held, "spec": {**part(held, "spec"), "replicas": "three"}})
    x = here.start()
    assert (await x.evict("a-0")).startswith("500 object_unreadable: unable to determine pod stat")


@in_virtual_time
async def test_d25_nothing_goes_while_a_zone_is_scaled_down() -> None:
    here = world()
    x = here.start()
    here.downscale = Underway(zone="ingester-zone-b", replicas_from=3, replicas_to=2)
    assert (await x.evict("a-0")).startswith("429 downscale_underway")
    assert tell(await x.roll("a-0")).startswith("429 downscale_underway")
    assert here.client.calls == []


# ROLL-36


async def _roll_all(here: World, pods: str, limit: int) -> list[str]:
    x = here.start()
    return [tell(await x.roll(pod, limit=limit)).split(":")[0] for pod in pods.split()]


@in_virtual_time
async def test_roll36_a_rollout_may_delete_as_many_as_its_limit_under_a_budget_of_none() -> None:
    """ZPDB-82: an effective maximum of 0 is replaced by the zone's own limit."""
    answers = await _roll_all(world(rule(0)), "a-0 a-1 a-2 b-0", limit=2)
    assert answers == ["allowed", "allowed", *["429 disruption_budget_used"] * 2]


@in_virtual_time
async def test_roll36_under_partitions_the_override_is_one() -> None:
    here = world(rule(0, pattern=PATTERN))
    answers = await _roll_all(here, "a-0 b-0 b-1", limit=3)
    assert answers == ["allowed", "429 disruption_budget_used", "allowed"]


@in_virtual_time
async def test_zpdb82_a_budget_that_permits_something_is_never_overridden() -> None:
    answers = await _roll_all(world(rule(1)), "a-0 a-1", limit=3)
    assert answers == ["allowed", "429 disruption_budget_used"]


@in_virtual_time
async def test_t11_8_an_eviction_has_no_override() -> None:
    here = world(rule(0))
    x = here.start()
    assert await x.evict("a-0") == "403 budget_zero: max unavailable = 0"
    assert x.requests("max-unavailable-0", 403) == 1


# Zones that a budget does not select


@in_virtual_time
async def test_zpdb90_by_partition_the_own_set_need_not_be_selected() -> None:
    """Its pod is looked at all the same."""
    here = world(rule(pattern=PATTERN, selector={"part": "ingester"}))
    for letter in "abc":
        held = here.client.objects["statefulsets", f"ingester-zone-{letter}"]
        labels = {**LABELS, **({} if letter == "a" else {"part": "ingester"})}
        meta = {**part(held, "metadata"), "labels": labels}
        here.client.put("statefulsets", {**held, "metadata": meta})
    here.change("a-0", labels={**part(_pod(here), "labels"), "part": "ingester"})
    x = here.start()
    assert await x.evict("a-0") == "allowed"
    assert here.recorded() == ["a-0"]


def _pod(here: World) -> dict[str, object]:
    return part(here.client.objects["pods", "ingester-zone-a-0"], "metadata")


# LI-10


@in_virtual_time
async def test_li10_a_pod_that_is_down_already_may_be_replaced_by_a_rollout() -> None:
    """D-14: its deletion adds nothing. An eviction of it is counted like any other (ZPDB-59)."""
    here = world()
    here.break_pod("a-0")
    here.break_pod("a-1")
    x = here.start()
    assert tell(await x.roll("a-0")) == "allowed"
    assert (await x.evict("a-1")).startswith("429 disruption_budget_used")


@in_virtual_time
async def test_w34_what_is_refused_by_the_caches_costs_no_call_and_no_reservation() -> None:
    here = world()
    here.break_pod("c-2")
    x = here.start()
    here.client.pause = Hold("")
    refused = await x.evict("a-0", within=timedelta(0))
    assert refused == "429 disruption_budget_used: 1 pod not ready in ingester-zone-c"
    assert here.client.calls == []
    assert len(x.pending) == 0


@in_virtual_time
async def test_fp31_a_budget_that_changes_while_a_grant_is_recorded_is_obeyed() -> None:
    """FP-31, SI-03: the second decision is made with the newest version."""
    here = world(rule(3, generation=1))
    x = here.start()
    here.client.pause = hold = Hold("patch")
    async with asyncio.TaskGroup() as tasks:
        asked = tasks.create_task(x.evict("a-0"))
        await hold.arrived.wait()
        x.catalog.on_change(None, rule(0, generation=2))
        hold.open.set()
    assert asked.result() == "403 budget_zero: max unavailable = 0"
    assert here.recorded() == []


@in_virtual_time
async def test_w52_budgets_that_overlap_while_a_grant_is_recorded_let_nothing_go() -> None:
    """W-52, FP-31: the former budget is not obeyed in place of those that rule now."""
    here = world(rule(3))
    x = here.start()
    here.client.pause = hold = Hold("patch")
    async with asyncio.TaskGroup() as tasks:
        asked = tasks.create_task(x.evict("a-0"))
        await hold.arrived.wait()
        x.catalog.on_change(None, rule(0, name="other"))
        hold.open.set()
    assert asked.result().startswith("400 budgets_overlap")
    assert here.recorded() == []


@in_virtual_time
async def test_w52_budgets_that_are_not_known_any_more_let_nothing_go() -> None:
    """W-52: the same where what is known of them was lost while the grant was recorded."""
    here = world(rule(3))
    x = here.start()
    here.client.pause = hold = Hold("patch")
    async with asyncio.TaskGroup() as tasks:
        asked = tasks.create_task(x.evict("a-0"))
        await hold.arrived.wait()
        here.lacks[DisruptionSource.EVICTION] = "no list"
        hold.open.set()
    assert asked.result().startswith("429 budgets_not_read")
    assert here.recorded() == []
