"""The site has all pages, loads nothing from elsewhere, and says what the files say."""

from typing import Any

import pytest
import yaml

from tests.code_rules import ROOT
from tests.prose import collect_anchors
from tests.site.forge import DOCS, FORGE, MOVED, TOP, adapt, fill, render_redirect


class PlainLoader(yaml.SafeLoader):
    """YAML without the Python objects that mkdocs lets it name."""


PlainLoader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)


def read_settings() -> dict[str, Any]:
    text = (ROOT / "mkdocs.yml").read_text()
    settings: dict[str, Any] = yaml.load(text, Loader=PlainLoader)  # noqa: S506
    return settings


def list_entries(entry: Any) -> list[str]:
    """Return all strings of a navigation."""
    if isinstance(entry, str):
        return [entry]
    inner = entry.values() if isinstance(entry, dict) else entry
    return [found for each in inner for found in list_entries(each)]


def test_every_page_is_in_the_navigation_once() -> None:
    """A new page has its place in `nav` of mkdocs.yml."""
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    nav = [found for entry in read_settings()["nav"] for found in fill(entry)]
    entries = list_entries(nav)

    assert sorted(entries) == sorted(pages | {*TOP.values()})


def test_the_navigation_names_nothing_that_is_not_there() -> None:
    entries = {*list_entries(read_settings()["nav"])} - {*TOP.values()}
    assert {entry for entry in entries if not (DOCS / entry).exists()} == set()


@pytest.mark.parametrize(("old", "target"), MOVED.items())
def test_an_old_address_leads_to_where_its_text_is(old: str, target: str) -> None:
    page, _, anchor = target.partition("#")

    assert not (DOCS / old).exists()
    assert not anchor or anchor in collect_anchors((DOCS / page).read_text())
    assert f'"../{page.removesuffix(".md")}/"' in render_redirect(target)


def test_nothing_is_sent_to_others_by_settings() -> None:
    """Fonts come from a service, and stars from the forge, unless set otherwise."""
    settings = read_settings()

    assert settings["strict"] is True
    assert settings["theme"]["font"] is False
    assert "repo_url" not in settings
    assert [path for path in settings.get("extra_javascript", []) if "//" in path] == []


@pytest.mark.parametrize(
    ("own", "text", "adapted"),
    [
        ("a.md", "[x](b.md#c)", "[x](b.md#c)"),
        ("a.md", "[x](../SECURITY.md#c)", "[x](security.md#c)"),
        ("a.md", "[x](../manifests/base)", f"[x]({FORGE}manifests/base)"),
        ("guides/a.md", "![x](../pictures/b.svg)", "![x](../pictures/b.svg)"),
        ("guides/a.md", "[x](../../LICENSE)", f"[x]({FORGE}LICENSE)"),
        ("security.md", "[x](docs/webhooks.md)", "[x](webhooks.md)"),
        ("security.md", "[x](CHANGELOG.md), [y](#z)", "[x](changelog.md), [y](#z)"),
        ("a.md", "[x](https://example.org/y)", "[x](https://example.org/y)"),
    ],
)
def test_links_lead_to_pages_or_to_the_forge(own: str, text: str, adapted: str) -> None:
    assert adapt(text, own) == adapted


def test_a_diagram_becomes_a_table() -> None:
    """Drawing it would take a library from elsewhere."""
    diagram = '```mermaid\nflowchart TD\n  a["<b>a</b>"]\n  b["<b>b</b><br/>c"]\n  a --> b\n```'

    assert adapt(diagram, "a.md").splitlines()[2:] == ["| a | b |", "| b | none |"]
    assert "mermaid" not in adapt((DOCS / "architecture.md").read_text(), "architecture.md")
