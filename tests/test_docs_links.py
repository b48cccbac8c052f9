"""Every link between files of the repository leads to a file, and to a heading of it."""

import re
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

from tests.code_rules import ROOT
from tests.prose import collect_anchors, list_links, list_pages

FORGE = "https://github.com/rollout-operator/rollout-operator/"
ELSEWHERE = re.compile(r"[a-z]+:")
PAGES = list_pages(ROOT)


def list_dead_links(page: Path) -> list[str]:
    """Return the links of a page that lead to no file, or to no heading."""
    return [link for link in list_links(page.read_text()) if not _is_alive(page, link)]


def _is_alive(page: Path, link: str) -> bool:
    path, anchor = urldefrag(link)
    if ELSEWHERE.match(path):
        return True
    target = (page.parent / unquote(path)).resolve() if path else page
    if not target.exists() or not target.is_relative_to(ROOT):
        return False
    return not anchor or target.suffix != ".md" or anchor in collect_anchors(target.read_text())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_leads_somewhere(page: Path) -> None:
    assert list_dead_links(page) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_file_of_the_repository_is_linked_as_a_file(page: Path) -> None:
    """An address on the forge would lead to another version, and dies with the branch."""
    files = [each for each in list_links(page.read_text()) if each.startswith(FORGE)]
    assert [each for each in files if re.match(rf"{FORGE}(blob|tree|raw)/", each)] == []
