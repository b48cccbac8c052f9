"""Sentences of the documentation have at most thirty words, so that one reading is enough."""

from pathlib import Path
from typing import Final

import pytest

from tests.code_rules import ROOT
from tests.prose import list_pages, list_sentences

MOST_WORDS: Final = 30
# History is not written anew.
LEFT_OUT: Final = {"CHANGELOG.md"}
PAGES: Final = [page for page in list_pages(ROOT) if page.name not in LEFT_OUT]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_no_sentence_is_too_long(page: Path) -> None:
    name = page.relative_to(ROOT).as_posix()
    longer = [
        f"{name}:{each.line}: {each.words} words: {each.text}"
        for each in list_sentences(page.read_text())
        if each.words > MOST_WORDS
    ]

    assert longer == []
