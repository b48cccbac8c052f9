"""A rollout under budgets: each delete passes the arbiter, and what is not used is released
(ROLL-36, ZPDB-60, W-08, D-15, LI-10).
"""

import asyncio
from collections import deque
from dataclasses import dataclass
from datetime import timedelta

import pytest

from rollout_operator.controllers.executor import Executor, LabelRule, Report
from rollout_operator.controllers.rollout import RolloutController
from rollout_operator.controllers.worker import HELD_RECHECK, Attempts
from rollout_operator.model.budget import Budget
from rollout_operator.model.names import (
    ApiError,
    Conflict,
    GroupName,
    NotFound,
    Refused,
    Throttled,
    TooManyRequests,
    UnknownOutcome,
    Unreachable,
)
from rollout_operator.model.objects import Deletion
from rollout_operator.model.outcome import Code
from rollout_operator.planning.rollout import plan_group
from rollout_operator.telemetry.metrics import GroupStates
from tests.controllers.fake_client import set_json
from tests.guards.arbiter_bench import Hold, Process, World, failing, name_of, part, rule, world
from tests.planning.disruptions import PATTERN
from tests.virtual_time import in_virtual_time

GROUP = GroupName("ingester")
GET, LIST, PATCH, DELETE = "get", "list", "patch", "delete"
# Sets and pods, before anything is decided on.
LIVE_READ = [LIST, LIST]
DELAY = timedelta(minutes=1)


@dataclass(kw_only=True)
class Shell:
    """A process that rolls zones out."""

    here: World
    process: Process
    executor: Executor
    controller: RolloutController
    group_states: GroupStates
    refreshed: list[str]
    """Why the caches were made to list again."""

    async def step(self) -> Report:
        """Plan and carry out the only action."""
        self.process.sync()
        group = self.process.observer.observe(GROUP)
        (action,) = plan_group(group).actions
        return await self.executor.carry_out(group, action)

    @property
    def deleted(self) -> list[str]:
        """Return the pods that went, in order."""
        return [name.removeprefix(name_of("")) for name in self.here.client.deleted]


def rolling(*rules: Budget, limit: str = "2", pods: int = 3) -> Shell:
    """Return a process whose zone `a` is to be rolled out; the other zones are up to date."""
    here = world(*rules, pods=pods)
    one = set_json(name_of("a"), replicas=pods, max_unavailable=limit)
    here.client.put("statefulsets", one)
    process = here.start()
    executor = Executor(
        here.client, LabelRule(process.observer), process.deletes,
        clock=process.clock, metrics=process.metrics, arbiter=process.gate,
    )  # fmt: skip
    group_states = GroupStates(process.metrics, process.clock)
    refreshed: list[str] = []
    controller = RolloutController(
        observer=process.observer, executor=executor, deletes=process.deletes,
        attempts=Attempts(process.clock, longest=timedelta(seconds=5)), group_states=group_states,
        metrics=process.metrics, clock=process.clock, refresh=refreshed.append,
    )  # fmt: skip
    return Shell(
        here=here, process=process, executor=executor,
        controller=controller, group_states=group_states, refreshed=refreshed,
    )  # fmt: skip


def fail_delete(made: Shell, pod: str, error: ApiError) -> None:
    """Make the next delete of a pod fail."""
    made.here.client.fail_delete[name_of(pod)] = deque([error])


def age_pod(here: World, pod: str, at: str) -> None:
    """Make a pod ready since a later time."""
    held = here.client.objects["pods", name_of(pod)]
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": at}
    status = {**part(held, "status"), "conditions": [ready]}
    here.client.put("pods", {**held, "status": status})


@in_virtual_time
async def test_zpdb60_each_delete_is_requested_and_names_what_the_gate_saw() -> None:
    """SI-17, SI-09: all are recorded, one live read serves them all, and each is deleted at the
    version with the record.
    """
    made = rolling(rule(2))
    report = await made.step()
    assert made.deleted == ["a-0", "a-1"]
    assert made.here.client.verbs() == [PATCH, PATCH, *LIVE_READ, DELETE, DELETE]
    assert report.held == []
    assert made.process.requests("allowed", 200) == 2


@in_virtual_time
async def test_zpdb60_what_the_budget_holds_stays_and_says_why() -> None:
    made = rolling(rule(1))
    report = await made.step()
    assert made.deleted == ["a-0"]
    assert [one.reason.code for one in report.held] == [Code.DISRUPTION_BUDGET_USED] * 2
    assert report.held[0].reason.text == (
        "1 pod not ready in ingester-zone-a (ingester-zone-a-0: delete accepted);"
        " budget ingester: max unavailable 1"
    )
    assert report.error is None


@in_virtual_time
async def test_d51_a_rollout_that_a_budget_holds_reads_its_pods_a_few_times() -> None:
    """D-51: 40 outdated pods, 20 of which may be unavailable, under a budget of 2."""
    made = rolling(rule(2), limit="20", pods=40)
    report = await made.step()
    assert len(made.deleted) == 2
    assert len(report.held) == 38
    # Three zones: for the group before the records and before and after the live read; for all that
    # may go before it starts, before each of the two records and after the deletes; in the gate for
    # each of the two.
    assert made.process.pods.reads == 3 * (3 + 1 + 2 + 1 + 2) + 3
    # Of those that are held, not one is requested.
    assert made.process.requests("denied", 429) == 0


@in_virtual_time
async def test_d51_a_rollout_whose_cache_lags_reserves_once_for_what_all_pods_wait_for() -> None:
    """D-51: the live read shows what the cache does not; it holds for the other pods, too."""
    made = rolling(rule(1), limit="20", pods=40)
    made.process.sync()
    group = made.process.observer.observe(GROUP)
    (action,) = plan_group(group).actions
    before = made.here.client.before

    def lag(call: str) -> None:
        if call.startswith("patch"):  # the cache does not show it yet
            made.here.break_pod("b-0")
        before(call)

    made.here.client.before = lag
    report = await made.executor.carry_out(group, action)
    assert made.deleted == []
    assert made.here.client.verbs().count(PATCH) == 2  # one record, written and released
    assert report.is_contradicted
    assert made.here.recorded() == []


@in_virtual_time
async def test_d15_a_pod_that_is_held_does_not_hide_the_next() -> None:
    """W-08: partition 0 has lately been moved in zone b; partition 1 may go."""
    made = rolling(rule(1, pattern=PATTERN, delay=DELAY), limit="1")
    await made.process.clock.sleep(2 * DELAY)
    age_pod(made.here, "b-0", "2026-01-02T03:05:55Z")
    report = await made.step()
    assert made.deleted == ["a-1"]
    (held,) = report.held
    assert held.reason.text.startswith("1 pod not ready in partition 0 (ingester-zone-b-0: ")
    assert held.requeue_after is not None
    assert held.requeue_after < DELAY


@in_virtual_time
async def test_w34_no_live_read_where_the_caches_know_that_all_are_held() -> None:
    made = rolling(rule(1, pattern=PATTERN, delay=DELAY))
    report = await made.step()
    assert made.here.client.calls == []
    assert len(report.held) == 3
    assert {one.reason.code for one in report.held} == {Code.DISRUPTION_BUDGET_USED}


@in_virtual_time
async def test_d40_the_group_waits_for_what_its_budget_says() -> None:
    """The reason is reported with its zone; time alone that may change it wakes the group."""
    made = rolling(rule(1, pattern=PATTERN, delay=DELAY))
    await made.process.clock.sleep(DELAY - timedelta(seconds=2))
    made.process.sync()
    result = await made.controller.reconcile(GROUP)
    (entry,) = made.group_states.entries()
    held = [one for one in entry.plan.waits if one.code is Code.DISRUPTION_BUDGET_USED]
    assert {one.zone for one in held} == {"ingester-zone-a"}
    assert len(held) == 3  # one for each partition
    assert result.again is not None
    assert timedelta(seconds=2) < result.again <= timedelta(seconds=3)
    assert not entry.plan.failed


@in_virtual_time
async def test_d40_what_no_time_is_known_for_is_reconciled_soon() -> None:
    """The blocker may be of another group, whose events wake nothing here. No call is due."""
    made = rolling(rule(selector={"name": name_of("a")}))
    result = await made.controller.reconcile(GROUP)
    (entry,) = made.group_states.entries()
    assert [one.code for one in entry.plan.waits].count(Code.TOO_FEW_ZONES) == 1
    assert result.again == HELD_RECHECK
    assert made.here.client.calls == []


@in_virtual_time
async def test_a_pod_without_a_budget_is_deleted_as_ever() -> None:
    made = rolling(rule(selector={"app": "another"}))
    await made.step()
    assert made.deleted == ["a-0", "a-1"]
    assert made.here.client.verbs() == [*LIVE_READ, DELETE, DELETE]


@pytest.mark.parametrize(
    ("error", "deleted"),
    [
        pytest.param(Refused("not now", status=403), ["a-1", "a-2"], id="refused: the next two"),
        pytest.param(Conflict("changed", status=409), [], id="changed: a new read"),
        pytest.param(Throttled("later"), [], id="our own limiter: a new read"),
        pytest.param(TooManyRequests("busy"), [], id="turned away: an error"),
        pytest.param(NotFound("gone", status=404), [], id="it was gone already"),
    ],
)
@in_virtual_time
async def test_zpdb60_what_was_not_deleted_is_released(error: ApiError, deleted: list[str]) -> None:
    """Its record goes at once: it holds up nothing."""
    made = rolling(rule(2))
    fail_delete(made, "a-0", error)
    await made.step()
    assert made.deleted == deleted
    assert made.here.recorded() == []
    assert made.process.state("a-0") is None
    assert len(made.process.in_flight) == len(deleted)


@in_virtual_time
async def test_si18_a_delete_without_an_answer_counts_and_cannot_come_late() -> None:
    """The pod has another version once its record has gone; the memory of deletes goes on."""
    made = rolling(rule(2))
    fail_delete(made, "a-0", UnknownOutcome("no answer"))
    report = await made.step()
    assert isinstance(report.error, UnknownOutcome)
    assert made.deleted == []
    assert made.here.recorded() == []
    assert made.here.live("a-0").resource_version == "3"
    group = made.process.observer.observe(GROUP)
    assert group.deletions == {made.here.live("a-0").uid: Deletion.UNKNOWN}


@in_virtual_time
async def test_fp36_a_rollout_that_is_stopped_releases_what_it_holds() -> None:
    made = rolling(rule(2))
    made.here.client.pause = hold = Hold(DELETE)
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(made.step())
        await hold.arrived.wait()
        assert made.here.recorded() == ["a-0", "a-1"]
        task.cancel()
    assert made.here.recorded() == []


@in_virtual_time
async def test_si09_a_gate_that_takes_long_leaves_no_time_for_a_delete() -> None:
    """The read that the delete rests on has expired meanwhile."""
    made = rolling(rule(2))

    def freeze(call: str) -> None:
        is_reading = made.here.client.verbs()[-1] == LIST
        made.process.clock.ahead = timedelta(seconds=7.5 if is_reading else 2)

    made.here.client.before = freeze
    report = await made.step()
    assert made.deleted == []
    assert report.is_cut_short
    assert made.here.recorded() == []
    assert len(made.process.in_flight) == 0


@in_virtual_time
async def test_si09_lists_of_three_seconds_let_pods_under_a_budget_go() -> None:
    """SI-09, FP-15: the read that the delete rests on is the one that confirms its record."""
    made = rolling(rule(1))

    async def take_long(call: str) -> None:
        if call.startswith(LIST):
            await asyncio.sleep(3)

    made.here.client.pause = take_long
    await made.step()
    assert made.deleted == ["a-0"]


@in_virtual_time
async def test_zpdb60_a_live_read_that_fails_leaves_no_record() -> None:
    """LI-07: what was reserved for it is released at once."""
    made = rolling(rule(2))
    made.here.client.before = failing(LIST, TooManyRequests("busy"))
    report = await made.step()
    assert isinstance(report.error, TooManyRequests)
    assert made.here.recorded() == []
    assert len(made.process.in_flight) == 0


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        pytest.param(Conflict("changed", status=409), "contradicted", id="the pod has changed"),
        pytest.param(NotFound("gone", status=404), "contradicted", id="the pod is gone"),
        pytest.param(Throttled("later"), "cut short", id="our own limiter: a new read"),
        pytest.param(TooManyRequests("busy"), "failed", id="turned away: an error"),
        pytest.param(Unreachable("refused"), "failed", id="nothing could be sent: an error"),
        pytest.param(UnknownOutcome("no answer"), "failed", id="no answer: an error"),
    ],
)
@in_virtual_time
async def test_zpdb60_a_record_that_fails_comes_to_what_its_error_says(
    error: ApiError, outcome: str
) -> None:
    """Only a pod that is not what it was contradicts the cache."""
    made = rolling(rule(1))
    made.here.client.before = failing(PATCH, error)
    report = await made.step()
    assert made.deleted == []
    assert report.is_contradicted == (outcome == "contradicted")
    assert report.is_cut_short == (outcome == "cut short")
    assert report.error is (error if outcome == "failed" else None)
