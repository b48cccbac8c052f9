"""When the status of a budget is written, and above all when it is not."""

from collections import deque
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from rollout_operator.aio.queue import BUDGET_STATUSES
from rollout_operator.controllers.budgets import (
    READ_AGAIN,
    SETTLE,
    STATUS_REQUEUE_AFTER,
    TRY_AGAIN,
    BudgetStatuses,
)
from rollout_operator.guards.arbiter import BudgetAccount
from rollout_operator.kube.api import JsonObject, Page, Resource
from rollout_operator.model.budget import BudgetVersions
from rollout_operator.model.description import BudgetDescription, Waiting
from rollout_operator.model.names import (
    ApiError,
    Conflict,
    Denied,
    NotElected,
    NotFound,
    Uid,
    UnknownOutcome,
    Unreachable,
)
from rollout_operator.model.outcome import Code
from tests.virtual_time import EPOCH, VirtualClock, elapsed, in_virtual_time

FIELDS: Final = frozenset(
    {
        "observedGeneration",
        "zones",
        "pods",
        "currentUnavailable",
        "allowedDisruptions",
        "conditions",
    }
)
ROOM: Final = BudgetDescription(
    name="a", is_valid=True, maximum="1", zones=3, pods=9, unavailable=0, allowed=1,
    text="1 more pod may go",
)  # fmt: skip
NOT_WRITTEN: Final = "Status of budgets is not written"
FORBIDDEN: Final = Denied("patch is forbidden", status=403)


class Kind:
    """Budgets at an API server, with a schema that keeps some fields of a status."""

    def __init__(self, names: str) -> None:
        self.status: dict[str, Any] = dict.fromkeys(names)
        self.uids = {name: f"uid-{name}" for name in names}
        self.keeps = FIELDS
        self.patches: list[str] = []
        self.lists = 0
        self.errors: deque[ApiError] = deque()
        self.page_size = 1

    async def fetch(self, *args: object, **more: object) -> bytes:
        raise AssertionError("the role permits no get")

    async def fetch_page(
        self, resource: Resource, namespace: str, *, token: str = "", **more: object
    ) -> Page:
        self.lists += not token
        names, start = sorted(self.status), int(token or 0)
        end = start + self.page_size
        return Page(
            items=[msgspec.Raw(self.body(name)) for name in names[start:end]],
            resource_version="1",
            next_token=str(end) if end < len(names) else "",
        )

    async def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        patch: JsonObject | Sequence[JsonObject],
        subresource: str = "",
        **how: object,
    ) -> bytes:
        assert isinstance(patch, dict)
        assert (subresource, set(patch)) == ("status", {"metadata", "status"})
        assert patch["metadata"] == {"uid": self.uids[name]}
        self.patches.append(name)
        if self.errors:
            raise self.errors.popleft()
        status = patch["status"]
        assert isinstance(status, dict)
        kept = {key: value for key, value in status.items() if key in self.keeps}
        self.status[name] = {**(self.status[name] or {}), **kept} or None
        return self.body(name)

    def body(self, name: str) -> bytes:
        metadata = {"name": name, "namespace": "test", "uid": self.uids[name]}
        status = self.status[name]
        return msgspec.json.encode(
            {"metadata": metadata, "spec": {}, **({} if status is None else {"status": status})}
        )


class Bench:
    """The controller, and what is said of each budget."""

    def __init__(self, names: str = "a") -> None:
        self.kind = Kind(names)
        self.said = {name: replace(ROOM, name=name) for name in names}
        self.generation = 1
        clock = VirtualClock()
        self.statuses = BudgetStatuses(
                client=self.kind, namespace="test", find_account=self.find, clock=clock,
                now=clock.now,
            )  # fmt: skip
        self.clock = clock

    def find(self, name: str) -> BudgetAccount | None:
        if name not in self.said:
            return None
        known = BudgetVersions(
            namespace="test", name=name, uid=Uid(f"uid-{name}"), generation=self.generation
        )
        return BudgetAccount(known=known, described=self.said[name], zones=())

    async def reconcile(self, name: str = "a") -> timedelta | None:
        return (await self.statuses.reconcile(name)).again

    def say(self, unavailable: int, name: str = "a") -> None:
        """Let so many pods be down."""
        self.said[name] = replace(
            self.said[name], unavailable=unavailable, allowed=0, text=f"{unavailable} down"
        )

    @property
    def writes(self) -> int:
        return len(self.kind.patches)


@in_virtual_time
async def test_a_status_is_written_once_and_again_when_it_says_something_new() -> None:
    bench = Bench()
    assert await bench.reconcile() == READ_AGAIN
    for _ in range(3):
        await bench.reconcile()
    assert bench.writes == 1
    assert bench.kind.status["a"]["allowedDisruptions"] == 1

    bench.say(unavailable=1)
    assert await bench.reconcile() == STATUS_REQUEUE_AFTER, "time alone may bring a pod up"
    bench.generation = 2
    await bench.reconcile()
    assert bench.writes == 3
    assert bench.kind.status["a"]["observedGeneration"] == 2


@in_virtual_time
async def test_a_new_process_reads_before_it_writes() -> None:
    """All pages: since when a condition holds is not forgotten, whichever process wrote it."""
    bench = Bench("ab")
    await bench.reconcile("b")
    before = bench.kind.status["b"]
    await bench.clock.sleep(timedelta(hours=1))
    after = Bench("ab")
    after.kind.status = bench.kind.status
    await after.reconcile("b")  # on the second page

    assert (after.writes, after.kind.lists) == (0, 1)
    assert before["conditions"][0]["lastTransitionTime"] == "2026-01-02T03:04:05Z"


@in_virtual_time
async def test_many_budgets_are_written_a_few_a_second() -> None:
    names = "abcdefghij"
    bench = Bench(names)
    began = elapsed()
    for name in names:
        await bench.reconcile(name)

    assert bench.kind.lists == 1
    assert bench.writes == len(names)
    assert timedelta(seconds=3) <= elapsed() - began <= timedelta(seconds=5)


@in_virtual_time
async def test_a_kind_without_status_is_reported_once_and_left_alone(lines: list[str]) -> None:
    """The definition of other releases drops it: a write for every change would be a loop."""
    bench = Bench("ab")
    bench.kind.keeps = frozenset()
    await bench.reconcile("a")
    for number in range(50):
        bench.say(unavailable=number)
        assert await bench.reconcile("a") is not None
        assert await bench.reconcile("b") is not None
    assert bench.writes == 1
    await bench.clock.sleep(TRY_AGAIN)
    await bench.reconcile("b")
    assert bench.writes == 2
    assert [NOT_WRITTEN in line for line in lines] == [True]

    bench.kind.keeps = FIELDS
    await bench.clock.sleep(TRY_AGAIN)
    await bench.reconcile("a")
    await bench.reconcile("b")
    assert bench.kind.status["a"]["currentUnavailable"] == 49
    assert bench.kind.status["b"] is not None


@in_virtual_time
async def test_a_kind_that_drops_a_field_is_not_written_for_ever() -> None:
    bench = Bench()
    bench.kind.keeps = FIELDS - {"pods"}
    for _ in range(5):
        await bench.reconcile()
        await bench.clock.sleep(READ_AGAIN)
    assert bench.writes == 1
    bench.say(unavailable=1)
    await bench.reconcile()
    await bench.reconcile()
    assert bench.writes == 2


@in_virtual_time
async def test_a_status_by_hand_is_corrected_once_in_a_while() -> None:
    """However often a person writes it."""
    bench = Bench()
    await bench.reconcile()
    began = elapsed()
    while elapsed() - began < 3 * READ_AGAIN:
        bench.kind.status["a"] = {**bench.kind.status["a"], "allowedDisruptions": 99}
        await bench.reconcile()
        await bench.clock.sleep(timedelta(seconds=1))
    assert bench.writes == 1 + 2
    assert bench.kind.lists <= 5


@in_virtual_time
async def test_without_the_right_one_line_and_silence(lines: list[str]) -> None:
    """RBAC-10: the Role of other releases; it goes on by itself when the right is there."""
    bench = Bench("ab")
    bench.kind.errors.extend([FORBIDDEN] * 2)
    assert await bench.reconcile("a") == TRY_AGAIN
    assert (await bench.reconcile("b") or SETTLE) > TRY_AGAIN - timedelta(seconds=1)
    await bench.clock.sleep(TRY_AGAIN)
    await bench.reconcile("a")
    assert bench.writes == 2
    (line,) = [line for line in lines if NOT_WRITTEN in line]
    assert "patch is forbidden" in line

    await bench.clock.sleep(TRY_AGAIN)
    await bench.reconcile("a")
    assert bench.kind.status["a"] is not None
    bench.kind.errors.append(FORBIDDEN)
    bench.say(unavailable=1)
    await bench.reconcile("a")
    assert len([line for line in lines if NOT_WRITTEN in line]) == 2, "it is news again"


@in_virtual_time
async def test_not_found_is_a_budget_that_went_or_a_kind_without_the_subresource(
    lines: list[str],
) -> None:
    bench = Bench()
    bench.kind.errors.append(NotFound("no such path", status=404))
    assert await bench.reconcile() == TRY_AGAIN
    assert [NOT_WRITTEN in line for line in lines] == [True]

    gone = Bench()
    await gone.reconcile()
    gone.say(unavailable=1)
    gone.kind.errors.append(NotFound("it is gone", status=404))
    del gone.kind.status["a"]
    assert await gone.reconcile() == SETTLE
    del gone.said["a"]
    assert await gone.reconcile() is None
    assert len(lines) == 1


@in_virtual_time
async def test_what_fails_is_tried_again_ever_more_seldom() -> None:
    bench = Bench()
    bench.kind.errors.extend([Unreachable("no"), UnknownOutcome("no answer"), Unreachable("no")])
    waits = [await bench.reconcile() for _ in range(3)]

    assert waits == [BUDGET_STATUSES.bound(number) for number in (1, 2, 3)]
    assert await bench.reconcile() == READ_AGAIN
    assert bench.kind.lists == 4, "what an unanswered write did is read"


@in_virtual_time
async def test_a_conflict_is_read_again() -> None:
    bench = Bench()
    bench.kind.errors.append(Conflict("another uid", status=409))
    assert await bench.reconcile() == SETTLE
    assert await bench.reconcile() == READ_AGAIN
    assert (bench.kind.lists, bench.writes) == (2, 2)


@in_virtual_time
async def test_a_replica_that_does_not_act_writes_nothing(lines: list[str]) -> None:
    bench = Bench()
    bench.kind.errors.append(NotElected("another one acts"))
    assert await bench.reconcile() is None
    assert lines == []


@in_virtual_time
async def test_what_is_not_known_is_not_written() -> None:
    """SI-09: a view that is too old says nothing of now."""
    bench = Bench()
    stale = Waiting(code=Code.SNAPSHOT_STALE, text="too old")
    bench.said["a"] = replace(ROOM, waits=(stale,))
    assert await bench.reconcile() == STATUS_REQUEUE_AFTER
    assert bench.writes == 0
    assert bench.clock.now() >= EPOCH
