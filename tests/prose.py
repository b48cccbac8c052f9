"""The prose of a page: its sentences, headings and links, without code and tables."""

import re
import unicodedata
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec
from markdown_it import MarkdownIt
from markdown_it.token import Token

# A sentence ends with one of these and a space behind it. What follows a colon at the end of a line
# of text is a list, a table or code, and those are checked by themselves.
END: Final = re.compile(r"(?<=[.!?:])[)\"'”]*\s+(?=[\"'“(]*[A-ZÄ\d`])")
# Dots that end nothing.
SHORT: Final = re.compile(r"\b(e\.g|i\.e|vs|etc|cf)\.")
# How a word of a sentence looks; dashes and arrows that stand alone are none.
WORD: Final = re.compile(r"\w")
PARSER: Final = MarkdownIt("commonmark").enable("table")


class Sentence(msgspec.Struct, frozen=True, kw_only=True):
    """One sentence, where its block begins, and how many words it has."""

    line: int
    text: str

    @property
    def words(self) -> int:
        """Return its length; code within a line counts as one word."""
        return sum(1 for word in self.text.split() if WORD.search(word))


def list_sentences(markdown: str) -> Iterator[Sentence]:
    """Yield the sentences of paragraphs, list items and headings."""
    in_table = False
    for token in PARSER.parse(markdown):
        if token.type in {"table_open", "table_close"}:
            in_table = token.type == "table_open"
        if token.type == "inline" and not in_table:
            line = (token.map or [0])[0] + 1
            text = SHORT.sub(r"\1", _read(token))
            yield from (Sentence(line=line, text=each) for each in END.split(text) if each)


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
            anchor = make_anchor(_read(inline, as_it_is=True))
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


def _read(token: Token, *, as_it_is: bool = False) -> str:
    """Return the text of a block.

    Code becomes one word, and a mark stands before it and before links: a sentence may begin with
    them in small letters.
    """
    pieces = []
    for child in token.children or ():
        if child.type == "code_inline":
            pieces.append(child.content if as_it_is else "`code")
        elif child.type == "link_open" and not as_it_is:
            pieces.append("`")
        elif child.type in {"softbreak", "hardbreak"}:
            pieces.append(" ")
        elif child.type == "text":
            pieces.append(child.content)
    return "".join(pieces)
