"""Budgets beside new pods of an upscale that never became ready: D-67, ZPDB-82, ZPDB-90."""

from dataclasses import replace

import msgspec
import pytest

from rollout_operator.model.group import Newcomers, Zone
from rollout_operator.planning.budgets.rule import Scene, find_maximum
from tests.planning.disruptions import answer, budget, by_partition, ingesters, scene, uid_of


def _upscaled(letter: str, states: str = "rrrFF") -> Zone:
    """Return a zone of three that was scaled to five; its last two pods never became ready."""
    zone = ingesters(letter, states)
    uids = frozenset(uid_of(letter, ordinal) for ordinal in (3, 4))
    newcomers = Newcomers(used=3, generation=zone.sts.generation, pods=uids)
    status = msgspec.structs.replace(zone.sts, ready_replicas=3)
    return replace(zone, sts=status, newcomers=newcomers)


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        pytest.param(scene("a-0", *map(_upscaled, "abc")), "allow", id="D-67 in all zones"),
        pytest.param(
            scene("a-0", _upscaled("b", "rrr--")),
            "429 2 pods unknown in ingester-zone-b",
            id="SI-10 those that were seen are gone",
        ),
        pytest.param(
            scene("a-0", _upscaled("b", "rrFFF")),
            "429 1 pod not ready in ingester-zone-b",
            id="SI-02 one that holds something is down beside them",
        ),
        pytest.param(
            scene("a-3", *map(_upscaled, "abc")), "allow", id="D-67 one of them goes itself"
        ),
        pytest.param(
            scene("a-0", _upscaled("b"), rule=by_partition()),
            "allow",
            id="ZPDB-90 another partition",
        ),
        pytest.param(
            scene(
                "a-3",
                *(ingesters(letter, "rrrrr") for letter in "ac"),
                _upscaled("b"),
                rule=by_partition(),
            ),
            "429 1 pod not ready in partition 3",
            id="ZPDB-90 its partition has them for peers, and is held by nothing else",
        ),
    ],
)
def test_d67_newcomers_count_for_no_budget_of_zones(case: Scene, expected: str) -> None:
    assert answer(case).startswith(expected)


def test_zpdb82_newcomers_lend_no_room() -> None:
    case = scene("a-0", _upscaled("a"), rule=budget(0, percentage=50))

    assert find_maximum(case) == 1
