"""Every reason has a meaning, and many a remedy, in plain words."""

from collections.abc import Mapping

import pytest

from rollout_operator.model.outcome import MEANINGS, REMEDIES, Code, render_path

LONGEST = 100


def test_every_code_means_something() -> None:
    """D-40."""
    assert set(MEANINGS) == set(Code)


@pytest.mark.parametrize("table", [MEANINGS, REMEDIES])
def test_each_line_is_short_and_plain(table: Mapping[Code, str]) -> None:
    """D-40."""
    for text in table.values():
        assert 0 < len(text) <= LONGEST
        assert text.isprintable()
        assert text == text.strip(" .")


def test_the_link_leads_to_the_code() -> None:
    assert render_path(Code.PAUSED) == "/reasons#paused"
