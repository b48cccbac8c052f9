"""A process that dies at any call: the next one ends the same, and nothing is done twice."""

from itertools import count, groupby
from typing import Any, Final

import pytest
from rollout_lab.model.history import Called, Commit
from rollout_lab.network.faults import CrashPoint

from rollout_operator.kube.api import OCI_REPOSITORIES, ROLLOUTS
from tests.controllers.releases.stage import PassStage
from tests.virtual_time import in_virtual_time

# A deployment, one by name past a closed gate, and drift that is put right; after each, the next
# process where one has died.
SETTLE: Final = "20s; restart; 20s; restart; 20s"
STORY: Final = (
    f"given; run; {SETTLE}",
    f"gate closed app closed; announce 1.1.0; {SETTLE}",
    f"annotate force-deploy=1.1.0 deploy-message=why deploy-user=amy; announce 1.2.0; {SETTLE}",
    f"tag app 0.9.0; {SETTLE}",
)
MOST_CALLS: Final = 60


async def play(death: tuple[int, CrashPoint] | None, lag: str) -> tuple[PassStage, dict[str, Any]]:
    """Return what must not depend on deaths."""
    stage = PassStage()
    stage.trouble.death = death
    await stage.play([f"lag {lag} rollouts ocirepositories", *STORY])
    rollout = stage.get(ROLLOUTS, "app")
    fields = ("id", "message", "triggeredBy", "bakeStatus")
    return stage, {
        "history": [
            (one["version"]["tag"], *(one[field] for field in fields))
            for one in rollout["status"]["history"]
        ],
        "tag": stage.get(OCI_REPOSITORIES[0], "app")["spec"]["ref"]["tag"],
        "shown": {key: text for key, text in stage.shown.items() if key != "history"},
        "consumed": rollout["status"].get("consumedIntents", []),
    }


def list_applied(stage: PassStage) -> list[str]:
    """Return the tags that were written, each as often as another one came between."""
    calls = stage.world.sandbox.history.list_all(Called)
    bodies: list[Any] = [
        one.request.body
        for one in calls
        if one.request.content_type.startswith("application/apply-patch")
        and not one.request.query.get("dryRun")
    ]
    return [tag for tag, _ in groupby(body["spec"]["ref"]["tag"] for body in bodies)]


def list_deployed(stage: PassStage) -> set[tuple[int, str, str]]:
    """Return number, tag and time of each entry that the history ever had."""
    commits = stage.world.sandbox.history.list_all(Commit)
    rollouts: list[Any] = [one.after for one in commits if one.resource == ROLLOUTS]
    return {
        (one["id"], one["version"]["tag"], one["timestamp"])
        for body in rollouts
        for one in body.get("status", {}).get("history", ())
    }


@pytest.mark.thorough
@pytest.mark.parametrize("lag", ["0", "5"], ids=["fresh", "stale"])
@pytest.mark.parametrize("point", [CrashPoint.BEFORE_SEND, CrashPoint.AFTER_COMMIT])
@in_virtual_time
async def test_each_death_ends_the_same(point: CrashPoint, lag: str) -> None:
    """RELB-10, RELB-15, REL-01: at each call of a story, before it is sent or after its effect."""
    _, expected = await play(None, lag)
    assert [one[:3] for one in expected["history"]] == [
        ("1.1.0", 2, "why"),
        ("1.0.0", 1, "Automatic deployment"),
    ]
    assert expected["tag"] == "1.1.0"
    assert expected["shown"]["annotated"] == "none"

    for number in count(1):
        stage, found = await play((number, point), lag)
        if stage.trouble.calls < number:
            break
        assert found == expected, number
        assert list_applied(stage) == ["1.0.0", "1.1.0"], number
        assert len(list_deployed(stage)) == 2, f"{number}: each release is recorded once"
        assert number < MOST_CALLS
    assert number >= 8, "each call of the story"
