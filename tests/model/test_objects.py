"""Names of pods and the ordinals in them: exactly what a StatefulSet controller writes."""

from typing import cast

import pytest

from rollout_operator.model.objects import parse_ordinal
from tests.builders import sts


@pytest.mark.parametrize(
    ("digits", "ordinal"),
    [("0", 0), ("7", 7), ("10", 10), ("2147483647", 2147483647)],
)
def test_an_ordinal_as_a_controller_writes_it(digits: str, ordinal: int) -> None:
    assert parse_ordinal(digits) == ordinal


@pytest.mark.parametrize(
    "digits", ["", "00", "01", "+1", "-1", " 1", "1 ", "1_0", "x", "\u0661", "\u00b2", "9" * 5000]
)
def test_si10_everything_else_is_none(digits: str) -> None:
    """A pod `zone-a-01` is not the pod 1 of its set."""
    assert parse_ordinal(digits) is None


@pytest.mark.parametrize(
    ("pod", "ordinal"),
    [
        ("zone-a-3", 3),
        ("zone-a-03", None),
        ("zone-a-", None),
        ("zone-a", None),
        ("zone-a-b-3", None),
        ("zone-b-3", None),
        ("3", None),
    ],
)
def test_si10_the_ordinal_of_a_pod(pod: str, ordinal: int | None) -> None:
    assert sts("a").ordinal_of(pod) == ordinal


class Unwalked:
    """As many ordinals as there can be; it breaks when something walks them one by one."""

    def __contains__(self, ordinal: object) -> bool:
        # `range` compares anything but a number with each of its own.
        assert isinstance(ordinal, int)
        return ordinal in range(2**31 - 1)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("zone-a-7", 7), ("zone-a-2147483647", None), ("zone-a-debug", None), ("other", None)],
)
def test_d51_an_ordinal_is_found_without_a_walk_through_the_range(
    name: str, expected: int | None
) -> None:
    wanted = cast("range", Unwalked())

    assert sts("a").find_ordinal(name, wanted) == expected
