"""A process that dies at any call: the next one ends the same, and nothing is done twice."""

from collections.abc import Callable
from typing import Any

import pytest

from rollout_operator.kube import release_kinds as kinds
from tests.controllers.releases.bench import Died, ReleaseBench
from tests.virtual_time import in_virtual_time

ASKED = {
    "rollout.kuberik.com/force-deploy": "1.1.0",
    "rollout.kuberik.com/deploy-message": "why not",
    "rollout.kuberik.com/deploy-user": "amy",
}
ENTRY = ("message", "triggeredBy", "bakeStatus")
MOST_CALLS = 40


async def play(bench: ReleaseBench) -> int:
    """Deploy, deploy by name past a closed gate, put drift right; return how often it died."""
    bench.create()
    deaths = await settle(bench)
    bench.api.put(kinds.ROLLOUT_GATES, "closed", {"rolloutRef": {"name": "app"}, "passing": False})
    bench.announce("1.1.0")
    deaths += await settle(bench)
    assert bench.history() == "1.0.0", "the gate is closed"
    bench.api.objects["rollouts", "app"]["metadata"]["annotations"] = dict(ASKED)
    bench.announce("1.2.0")
    deaths += await settle(bench)
    source = bench.api.objects["ocirepositories", "app"]
    source["spec"]["ref"]["tag"] = "0.9.0"
    deaths += await settle(bench)
    return deaths


async def settle(bench: ReleaseBench) -> int:
    """Let a process rest, or the ones after it."""
    deaths = 0
    while True:
        try:
            await bench.rest()
        except Died:
            deaths += 1
            bench.restart()
        else:
            return deaths


def outcome(bench: ReleaseBench) -> dict[str, Any]:
    """Return what must not depend on deaths."""
    status = bench.status
    return {
        "history": [
            (
                one["id"],
                one["version"]["tag"],
                one["message"],
                one["triggeredBy"],
                one["bakeStatus"],
            )
            for one in status["history"]
        ],
        "tag": bench.tag,
        "ready": bench.condition().partition(":")[0],
        "annotations": bench.api.objects["rollouts", "app"]["metadata"].get("annotations", {}),
        "consumed": status.get("consumedIntents", []),
    }


def _before(bench: ReleaseBench, number: int) -> None:
    bench.api.dies_before = number


def _after(bench: ReleaseBench, number: int) -> None:
    bench.api.dies_after = number


@pytest.mark.parametrize("die", [_before, _after], ids=["unsent", "unanswered"])
@in_virtual_time
async def test_each_death_ends_the_same(die: Callable[[ReleaseBench, int], None]) -> None:
    """RELB-10, RELB-15, REL-01: at each call of a story, before it is sent or after its effect."""
    whole = ReleaseBench()
    await play(whole)
    expected = outcome(whole)
    assert [one[:3] for one in expected["history"]] == [
        (2, "1.1.0", "why not"),
        (1, "1.0.0", "Automatic deployment"),
    ]
    assert (expected["tag"], expected["annotations"]) == ("1.1.0", {})

    number = 0
    while True:
        bench = ReleaseBench()
        die(bench, number)
        if not await play(bench):
            break
        assert outcome(bench) == expected, number
        number += 1
        assert number < MOST_CALLS
    assert number >= 8, "each call of the story"
