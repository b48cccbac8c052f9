"""Two processes grant at the same moment: both see both records, and at most one goes on
(FP-20, SI-01).
"""

import asyncio

import pytest

from rollout_operator.guards.budgets.arbiter import CONTEST_LOOKS, CONTEST_PAUSE
from tests.guards.arbiter_bench import World, world
from tests.virtual_time import elapsed, in_virtual_time

USED_A = "429 disruption_budget_used: 1 pod not ready in ingester-zone-a"
USED_B = "429 disruption_budget_used: 1 pod not ready in ingester-zone-b"


@pytest.mark.parametrize(("first", "second"), [("x", "y"), ("y", "x")])
@in_virtual_time
async def test_fp20_of_two_at_the_same_time_the_one_with_the_lesser_name_goes_on(
    first: str, second: str
) -> None:
    """Same second, same look: the other withdraws, and the winner waits for that."""
    here = world()
    asked = {first: "a-0", second: "b-0"}
    answers = await _ask_all(here, asked)
    assert answers[asked["x"]] == "allowed"
    assert answers[asked["y"]] == (USED_A if asked["x"] == "a-0" else USED_B)
    assert here.recorded() == [asked["x"]]
    assert CONTEST_PAUSE < elapsed() < 2 * CONTEST_PAUSE


async def _take_a_moment(call: str) -> None:
    await asyncio.sleep(0.01)


async def _ask_all(here: World, asked: dict[str, str]) -> dict[str, str]:
    """Ask all at the same moment, one process each; every call takes a hundredth of a second."""
    here.client.pause = _take_a_moment
    processes = {name: here.start(name) for name in asked}
    async with asyncio.TaskGroup() as tasks:
        running = {
            pod: tasks.create_task(processes[name].evict(pod)) for name, pod in asked.items()
        }
    return {pod: task.result() for pod, task in running.items()}


@in_virtual_time
async def test_fp20_the_earlier_record_wins_also_where_it_arrives_later() -> None:
    """The first one to decide had a slow way: its record is the older one all the same."""
    here = world()
    y, x = here.start("y"), here.start("x")
    slow = ("patch pods/ingester-zone-a-0", "list")
    async with asyncio.TaskGroup() as tasks, y.evicting("a-0", *slow) as early:
        await asyncio.sleep(0.5)
        late = tasks.create_task(x.evict("b-0"))
        await asyncio.sleep(0.5)
        assert here.recorded() == ["b-0"]
    assert early.result() == "allowed"
    assert late.result() == USED_A
    assert here.recorded() == ["a-0"]


@in_virtual_time
async def test_fp20_the_winner_gives_up_where_the_other_does_not_withdraw() -> None:
    """It died, or it was given before our record arrived: then both would go."""
    here = world()
    y, x = here.start("y"), here.start("x")
    async with y.evicting("a-0", "patch pods/ingester-zone-a-0") as early:
        await asyncio.sleep(0.5)
        assert await x.evict("b-0") == "allowed"
        here.client.calls.clear()
    assert early.result() == USED_B
    assert here.recorded() == ["b-0"]
    assert here.client.verbs().count("list") == CONTEST_LOOKS
    assert elapsed() < 2 * CONTEST_LOOKS * CONTEST_PAUSE


@in_virtual_time
async def test_fp20_the_loser_does_not_wait() -> None:
    here = world()
    x, y = here.start("x"), here.start("y")
    async with y.evicting("b-0", "patch pods/ingester-zone-b-0") as late:
        assert await x.evict("a-0") == "allowed"
    assert late.result() == USED_A
    assert elapsed() < CONTEST_PAUSE
    assert here.recorded() == ["a-0"]


@in_virtual_time
async def test_si02_a_winner_with_another_trouble_does_not_wait() -> None:
    """A pod is down besides: that the other one withdraws would not help."""
    here = world()

    def crash(call: str) -> None:
        if call.startswith("list"):
            here.break_pod("c-1")

    here.client.before = crash
    answers = await _ask_all(here, {"x": "a-0", "y": "b-0"})
    assert {text.split(":")[0] for text in answers.values()} == {"429 disruption_budget_used"}
    assert here.recorded() == []
    assert elapsed() < CONTEST_PAUSE
