"""Mirrored counts and what is published of them: T-04, MIRR-10, W-19, SEED-068, SEED-069."""

import dataclasses

import pytest

from rollout_operator.model.outcome import Code
from rollout_operator.model.scaling import ScalingSnapshot
from rollout_operator.planning.scaling.plan import plan_scaling
from tests.planning.scalings import SHOWN, outline_snapshot, read_snapshot
from tests.planning.tables import read_table

T04 = """
T-04.1 SEED-068 up: first the zone
  mirroring b 2; scale 5/2 | scale_up: b: 2 → 5
T-04.1 SEED-069 then the status
  mirroring b 5; scale 5/2 | publish 5 to DEMO
T-04.2 no write back: the zone
  mirroring b 2 write_back=false; scale 5/2 | scale_up: b: 2 → 5
T-04.2 and no status after it
  mirroring b 5 write_back=false; scale 5/2 | nothing
T-04.3 down
  mirroring b 3; scale 2/3 | scale_down: b: 3 → 2
T-04.3 and the status
  mirroring b 2; scale 2/3 | publish 2 to DEMO
T-04.4 the status only
  mirroring b 3; scale 3/5 | publish 3 to DEMO
T-04.5 nothing
  mirroring b 3 write_back=false; scale 3/5 | nothing
T-04.6 all as it should be
  mirroring b 3; scale 3/3 | nothing
T-04.9 one of three is behind
  a 4; mirroring b 5; mirroring c 5 write_back=true; mirroring d 2; scale 5/2 | scale_up: d: 2 → 5
T-04.9 W-19 one status for all three
  a 4; mirroring b 5; mirroring c 5 write_back=true; mirroring d 5; scale 5/2 | publish 5 to DEMO
T-04.10 two do not write back
  mirroring b 5 write_back=false; mirroring c 5 write_back=bad; mirroring d 2; scale 5/2
  | scale_up: d: 2 → 5
  | problem bad_scaling_switch zone-c: StatefulSet zone-c: annotation
    grafana.com/rollout-mirror-replicas-from-resource-write-back: "bad" is not a boolean; nothing is
    published of zone-c
T-04.10 the third does
  mirroring b 5 write_back=false; mirroring c 5 write_back=bad; mirroring d 5; scale 5/2
  | publish 5 to DEMO
  | problem bad_scaling_switch zone-c: StatefulSet zone-c: annotation
    grafana.com/rollout-mirror-replicas-from-resource-write-back: "bad" is not a boolean; nothing is
    published of zone-c
a status that is right is not published again
  mirroring b 5; mirroring c 5; scale 5/5 | nothing
"""


@pytest.mark.parametrize(("case", "expected"), read_table(T04, read_snapshot))
def test_t04_what_a_mirroring_zone_counts(case: ScalingSnapshot, expected: list[str]) -> None:
    assert outline_snapshot(case, short=True) == expected


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        pytest.param("going b 4; going c 5; scale 5/0", 4, id="up: the one that is behind"),
        pytest.param("going b 4; going c 3; scale 3/0", 4, id="down: the one that is behind"),
        pytest.param("going b 4; going c 6; scale 5/0", 4, id="as far from it: the smaller"),
        pytest.param("going b 5; going c 5; scale 5/0", 5, id="SEED-069 only when all have it"),
    ],
)
def test_w19_the_zone_that_is_furthest_is_published(case: str, expected: int) -> None:
    """They cannot move, as each is being deleted."""
    scaling = read_snapshot(case.replace("going", "going mirroring"))
    turned = dataclasses.replace(scaling.group, zones=scaling.group.zones[::-1])
    for one in (scaling, dataclasses.replace(scaling, group=turned)):
        assert [publish.replicas for publish in plan_scaling(one).publish] == [expected]


def test_seed069_what_was_written_counts_though_the_cache_does_not_show_it() -> None:
    (publish,) = plan_scaling(read_snapshot("mirroring b 2; scale 5/2; written b 5")).publish

    assert (publish.replicas, publish.reason.code) == (5, Code.SCALE_PUBLISHED)
    assert publish.reason.text == f"{SHOWN}: status.replicas 2 → 5, as zone-b has; 5 wanted"


@pytest.mark.parametrize(
    ("own", "other", "expected"),
    [
        pytest.param("b 3; scale 3/5", "mirroring x 5", [], id="another is behind"),
        pytest.param("b 3; scale 3/3", "mirroring x 5", [5], id="and was not shown"),
        pytest.param("b 3; scale 3/5", "mirroring x 3", [3], id="all are there"),
        pytest.param("b 3; scale 3/5", "x 5", [3], id="one mirrors nothing"),
        pytest.param("b 3; scale 3/5", "mirroring x 5 name=other", [3], id="another object"),
        pytest.param("b 3; scale 3/5", "mirroring x 5 write_back=false", [3], id="not published"),
        pytest.param("b 3 write_back=false; scale 3/3", "mirroring x 5", [], id="nothing of ours"),
    ],
)
def test_w19_zones_of_other_groups_have_a_part_in_the_status(
    own: str, other: str, expected: list[int]
) -> None:
    elsewhere = tuple(zone.sts for zone in read_snapshot(other).group.zones)
    scaling = dataclasses.replace(read_snapshot(f"mirroring {own}"), elsewhere=elsewhere)
    plan = plan_scaling(scaling)

    assert [publish.replicas for publish in plan.publish] == expected
    assert plan.scale == (), "their counts are no business of ours"
