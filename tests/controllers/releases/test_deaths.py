"""A process that dies at any call: the next one ends the same, and nothing is done twice."""

import itertools
from datetime import timedelta
from typing import Any

import pytest

from rollout_operator.kube import api as kinds
from tests.controllers.releases.bench import Died, ReleaseBench
from tests.virtual_time import VirtualClock, in_virtual_time

REQUESTED = {
    "rollout.kuberik.com/force-deploy": "1.1.0",
    "rollout.kuberik.com/deploy-message": "why not",
    "rollout.kuberik.com/deploy-user": "amy",
}
MOST_CALLS = 40
MOST_CALLS_OF_A_STEP = 8
LATER = timedelta(seconds=2)
AFTER_BACK_OFF = timedelta(seconds=10)


async def play(bench: ReleaseBench, *, lags: bool = False) -> int:
    """Deploy, deploy by name past a closed gate, put drift right; return how often it died.

    With `lags` each process after a death begins by what was known before the last one acted.
    """
    deaths = await settle(bench, lags=lags)
    bench.api.add(kinds.ROLLOUT_GATES, "closed", {"rolloutRef": {"name": "app"}, "passing": False})
    bench.announce("1.1.0")
    deaths += await settle(bench, lags=lags)
    assert bench.history() == "1.0.0", "the gate is closed"
    bench.api.objects["rollouts", "app"]["metadata"]["annotations"] = dict(REQUESTED)
    bench.announce("1.2.0")
    deaths += await settle(bench, lags=lags)
    source = bench.api.objects["ocirepositories", "app"]
    source["spec"]["ref"]["tag"] = "0.9.0"
    deaths += await settle(bench, lags=lags)
    return deaths


async def settle(bench: ReleaseBench, *, lags: bool) -> int:
    """Let a process rest, or the ones after it."""
    deaths = 0
    while True:
        try:
            calls = await bench.rest()
            assert len(calls) <= MOST_CALLS_OF_A_STEP
        except Died:
            deaths += 1
            bench.restart()
            if lags:
                await VirtualClock().sleep(LATER)
                # A conflict, or what is read back, ends what it decides by an old state.
                await bench.step()
                await VirtualClock().sleep(AFTER_BACK_OFF)
        else:
            return deaths


def outcome(bench: ReleaseBench) -> dict[str, Any]:
    """Return what must not depend on deaths."""
    status = bench.status
    fields = ("id", "message", "triggeredBy", "bakeStatus")
    return {
        "history": [
            (one["version"]["tag"], *(one[field] for field in fields)) for one in status["history"]
        ],
        "tag": bench.tag,
        "ready": bench.condition().partition(":")[0],
        "annotations": bench.api.objects["rollouts", "app"]["metadata"].get("annotations", {}),
        "consumed": status.get("consumedIntents", []),
    }


@pytest.mark.parametrize("lags", [False, True], ids=["fresh", "stale"])
@pytest.mark.parametrize("die", ["dies_before", "dies_after"], ids=["unsent", "unanswered"])
@in_virtual_time
async def test_each_death_ends_the_same(die: str, lags: bool) -> None:
    """RELB-10, RELB-15, REL-01: at each call of a story, before it is sent or after its effect."""
    whole = ReleaseBench()
    await play(whole)
    expected = outcome(whole)
    assert [one[:3] for one in expected["history"]] == [
        ("1.1.0", 2, "why not"),
        ("1.0.0", 1, "Automatic deployment"),
    ]
    assert (expected["tag"], expected["annotations"]) == ("1.1.0", {})

    number = 0
    while True:
        bench = ReleaseBench()
        setattr(bench.api, die, number)
        if not await play(bench, lags=lags):
            break
        assert outcome(bench) == expected, number
        tags = [tag for tag, _ in itertools.groupby(bench.api.applied)]
        assert tags == ["1.0.0", "1.1.0"], number
        assert len(bench.api.deployed) == 2, f"{number}: each release is recorded once"
        number += 1
        assert number < MOST_CALLS
    assert number >= 8, "each call of the story"
