"""The walk where a zone has several StatefulSets; with one each it is that of `test_zone`."""

import pytest

from rollout_operator.model.objects import Zone
from rollout_operator.model.outcome import RecordRevision, ReplacePods
from rollout_operator.planning.readiness import measure_readiness
from rollout_operator.planning.rollout import RolloutZone, Walk, walk_zones
from tests.builders import NOW, prev, zone

DONE = zone("z", current="prev")


def walk(*zones: list[Zone], limit: int = 1) -> Walk:
    """Return what zones come to, each of StatefulSets in this order."""
    rolled = [
        RolloutZone(
            name=f"zone {place}",
            readinesses=tuple(measure_readiness(member, {}, NOW) for member in members),
        )
        for place, members in enumerate(zones)
    ]
    return walk_zones(rolled, lambda sts: limit)


def outline(found: Walk) -> list[str]:
    texts = []
    for action in found.actions:
        match action:
            case ReplacePods():
                texts += [one.pod.name.removeprefix("zone-") for one in action.going]
            case RecordRevision():
                texts.append(f"record {action.zone.name}")
    return texts + [one.code for one in found.waits]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(
            walk([DONE, prev("b"), prev("a")], [zone("c")]),
            ["record zone-z", "b-0", "budget_used"],
            id="the first with outdated pods, and those before it are recorded",
        ),
        pytest.param(
            walk([prev("a", paused="true"), prev("b")]), ["b-0", "paused", "budget_used"],
            id="one that is paused has no turn",
        ),
        pytest.param(
            walk([prev("a", "ppP", paused="true"), prev("b")], limit=2),
            ["b-0", "paused_zone_not_ready", "budget_used"],
            id="its pods that are down take room of the zone",
        ),
        pytest.param(
            walk([prev("a", "ppP", paused="true"), prev("b")]),
            ["paused_zone_not_ready", "budget_used"], id="and may take all of it",
        ),
        pytest.param(
            walk([prev("a", "lLl"), prev("b")], [zone("c", "llL", ready=2)]),
            ["several_zones_not_ready"], id="two zones are short",
        ),
        pytest.param(
            walk([prev("a", "lLL"), prev("b", "lLl")], [prev("c")]),
            ["zone_not_ready", "zone_not_ready"], id="two StatefulSets of one zone are short",
        ),
    ],
)  # fmt: skip
def test_stateful_sets_of_a_zone_have_their_turns_one_after_another(
    found: Walk, expected: list[str]
) -> None:
    assert outline(found) == expected


def test_a_short_zone_is_named_unless_it_is_a_stateful_set() -> None:
    found = walk([zone("a"), prev("b", "llL")], [prev("c", "llL")])

    assert found.waits[0].text == (
        "zone zone 0: zone-b has 2 of 3 pods ready (zone-b-2: CrashLoopBackOff); "
        "zone zone 1: zone-c has 2 of 3 pods ready (zone-c-2: CrashLoopBackOff)"
    )


def test_pods_that_are_down_in_another_stateful_set_are_reported() -> None:
    found = walk([prev("a", "llL"), prev("b")])

    assert [one.text for one in found.waits] == [
        "zone-a has 2 of 3 pods ready (zone-a-2: CrashLoopBackOff)",
        "zone-b: 3 pods left to update (1 unavailable of 1 allowed)",
    ]
