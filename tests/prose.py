"""The links and anchors of a page."""

import re
import unicodedata
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.token import Token

TEXTS: Final = {"text", "code_inline"}
PARSER: Final = MarkdownIt("commonmark").enable("table")


def list_links(markdown: str) -> Iterator[str]:
    """Yield the targets of links and pictures, those of tables included."""
    for token in PARSER.parse(markdown):
        for child in token.children or ():
            target = child.attrs.get("href" if child.type == "link_open" else "src")
            if child.type in {"link_open", "image"} and target:
                yield str(target)


def collect_anchors(markdown: str) -> set[str]:
    """Return the anchors that a forge makes of the headings, and those that are set by hand."""
    anchors = set(re.findall(r'<a (?:id|name)="([^"]+)"', markdown))
    tokens = PARSER.parse(markdown)
    seen: dict[str, int] = {}
    for opening, inline in pairwise(tokens):
        if opening.type == "heading_open":
            anchor = make_anchor(_read(inline))
            count = seen[anchor] = seen.get(anchor, -1) + 1
            anchors.add(f"{anchor}-{count}" if count else anchor)
    return anchors


def make_anchor(heading: str) -> str:
    """Return the anchor that a forge gives a heading."""
    kept = "".join(
        each for each in heading.lower() if each in " -_" or unicodedata.category(each)[0] in "LN"
    )
    return kept.replace(" ", "-")


def list_pages(root: Path) -> list[Path]:
    """Return the pages that people read: those of the top, and all of docs."""
    return [*sorted(root.glob("*.md")), *sorted((root / "docs").rglob("*.md"))]


def _read(token: Token) -> str:
    """Return the text of a heading, code in it as it stands."""
    breaks = {"softbreak", "hardbreak"}
    return "".join(
        " " if child.type in breaks else child.content if child.type in TEXTS else ""
        for child in token.children or ()
    )
