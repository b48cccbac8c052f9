"""When `doctor` checks the right to read nodes, and in which namespaces it checks rights."""

from typing import Any, Final

import pytest
from msgspec.structs import replace

from rollout_operator.model.budget import PlacedSet
from rollout_operator.model.diagnosis import FindingCode, Installation, OperatorDeployment
from rollout_operator.model.names import TOPOLOGY_KEYS
from rollout_operator.planning.doctor_install import (
    LEASE_FLAG,
    find_value,
    list_arguments,
    list_watched,
    watches,
)
from rollout_operator.planning.doctor_objects import check_obeyed, reads_nodes
from tests.planning.diagnosis.installations import OPERATOR, good, ungrouped, with_sets, zone_set
from tests.planning.diagnosis.spoilt_policies import policy

LABELLED: Final = {TOPOLOGY_KEYS[0]: "a"}


def placed(labels: dict[str, str]) -> Installation:
    """Return an installation with a policy over one StatefulSet, which says so of its zone."""
    plain = ungrouped(zone_set("db", labels={"set": "db"}))
    one = replace(plain, placed=PlacedSet(name="db", labels=labels))
    return replace(with_sets(one), policies=(policy(),))


def started(*arguments: str, **variables: str) -> OperatorDeployment:
    return replace(OPERATOR, arguments=arguments, variables=variables)


def test_maz80_nodes_are_read_only_where_nothing_else_says_a_zone() -> None:
    assert reads_nodes(placed({}))
    assert not reads_nodes(placed(LABELLED))
    assert not reads_nodes(replace(placed({}), policies=()))


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
    assert list_watched(operator, "prod") == expected


def test_maz62_the_name_of_the_lease_is_that_of_the_operator() -> None:
    assert find_value(list_arguments(started(OPERATOR_NAME="x")), LEASE_FLAG) == "x"
    flagged = started(f"-{LEASE_FLAG}=y", OPERATOR_NAME="x")
    assert find_value(list_arguments(flagged), LEASE_FLAG) == "y"


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
    assert watches(operator, "prod") is is_watching


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        pytest.param({"unobeyed": frozenset({"db"})}, [FindingCode.POLICIES_NOT_OBEYED], id="none"),
        pytest.param({}, [], id="one that writes their status and may not be seen"),
    ],
)
def test_an_operator_that_is_not_seen_shows_in_the_status_of_policies(
    changes: dict[str, Any], found: list[FindingCode]
) -> None:
    installation = good(operators=(), policies=(policy(),), **changes)
    assert [one.code for one in check_obeyed(installation)] == found
