"""The guides: the same chapters in each, reasons that there are, and all of them run."""

import re
from pathlib import Path
from typing import Final

import pytest

from rollout_operator.model.outcome import Code
from tests.code_rules import ROOT

GUIDES: Final = sorted((ROOT / "docs" / "guides").glob("*.md"))
RUNS: Final = (ROOT / "tests" / "system" / "test_pages.py").read_text()
CHAPTERS: Final = ("## What you need", "## When it stands still", "## How to undo")

all_guides = pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)


@all_guides
def test_each_is_run_and_has_the_same_chapters(page: Path) -> None:
    text = page.read_text()

    assert [chapter for chapter in CHAPTERS if f"\n{chapter}\n" not in text] == []
    assert f'"{page.name}"' in RUNS


@all_guides
def test_reasons_are_those_of_the_code(page: Path) -> None:
    rows = page.read_text().partition(CHAPTERS[1])[2].partition("\n## ")[0]
    symptoms = [row.split(" | ")[0] for row in rows.splitlines() if row.startswith("| ")]
    named = {code for one in symptoms for code in re.findall(r"`([a-z]+(?:_[a-z]+)+)`", one)}

    assert named <= set(Code)
