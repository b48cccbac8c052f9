"""`docs/moving.md` says of findings, rights and messages what is there."""

import re
from collections.abc import Iterator
from typing import Final

from rollout_operator.model.outcome import Code
from rollout_operator.planning.adoption import AdoptionCode
from tests.code_rules import ROOT
from tests.system.grants import shipped_grants

PAGE: Final = (ROOT / "docs/moving.md").read_text().partition("\n## Shadow mode\n")[0]
COMPONENTS: Final = ("webhooks", "scaling", "mirroring", "zone-tracker")
VERBS: Final = r"\b(?:get|list|watch|delete|patch|update|create)\b"


def list_rows(title: str) -> Iterator[list[str]]:
    """Yield the cells of the rows of a chapter, but for its heads."""
    chapter = PAGE.partition(f"\n### {title}\n")[2].partition("\n### ")[0].partition("\n## ")[0]
    for line in chapter.splitlines():
        if line.startswith("| ") and not line.startswith("| ---"):
            yield [cell.strip() for cell in line.strip("|").split("|")]


def test_each_finding_has_its_row() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (?:info|warn|error) \|", PAGE, re.MULTILINE)

    assert rows == [str(code) for code in AdoptionCode]


def test_the_rights_are_those_that_are_shipped() -> None:
    """Of the base and of each component that the page names."""
    documented = {
        (verb, cells[0].partition("`")[2].partition("`")[0])
        for cells in list_rows("Rights")
        for verb in re.findall(VERBS, cells[2])
    }
    shipped = set(shipped_grants("base"))
    for component in COMPONENTS:
        shipped |= shipped_grants(f"components/{component}")

    assert documented == shipped


def test_messages_and_reasons_are_in_the_program() -> None:
    sources = "\n".join(path.read_text() for path in (ROOT / "rollout_operator").rglob("*.py"))
    rows = [cells[1] for cells in list_rows("Messages") if len(cells) == 2][1:]

    messages = [text for row in rows for text in re.findall(r"`([A-Z][a-z ]+)`", row)]
    assert len(messages) > 8
    assert [text for text in messages if f'"{text}"' not in sources] == []
    reasons = re.findall(r"`reason=(\w+)`|or `(\w+)`", " ".join(rows))
    assert {one or other for one, other in reasons} <= {str(code) for code in Code}
