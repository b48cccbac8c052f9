"""In which zone each StatefulSet of a policy is, and which zone goes first."""

from typing import Any

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from rollout_operator.model.budget import PlacedSet, ZoneSource
from rollout_operator.model.policy import (
    Policy,
    PolicySetStatus,
    PolicyStatus,
    PolicyZoneStatus,
    RecordedBatch,
    ResolvedSet,
    ZoneResolution,
    ZonesCode,
)
from rollout_operator.planning.policy_zones import choose_key, keep_zones, map_frozen, resolve_zones
from tests.planning.policies.snapshots import policy

KEY = "topology.kubernetes.io/zone"
OLD = "failure-domain.beta.kubernetes.io/zone"
RACK = "example.com/rack"
NODES = {
    "a1": {KEY: "2a", OLD: "old", RACK: "r1"},
    "a2": {KEY: "2a"},
    "b1": {KEY: "2b", RACK: "r1"},
    "o1": {OLD: "2o"},
    "none": {"zone": "x"},
}


def resolve(rule: Policy, *sets: PlacedSet, **frozen: str) -> ZoneResolution:
    return resolve_zones(rule, sets, NODES, frozen)


def placed(name: str, zone: str = "", **fields: Any) -> PlacedSet:
    return PlacedSet(name=name, **{"labels": {KEY: zone} if zone else {}, **fields})


def names(found: ZoneResolution) -> list[tuple[str, list[str]]]:
    return [(zone.name, [one.name for one in zone.sets]) for zone in found.zones]


@pytest.mark.parametrize(
    ("one", "zone", "source"),
    [
        pytest.param(
            placed("db", "us-west-2a", node_selector={KEY: "us-west-2b"}),
            "us-west-2a", ZoneSource.LABEL, id="MT-01 MAZ-13 the label goes first",
        ),
        pytest.param(
            placed("db", pod_labels={KEY: "2a"}, node_selector={KEY: "2b"}),
            "2a", ZoneSource.LABEL, id="MAZ-13 that of the template",
        ),
        pytest.param(
            placed("db", "2a", pod_labels={KEY: "2b"}),
            "2a", ZoneSource.LABEL, id="MAZ-13 that of the StatefulSet before",
        ),
        pytest.param(
            placed("db", node_selector={KEY: "2a"}, node_terms=({KEY: ("2b",)},)),
            "2a", ZoneSource.NODE_SELECTOR, id="MT-02 MAZ-14",
        ),
        pytest.param(
            placed("db", node_terms=({KEY: ("2a",)},), pod_nodes=("b1",)),
            "2a", ZoneSource.NODE_AFFINITY, id="MT-03 MAZ-15",
        ),
        pytest.param(
            placed("db", node_terms=({KEY: ("2a",), "disk": ("fast",)}, {KEY: ("2a",)})),
            "2a", ZoneSource.NODE_AFFINITY, id="MAZ-15 two terms of one zone",
        ),
        pytest.param(
            placed("db", node_terms=({KEY: ("2a",)}, {KEY: ("2b",)})),
            "db", ZoneSource.SET_NAME, id="MT-04 two terms",
        ),
        pytest.param(
            placed("db", node_terms=({KEY: ("2a", "2b")},)),
            "db", ZoneSource.SET_NAME, id="MT-04 two values",
        ),
        pytest.param(
            placed("db", node_terms=({KEY: ("2a",)}, {"disk": ("fast",)})),
            "db", ZoneSource.SET_NAME, id="MT-04 MAZ-15 a term that permits any zone",
        ),
        pytest.param(
            placed("db", node_terms=({OLD: ("2a",)},)),
            "db", ZoneSource.SET_NAME, id="MAZ-15 another key",
        ),
        pytest.param(
            placed("db", pod_nodes=("a1", "a2", "none", "gone"), labels={"zone": "x"}),
            "2a", ZoneSource.NODES, id="MT-05 MAZ-16 nodes without a label say nothing",
        ),
        pytest.param(
            placed("db", pod_nodes=("o1",)), "2o", ZoneSource.NODES, id="MT-07 the older label"
        ),
        pytest.param(
            placed("db-zone-b", labels={"zone": "zone-a"}),
            "zone-a", ZoneSource.ZONE_LABEL, id="MT-09 MAZ-17",
        ),
        pytest.param(
            placed("db-zone-b", pod_labels={"availability-zone": "az1"}),
            "az1", ZoneSource.ZONE_LABEL, id="MAZ-17 the other name, of the template",
        ),
        pytest.param(
            placed("ingester-zone-b"), "zone-b", ZoneSource.NAME_SUFFIX, id="MT-10 MAZ-18"
        ),
        pytest.param(
            placed("ingester-zone-b-x"), "ingester-zone-b-x", ZoneSource.SET_NAME,
            id="MAZ-18 not the end",
        ),
        pytest.param(
            placed("db", node_terms=({KEY: ("<b>\n\x1b[31m",)},)),
            "db", ZoneSource.SET_NAME, id="SEC-13 MAZ-15 no node can have it",
        ),
        pytest.param(
            placed("db", node_terms=({KEY: ("z" * 64,)},)),
            "db", ZoneSource.SET_NAME, id="SEC-13 MAZ-15 nor one so long",
        ),
        pytest.param(placed("db"), "db", ZoneSource.SET_NAME, id="MT-12 MAZ-19"),
        pytest.param(
            placed("db", "", labels={KEY: "", "zone": ""}),
            "db", ZoneSource.SET_NAME, id="MAZ-12 an empty label says nothing",
        ),
    ],
)  # fmt: skip
def test_the_first_source_that_answers_counts(
    one: PlacedSet, zone: str, source: ZoneSource
) -> None:
    """MAZ-12: and it is reported."""
    found = resolve(policy(), one)

    assert found.sets == (ResolvedSet(name=one.name, zone=zone, source=source),)
    assert names(found) == [(zone, [one.name])]
    is_unknown = source is ZoneSource.SET_NAME
    assert found.code == (ZonesCode.SOME_BY_FALLBACK if is_unknown else ZonesCode.ALL_RESOLVED)
    assert [finding.code for finding in found.findings] == ["ZoneUnknown"] * is_unknown


@pytest.mark.parametrize(
    ("order", "name", "zone"),
    [
        pytest.param(("us-west-2c",), "db-us-west-2c", "us-west-2c", id="MT-11 MAZ-18"),
        pytest.param(("b", "zone-b"), "db-zone-b", "zone-b", id="MAZ-18 the longest one"),
        pytest.param(("b",), "db-zone-b", "b", id="MAZ-18 before what looks like a zone"),
        pytest.param(("b",), "dbb", "dbb", id="MAZ-18 a word of its own"),
    ],
)
def test_a_name_ends_with_a_zone_of_the_policy(
    order: tuple[str, ...], name: str, zone: str
) -> None:
    assert resolve(policy(zone_order=order), placed(name)).sets[0].zone == zone


def test_another_key_is_requested_everywhere() -> None:
    """MT-08, MAZ-09: the older label of nodes belongs to the default key alone."""
    rule = policy(topology_key=RACK)

    assert resolve(rule, placed("db", "2a", pod_nodes=("a1", "b1"))).sets == (
        ResolvedSet(name="db", zone="r1", source=ZoneSource.NODES),
    )
    assert resolve(rule, placed("db", pod_nodes=("o1",))).sets[0].source is ZoneSource.SET_NAME


def test_pods_in_several_zones_stop_everything() -> None:
    """MT-06, MAZ-20: no zone is left to act on, whatever label or name say of the one."""
    wide = placed("db-zone-b", pod_nodes=("a1", "b1"), labels={"zone": "2a"})
    found = resolve(policy(zone_order=("2b", "x")), wide, placed("other", "2c"))

    assert found.code is ZonesCode.SPANS_ZONES
    assert found.zones == ()
    assert [one.name for one in found.sets] == ["other"]
    assert found.unknown_zones == ("x",)
    assert [finding.text for finding in found.findings] == [
        "StatefulSet db-zone-b has pods in 2a and 2b, and says itself in which zone it belongs"
        " neither by label nor by nodeSelector or node affinity; nothing is updated"
    ]


def test_what_is_written_down_settles_where_pods_may_be() -> None:
    """MAZ-20: pods that are elsewhere do not span zones then."""
    found = resolve(policy(), placed("db", "2a", pod_nodes=("a1", "b1")))

    assert (found.code, names(found)) == (ZonesCode.ALL_RESOLVED, [("2a", ["db"])])


def test_without_rights_nodes_are_left_out() -> None:
    """MT-13, MAZ-20: the next source answers, and a finding says why."""
    sets = (placed("a-zone-a", pod_nodes=("b1",)), placed("b", "2b"))
    found = resolve_zones(policy(), sets, None, {})

    assert [(one.zone, one.source.value) for one in found.sets] == [
        ("zone-a", "NameSuffix"),
        ("2b", "Label"),
    ]
    assert [(finding.code, finding.text) for finding in found.findings] == [
        ("NodesUnreadable", "nodes may not be read, and say nothing of the zone of a-zone-a")
    ]
    assert resolve_zones(policy(), sets[1:], None, {}).findings == ()


@pytest.mark.parametrize("nodes", [("b1",), ("a1", "b1"), ()])
def test_pods_that_move_change_no_zone_of_a_rollout(nodes: tuple[str, ...]) -> None:
    """MT-14, MAZ-20: once it has ended, they do."""
    moved = placed("db", pod_nodes=nodes)
    found = resolve(policy(), moved, db="2a", gone="2c")

    assert found.sets == (ResolvedSet(name="db", zone="2a", source=ZoneSource.NODES),)
    assert (found.code, found.findings) == (ZonesCode.ALL_RESOLVED, ())
    assert resolve(policy(), moved).sets[:1] != found.sets
    assert resolve_zones(policy(), (moved,), None, {"db": "2a"}) == found


def status(*, key: str, is_open: bool = True, is_underway: bool = True) -> PolicyStatus:
    """Return a status with one zone that came from nodes by a key."""
    sets = (PolicySetStatus(name="db", source="Nodes"), PolicySetStatus(name="x", source="Label"))
    batch = RecordedBatch(
        number=1, zone="2a", stateful_set="db", update_revision="new", pods=(), start_time="then"
    )
    return PolicyStatus(
        start_time="then" if is_underway else UNSET,
        az_topology_key=key,
        zones=(PolicyZoneStatus(name="2a", stateful_sets=sets),),
        last_batch=batch if is_open else replace(batch, completion_time="then"),
    )


@pytest.mark.parametrize(
    ("known", "expected", "frozen"),
    [
        pytest.param(status(key=KEY), KEY, True, id="the same key"),
        pytest.param(status(key=RACK), RACK, True, id="MAZ-20 another one counts after the batch"),
        pytest.param(status(key=RACK, is_open=False), KEY, False, id="MAZ-20 and then at once"),
        pytest.param(status(key=""), KEY, True, id="a status of before there was one"),
        pytest.param(status(key=KEY, is_underway=False), KEY, False, id="MAZ-20 in a rollout only"),
        pytest.param(PolicyStatus(), KEY, False, id="no status"),
    ],
)
def test_zones_are_kept_by_the_key_that_named_them(
    known: PolicyStatus, expected: str, frozen: bool
) -> None:
    """It is in the status, so that a process that begins anew comes to the same."""
    key = choose_key(policy(), known)

    assert key == expected
    assert map_frozen(known, key) == ({"db": "2a"} if frozen else {})


def test_what_a_set_says_itself_beats_a_kept_zone() -> None:
    """MAZ-13, MAZ-20, SEC-13: a status by which two zones were one, written by hand, makes no zone
    of two that have labels.
    """
    found = resolve(policy(), placed("a", "2a"), placed("b", "2b"), a="x", b="x")

    assert names(found) == [("2a", ["a"]), ("2b", ["b"])]


@pytest.mark.parametrize(
    ("order", "expected", "unknown"),
    [
        pytest.param((), ["a", "b", "c"], (), id="MT-21 by name"),
        pytest.param(("c",), ["c", "a", "b"], (), id="MT-22 the listed ones first"),
        pytest.param(("x", "b", "y"), ["b", "a", "c"], ("x", "y"), id="MT-23 others are reported"),
    ],
)
def test_zones_have_an_order(
    order: tuple[str, ...], expected: list[str], unknown: tuple[str, ...]
) -> None:
    """MAZ-21."""
    sets = [placed("one", "c"), placed("two", "a"), placed("three", "b")]
    found = resolve(policy(zone_order=order), *sets)

    assert [zone.name for zone in found.zones] == expected
    assert found.unknown_zones == unknown


def test_names_go_by_code_points() -> None:
    """MAZ-21: an order that no language decides."""
    sets = [placed(name, name) for name in ("b", "B", "a10", "a9")]

    assert [zone.name for zone in resolve(policy(), *sets).zones] == ["B", "a10", "a9", "b"]


def test_sets_of_one_zone_go_by_name() -> None:
    """MT-25, MAZ-22."""
    found = resolve(policy(), placed("y", "a"), placed("z", "b"), placed("x", "a"))

    assert names(found) == [("a", ["x", "y"]), ("b", ["z"])]


def test_a_set_of_an_unknown_zone_stays_alone() -> None:
    """MAZ-19: also where its name is that of a zone, so that neither takes the other one down."""
    found = resolve(policy(), placed("db"), placed("x", "db"))

    assert names(found) == [("db", ["x"]), ("db", ["db"])]
    assert [finding.text for finding in found.findings] == [
        "nothing says the zone of StatefulSet db; it is a zone of its own"
    ]


def test_a_zone_in_a_status_that_no_node_can_have_is_none() -> None:
    zone = PolicyZoneStatus(
        name="z" * 64, stateful_sets=(PolicySetStatus(name="db", source="Nodes"),)
    )
    known = PolicyStatus(start_time="2026-01-01T00:00:00Z", zones=(zone,))

    assert map_frozen(known, KEY) == {}


def test_of_a_template_nothing_is_kept_but_zones() -> None:
    """A tenant may write a megabyte of labels and values, in each of many StatefulSets."""
    many = {str(number): "x" for number in range(1000)}
    named = PlacedSet(name="db", pod_labels={KEY: "2a", "zone": "b"}, node_selector={KEY: "2c"})
    full = replace(
        named, pod_labels={**many, **named.pod_labels}, node_selector={RACK: "r", KEY: "2c"}
    )
    terms = ({KEY: ("2a", "2b"), RACK: (*many, "r1")}, {KEY: ("2b",), RACK: ("r1",)})

    assert keep_zones(full, KEY) == named
    one = placed("db", node_terms=({KEY: ("2a",), **dict.fromkeys(many, ("y",))},))
    assert keep_zones(one, KEY).node_terms == ({KEY: ("2a",)},)
    assert keep_zones(replace(full, node_terms=terms), KEY).node_terms == ()
