"""Whole rollouts and downscales as traces: what the operator does is reviewed as a diff of these.

`pytest --update-golden` writes them anew.
"""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

import pytest
from rollout_lab.model.fields import children, number, text
from rollout_lab.model.history import Called, Commit, Fault, Lived, PodCalled
from rollout_lab.network.faults import Failure, FaultDecision
from rollout_lab.trace.trace import WIDTH, trace_hash

from rollout_operator.kube.api import ROLLOUTS
from tests.goldens import Golden
from tests.judge.book import list_deletes
from tests.simulation import (
    traces_downscales,
    traces_drains,
    traces_policies,
    traces_releases,
    traces_rollouts,
)
from tests.simulation.traces import Director, GoldenScenario, GoldenTrace, Mishap, play_scenario

FOLDER: Final = Path(__file__).parents[1] / "golden"
TRACES: Final = (
    *traces_rollouts.TRACES,
    *traces_rollouts.FAULT_TRACES,
    *traces_downscales.TRACES,
    *traces_downscales.SCALING_TRACES,
    *traces_drains.TRACES,
    *traces_policies.TRACES,
    *traces_releases.TRACES,
)
BY_NAME: Final = {scenario.name: scenario for scenario in TRACES}


@cache
def play(name: str) -> GoldenTrace:
    """Play a story once for all that is checked of it."""
    return play_scenario(BY_NAME[name])


@pytest.mark.parametrize("name", BY_NAME)
def test_the_trace_is_as_it_was(name: str, golden: Golden) -> None:
    """It broke no invariant, as far as the judge of the random schedules can see.

    No line is wider than a page, and no sentence is broken off.
    """
    trace = play(name)
    lines = trace.text.splitlines()

    assert trace.verdict.is_clean, trace.verdict
    assert max(map(len, lines)) <= WIDTH
    assert not [line for line in lines if line.endswith((" ", "..."))]
    assert "nothing follows" in lines[-1]
    golden.check(FOLDER / f"{name}.txt", trace.text)


def test_each_trace_has_its_file_and_each_file_its_trace() -> None:
    files = {path.name for path in FOLDER.iterdir()}

    assert len(BY_NAME) == len(TRACES)
    assert files == {f"{scenario.name}.txt" for scenario in TRACES}


@pytest.mark.parametrize("name", ["crash-after-delete", "two-downscales-at-once"])
def test_the_same_scenario_gives_the_same_trace_twice(name: str) -> None:
    """To the last call, not only to what a reader is shown."""
    first, second = play(name), play_scenario(BY_NAME[name])

    assert first.text == second.text
    assert trace_hash(first.history) == trace_hash(second.history)


def list_pods(letters: str, pods: int = 3) -> list[str]:
    return [f"zone-{letter}-{number}" for letter in letters for number in range(pods)]


ZONES: Final = [f"web-{letter}-0" for letter in "abc"]


@pytest.mark.parametrize(
    ("name", "deleted"),
    [
        pytest.param("plain-rollout", list_pods("abc"), id="each pod once, zone after zone"),
        pytest.param("two-pods-at-a-time", list_pods("ab", 5), id="each once with a limit of 2"),
        pytest.param(
            "bad-revision-then-fix",
            ["zone-a-0", *list_pods("abc")],
            id="the broken pod alone, and first after the fix",
        ),
        pytest.param(
            "rollback-in-the-middle",
            [*list_pods("a"), "zone-b-0", "zone-b-1", "zone-b-1", *list_pods("a"), "zone-b-0"],
            id="only what had the new version goes back",
        ),
        pytest.param("paused-zone", list_pods("acb"), id="the paused zone last"),
        pytest.param("crash-after-delete", list_pods("ab"), id="no pod twice after a crash"),
        pytest.param("lost-answer", list_pods("ab"), id="no pod twice after a lost answer"),
        pytest.param("refused-by-another-webhook", [], id="the controller deletes, not we"),
        pytest.param("drain-in-a-rollout", list_pods("ab"), id="each once, beside a drain"),
        pytest.param("drain-by-partition", [], id="people evict, not we"),
        pytest.param(
            "policy-with-pauses",
            [f"db-{letter}-{ordinal}" for letter in "cab" for ordinal in (1, 0)],
            id="in the order of the policy, the highest ordinal first",
        ),
        pytest.param("first-release", [], id="the zones have the first release already"),
        pytest.param("gated-release", ZONES, id="each zone once for one of two versions"),
        pytest.param("failed-bake", 2 * ZONES, id="each zone for the version after it as well"),
        pytest.param("retried-release", ZONES, id="no pod for a retry"),
        pytest.param("rolled-back-release", 3 * ZONES, id="there, back, and to the next"),
        pytest.param("release-after-the-night", ZONES, id="each zone once, in the morning"),
    ],
)
def test_the_trace_shows_what_it_says(name: str, deleted: Sequence[str]) -> None:
    """A file that is updated without being read fails here."""
    assert list_deletes(play(name).history) == deleted


def list_deployed(name: str) -> list[str]:
    """Return what the Rollout of a scenario deployed, in order, and how each ended."""
    statuses: dict[int, str] = {}
    for commit in play(name).history.list_all(Commit):
        if commit.resource == ROLLOUTS and commit.after is not None:
            for entry in children(commit.after, "status", "history"):
                shown = f"{text(entry, 'version', 'tag')} {text(entry, 'bakeStatus')}"
                statuses[number(entry, "id")] = shown
    return list(statuses.values())


def test_each_release_ends_as_its_title_says() -> None:
    """REL-44, REL-60, REL-76, REL-80, RELB-24: the examples of releases, each to its end."""
    first, second = "1.0.0 Succeeded", "1.1.0 Failed"
    assert list_deployed("first-release") == [first]
    assert list_deployed("gated-release") == [first, "1.2.0 Succeeded"]
    assert list_deployed("failed-bake") == [first, second, "1.2.0 Succeeded"]
    assert list_deployed("retried-release") == [first, "1.1.0 Succeeded"]
    assert list_deployed("rolled-back-release") == [first, second, first, "1.2.0 Succeeded"]
    assert list_deployed("release-after-the-night") == [first, "1.1.0 Succeeded"]


def list_requested(name: str) -> list[tuple[str, str]]:
    """Return the calls to the pods of a scenario."""
    calls = play(name).history.list_all(PodCalled)
    return [(call.method, call.pod) for call in calls]


def test_pods_are_called_only_for_what_holds() -> None:
    """A dry run and a refusal call no pod; un-prepares reach them as well."""
    called, stays = ("POST", "zone-b-2"), ("DELETE", "zone-b-2")

    assert list_requested("forbidden-downscale-and-dry-run") == [called]
    assert list_requested("refused-by-another-webhook") == [called, stays, called]
    assert list_requested("two-downscales-at-once") == [("POST", "zone-a-2"), called]


def list_evicted(name: str) -> list[str]:
    """Return the pods of a scenario that were evicted, in order."""
    return [
        one.request.name
        for one in play(name).history.list_all(Called)
        if one.request.subresource == "eviction" and one.status == 201
    ]


def test_evicted_pods_take_their_turns() -> None:
    """One zone after the other by zone, one pod after its peer by partition; never on a doubt."""
    assert list_evicted("drain-in-a-rollout") == ["zone-a-0", "zone-a-2"]
    assert list_evicted("drain-by-partition") == ["zone-a-0", "zone-a-2", "zone-b-0", "zone-b-2"]
    assert list_evicted("native-budget-refuses") == ["zone-b-0"]
    assert list_evicted("crash-after-grant") == ["zone-b-0"]


def test_the_mishap_of_a_scenario_happens_once() -> None:
    trace = play("crash-after-delete")

    assert [fault.kind for fault in trace.history.list_all(Fault)] == ["crash"]
    steps = [one.what for one in trace.history.list_all(Lived)]
    assert steps == ["started", "ready", "crashed", "started", "ready", "killed"]


def make_scenario(mishap: Mishap | None = None, image: str = "v2") -> GoldenScenario:
    """Return a scenario that changes the templates of two small zones."""

    async def play(director: Director) -> None:
        await director.roll(image)
        await director.until_rolled()

    zones = traces_rollouts.zones("ab", pods=1)
    return GoldenScenario(
        name="small", title="Small", about="-", zones=zones, play=play, mishap=mishap
    )


def test_a_mishap_that_never_comes_is_an_error() -> None:
    """Else a trace of a crash could turn into one of a plain rollout, unnoticed by who updates."""
    outcome = FaultDecision(fails=Failure.TIMEOUT)
    mishap = Mishap(verb="delete", pod="zone-c-0", outcome=outcome, kind="timeout", text="-")

    with pytest.raises(AssertionError, match=r"zone-c-0.* never came"):
        play_scenario(make_scenario(mishap))


def test_a_scenario_that_never_rests_is_an_error() -> None:
    with pytest.raises(AssertionError, match="waited in vain for all zones rolled out"):
        play_scenario(make_scenario(image="bad"))


def test_a_trace_has_a_title_and_an_end() -> None:
    trace: GoldenTrace = play_scenario(make_scenario())
    lines = trace.text.splitlines()

    assert lines[:3] == ["Small", "=====", "-"]
    assert lines[-1] == (
        "At rest after 12s, and nothing follows in the next ten minutes. "
        "Deleted by the operator: 2 pods."
    )
