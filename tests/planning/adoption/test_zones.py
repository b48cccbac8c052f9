"""In which zone a StatefulSet is, and what its group is called."""

import pytest

from rollout_operator.model.adoption import AdoptableSet
from rollout_operator.model.budget import ZoneSource
from rollout_operator.planning.adoption import choose_base, choose_zone

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
