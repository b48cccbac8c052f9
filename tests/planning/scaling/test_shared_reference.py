"""An object that zones of several groups mirror: one status of them all (W-19, MIRR-10)."""

import dataclasses
from collections.abc import Sequence

import pytest

from rollout_operator.model.group import Zone
from rollout_operator.planning.scaling.plan import plan_scaling
from tests.planning.scalings import counted, mirroring, view


@pytest.mark.parametrize(
    ("own", "others", "scale", "expected"),
    [
        pytest.param([mirroring("b", 3)], [mirroring("x", 5)], "3/5", [], id="another is behind"),
        pytest.param([mirroring("b", 3)], [mirroring("x", 5)], "3/3", [5], id="and was not shown"),
        pytest.param([mirroring("b", 3)], [mirroring("x", 3)], "3/5", [3], id="all are there"),
        pytest.param([mirroring("b", 3)], [counted("x", 5)], "3/5", [3], id="one mirrors nothing"),
        pytest.param(
            [mirroring("b", 3)], [mirroring("x", 5, name="other")], "3/5", [3], id="another object"
        ),
        pytest.param(
            [mirroring("b", 3)], [mirroring("x", 5, write_back="false")], "3/5", [3],
            id="one is not published",
        ),
        pytest.param(
            [mirroring("b", 3, write_back="false")], [mirroring("x", 5)], "3/3", [],
            id="nothing of ours is",
        ),
    ],
)  # fmt: skip
def test_w19_zones_of_other_groups_have_a_part_in_the_status(
    own: Sequence[Zone], others: Sequence[Zone], scale: str, expected: list[int]
) -> None:
    scaling = view(*own, scale=scale)
    elsewhere = tuple(zone.sts for zone in others)

    plan = plan_scaling(dataclasses.replace(scaling, elsewhere=elsewhere))

    assert [one.replicas for one in plan.publish] == expected
    assert plan.scale == (), "their counts are no business of ours"
