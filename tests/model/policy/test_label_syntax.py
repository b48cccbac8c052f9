"""How keys and values of labels are spelled."""

import pytest

from rollout_operator.model.names import InvalidInput
from rollout_operator.model.policy import check_label_key, check_label_value

PREFIX = ".".join(["a" * 62] * 4)


@pytest.mark.parametrize(
    "text", ["zone", "Zone_1.x", "topology.kubernetes.io/zone", f"{PREFIX}a/{'b' * 63}", "a"]
)
def test_keys(text: str) -> None:
    """MAZ-09: a name, and a domain before it where there is a slash."""
    assert check_label_key(text) == text


@pytest.mark.parametrize(
    "text",
    ["", "/", "a/", "/a", "-a", "a-", "a/b/c", "A.io/a", "a..b/c", "a b", "zone\n", "é",
     "b" * 64, f"{PREFIX}aaa/a"],
)  # fmt: skip
def test_what_is_no_key(text: str) -> None:
    """MAZ-09."""
    with pytest.raises(InvalidInput, match="is no name of a label"):
        check_label_key(text)


@pytest.mark.parametrize("text", ["", "a", "A_b.c-1", "b" * 63])
def test_values(text: str) -> None:
    """MAZ-04."""
    assert check_label_value(text) == text


@pytest.mark.parametrize("text", ["-a", "a_", "a/b", "b" * 64])
def test_what_is_no_value(text: str) -> None:
    """MAZ-04."""
    with pytest.raises(InvalidInput, match="is no value of a label"):
        check_label_value(text)
