"""Times between downscales, and contests: histories that break a promise, or nearly do."""

import json
from datetime import timedelta
from itertools import accumulate

import pytest

from rollout_operator.kube.api import CONFIG_MAPS, STATEFULSETS
from rollout_operator.lab.world import EPOCH
from rollout_operator.model.names import LAST_DOWNSCALE, LEADING_ZONE, MIN_TIME_BETWEEN_DOWNSCALES
from rollout_operator.model.units import format_rfc3339
from tests.judge.book import read_book
from tests.judge.builder import OPERATOR, PATHS, PREPARED, Events, HistoryBuilder, cases, s
from tests.judge.builder_objects import part_of
from tests.judge.promises import Promises
from tests.judge.rest import list_still
from tests.judge.test_scaling import Annotations, judge, lead


def waiting(wait: str) -> Annotations:
    return {"b": {LEADING_ZONE: "zone-a", MIN_TIME_BETWEEN_DOWNSCALES: wait}}


def scaled_first(t: HistoryBuilder) -> HistoryBuilder:
    """Scale a guarded zone down at 20 s."""
    t.hooks(0, "prepare-downscale").zone(1, "a", labels=PREPARED, annotations=PATHS)
    return t.scale(20, "a")


@pytest.mark.parametrize(
    ("gap", "is_forced", "broken"),
    [
        pytest.param(59, False, ["SI-11"], id="too early"),
        pytest.param(61, False, [], id="in time"),
        pytest.param(59, True, [], id="SCALE-06 forced: at once"),
    ],
)
def test_zones_that_follow_keep_their_time(gap: float, is_forced: bool, broken: list[str]) -> None:
    """SI-11, SCALE-09: a zone that follows needs no webhook to wait for one that has one."""

    def events(t: HistoryBuilder) -> None:
        scaled_first(t)
        if is_forced:
            t.force(21, "b", 2)
        t.set_replicas(20 + gap, "b", 2)

    assert judge(events, waiting("1m")) == broken


def say(t: HistoryBuilder, where: str, at: float, last: float | None, actor: str) -> HistoryBuilder:
    """Have an annotation, or the zone tracker, say when zone-a was scaled down last."""
    text = None if last is None else format_rfc3339(EPOCH + timedelta(seconds=last))
    if where == "annotation":
        return t.zone(at, "a", annotations={LAST_DOWNSCALE: text}, actor=actor)
    entries = {} if text is None else {"zone-a": json.dumps({"lastDownscaled": text})}
    return t.write(at, CONFIG_MAPS, "zone-tracker", {"data": entries}, actor=actor)


@pytest.mark.parametrize("where", ["annotation", "tracker"])
@pytest.mark.parametrize(
    ("last", "actor", "broken"),
    [
        pytest.param(20, OPERATOR, ["SI-11"], id="nothing changed it"),
        pytest.param(-3600, "carol", [], id="set back by a person"),
        pytest.param(-500, "carol", ["SI-11"], id="not far enough"),
        pytest.param(None, OPERATOR, ["SI-11"], id="removed by the operator"),
    ],
)
def test_d66_what_a_person_makes_of_a_time_is_the_truth(
    where: str, last: float | None, actor: str, broken: list[str]
) -> None:
    """D-66, SI-11: b follows a minute after a, and ten are wanted."""

    def events(t: HistoryBuilder) -> None:
        say(scaled_first(t), where, 21, 20, OPERATOR)
        say(t, where, 40, last, actor).set_replicas(80, "b", 2)

    assert [one for one in judge(events, waiting("10m")) if one == "SI-11"] == broken


@pytest.mark.parametrize(
    ("last", "written_at", "broken"),
    [
        pytest.param(100, 150, ["SI-11"], id="a time that a person wrote"),
    ],
)
def test_d66_a_time_that_a_person_wrote_lets_others_wait(
    last: float, written_at: float, broken: list[str]
) -> None:
    """D-66, SI-11: nothing was scaled down before."""

    def events(t: HistoryBuilder) -> None:
        t.hooks(0, "prepare-downscale").zone(1, "b", labels=PREPARED, annotations=PATHS)
        say(t, "annotation", written_at, last, "carol").scale(300, "b")

    annotations = {"b": {MIN_TIME_BETWEEN_DOWNSCALES: "10m"}}
    assert [one for one in judge(events, annotations) if one == "SI-11"] == broken


@pytest.mark.parametrize(
    ("last", "until", "is_still"),
    [
        pytest.param(20, 610, False, id="a time in the store lets it wait"),
        pytest.param(20, 900, True, id="which has passed for minutes"),
        pytest.param(None, 400, True, id="cleared minutes ago"),
    ],
)
@pytest.mark.parametrize("where", ["annotation", "tracker"])
def test_li01_a_zone_that_nothing_lets_wait_does_not_stand_still(
    where: str, last: float | None, until: float, is_still: bool
) -> None:
    """LI-01, D-66: a was scaled down, b does not follow, and all is whole."""
    t = HistoryBuilder().zones(update_revision="old")
    t.zone(0, "b", annotations=waiting("10m")["b"])
    for name, replicas in (("a", 2), ("b", 3), ("c", 2)):
        t.zone(20, name, replicas=replicas, update_revision="old")
        status = part_of(t.objects[STATEFULSETS.plural, f"zone-{name}"], "status")
        status.update(replicas=replicas, availableReplicas=replicas, currentRevision="old")
    say(say(t, where, 21, 20, OPERATOR), where, 60, last, "carol")
    book = read_book(t.history, Promises(ended_at=s(until)))
    assert bool(list(list_still(book, s(0), s(0)))) is is_still


def contest(*gaps: float, since: float = 20) -> Events:
    """Have zone-b go up as often, so many seconds apart, and be put back."""

    def events(t: HistoryBuilder) -> None:
        t.zone(10, "b", replicas=1)
        for at in accumulate((since, *gaps)):
            t.set_replicas(at, "b", 3, is_read=False).zone(at + 0.2, "b", replicas=1)

    return events


def followed(t: HistoryBuilder) -> None:
    """The leading zone is scaled up and down, all the time."""
    for at in range(20, 60):
        lead(t, at, 5 if at % 2 else 3).set_replicas(at + 0.5, "b", 5 if at % 2 else 3)


def killed(t: HistoryBuilder) -> None:
    """A new process knows nothing of it."""
    contest(*[1] * 10)(t)
    contest(*[1] * 9, since=32)(t.lived(31, "crashed").lived(31, "started"))


def unanswered(t: HistoryBuilder) -> None:
    """The operator does not know that these were written."""
    for at in range(20, 60, 2):
        t.fault(at, "lost", "patch")
    contest(*[2] * 19)(t)


CONTESTS = cases(
    {
        "thirteen times -> LI-11": contest(*[0.2] * 12),
        "ever more seldom": contest(1, 1, 10, 20, 40, 80, 160, 300, 300),
        "every ten seconds for ten minutes -> LI-11": contest(*[10] * 70),
        "what stayed was accepted": contest(1, 900, 1, 900, 1),
        "by two processes, one after the other": killed,
        "answers lost": unanswered,
    }
)


@pytest.mark.parametrize(("events", "broken"), CONTESTS)
def test_li11_a_contest(events: Events, broken: list[str]) -> None:
    """Replicas that something else puts back are written again ever more seldom."""
    assert [one for one in judge(events) if one == "LI-11"] == broken
