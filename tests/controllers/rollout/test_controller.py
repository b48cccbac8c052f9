"""One reconcile of a group: what it does, what it counts, and when the next follows."""

from collections import deque
from datetime import timedelta

import pytest

from rollout_operator.controllers.rollout import LAG_LIMIT, RECHECK_WAIT
from rollout_operator.controllers.worker import RESYNC
from rollout_operator.model.names import (
    ApiError,
    Denied,
    GroupName,
    Refused,
    TooManyRequests,
    UnknownOutcome,
)
from rollout_operator.model.outcome import Code, Severity
from rollout_operator.planning.wording import explain_actions
from rollout_operator.telemetry.metrics import GroupState
from tests.controllers.bench import GROUP, bench, meta_of, rollable
from tests.controllers.fake_client import pod_json, set_json


async def test_a_reconcile_counts_and_succeeds() -> None:
    """METR-01..04, ROLL-10."""
    made = rollable()
    await made.controller.reconcile(GROUP)
    assert made.value("group_reconciles_total") == 1
    assert made.value("group_reconciles_failed_total") == 0
    assert made.value("group_reconcile_duration_seconds_count") == 1
    stamp = made.value("last_successful_group_reconcile_timestamp_seconds")
    assert stamp == made.clock.now().timestamp()
    assert made.value("pods_deleted_total", outcome="accepted") == 1


async def test_t01_1_a_wrong_strategy_is_a_failed_reconcile_and_no_call() -> None:
    """T-01 row 1, SEED-012, SEED-058."""
    made = rollable()
    wrong = set_json("b")
    spec = wrong["spec"]
    assert isinstance(spec, dict)
    spec["updateStrategy"] = {"type": "RollingUpdate"}
    made.client.put("statefulsets", wrong)
    made.show_store()
    await made.controller.reconcile(GROUP)
    assert made.value("group_reconciles_failed_total") == 1
    assert made.value("last_successful_group_reconcile_timestamp_seconds") == 0
    assert made.value("group_waiting", reason="wrong_strategy") == 1
    assert made.client.calls == []


async def test_what_is_underway_is_shown_while_it_waits_for_its_turn() -> None:
    """D-40: a live read may wait for long, and what was posted last may be over by then."""
    made = rollable()
    shown: list[GroupState] = []

    async def record(kind: str) -> None:
        state = made.group_states.find_newest(GROUP)
        assert state is not None
        assert state.is_underway
        shown.append(state)

    made.client.turn = record
    await made.controller.reconcile(GROUP)
    assert made.client.deleted == ["b-0"]
    assert {explain_actions(one.plan) for one in shown} == {
        ("b-0 is at revision old, b wants new",)
    }
    state = made.group_states.find_newest(GROUP)
    assert state is not None
    assert not state.is_underway


async def test_an_idle_group_costs_no_call_and_is_reconciled_every_four_minutes() -> None:
    """LI-11, DEP-09."""
    made = bench(
        [set_json("a", current="new")], [pod_json("a", n, revision="new") for n in range(3)]
    )
    result = await made.controller.reconcile(GROUP)
    assert made.client.calls == []
    assert result.again == RESYNC
    assert made.waits() == [Code.UP_TO_DATE]


async def test_a_group_without_members_is_forgotten() -> None:
    """ROLL-06, DEP-67."""
    made = rollable()
    await made.controller.reconcile(GROUP)
    made.client.objects.clear()
    made.show_store()
    result = await made.controller.reconcile(GROUP)
    assert result.again is None
    assert made.value("group_reconciles_total") is None
    assert made.group_states.entries() == ()


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        pytest.param(Denied("cannot delete pods: role lacks delete", status=403), 0.1, id="role"),
        pytest.param(TooManyRequests("busy", retry_after=timedelta(seconds=7)), 7, id="429"),
    ],
)
async def test_an_error_is_counted_named_and_backed_off(error: ApiError, seconds: float) -> None:
    """W-46, LI-11: events meanwhile cost no call: a crash-looping pod may wake the group each
    second.
    """
    made, again = rollable(), timedelta(seconds=seconds)
    made.client.fail_delete["b-0"] = deque([error])
    for _ in range(2):
        assert (await made.controller.reconcile(GROUP)).again == again
        assert made.value("group_reconciles_failed_total") == 1
        assert made.waits()[0] is Code.BACKING_OFF
        (entry,) = made.group_states.entries()
        assert str(error) in entry.plan.waits[0].text
        assert sum(call.startswith("delete") for call in made.client.calls) == 1
    made.clock.jump(again)
    await made.controller.reconcile(GROUP)
    assert made.client.deleted == ["b-0"]
    assert made.waits() != [Code.BACKING_OFF]


async def test_d18_a_status_that_cannot_be_written_does_not_hold_the_next_zone() -> None:
    """D-18: the attempt of zone a backs off, zone b goes on step by step."""
    made = bench(
        [set_json("a"), set_json("b")],
        [pod_json("a", n, revision="new") for n in range(3)] + [pod_json("b", n) for n in range(3)],
    )

    def refuse_status(call: str) -> None:
        if call.endswith("/status"):
            raise Denied("role lacks update on statefulsets/status", status=403)

    made.client.before = refuse_status
    for ordinal in range(3):
        await made.controller.reconcile(GROUP)
        made.client.put("pods", pod_json("b", ordinal, revision="new"))
        made.show_store()
    assert made.client.deleted == ["b-0", "b-1", "b-2"]
    assert made.client.calls.count("put statefulsets/a/status") == 1


async def test_refused_deletes_back_off_and_are_repeated() -> None:
    """LI-11: a webhook that is down for ten seconds delays by seconds, and is not stormed."""
    made = rollable()
    for ordinal in range(3):
        made.client.fail_delete[f"b-{ordinal}"] = deque([Refused("webhook is down")] * 2)
    result = await made.controller.reconcile(GROUP)
    assert result.again == timedelta(seconds=0.1)
    for _ in range(20):
        await made.controller.reconcile(GROUP)
    assert sum(call.startswith("delete") for call in made.client.calls) == 3
    assert made.value("group_waiting", reason="backing_off") == 1


async def test_li11_a_flapping_pod_does_not_defeat_the_back_off() -> None:
    made = rollable()
    made.client.fail_delete["b-0"] = deque([Denied("no", status=403)] * 20)
    for flap in range(20):
        made.client.put("pods", pod_json("b", 2, ready=bool(flap % 2)))
        made.show_store()
        await made.controller.reconcile(GROUP)
    assert sum(call.startswith("delete") for call in made.client.calls) == 1


async def test_an_unanswered_delete_is_read_back_though_nothing_is_outdated_any_more() -> None:
    """SI-18, LI-01: after a rollback no event comes; the zone must not stay short for minutes."""
    made = rollable()
    made.client.fail_delete["b-0"] = deque([UnknownOutcome("no answer")])
    await made.controller.reconcile(GROUP)
    made.client.put("statefulsets", set_json("b", update="old"))
    made.show_store()
    result = await made.controller.reconcile(GROUP)
    assert result.again is not None
    assert result.again <= timedelta(seconds=5)
    made.clock.jump(timedelta(seconds=91))
    await made.controller.reconcile(GROUP)
    assert made.waits() == [Code.UP_TO_DATE]


async def test_an_unanswered_delete_follows_its_set_into_another_group() -> None:
    """FP-28: relabelled after an unanswered delete, the pod still counts as down."""
    made = rollable()
    made.client.fail_delete["b-0"] = deque([UnknownOutcome("no answer")])
    await made.controller.reconcile(GROUP)
    for zone in ("a", "b"):
        moved = set_json(zone, current="new" if zone == "a" else "old")
        moved["metadata"] = {**meta_of(moved), "labels": {"rollout-group": "store"}}
        made.client.put("statefulsets", moved)
    made.show_store()
    made.client.calls.clear()
    await made.controller.reconcile(GroupName("store"))
    assert made.client.calls[0] == "get pods/b-0"
    assert made.client.deleted in ([], ["b-0"])


async def test_a_bug_is_counted_as_a_failed_reconcile() -> None:
    made = rollable()
    made.client.fail_delete["b-0"] = deque([KeyError("bug")])  # type: ignore[list-item]  # a bug
    with pytest.raises(KeyError):
        await made.controller.reconcile(GROUP)
    assert made.value("group_reconciles_failed_total") == 1


async def test_a_cache_that_does_not_show_an_own_delete_is_listed_again() -> None:
    made = rollable()
    result = await made.controller.reconcile(GROUP)
    assert result.again is not None
    assert LAG_LIMIT < result.again < LAG_LIMIT + timedelta(seconds=1)
    made.clock.jump(result.again)
    await made.controller.reconcile(GROUP)
    assert made.refreshed == ["own delete not seen"]


async def test_a_cache_that_the_store_contradicts_is_listed_again() -> None:
    """FP-02, FP-09: a frozen watch; reads become rarer, then the cache is filled anew."""
    made = rollable()
    made.client.put("pods", pod_json("a", 0, revision="new", ready=False))
    waits: list[timedelta] = []
    while not made.refreshed:
        result = await made.controller.reconcile(GROUP)
        assert result.again is not None
        waits.append(result.again)
        assert len(waits) < 20
    assert made.client.deleted == []
    assert waits == sorted(waits)
    assert waits[0] == timedelta(seconds=0.05)
    assert sum(waits, timedelta(0)) < timedelta(seconds=15)
    assert made.refreshed == ["the API server contradicts the cache"]


async def test_a_group_that_spells_its_label_long_is_rolled() -> None:
    """SEED-011: members with either spelling are one group, live read included."""
    long = {"grafana.com/rollout-group": "ingester"}
    made = bench(
        [set_json("a", current="new"), set_json("b", labels=long)],
        [pod_json("a", n, revision="new") for n in range(3)] + [pod_json("b", n) for n in range(3)],
    )
    await made.controller.reconcile(GROUP)
    assert made.client.deleted == ["b-0"]
    assert (
        "list statefulsets grafana.com/rollout-group=ingester,!rollout-group" in made.client.calls
    )


@pytest.mark.parametrize(
    ("first", "second", "lists"),
    [
        pytest.param(
            {"rollout-group": "ingester", "name": "a"},
            {"rollout-group": "ingester", "name": "b"},
            ["list pods name in (a,b),rollout-group=ingester"],
            id="a shared key: one list",
        ),
        pytest.param(
            {"name": "a"},
            {"rollout-group": "ingester"},
            ["list pods name=a", "list pods rollout-group=ingester"],
            id="no shared key: a list for each",
        ),
    ],
)
async def test_the_live_read_lists_pods_by_the_labels_of_all_selectors(
    first: dict[str, str], second: dict[str, str], lists: list[str]
) -> None:
    made = bench(
        [set_json("a", current="new", selector=first), set_json("b", selector=second)],
        [pod_json("a", n, revision="new") for n in range(3)] + [pod_json("b", n) for n in range(3)],
    )
    await made.controller.reconcile(GROUP)
    assert made.client.deleted == ["b-0"]
    assert [call for call in made.client.calls if call.startswith("list pods")] == lists


async def test_li_11_a_live_read_that_is_always_too_old_backs_off_and_says_so() -> None:
    """LISTs that take longer than a read lasts: doubling waits, a warning, and no success.

    It came back after 50 ms for ever, with a time of the last success that moved on.
    """
    made = rollable()
    made.client.before = lambda call: made.clock.jump(timedelta(seconds=5.2))
    waits: list[timedelta | None] = []
    for _ in range(7):
        result = await made.controller.reconcile(GROUP)
        waits.append(result.again)
        assert result.again is not None
        made.clock.jump(result.again)
    assert waits == [timedelta(seconds=wait) for wait in (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5)]
    assert made.client.deleted == []
    assert made.waits()[0] is Code.LIVE_READ_EXPIRED
    (entry,) = made.group_states.entries()
    assert entry.plan.waits[0].severity is Severity.WARN
    assert "counts for 5 s and took longer" in entry.plan.waits[0].text
    assert made.value("group_reconciles_failed_total") == 5, "from the third in a row on"
    assert made.value("last_successful_group_reconcile_timestamp_seconds") == 0


async def test_a_read_that_was_cut_short_after_a_delete_is_a_success() -> None:
    """There is more to do, and it is done at once."""
    made = rollable(limit="3")

    def be_slow(call: str) -> None:
        if call.startswith("delete"):
            made.clock.jump(timedelta(seconds=6))

    made.client.before = be_slow
    for deleted in (1, 2):
        result = await made.controller.reconcile(GROUP)
        assert made.client.deleted == ["b-0", "b-1"][:deleted]
        assert result.again == RECHECK_WAIT
        assert Code.LIVE_READ_EXPIRED not in made.waits()
        stamp = made.value("last_successful_group_reconcile_timestamp_seconds")
        assert stamp == made.clock.now().timestamp()
    await made.controller.reconcile(GROUP)
    assert made.client.deleted == ["b-0", "b-1", "b-2"]
