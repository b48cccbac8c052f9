"""Every reason has a meaning and a remedy in plain words."""

from collections.abc import Mapping

import pytest

from rollout_operator.model.outcome import Code
from rollout_operator.model.reasons.meanings import MEANINGS
from rollout_operator.model.reasons.remedies import REMEDIES, render_path

LONGEST = 100


@pytest.mark.parametrize("table", [MEANINGS, REMEDIES])
def test_every_code_has_its_line(table: Mapping[Code, str]) -> None:
    """D-40."""
    assert set(table) == set(Code)
    assert {
        text for text in table.values() if len(text) > LONGEST or not text.isprintable()
    } == set()
    assert {text for text in table.values() if text != text.strip(" .")} == set()


def test_every_code_means_something() -> None:
    assert [code for code, meaning in MEANINGS.items() if not meaning] == []


def test_the_link_leads_to_the_code() -> None:
    assert render_path(Code.PAUSED) == "/reasons#paused"
