"""The judge of what must come to pass: histories that miss a bound, and that just keep it."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from rollout_operator.kube.api import MUTATING_WEBHOOKS, PODS, SECRETS, STATEFULSETS, Resource
from tests.judge.promises import Promises, Verdict
from tests.judge.verdict import find_violations
from tests.simulation.chronicle import PATHS, PREPARED, Chronicle, s

Story = Callable[[Chronicle], object]
# Faults end at 10 s, and the run more than an hour after that.
HEALED = Promises(healed_at=s(10), ended_at=s(5000))


def judge(story: Story, promises: Promises = HEALED, **zones: Any) -> Verdict:
    """Return what is said of a story that begins with a rollout to be done."""
    told = Chronicle()
    told.zones(**zones)
    story(told)
    return find_violations(told.history, promises)


def ids(verdict: Verdict) -> list[str]:
    """Return the ids of what is broken."""
    return [one.invariant for one in verdict.violations]


def roll(told: Chronicle, begin: float = 20, each: float = 3, letters: str = "abc") -> float:
    """Have every pod replaced, one after another; return when all is done."""
    at = begin
    for letter in letters:
        for ordinal in range(3):
            told.delete(at, f"zone-{letter}-{ordinal}")
            told.replace(at + each / 2, f"zone-{letter}-{ordinal}")
            at += each
        told.zone(at, f"zone-{letter}", current_revision="new", actor="operator-1")
    return at


def all_but_one_pod(told: Chronicle) -> None:
    roll(told, letters="ab")


def not_recorded(told: Chronicle) -> None:
    roll(told)
    told.zone(60, "zone-c", current_revision="old")


def one_not_ready(told: Chronicle) -> None:
    roll(told)
    told.pod(60, "zone-c-0", uid="zone-c-0@39.5", revision="new", ready=False)


def one_missing(told: Chronicle) -> None:
    roll(told)
    told.write(60, PODS, "zone-c-2", None)


def status_behind(told: Chronicle) -> None:
    roll(told)
    told.zone(60, "zone-c", generation=2)


@pytest.mark.parametrize(
    ("story", "broken", "says"),
    [
        pytest.param(lambda told: None, ["LI-01"], "outdated: zone-a-0", id="nothing happens"),
        pytest.param(roll, [], "", id="all is rolled"),
        pytest.param(all_but_one_pod, ["LI-01"], "zone-c: outdated", id="a zone is left"),
        pytest.param(not_recorded, ["LI-01"], "current revision old", id="not recorded"),
        pytest.param(one_not_ready, ["LI-01"], "not ready: zone-c-0", id="a pod is not ready"),
        pytest.param(one_missing, ["LI-01"], "not ready: zone-c-2", id="a pod is missing"),
        pytest.param(status_behind, ["LI-01"], "its status lags", id="a status lags"),
    ],
)
def test_every_group_comes_to_rest(story: Story, broken: list[str], says: str) -> None:
    """LI-01: all pods ready at the update revision, and that is the current one."""
    verdict = judge(story)

    assert ids(verdict) == broken
    assert says in "".join(one.text for one in verdict.violations)
    assert verdict.undetermined == ()


def test_it_comes_to_rest_in_time() -> None:
    """LI-01: nine batches of two seconds are 54 s, and 60 s more."""
    assert ids(judge(lambda told: roll(told, begin=97))) == []
    assert ids(judge(lambda told: roll(told, begin=104))) == ["LI-01"]


def test_time_counts_from_the_last_change_and_the_last_start() -> None:
    """LI-01: who changes the template, or comes up late, begins the time anew."""

    def changed(told: Chronicle) -> None:
        told.zone(100, "zone-a", generation=2, observed=2)
        roll(told, begin=110)

    def started(told: Chronicle) -> None:
        told.lived(5, "started")
        told.lived(100, "crashed")
        told.lived(101, "started")
        told.lived(102, "ready")
        roll(told, begin=110)

    assert ids(judge(changed)) == []
    assert ids(judge(started)) == []


def test_a_lost_event_costs_a_resync() -> None:
    """LI-02: five minutes more where an event was lost shortly before all healed, and no more."""

    def lost(begin: float) -> Story:
        def story(told: Chronicle) -> None:
            told.fault(9, "drop_event", "event 5 of pods: MODIFIED zone-a-0")
            roll(told, begin=begin)

        return story

    assert ids(judge(lost(390))) == []
    assert ids(judge(lost(410))) == ["LI-02"]
    assert ids(judge(lambda told: roll(told, begin=390))) == ["LI-01"]


def crash_looping(told: Chronicle) -> None:
    told.pod(1, "zone-a-1", ready=False)


def broken_at_the_new_revision(told: Chronicle) -> None:
    told.pod(21, "zone-a-0", uid="later", ready=False, revision="new")


def broken_and_paused(told: Chronicle) -> None:
    told.zone(1, "zone-a", paused="true")
    told.pod(2, "zone-a-0", ready=False)


def wrong_strategy(told: Chronicle) -> None:
    told.zone(1, "zone-b", strategy="RollingUpdate")


def paused_only(told: Chronicle) -> None:
    told.zone(1, "zone-a", paused="true")
    roll(told, letters="bc")


def test_broken_pods_do_not_hold_their_own_fix() -> None:
    """LI-10: an outdated pod that is not ready is replaced like the others, or rather before."""
    assert ids(judge(crash_looping)) == ["LI-10"]


def test_what_people_must_mend_is_no_fault_of_the_operator() -> None:
    """LI-01: a revision that never works is undetermined; a pause or a strategy is a wish."""
    for story in (broken_at_the_new_revision, broken_and_paused):
        verdict = judge(story)
        assert verdict.violations == ()
        assert "people have to mend it" in verdict.undetermined[0]
    for story in (wrong_strategy, paused_only):
        assert judge(story).is_clean


def test_without_healing_only_safety_is_judged() -> None:
    """2.3: while faults go on nothing has to come to pass."""
    assert judge(lambda told: None, Promises(ended_at=s(5000))).is_clean


def test_a_run_that_ends_early_is_undetermined() -> None:
    """LI-01: before its time nothing is late, and an hour of quiet takes an hour."""
    unrolled = judge(lambda told: None, replace(HEALED, ended_at=s(60)))
    rolled = judge(roll, replace(HEALED, ended_at=s(600)))

    assert unrolled.violations == ()
    assert "the run ended 64 s before it had to be at rest" in unrolled.undetermined[0]
    assert rolled.violations == ()
    assert "too soon to tell that it stays quiet" in rolled.undetermined[0]


def test_a_process_that_stays_down_is_undetermined() -> None:
    """LI-01: nobody was there to act."""

    def story(told: Chronicle) -> None:
        told.lived(1, "started")
        told.lived(2, "crashed")

    assert judge(story).undetermined == ("no process of the operator was up at the end",)


@pytest.mark.parametrize(
    ("verb", "resource", "at", "broken"),
    [
        pytest.param("patch", PODS, 3000, ["LI-01"], id="a note"),
        pytest.param("update", STATEFULSETS, 3000, ["LI-01"], id="a status"),
        pytest.param("patch", PODS, 100, [], id="while it settles"),
        pytest.param("update", SECRETS, 3000, [], id="a certificate"),
        pytest.param("patch", MUTATING_WEBHOOKS, 3000, [], id="a CA bundle"),
        pytest.param("get", PODS, 3000, [], id="a read"),
    ],
)
def test_nothing_is_written_at_rest(
    verb: Any, resource: Resource, at: float, broken: list[str]
) -> None:
    """LI-01, LI-11: an hour without writes, but for certificates, which have their own time."""

    def story(told: Chronicle) -> None:
        roll(told)
        told.call(at, verb, resource, "x")

    assert ids(judge(story)) == broken


def test_little_is_read_at_rest() -> None:
    """LI-11: six reads a minute, no more."""

    def reads(count: int) -> Story:
        def story(told: Chronicle) -> None:
            roll(told)
            for place in range(count):
                told.call(3000 + place / 10, "list", PODS)

        return story

    assert ids(judge(reads(6))) == []
    assert ids(judge(reads(7))) == ["LI-11"]


def left(told: Chronicle, at: float = 30) -> None:
    roll(told)
    told.prepare(at, "zone-c-2")


def told_to_stay(told: Chronicle) -> None:
    left(told)
    told.prepare(90, "zone-c-2", method="DELETE")


def not_heard(told: Chronicle) -> None:
    left(told)
    told.prepare(90, "zone-c-2", method="DELETE", acted=False, status=500)


def gone_since(told: Chronicle) -> None:
    left(told)
    told.replace(100, "zone-c-2")


def gone_and_told(told: Chronicle) -> None:
    gone_since(told)
    told.prepare(130, "zone-c-2", method="DELETE")


def gone_for(told: Chronicle, seconds: float, *, fault: str = "crash_loop") -> None:
    """A downscale is taken back, is made again before the new pod runs, and stands for a while."""
    gone_since(told)
    told.fault(101, fault)
    told.zone(110, "zone-c", replicas=2)
    told.write(110, PODS, "zone-c-2", None)
    told.zone(110 + seconds, "zone-c", replicas=3)
    told.pod(110 + seconds, "zone-c-2", uid="third", revision="new")


def scaled_away(told: Chronicle) -> None:
    left(told)
    told.zone(31, "zone-c", replicas=2)


@pytest.mark.parametrize(
    ("story", "broken"),
    [
        pytest.param(left, ["LI-05"], id="it stays, and does not know"),
        pytest.param(told_to_stay, [], id="it was told"),
        pytest.param(not_heard, ["LI-05"], id="it did not hear"),
        pytest.param(gone_since, ["LI-05"], id="another one has its name, and its disk"),
        pytest.param(gone_and_told, [], id="another one has its name, and was told"),
        pytest.param(scaled_away, [], id="it is not wanted any more"),
        pytest.param(partial(gone_for, seconds=59), ["LI-05"], id="it is soon wanted again"),
        pytest.param(partial(gone_for, seconds=60), [], id="it has been gone for a minute"),
        pytest.param(
            partial(gone_for, seconds=29, fault="clock_rate"), ["LI-05"], id="soon on any clock"
        ),
        pytest.param(
            partial(gone_for, seconds=30, fault="clock_rate"), [], id="a minute of a fast clock"
        ),
    ],
)
def test_no_pod_stays_prepared_that_stays(story: Story, broken: list[str]) -> None:
    """LI-05: who was told to go, and stays, is told so."""
    assert ids(judge(story, labels=PREPARED, annotations=PATHS)) == broken


def test_to_be_told_takes_its_time() -> None:
    """LI-05: while the downscale may still be written, and a minute after, nothing is late."""

    def story(told: Chronicle) -> None:
        left(told, 4950)

    verdict = judge(story, labels=PREPARED, annotations=PATHS)

    assert verdict.violations == ()
    assert verdict.undetermined == ("the run ended before zone-c-2 had to be told that it stays",)
