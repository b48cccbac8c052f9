"""`docs/migrate.md` explains each finding of `adopt`."""

import re

from rollout_operator.model.adoption.proposal import AdoptionCode
from tests.code_rules import ROOT

PAGE = (ROOT / "docs/migrate.md").read_text()


def test_each_finding_has_its_row() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (?:info|warn|error) \|", PAGE, re.MULTILINE)

    assert rows == [str(code) for code in AdoptionCode]
