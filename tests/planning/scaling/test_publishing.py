"""Mirrored counts and what is published of them: T-04, MIRR-10, W-19, SEED-068, SEED-069."""

from collections.abc import Sequence
from typing import Final

import pytest

from rollout_operator.model.group import Zone
from rollout_operator.model.names import (
    MIRROR_WRITE_BACK,
)
from rollout_operator.model.outcome import Code
from rollout_operator.planning.scaling.plan import plan_scaling
from tests.planning.scalings import (
    SHOWN,
    changed,
    counted,
    mirroring,
    show,
    view,
)


def up(letter: str, change: str) -> str:
    return f"scale_up: zone-{letter} mirrors {SHOWN}: {change}"


def down(letter: str, change: str) -> str:
    return f"scale_down: zone-{letter} mirrors {SHOWN}: {change}"


def published(replicas: int) -> str:
    return f"publish {replicas} to {SHOWN}"


BAD_WRITE_BACK: Final = (
    f"problem bad_scaling_switch zone-c: StatefulSet zone-c: annotation {MIRROR_WRITE_BACK}:"
    ' "bad value" is not a boolean; nothing is published of zone-c'
)


@pytest.mark.parametrize(
    ("zones", "scale", "expected"),
    [
        pytest.param(
            [mirroring("b", 2)], "5/2", [up("b", "2 → 5")], id="T-04.1 SEED-068 up: first the zone"
        ),
        pytest.param(
            [mirroring("b", 5)], "5/2", [published(5)], id="T-04.1 SEED-069 then the status"
        ),
        pytest.param(
            [mirroring("b", 2, write_back="false")], "5/2", [up("b", "2 → 5")],
            id="T-04.2 no write back: the zone",
        ),
        pytest.param(
            [mirroring("b", 5, write_back="false")], "5/2", [], id="T-04.2 and no status after it"
        ),
        pytest.param([mirroring("b", 3)], "2/3", [down("b", "3 → 2")], id="T-04.3 down"),
        pytest.param([mirroring("b", 2)], "2/3", [published(2)], id="T-04.3 and the status"),
        pytest.param([mirroring("b", 3)], "3/5", [published(3)], id="T-04.4 the status only"),
        pytest.param([mirroring("b", 3, write_back="false")], "3/5", [], id="T-04.5 nothing"),
        pytest.param([mirroring("b", 3)], "3/3", [], id="T-04.6 all as it should be"),
        pytest.param(
            [
                counted("a", 4),
                mirroring("b", 5),
                mirroring("c", 5, write_back="true"),
                mirroring("d", 2),
            ],
            "5/2",
            [up("d", "2 → 5")],
            id="T-04.9 one of three is behind",
        ),
        pytest.param(
            [
                counted("a", 4),
                mirroring("b", 5),
                mirroring("c", 5, write_back="true"),
                mirroring("d", 5),
            ],
            "5/2",
            [published(5)],
            id="T-04.9 W-19 one status for all three",
        ),
        pytest.param(
            [
                mirroring("b", 5, write_back="false"),
                mirroring("c", 5, write_back="bad value"),
                mirroring("d", 2),
            ],
            "5/2",
            [up("d", "2 → 5"), BAD_WRITE_BACK],
            id="T-04.10 two do not write back",
        ),
        pytest.param(
            [
                mirroring("b", 5, write_back="false"),
                mirroring("c", 5, write_back="bad value"),
                mirroring("d", 5),
            ],
            "5/2",
            [published(5), BAD_WRITE_BACK],
            id="T-04.10 the third does",
        ),
    ],
)  # fmt: skip
def test_t04_what_a_mirroring_zone_counts(
    zones: Sequence[Zone], scale: str, expected: list[str]
) -> None:
    assert show(*zones, scale=scale) == expected


@pytest.mark.parametrize(
    ("mirrored", "scale", "expected"),
    [
        pytest.param([4, 5], "5/0", 4, id="up: the one that is behind"),
        pytest.param([4, 3], "3/0", 4, id="down: the one that is behind"),
        pytest.param([4, 6], "5/0", 4, id="as far from it: the smaller"),
        pytest.param([5, 5], "5/0", 5, id="SEED-069 only when all have it"),
    ],
)
def test_w19_the_zone_that_is_furthest_is_published(
    mirrored: list[int], scale: str, expected: int
) -> None:
    """They cannot move, as each is being deleted."""
    zones = [
        changed(mirroring(letter, count), is_terminating=True)
        for letter, count in zip("bc", mirrored, strict=True)
    ]
    for order in (zones, zones[::-1]):
        plan = plan_scaling(view(*order, scale=scale))
        assert [one.replicas for one in plan.publish] == [expected]


def test_seed069_what_was_written_counts_though_the_cache_does_not_show_it() -> None:
    plan = plan_scaling(view(mirroring("b", 2), scale="5/2", written={"b": 5}))

    assert [one.replicas for one in plan.publish] == [5]
    assert plan.publish[0].reason.code is Code.SCALE_PUBLISHED
    assert plan.publish[0].reason.text == (
        f"{SHOWN}: status.replicas 2 → 5, as zone-b has; 5 wanted"
    )


def test_a_status_that_is_right_is_not_published_again() -> None:
    assert plan_scaling(view(mirroring("b", 5), mirroring("c", 5), scale="5/5")).publish == ()
