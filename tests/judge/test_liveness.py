"""What must come to pass, and how much is requested: histories that miss a bound, or keep it."""

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from rollout_operator.kube.api import MUTATING_WEBHOOKS, PODS, STATEFULSETS, Resource
from tests.judge.builder import OPERATOR, PATHS, PREPARED, HistoryBuilder, s
from tests.judge.histories import Events, as_events, cases, list_broken
from tests.judge.promises import Promises, Verdict
from tests.judge.verdict import judge_book

# Faults end at 10 s, and the run more than an hour after that.
HEALED = Promises(healed_at=s(10), ended_at=s(5000))


def judge(events: Events, promises: Promises = HEALED, **zones: Any) -> Verdict:
    """Return what is said of events that begin with a rollout to be done."""
    t = HistoryBuilder().zones(**zones)
    events(t)
    return judge_book(t.history, promises)


def ids(verdict: Verdict) -> list[str]:
    return [one.invariant for one in verdict.violations]


def roll(t: HistoryBuilder, begin: float = 20, letters: str = "abc") -> HistoryBuilder:
    """Have every pod replaced, one after another, three seconds each."""
    at = begin
    for letter in letters:
        for ordinal in range(3):
            t.delete(at, f"{letter}-{ordinal}").replace(at + 1.5, f"{letter}-{ordinal}")
            at += 3
        t.zone(at, letter, current_revision="new", actor=OPERATOR)
    return t


RESTS: Mapping[str, tuple[Events, str]] = {
    "nothing happens -> LI-01": (lambda t: t, "outdated: zone-a-0"),
    "all is rolled": (roll, ""),
    "a pod is not ready -> LI-01": (
        lambda t: roll(t).pod(60, "c-0", uid="zone-c-0@39.5", revision="new", ready=False),
        "not ready: zone-c-0",
    ),
    "a status lags -> LI-01": (lambda t: roll(t).zone(60, "c", generation=2), "its status lags"),
    "LI-10 an outdated pod is broken -> LI-10": (
        lambda t: t.pod(1, "a-1", ready=False), "outdated"
    ),
    "a revision that never works": (
        lambda t: t.pod(21, "a-0", uid="later", ready=False, revision="new"),
        "people have to mend it",
    ),
    "a broken pod in a paused zone": (
        lambda t: t.zone(1, "a", paused="true").pod(2, "a-0", ready=False), "people have to mend it"
    ),
    "a strategy": (lambda t: t.zone(1, "b", strategy="RollingUpdate"), ""),
    "a pause": (lambda t: roll(t.zone(1, "a", paused="true"), letters="bc"), ""),
    "a process that stays down": (
        lambda t: t.lived(1, "started").lived(2, "crashed"),
        "no process of the operator was up at the end",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("name", "row"), RESTS.items(), ids=RESTS)
def test_every_group_comes_to_rest(name: str, row: tuple[Events, str]) -> None:
    """LI-01, LI-10: all pods ready at the update revision, and that is the current one.

    What people have to mend first is undetermined, or a wish of theirs.
    """
    (events, says), broken = row, name.partition(" -> ")[2].split()
    verdict = judge(events)
    assert ids(verdict) == broken
    assert says in f"{verdict}"
    assert bool(verdict.undetermined) is (bool(says) and not broken)


@pytest.mark.parametrize(
    ("events", "promises", "says"),
    [
        (lambda t: None, Promises(ended_at=s(5000)), ""),
        (lambda t: None, replace(HEALED, ended_at=s(60)), "64 s before it had to be at rest"),
        (roll, replace(HEALED, ended_at=s(600)), "too soon to tell that it stays quiet"),
    ],
    ids=["faults go on", "an early end", "an hour of quiet takes an hour"],
)
def test_what_is_not_known_yet(events: Events, promises: Promises, says: str) -> None:
    verdict = judge(events, promises)
    assert says in "".join(verdict.undetermined[:1])
    assert verdict.violations == ()
    assert verdict.is_clean is (not says)


def restarted(t: HistoryBuilder) -> HistoryBuilder:
    return t.lived(5, "started").lived(100, "crashed").lived(101, "started").lived(102, "ready")


def lost(t: HistoryBuilder) -> HistoryBuilder:
    return t.fault(9, "drop_event", "event 5 of pods: MODIFIED zone-a-0")


TIMES = cases(
    {
        "LI-01 114 s": lambda t: roll(t, 97),
        "LI-01 nine batches of 2 s are 54 s, and 60 more -> LI-01": lambda t: roll(t, 104),
        "LI-01 since a process was ready": lambda t: roll(restarted(t), 110),
        "LI-02 five minutes more, as an event was lost": lambda t: roll(lost(t), 390),
        "LI-02 and no more -> LI-02": lambda t: roll(lost(t), 410),
        "LI-02 not without it -> LI-01": lambda t: roll(t, 390),
    }
)


@as_events
def reads(t: HistoryBuilder, many: int) -> None:
    roll(t)
    for place in range(many):
        t.call(3000 + place / 10, "list", PODS)


def written(verb: Any, resource: Resource) -> Events:
    return lambda t: roll(t).call(3000, verb, resource, "x")


def settled(t: HistoryBuilder, at: float) -> HistoryBuilder:
    """Have all rolled by 47 s, and something written later."""
    return roll(t).call(at, "patch", PODS, "a-0")


QUIET = cases(
    {
        "a record -> LI-01": written("patch", PODS),
        "a CA bundle": written("patch", MUTATING_WEBHOOKS),
        "a read": written("get", PODS),
        "seven reads in a minute -> LI-11": reads(7),
        "LI-02 minutes after rest, as an event was lost": lambda t: settled(lost(t), 300),
        "LI-02 and no later -> LI-01": lambda t: settled(lost(t), 500),
        "LI-03 a minute later, as streams were cut": lambda t: settled(
            t.fault(9, "partition"), 190
        ),
        "LI-03 not without it -> LI-01": lambda t: settled(t, 190),
        "after the last review": lambda t: settled(t.review(200, "a"), 290),
        "after a dry run -> LI-01": lambda t: settled(t.review(200, "a", dry_run=True), 290),
        "after an eviction in vain": lambda t: settled(
            t.request_eviction(200, "a-0", status=429), 290
        ),
    }
)
"""LI-01, LI-11: an hour without writes, but for certificates, which have their own time."""


def left(t: HistoryBuilder, at: float = 30) -> HistoryBuilder:
    return roll(t).prepare(at, "c-2")


@as_events
def gone_for(t: HistoryBuilder, seconds: float, fault: str = "crash_loop") -> None:
    """A downscale is reverted, is made again before the new pod runs, and stands for a while."""
    left(t).replace(100, "c-2").fault(101, fault)
    t.zone(110, "c", replicas=2).gone(110, "c-2").zone(110 + seconds, "c", replicas=3)
    t.pod(110 + seconds, "c-2", uid="third", revision="new")


LEFT = cases(
    {
        "it stays, and does not know -> LI-05": left,
        "it was un-prepared": lambda t: left(t).prepare(90, "c-2", method="DELETE"),
        "it did not act on it -> LI-05": lambda t: left(t).prepare(
            90, "c-2", method="DELETE", acted=False, status=500
        ),
        "another one has its name, and its disk -> LI-05": lambda t: left(t).replace(100, "c-2"),
        "a process has begun since: the debt died with the one before": lambda t: (
            left(t.lived(1, "started"))
            .lived(90, "crashed")
            .lived(91, "started")
            .replace(100, "c-2")
        ),
        "the set has gone": lambda t: left(t).write(31, STATEFULSETS, "c", None),
        "the set has gone, and is made anew with the pod -> LI-05": lambda t: (
            left(t).write(31, STATEFULSETS, "c", None).zone(40, "c", current_revision="new")
        ),
        "the set has gone, and is made anew with another pod": lambda t: (
            left(t)
            .write(31, STATEFULSETS, "c", None)
            .zone(40, "c", current_revision="new")
            .replace(100, "c-2")
        ),
        "it is not wanted any more": lambda t: left(t).zone(31, "c", replicas=2),
        "it is soon wanted again -> LI-05": gone_for(59),
        "a minute of a fast clock": gone_for(30, "clock_rate"),
    }
)


@pytest.mark.parametrize(("events", "broken"), LEFT)
def test_no_pod_stays_prepared_that_stays(events: Events, broken: list[str]) -> None:
    """LI-05: a pod that was prepared, and stays, is un-prepared."""
    assert ids(judge(events, labels=PREPARED, annotations=PATHS)) == broken


def test_calls_that_a_pod_stays_take_their_time() -> None:
    """LI-05: while the downscale may still be written, and a minute after, nothing is late."""
    verdict = judge(lambda t: left(t, 4950), labels=PREPARED, annotations=PATHS)

    assert verdict.violations == ()
    assert verdict.undetermined == ("the run ended before zone-c-2 had to be told that it stays",)
    back: Events = lambda t: left(t).replace(60, "c-2")  # noqa: E731 (a case like others)
    for ended_at, broken in ((105, []), (107, ["LI-05"])):
        soon = replace(HEALED, ended_at=s(ended_at))
        assert ids(judge(back, soon, labels=PREPARED, annotations=PATHS)) == broken


def test_a_group_that_is_broken_is_no_excuse_for_others() -> None:
    """LI-09: people have to mend the one, and the other is not at rest."""
    broken: Events = lambda t: t.zones(letters="d", group="store").pod(  # noqa: E731
        21, "a-0", uid="later", ready=False, revision="new"
    )
    verdict = judge(broken)
    assert ids(verdict) == ["LI-01"]
    assert "zone-d: outdated" in verdict.violations[0].text
    assert "people have to mend it" in verdict.undetermined[0]


def steady(t: HistoryBuilder, since: float, a_minute: int, minutes: int) -> HistoryBuilder:
    for number in range(a_minute * minutes):
        t.call(since + number * 60 / a_minute, "list", PODS)
    return t


def in_two_groups(t: HistoryBuilder) -> None:
    for number in range(300):
        t.call(10 + number / 5, "list", PODS).call(10 + number / 5, "list", STATEFULSETS)


def watched_often(t: HistoryBuilder) -> None:
    for number in range(500):
        t.call(10 + number / 10, "watch", PODS)


AMOUNTS = cases(
    {
        "more than they say -> LI-11": lambda t: steady(t, 10, 3_300, 1),
        "each API group counts for itself": in_two_groups,
        "watches are free": watched_often,
        "many reads for minutes and no write -> LI-11": lambda t: steady(t, 10, 60, 7),
        "what fails is tried twice a minute": lambda t: steady(t, 10, 30, 20),
    }
)


@pytest.mark.parametrize(("events", "broken"), AMOUNTS)
def test_a_process_requests_a_bounded_amount(events: Events, broken: list[str]) -> None:
    """LI-11, D-65: at rest, while something fails, and under contention."""
    t = HistoryBuilder().zones()
    events(t)
    assert list_broken(t) == broken


@pytest.mark.parametrize(("events", "broken"), [*TIMES, *QUIET])
def test_rest_is_judged(events: Events, broken: list[str]) -> None:
    """Each history breaks what its name says; of which promises it is, stands below its table."""
    assert ids(judge(events)) == broken
