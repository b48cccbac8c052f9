"""In which zone a StatefulSet is, and what its group is called."""

import pytest

from rollout_operator.model.adoption import AdoptableSet
from rollout_operator.model.budget import ZoneSource
from rollout_operator.planning.adoption import (
    Candidate,
    choose_base,
    choose_zone,
    explain_difference,
    group_sets,
)

KEY = "topology.kubernetes.io/zone"
OLD = "failure-domain.beta.kubernetes.io/zone"


@pytest.mark.parametrize(
    ("one", "zone", "source", "base"),
    [
        (AdoptableSet(name="db-a", node_selector={KEY: "eu-1a"}, node_terms=({KEY: ("x",)},)),
         "eu-1a", ZoneSource.NODE_SELECTOR, "db"),
        (AdoptableSet(name="db-eu-1a", node_selector={OLD: "eu-1a"}),
         "eu-1a", ZoneSource.NODE_SELECTOR, "db"),
        (AdoptableSet(name="db-blue", node_terms=({KEY: ("eu-1b",)},), labels={KEY: "x"}),
         "eu-1b", ZoneSource.NODE_AFFINITY, "db-blue"),
        (AdoptableSet(name="db-zone-a", labels={KEY: "a", "zone": "x"},
                      node_terms=({KEY: ("a", "b")},)),
         "a", ZoneSource.LABEL, "db"),
        (AdoptableSet(name="ingester-zone-a", pod_labels={"zone": "zone-a"}),
         "zone-a", ZoneSource.ZONE_LABEL, "ingester"),
        (AdoptableSet(name="ingester-zone-a"), "zone-a", ZoneSource.NAME_SUFFIX, "ingester"),
        (AdoptableSet(name="db-az1"), "az1", ZoneSource.NAME_SUFFIX, "db"),
        (AdoptableSet(name="vault-c"), "c", ZoneSource.NAME_SUFFIX, "vault"),
        (AdoptableSet(name="shard-1"), "", ZoneSource.NONE, "shard-1"),
        (AdoptableSet(name="store-gateway"), "", ZoneSource.NONE, "store-gateway"),
        (AdoptableSet(name="shard-2", node_terms=({KEY: ("a",)}, {"disk": ("fast",)})),
         "", ZoneSource.NONE, "shard-2"),
        (AdoptableSet(name="shard-3", node_terms=({KEY: ("a", "b"), OLD: ("b", "c")},)),
         "b", ZoneSource.NODE_AFFINITY, "shard-3"),
        (AdoptableSet(name="a"), "", ZoneSource.NONE, "a"),
        (AdoptableSet(name="mq-2", node_selector={KEY: "westeurope-2"}),
         "westeurope-2", ZoneSource.NODE_SELECTOR, "mq"),
        (AdoptableSet(name="mq-02", node_terms=({KEY: ("fsn1-dc2",)},)),
         "fsn1-dc2", ZoneSource.NODE_AFFINITY, "mq"),
        (AdoptableSet(name="mq-3", labels={KEY: "3"}), "3", ZoneSource.LABEL, "mq"),
        (AdoptableSet(name="mq-2", node_selector={KEY: "westeurope-1"}),
         "westeurope-1", ZoneSource.NODE_SELECTOR, "mq-2"),
        (AdoptableSet(name="mq-12", node_selector={KEY: "westeurope-2"}),
         "westeurope-2", ZoneSource.NODE_SELECTOR, "mq-12"),
        (AdoptableSet(name="mq2", node_selector={KEY: "westeurope-2"}),
         "westeurope-2", ZoneSource.NODE_SELECTOR, "mq2"),
    ],
)  # fmt: skip
def test_zones(one: AdoptableSet, zone: str, source: ZoneSource, base: str) -> None:
    """Where the pods may run says more than a label, and that more than a name."""
    assert choose_zone(one) == (zone, source)
    assert choose_base(one) == base


def zones(base: str, ends: str, **fields: object) -> list[AdoptableSet]:
    """Return a set for each word of `ends`, of one application."""
    known: dict[str, object] = {"image": "registry.example/grafana/mimir:2.9", **fields}
    return [
        AdoptableSet(name=f"{base}-{end}", **known)  # type: ignore[arg-type]  # by name, in each row
        for end in ends.split()
    ]


def pinned(base: str, numbers: dict[str, str]) -> list[AdoptableSet]:
    return [
        AdoptableSet(name=f"{base}-{end}", node_selector={KEY: zone})
        for end, zone in numbers.items()
    ]


AB = zones("db", "zone-a zone-b")
MIMIR = zones("db", "zone-a zone-b", pod_labels={"app.kubernetes.io/instance": "mimir"})
MORE = zones("db", "zone-c zone-d", pod_labels={"app.kubernetes.io/instance": "loki"})
OTHER = zones("db", "zone-c zone-d", image="grafana/loki:2.9")
CANARY = zones("db", "zone-c", selector={"app": "db", "track": "canary"})
OWN = [
    AdoptableSet(name=f"db-{end}", selector={"app": f"db-{end}", "zone": f"zone-{end}"})
    for end in "ab"
]


@pytest.mark.parametrize(
    ("sets", "expected"),
    [
        pytest.param(pinned("mq", {"1": "eu-1", "2": "eu-2", "3": "eu-3"}), ["mq 1 2 3"],
                     id="numbers that are zones"),
        pytest.param(pinned("mq", {"1": "eu-1", "2": "eu-2", "3": "eu-1"}), ["1", "2", "3"],
                     id="shards, of which two are in a zone of their number"),
        pytest.param(zones("mq", "1 2"), ["1", "2"], id="numbers without zones"),
        pytest.param([*pinned("mq", {"1": "1", "2": "2"}), *zones("mq", "backup")],
                     ["backup", "mq 1 2"], id="numbers beside another set"),
        pytest.param([*AB, *zones("db", "zone-c", image="db:3")],
                     ["db zone-a zone-b", "zone-c: image"], id="another image"),
        pytest.param([*zones("db", "a b"), *zones("db", "c", image="local:5000/mimir@sha256:1")],
                     ["db a b c"], id="the image of another registry and version"),
        pytest.param([*MIMIR, *OTHER], ["db zone-a zone-b !", "db zone-c zone-d !"],
                     id="two applications by image"),
        pytest.param([*MIMIR, *MORE], ["db zone-a zone-b !", "db zone-c zone-d !"],
                     id="two releases of one chart"),
        pytest.param([*zones("db", "zone-a zone-b", selector={"app": "db"}), *CANARY],
                     ["db zone-a zone-b", "zone-c: selector for track"], id="a canary by selector"),
        pytest.param([*AB, *zones("db", "zone-c", labels={"track": "x"})],
                     ["db zone-a zone-b", "zone-c: label track"], id="a canary by label"),
        pytest.param(zones("db", "zone-a zone-b zone-canary"),
                     ["db zone-a zone-b", "zone-canary: end of the name"], id="a canary by name"),
        pytest.param([*AB, *zones("db", "canary", labels={"zone": "canary"})],
                     ["canary: end of the name", "db zone-a zone-b"], id="a canary by its zone"),
        pytest.param([*AB, AdoptableSet(name="db", image="mimir")],
                     [": end of the name", "db zone-a zone-b"], id="a set without zone"),
        pytest.param(zones("db", "a b zone-a zone-b"), ["db a b !", "db zone-a zone-b !"],
                     id="zones by letter, and others"),
        pytest.param([*zones("service", "a", image="acme/service-a"),
                      *zones("service", "b", image="acme/service-b")],
                     ["a: image", "b: image"], id="services that are called by letters"),
        pytest.param([*zones("x-db", "zone-a zone-b"), *AB],
                     ["db zone-a zone-b", "x-db zone-a zone-b"], id="two prefixes"),
        pytest.param(OWN, ["db a b"], id="labels that name the set and its zone"),
        pytest.param([AdoptableSet(name="db-a", labels={"app": "db", "release": "zone-a"}),
                      AdoptableSet(name="db-b", labels={"app": "db", "release": "zone-b"})],
                     ["db a b"], id="a release for each zone"),
        pytest.param([*zones("x-ingester", "a b", labels={"rollout-group": "ingester"}),
                      *zones("ingester", "a b", image="loki")],
                     ["ingester a b", "ingester a b !"], id="a group that another application has"),
    ],
)  # fmt: skip
def test_a_group_holds_the_zones_of_one_application(
    sets: list[AdoptableSet], expected: list[str]
) -> None:
    """What is like them by name alone stays out, with the difference; `!`: two want the name."""
    found = group_sets(sets, frozenset(sts.name for sts in sets), "")

    assert sorted(map(_show, found)) == expected


def _show(candidate: Candidate) -> str:
    first, *rest = candidate.members
    if rest:
        ends = [sts.name.rpartition(f"{candidate.name}-")[2] for sts in candidate.members]
        return " ".join((candidate.name, *ends, *("!" if candidate.other else "")))
    end = first.name.partition("-")[2]
    if candidate.other is None:
        return end
    why = explain_difference(first, candidate.other, is_end_told=True)
    return f"{end}: {why.removeprefix('its ').partition(' is ')[0]}"
