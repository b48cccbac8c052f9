"""What the pages of docs show as examples, for tests that try them out."""

import re

from tests.code_rules import ROOT


def example_of(page: str, word: str) -> str:
    """Return the one indented block of a page that holds a word, without its indentation."""
    text = (ROOT / "docs" / page).read_text()
    blocks = re.findall(r"(?:^ {4}.*\n|^\n(?= {4}))+", text, re.MULTILINE)
    (block,) = (one for one in blocks if word in one)
    return "\n".join(line[4:] for line in block.splitlines())


def chapter_of(page: str, title: str) -> str:
    """Return what stands below a heading of the second level, up to the next one."""
    _, found, rest = (ROOT / "docs" / page).read_text().partition(f"\n## {title}\n")
    assert found, f"docs/{page} has no chapter {title}"
    return rest.partition("\n## ")[0]
