"""What the pages of the documents say: chapters, rows of tables, examples, links and anchors."""

import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import Final

from markdown_it import MarkdownIt

from tests.code_rules import ROOT

DOCS: Final = ROOT / "docs"
PARSER: Final = MarkdownIt("commonmark").enable("table")


def example_of(page: str, word: str) -> str:
    """Return the one indented block of a page that holds a word, without its indentation."""
    blocks = re.findall(r"(?:^ {4}.*\n|^\n(?= {4}))+", (DOCS / page).read_text(), re.MULTILINE)
    (block,) = (one for one in blocks if word in one)
    return "\n".join(line[4:] for line in block.splitlines())


def chapter_of(page: str, title: str) -> str:
    """Return what stands below a heading of any level, up to the next one of its level or above."""
    text = f"\n{(DOCS / page).read_text()}"
    found = re.search(rf"\n(#+) {re.escape(title)}\n", text)
    assert found, f"docs/{page} has no chapter {title}"
    return re.split(rf"\n#{{2,{len(found[1])}}} ", text[found.end() :])[0]


def rows_of(text: str) -> list[list[str]]:
    """Return the cells of all rows of tables, but for their heads."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    heads = {number for number, line in enumerate(lines) if line.startswith("| ---")}
    return [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))]
        for number, line in enumerate(lines)
        if not {number, number + 1} & heads
    ]


def list_links(markdown: str) -> Iterator[str]:
    """Yield the targets of links and pictures, those of tables included."""
    for token in PARSER.parse(markdown):
        for child in token.children or ():
            target = child.attrs.get("href" if child.type == "link_open" else "src")
            if child.type in {"link_open", "image"} and target:
                yield str(target)


@cache
def collect_anchors(markdown: str) -> set[str]:
    """Return the anchors that a forge makes of the headings, and those that are set by hand."""
    anchors = set(re.findall(r'<a (?:id|name)="([^"]+)"', markdown))
    seen: dict[str, int] = {}
    for opening, inline in pairwise(PARSER.parse(markdown)):
        if opening.type == "heading_open":
            parts = inline.children or ()
            text = "".join(one.content or " " * one.type.endswith("break") for one in parts).lower()
            kept = [one for one in text if one in " -_" or unicodedata.category(one)[0] in "LN"]
            anchor = "".join(kept).replace(" ", "-")
            count = seen[anchor] = seen.get(anchor, -1) + 1
            anchors.add(f"{anchor}-{count}" if count else anchor)
    return anchors
