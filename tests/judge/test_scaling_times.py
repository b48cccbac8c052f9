"""Times between downscales, and contests: histories that break a promise, or nearly do."""

import json
from collections.abc import Mapping
from datetime import timedelta
from itertools import accumulate

import pytest
from msgspec.structs import replace
from rollout_lab.world import EPOCH

from rollout_operator.kube.api import CONFIG_MAPS, STATEFULSETS
from rollout_operator.model.names import LAST_DOWNSCALE, LEADING_ZONE, MIN_TIME_BETWEEN_DOWNSCALES
from rollout_operator.model.units import format_rfc3339
from tests.judge.book import read_book
from tests.judge.builder import OPERATOR, PATHS, PREPARED, HistoryBuilder, s
from tests.judge.builder_objects import part_of
from tests.judge.histories import Events, as_events, cases
from tests.judge.promises import Promises
from tests.judge.rest import LIMIT, list_still
from tests.judge.test_scaling import FOLLOWS, HEALED, MIRRORS, Annotations, at_rest, judge, lead
from tests.judge.verdict import judge_book


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
    assert judge(lambda t: scaled_first(t).persist(20 + gap, "b"), waiting("1m")) == []


def say(t: HistoryBuilder, where: str, at: float, last: float | None, actor: str) -> HistoryBuilder:
    """Have an annotation, or the zone tracker, say when zone-a was scaled down last."""
    text = None if last is None else format_rfc3339(EPOCH + timedelta(seconds=last))
    if where == "garbage":
        return t.write(at, CONFIG_MAPS, "zone-tracker", {"data": {"zone-a": "{"}}, actor=actor)
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
    ("where", "written_at", "at", "broken"),
    [
        ("annotation", 150, 300, ["SI-11"]),
        ("annotation", 150, 699, []),
        ("annotation", 270, 300, []),
        ("tracker", 150, 300, ["SI-11"]),
        ("garbage", 150, 300, []),
    ],
)
def test_d66_a_time_that_a_person_wrote_lets_others_wait(
    where: str, written_at: float, at: float, broken: list[str]
) -> None:
    """D-66, SI-11: nothing was scaled down before; ten minutes from 100 s on, as far as known."""

    def events(t: HistoryBuilder) -> None:
        t.hooks(0, "prepare-downscale").zone(1, "b", labels=PREPARED, annotations=PATHS)
        say(t, where, written_at, 100, "carol").scale(at, "b")

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
    """LI-01, D-66: as far as the store says anything of the others."""
    t = stand_still()
    say(say(t, where, 21, 20, OPERATOR), where, 60, last, "carol")
    assert list_since(t, until) == ([60 if last is None else 620] if is_still else [])


def stand_still() -> HistoryBuilder:
    """Zone a was scaled down, b does not follow, and all is whole."""
    t = HistoryBuilder().zones(update_revision="old")
    t.zone(0, "b", annotations=waiting("10m")["b"])
    for name, replicas in (("a", 2), ("b", 3), ("c", 2)):
        t.zone(20, name, replicas=replicas, update_revision="old")
        status = part_of(t.objects[STATEFULSETS.plural, f"zone-{name}"], "status")
        status.update(replicas=replicas, availableReplicas=replicas, currentRevision="old")
    return t


def list_since(t: HistoryBuilder, until: float, slack: float = 0) -> list[float]:
    """Return since when zones stood still that are found to do so at the end, and at writes."""
    found = list_still(read_book(t.history, Promises(ended_at=s(until))), s(0), s(slack))
    return [(one.at - s(slack) - LIMIT).total_seconds() for one in found]


STILL: Mapping[str, tuple[Events, list[float]]] = {
    "nothing happens": (lambda t: t, [20]),
    "said once, however long it lasts": (
        lambda t: t.pod(700, "c-0").pod(900, "c-1", uid="other"), [20]
    ),
    "until something happens, and again": (
        lambda t: t.pod(700, "c-0").pod(950, "c-1", uid="other"), [20, 700]
    ),
    "a time that is written says nothing of before": (
        lambda t: say(t, "annotation", 700, 690, OPERATOR), [20]
    ),
    "its own time is written, which moves nothing": (
        lambda t: t.zone(200, "b", annotations={LAST_DOWNSCALE: "2026-01-02T03:04:05Z"}), [20]
    ),
    "a person forces it": (lambda t: t.force(30, "b", 3), []),
    "the zone that it follows has gone": (lambda t: t.write(30, STATEFULSETS, "a", None), []),
    "it is where it should be": (lambda t: lead(t, 30, 3), []),
    "a status lags": (lambda t: t.zone(30, "c", generation=2), []),
    "a rollout goes on": (lambda t: t.zone(30, "c", update_revision="new"), []),
    "a zone mirrors, and has pods to call": (lambda t: t.zone(30, "c", annotations=MIRRORS), []),
}  # fmt: skip


@pytest.mark.parametrize(("events", "since"), STILL.values(), ids=STILL)
def test_li01_what_stands_still(events: Events, since: list[float]) -> None:
    """LI-01: for four minutes, and as much more as lost events cost."""
    t = stand_still()
    events(t)
    assert list_since(t, 962) == since
    assert list_since(t, 962, slack=3600) == []


@pytest.mark.parametrize(
    ("at", "is_contested", "is_late"),
    [(60, False, False), (500, False, True), (500, True, False), (1500, True, True)],
)
def test_replicas_have_their_time(at: float, is_contested: bool, is_late: bool) -> None:
    """LI-01: a zone that follows may wait for the others, and for a contest, and no longer."""

    def events(t: HistoryBuilder) -> None:
        at_rest(t)
        if is_contested:
            contest(1, 1, since=11)(t)
        t.zone(15, "a", replicas=4)
        for letter in "abc":
            t.pod(15, f"{letter}-3")
        t.set_replicas(at, "b", 4).set_replicas(at + 1, "c", 4)

    found = judge(events, FOLLOWS, HEALED)
    assert "LI-01" in found if is_late else found == []


def test_replicas_may_be_wrong_at_an_early_end() -> None:
    """LI-01: it is not known yet."""
    t = at_rest(HistoryBuilder().zones(update_revision="old"))
    t.zone(0, "b", annotations=FOLLOWS["b"])
    verdict = judge_book(lead(t).history, replace(HEALED, ended_at=s(90)))
    (found,) = (one for one in verdict.undetermined if "counts" in one)
    assert found.endswith("before counts had to be right: zone-b has 3 replicas, zone-a wants 2")
    assert verdict.violations == ()


@as_events
def contest(t: HistoryBuilder, *gaps: float, since: float = 20) -> None:
    """Have zone-b go up as often, so many seconds apart, and be put back."""
    t.zone(10, "b", replicas=1)
    for at in accumulate((since, *gaps)):
        t.set_replicas(at, "b", 3, is_read=False).zone(at + 0.2, "b", replicas=1)


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
        "an answer lost long before -> LI-11": lambda t: contest(*[0.2] * 12)(t.fault(1, "lost")),
    }
)


@pytest.mark.parametrize(("events", "broken"), CONTESTS)
def test_li11_a_contest(events: Events, broken: list[str]) -> None:
    """Replicas that something else puts back are written again ever more seldom."""
    assert [one for one in judge(events) if one == "LI-11"] == broken
