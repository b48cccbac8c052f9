"""When `doctor` checks the right to read nodes, and in which namespaces it checks rights."""

from typing import Final

import pytest
from msgspec.structs import replace

from rollout_operator.model.budget import PlacedSet
from rollout_operator.model.diagnosis import LEASE_FLAG, Installation, OperatorDeployment
from rollout_operator.model.names import LEADING_ZONE, MIRROR_KIND, TOPOLOGY_KEYS
from rollout_operator.planning.rights import list_needs
from tests.planning.diagnosis.installations import OPERATOR, good, policy, zone

LABELLED: Final = {TOPOLOGY_KEYS[0]: "a"}


def placed(labels: dict[str, str]) -> Installation:
    """Return an installation with a policy over one StatefulSet, which says so of its zone."""
    plain = zone("db", {"set": "db"}, group="")
    one = replace(plain, placed=PlacedSet(name="db", labels=labels))
    return good(one, policies=(policy(),))


def started(*arguments: str, **variables: str) -> OperatorDeployment:
    return replace(OPERATOR, arguments=arguments, variables=variables)


def test_maz80_nodes_are_read_only_where_nothing_else_says_a_zone() -> None:
    assert list_needs(placed({})) == {"multi-az-rollouts-nodes"}
    assert not list_needs(placed(LABELLED))
    assert not list_needs(replace(placed({}), policies=()))


@pytest.mark.parametrize(
    ("annotations", "needs"),
    [
        pytest.param({LEADING_ZONE: "zone-a"}, {"scaling"}, id="a zone that follows"),
        pytest.param({MIRROR_KIND: "ReplicaTemplate"}, {"mirroring"}, id="a zone that mirrors"),
        pytest.param({MIRROR_KIND: "Deployment"}, set(), id="a kind that no shipped Role names"),
    ],
)
def test_rights_to_scale_are_needed_where_a_zone_is_scaled(
    annotations: dict[str, str], needs: set[str]
) -> None:
    assert list_needs(good(zone("zone-c", annotations=annotations))) == needs


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        pytest.param(started(), ("prod",), id="its own"),
        pytest.param(started(WATCH_NAMESPACE=" a, b,,a"), ("a", "b"), id="MT-66"),
        pytest.param(started(WATCH_NAMESPACE=""), ("prod",), id="all: its own stands for them"),
        pytest.param(
            started("-kubernetes.namespace=x", WATCH_NAMESPACE="a"), ("prod",), id="the flag beats"
        ),
        pytest.param(started(WATCH_NAMESPACE="$(FROM)"), ("prod",), id="from elsewhere"),
    ],
)
def test_maz60_where_rights_are_needed(
    operator: OperatorDeployment, expected: tuple[str, ...]
) -> None:
    assert operator.list_watched("prod") == expected


def test_maz62_the_name_of_the_lease_is_that_of_the_operator() -> None:
    assert started(OPERATOR_NAME="x").find(LEASE_FLAG) == "x"
    assert started(f"-{LEASE_FLAG}=y", OPERATOR_NAME="x").find(LEASE_FLAG) == "y"


@pytest.mark.parametrize(
    ("operator", "is_watching"),
    [
        pytest.param(started(WATCH_NAMESPACE="a,prod"), True, id="named"),
        pytest.param(started(WATCH_NAMESPACE=""), True, id="all"),
        pytest.param(started(WATCH_NAMESPACE="a"), False, id="another namespace"),
        pytest.param(started(), False, id="its own alone"),
        pytest.param(started(WATCH_NAMESPACE="$(FROM)"), False, id="not known"),
        pytest.param(
            started("-kubernetes.namespace=ops", WATCH_NAMESPACE="prod"), False, id="flag beats"
        ),
    ],
)
def test_maz60_whether_an_operator_elsewhere_watches(
    operator: OperatorDeployment, is_watching: bool
) -> None:
    assert replace(operator, namespace="ops").watches("prod") is is_watching
