"""`wait` for MultiAZRollouts: each end and its exit code (D-76), on a simulated cluster."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Final

import pytest
from rollout_lab.nodes.behaviour import Behaviour, StartKind, image_of
from rollout_lab.world import Sandbox

from rollout_operator.cli.access import Named, read_named
from rollout_operator.cli.wait import HELD_FOR, Goal
from rollout_operator.model.names import ExitCode, InvalidInput
from rollout_operator.planning.describe_policies import OBEYED_WITHIN
from tests.cli.test_wait import Wait
from tests.controllers.policies.world import PolicyWorld
from tests.operator.diagnosis.inspected import observe_sandbox
from tests.virtual_time import in_virtual_time

BAD: Final = "bad"
QUICK: Final[dict[str, Any]] = {
    "rollingUpdate": {"intervalSeconds": 5},
    "progressDeadlineSeconds": 30,
}


def choose(pod: Any) -> Behaviour:
    """Let pods of one image crash."""
    return Behaviour(kind=StartKind.CRASH_LOOP if image_of(pod) == BAD else StartKind.NORMAL)


@asynccontextmanager
async def playing(*, is_obeyed: bool = True, **policy: Any) -> AsyncIterator[PolicyWorld]:
    """Play a policy over two zones."""
    async with Sandbox(choose=choose) as sandbox:
        world = PolicyWorld(sandbox)
        await world.create_zones("ab", replicas=2)
        await world.create_policy(**QUICK, **policy)
        if is_obeyed:
            await world.start()
        await world.sleep(5)
        yield world


def wait_for(world: PolicyWorld, policy: str = "db", **how: Any) -> Wait:
    """Return a wait for a policy, or for all there is."""
    return Wait(observe_sandbox(world.sandbox), named=Named(policy=policy), **how)


@pytest.mark.parametrize("policy", ["db", ""])
@in_virtual_time
async def test_d_76_it_ends_with_0_when_all_is_rolled_out_and_not_before(policy: str) -> None:
    """Also through the pauses, and where the namespace has no rollout group."""
    async with playing() as world:
        await world.roll_out(letters="ab")
        wait = wait_for(world, policy)

        assert await wait.end() is ExitCode.DONE

        assert len(world.pods()) == 4
        assert wait.reported[0].startswith("MultiAZRollout db: ")
        assert any("[interval_wait]" in line for line in wait.reported)
        assert "MultiAZRollout db: rolled out, 4/4 ready, 4/4 updated" in wait.reported[-1]


@pytest.mark.parametrize(
    ("change", "image", "why"),
    [
        pytest.param({"paused": True}, "v2", "[policy_paused]", id="paused"),
        pytest.param({"progressDeadlineSeconds": 30}, BAD, "[batch_open]", id="stalled"),
        pytest.param({"namespace": "elsewhere"}, "v2", "elsewhere", id="refused"),
    ],
)
@in_virtual_time
async def test_d_76_it_ends_with_4_when_only_a_person_can_help(
    change: dict[str, Any], image: str, why: str
) -> None:
    async with playing() as world:
        await world.patch_policy({"spec": change})
        await world.sleep(5)
        await world.roll_out(image, letters="ab")
        begin = world.sandbox.elapsed()
        wait = wait_for(world)

        assert await wait.end() is ExitCode.NEEDS_A_PERSON

        assert world.sandbox.elapsed() - begin >= HELD_FOR
        assert any("MultiAZRollout db: held" in line and why in line for line in wait.reported)
        assert wait.reported[-1] == "a person has to change something for MultiAZRollout db"


@in_virtual_time
async def test_a_policy_that_owns_nothing_is_never_reached() -> None:
    async with playing() as world:
        await world.patch_policy({"spec": {"statefulSetSelector": {"matchLabels": {"app": "x"}}}})
        await world.sleep(5)
        for goal in Goal:
            wait = wait_for(world, goal=goal, timeout=timedelta(seconds=5))
            assert await wait.end() is ExitCode.TIMED_OUT
            assert "[no_stateful_sets]" in wait.reported[0]


@in_virtual_time
async def test_whole_waits_for_pods_and_not_for_their_revision() -> None:
    async with playing(paused=True) as world:
        await world.roll_out(letters="ab")
        await world.sleep(5)
        assert await wait_for(world, goal=Goal.WHOLE).end() is ExitCode.DONE


@pytest.mark.parametrize("policy", ["db", ""])
@in_virtual_time
async def test_d_76_a_policy_that_no_operator_obeys_ends_it_with_4(policy: str) -> None:
    """Its kind may be installed, and no operator have the flag, or watch the namespace."""
    async with playing(is_obeyed=False) as world:
        wait = wait_for(world)
        begin = world.sandbox.elapsed()

        assert await wait.end() is ExitCode.NEEDS_A_PERSON

        assert world.sandbox.elapsed() - begin >= OBEYED_WITHIN - timedelta(seconds=10)
        assert "nothing has been decided yet" in wait.reported[0]
        assert "no operator has looked at it since" in wait.reported[1]
        assert "[policy_not_obeyed]" in wait.reported[1]
        # Once that is known, one that is not named ends it as well.
        assert await wait_for(world, policy).end() is ExitCode.NEEDS_A_PERSON


@in_virtual_time
async def test_a_policy_that_an_operator_may_see_any_moment_is_waited_for_by_name_alone() -> None:
    async with playing(is_obeyed=False) as world:
        with pytest.raises(InvalidInput, match="no rollout group found in namespace default"):
            await wait_for(world, "").end()
        with pytest.raises(InvalidInput, match="multiazrollout bdd not found in namespace"):
            await wait_for(world, "bdd").end()


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ([], Named()),
        (["db"], Named(name="db")),
        (["group/db"], Named(group="db")),
        (["Groups", "db"], Named(group="db")),
        (["mazr/db"], Named(policy="db")),
        (["MultiAZRollout", "db"], Named(policy="db")),
        (["mazr/db.x"], Named(policy="db.x")),
    ],
)
def test_an_object_is_named_as_for_explain(words: list[str], named: Named) -> None:
    assert read_named(words) == named
