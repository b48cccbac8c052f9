"""The words of sequences about controllers: what they see, distinguish, leave out and wait for."""

from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest
from rollout_lab.virtual_loop.pace import StepTimes

from rollout_operator.kube.api import JsonObject
from tests.contract.controllers_pods import HELD, QUICK
from tests.contract.controllers_rig import ControllerRig, staged
from tests.contract.controllers_seen import is_going
from tests.contract.controllers_sets import PARALLEL, web
from tests.contract.plays import Needs, Sequence, list_sequences
from tests.contract.simulated import play_simulated

SLOW = StepTimes(
    controller=(timedelta(milliseconds=200), timedelta(milliseconds=400)),
    status=(timedelta(milliseconds=200), timedelta(milliseconds=400)),
)


def revision(name: str, number: int) -> JsonObject:
    return {"metadata": {"name": name, "uid": name, "resourceVersion": "1"}, "revision": number}


def play(
    act: Callable[[ControllerRig], Awaitable[None]], pace: StepTimes | None = None
) -> list[str]:
    """Play a scene on a sandbox and return its transcript."""
    one = Sequence(topic="x", name="y", play=staged(act), needs=Needs.CONTROLLERS)
    found = play_simulated(one) if pace is None else play_simulated(one, pace=pace)
    if isinstance(found, Exception):
        raise found
    return found


# What is seen


# How pods behave


# Scenes


@pytest.mark.parametrize(
    ("image", "policy", "has_order"),
    [
        pytest.param(HELD, PARALLEL, True, id="held pods"),
        pytest.param(QUICK, "OrderedReady", True, id="ordered pods"),
        pytest.param(QUICK, PARALLEL, False, id="parallel pods by themselves"),
    ],
)
def test_order_is_reported_only_where_it_is_determined(
    image: str, policy: str, has_order: bool
) -> None:
    async def act(rig: ControllerRig) -> None:
        await rig.create(web(image=image, pods=policy))
        await rig.until("three", lambda: len(rig.seen.pods) == 3)
        await rig.rest("three")

    lines = play(act)

    assert (' "moves": [' in lines) is has_order
    assert (' "statuses": {' in lines) is (image == HELD)


@pytest.mark.parametrize("pace", [StepTimes(), SLOW], ids=["quick", "slow"])
def test_rest_waits_for_a_controller_however_slow_it_is(pace: StepTimes) -> None:
    async def act(rig: ControllerRig) -> None:
        await rig.whole(pods=PARALLEL)
        await rig.change(replicas=1)
        await rig.settle()
        going = sorted(name for name, one in rig.seen.pods.items() if is_going(one))
        rig.world.record("going", pods=going)
        await rig.end(*going)
        await rig.settle()
        rig.world.record("left", pods=sorted(rig.seen.pods))

    lines = play(act, pace)

    assert lines[lines.index("== going") :] == [
        "== going", ' "pods": [', '  "a-1",', '  "a-2"', " ]",
        "== left", ' "pods": [', '  "a-0"', " ]",
    ]  # fmt: skip


def test_what_another_controller_would_do_makes_another_transcript() -> None:
    """Each of these could be what one of two controllers does with the same set."""

    def rolled(strategy: str, policy: str, *, back: bool) -> list[str]:
        async def act(rig: ControllerRig) -> None:
            await rig.whole(strategy=strategy, pods=policy)
            await rig.version("2")
            await rig.settle()
            if back:
                await rig.version("1")
            await rig.rest("then")

        return play(act)

    tried = [
        rolled("OnDelete", PARALLEL, back=False),
        rolled("OnDelete", PARALLEL, back=True),
        rolled("RollingUpdate", PARALLEL, back=False),
        rolled("RollingUpdate", PARALLEL, back=True),
    ]

    assert len({tuple(lines) for lines in tried}) == 4
    assert tried[0] == rolled("OnDelete", "OrderedReady", back=False)


def test_a_wait_that_takes_too_long_says_what_is_there_instead() -> None:
    async def act(rig: ControllerRig) -> None:
        await rig.create(web(replicas=1, image="pending"))
        await rig.until_whole()

    with pytest.raises(TimeoutError, match=r"not a whole: .*'a-0 #1': 'a:r1 Pending unready of a'"):
        play(act)


def test_there_are_enough_sequences_about_controllers() -> None:
    found = [one for one in list_sequences() if one.topic.startswith("controllers_")]

    assert len(found) >= 120
    assert {one.needs for one in found} == {Needs.CONTROLLERS}
    assert all(one.has_texts for one in found)
