"""A comparison of values that fails names the fields that differ."""

import msgspec
import pytest

from tests.conftest import pytest_assertrepr_compare


class Place(msgspec.Struct):
    zone: str
    ordinal: int = 0


@pytest.mark.parametrize(
    ("op", "right", "lines"),
    [
        pytest.param("==", Place("b"), ["Place differs in", "zone: 'a' != 'b'"], id="a field"),
        pytest.param("!=", Place("a"), None, id="of another comparison pytest says it"),
        pytest.param("==", "a", None, id="of other kinds, too"),
    ],
)
def test_the_fields_that_differ_are_named(op: str, right: object, lines: list[str] | None) -> None:
    assert pytest_assertrepr_compare(op, Place("a"), right) == lines
