"""Which partition a pod holds, by its name (T-09)."""

import pytest

from rollout_operator.model.budget import Budget
from rollout_operator.model.names import Uid
from rollout_operator.planning.budgets.counting import find_partition

ZONED = r"[a-z\-]+-(zone-[a-z]-[0-9]+)"
OPTIONAL = r"[a-z\-]+-zone-[a-z]-(partition\-)?([0-9]+)"
TWINS = r"ingester(-foo)?-zone-[a-z]-([0-9]+)"


def partition(pattern: str, group: int, pod: str) -> str | None:
    budget = Budget(
        namespace="prod", name="ingester", uid=Uid("u"), resource_version="1",
        pattern=pattern, pattern_group=group,
    )  # fmt: skip
    return find_partition(budget, pod)


@pytest.mark.parametrize(
    ("pattern", "group", "pod", "expected"),
    [
        pytest.param(ZONED, 1, "ingester-zone-a-0", "zone-a-0", id="T-09 ingester"),
        pytest.param(ZONED, 1, "test-app-zone-a-0", "zone-a-0", id="T-09 another name"),
        pytest.param(ZONED, 1, "", None, id="T-09 no name"),
        pytest.param(ZONED, 1, "ingester-zone-a", None, id="T-09 no ordinal"),
        pytest.param(ZONED, 1, "test-app-1", None, id="T-09 no zone"),
        pytest.param(OPTIONAL, 2, "ingester-zone-a-5", "5", id="T-09 without the optional part"),
        pytest.param(OPTIONAL, 2, "ingester-zone-a-partition-5", "5", id="T-09 with it"),
        pytest.param(OPTIONAL, 1, "ingester-zone-a-5", None, id="W-28 an optional group"),
        pytest.param(TWINS, 2, "ingester-foo-zone-a-1", "1", id="T-09 foo"),
        pytest.param(TWINS, 2, "ingester-zone-a-1", "1", id="T-09 no foo"),
        pytest.param("ingester-([0-9]*)", 1, "ingester-", None, id="an empty partition is none"),
        pytest.param("a-([0-9]+)|b-x", 1, "a-1-more", None, id="W-28 grouped before anchoring"),
        pytest.param(ZONED, 1, "ingester-zone-a-0\n", None, id="not a name"),
        pytest.param(r"(\pL+)-0", 1, "\u00e9-0", "\u00e9", id="letters of all scripts"),
        pytest.param("([bad", 1, "a", None, id="never read as a budget"),
        pytest.param("(a)", 2, "a", None, id="a group that is not there"),
        pytest.param("(a)", 0, "a", None, id="no group"),
    ],
)
def test_t09_partition_of_a_pod(pattern: str, group: int, pod: str, expected: str | None) -> None:
    assert partition(pattern, group, pod) == expected


def test_sec_16_names_beyond_any_limit() -> None:
    assert partition("(a+)+", 1, "a" * 2**20) is None
