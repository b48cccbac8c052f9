"""The judge of times that people rewrite (D-66): in the annotation, or in the zone tracker."""

import json
from datetime import timedelta
from typing import Final

import pytest

from rollout_operator.kube.api import CONFIG_MAPS, STATEFULSETS
from rollout_operator.lab.model.fields import child
from rollout_operator.lab.world import EPOCH
from rollout_operator.model.names import LAST_DOWNSCALE, LEADING_ZONE, MIN_TIME_BETWEEN_DOWNSCALES
from rollout_operator.model.units import format_rfc3339
from tests.judge.book import read_book
from tests.judge.promises import Promises
from tests.judge.rest import find_still
from tests.simulation.chronicle import OPERATOR, PATHS, PREPARED, Chronicle, s
from tests.simulation.chronicle_downscales import scale
from tests.simulation.chronicle_scaling import judge, write
from tests.simulation.scenarios_people import ZONE_TRACKER

FOLLOWER: Final = {LEADING_ZONE: "zone-a", MIN_TIME_BETWEEN_DOWNSCALES: "10m"}
WAITING: Final = {"zone-b": FOLLOWER}


def moment(at: float) -> str:
    return format_rfc3339(EPOCH + timedelta(seconds=at))


def note(told: Chronicle, at: float, last: float | None, **how: str) -> None:
    """Have the annotation of zone-a say when it was scaled down."""
    text = None if last is None else moment(last)
    told.zone(at, "zone-a", annotations={LAST_DOWNSCALE: text}, **how)


def enter(told: Chronicle, at: float, last: float | None, **how: str) -> None:
    """Have the zone tracker say it."""
    entries = {} if last is None else {"zone-a": json.dumps({"lastDownscaled": moment(last)})}
    told.write(at, CONFIG_MAPS, ZONE_TRACKER, {"data": entries}, **how)


@pytest.mark.parametrize("record", [note, enter], ids=["annotation", "tracker"])
@pytest.mark.parametrize(
    ("last", "by", "broken"),
    [
        pytest.param(20, OPERATOR, ["SI-11"], id="nobody changed it"),
        pytest.param(None, "carol", [], id="removed by a person"),
        pytest.param(-3600, "carol", [], id="set back by a person"),
        pytest.param(-500, "carol", ["SI-11"], id="not far enough"),
        pytest.param(None, OPERATOR, ["SI-11"], id="removed by the operator"),
    ],
)
def test_d66_what_a_person_makes_of_a_time_is_the_truth(
    record: object, last: float | None, by: str, broken: list[str]
) -> None:
    """D-66, SI-11: b follows a minute after a, and ten are wanted."""
    assert callable(record)

    def story(told: Chronicle) -> None:
        told.hooks(0, "prepare-downscale")
        told.zone(1, "zone-a", labels=PREPARED, annotations=PATHS)
        scale(told, 20, "zone-a")
        record(told, 21, 20, actor=OPERATOR)
        record(told, 40, last, actor=by)
        write(told, 80, "zone-b", 2)

    assert [one for one in judge(story, WAITING) if one == "SI-11"] == broken


@pytest.mark.parametrize(
    ("last", "written_at", "broken"),
    [
        pytest.param(100, 150, ["SI-11"], id="a time that a person wrote"),
        pytest.param(100, 290, [], id="only just before"),
        pytest.param(-400, 150, [], id="one of long ago"),
    ],
)
def test_d66_a_time_that_a_person_wrote_lets_others_wait(
    last: float, written_at: float, broken: list[str]
) -> None:
    """D-66, SI-11: nothing was scaled down before."""

    def story(told: Chronicle) -> None:
        told.hooks(0, "prepare-downscale")
        told.zone(1, "zone-b", labels=PREPARED, annotations=PATHS)
        note(told, written_at, last, actor="carol")
        scale(told, 300, "zone-b")

    notes = {"zone-b": {MIN_TIME_BETWEEN_DOWNSCALES: "10m"}}
    assert [one for one in judge(story, notes) if one == "SI-11"] == broken


def settled(told: Chronicle, at: float, name: str, replicas: int) -> None:
    """Have a zone of so many replicas come to rest."""
    told.zone(at, name, replicas=replicas, update_revision="old")
    status = child(told.objects[STATEFULSETS.plural, name], "status")
    status.update(replicas=replicas, availableReplicas=replicas, currentRevision="old")


@pytest.mark.parametrize(
    ("last", "until", "is_still"),
    [
        pytest.param(20, 610, False, id="a time in the store lets it wait"),
        pytest.param(20, 900, True, id="which has passed for minutes"),
        pytest.param(None, 300, False, id="cleared a moment ago"),
        pytest.param(None, 400, True, id="cleared minutes ago"),
    ],
)
@pytest.mark.parametrize("record", [note, enter], ids=["annotation", "tracker"])
def test_li01_a_zone_that_nothing_lets_wait_does_not_stand_still(
    record: object, last: float | None, until: float, is_still: bool
) -> None:
    """LI-01, D-66: a was scaled down, b does not follow, and all is whole."""
    assert callable(record)
    told = Chronicle()
    told.zones(update_revision="old")
    told.zone(0, "zone-b", annotations=FOLLOWER)
    settled(told, 20, "zone-a", 2)
    settled(told, 20, "zone-b", 3)
    settled(told, 20, "zone-c", 2)
    record(told, 21, 20, actor=OPERATOR)
    record(told, 60, last, actor="carol")
    book = read_book(told.history, Promises(ended_at=s(until)))
    assert bool(list(find_still(book, s(0), s(0)))) is is_still
