"""Pages: links that lead somewhere, guides and commands that are run, and the site of them."""

import re
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urldefrag

import pytest
import yaml

from rollout_operator.model.outcome import Code
from tests.code_rules import ROOT
from tests.prose import collect_anchors, list_links, list_pages
from tests.site.forge import DOCS, FORGE, MOVED, TOP, adapt, fill, render_redirect

REPOSITORY: Final = "https://github.com/rollout-operator/rollout-operator/"
ELSEWHERE: Final = re.compile(r"[a-z]+:")
README: Final = (ROOT / "README.md").read_text()
HELM: Final = (
    "helm install rollout-operator charts/rollout-operator --namespace rollouts --create-namespace"
)
SIMULATE: Final = "tests/system/test_commands.py"
# Each command outside of the sections that tests/system/test_pages.py runs, and what tries it.
TRIED: Final = {
    "make demo": "tests/lab/demo/test_command.py",
    HELM: "tests/system/test_chart.py",
    "kubectl apply -k manifests/overlays/install": "tests/system/test_installations.py",
    "kubectl apply -f install.yaml": "tests/system/test_installations.py",
    "rollout-operator doctor -n rollouts": "tests/system/test_doctor.py",
    "kubectl get statefulsets,pods,zpdb,pdb -o yaml > dump.yaml": SIMULATE,
    'rollout-operator simulate -f dump.yaml -change "new template"': SIMULATE,
}
CHAPTERS: Final = ("## What you need", "## When it stands still", "## How to undo")


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


@pytest.mark.parametrize("page", list_pages(ROOT), ids=lambda page: page.name)
def test_every_link_leads_to_a_file_and_a_heading_of_it(page: Path) -> None:
    """An address on the forge would lead to another version, and dies with the branch."""
    links = list_links(page.read_text())

    assert list_dead_links(page) == []
    assert [each for each in links if re.match(rf"{REPOSITORY}(blob|tree|raw)/", each)] == []


def test_every_command_of_the_readme_is_tried() -> None:
    """Those of two sections are run by tests/system/test_pages.py."""
    parts = re.split(r"^## (.+)$", README, flags=re.MULTILINE)[1:]
    texts = dict(zip(parts[::2], parts[1::2], strict=True))
    run = texts["Roll out your own zones"] + texts["When a rollout stands still"]

    assert {*_list_commands(README)} == {*_list_commands(run), *TRIED}
    assert [file for file in TRIED.values() if not (ROOT / file).is_file()] == []


def _list_commands(text: str) -> list[str]:
    return re.findall(r"^\$ (.+)$", text, re.MULTILINE)


def test_the_figures_are_those_of_the_page_about_speed() -> None:
    speed = (ROOT / "docs" / "speed.md").read_text()

    assert all(figure in README and figure in speed for figure in ("6.3 s", "6.9 s", "48.8 s"))


def test_each_guide_is_run_and_names_reasons_of_the_code() -> None:
    runs = (ROOT / "tests" / "system" / "test_pages.py").read_text()
    for page in (DOCS / "guides").glob("*.md"):
        text = page.read_text()
        assert [chapter for chapter in CHAPTERS if f"\n{chapter}\n" not in text] == [], page.name
        assert f'"{page.name}"' in runs
        rows = text.partition(CHAPTERS[1])[2].partition("\n## ")[0]
        symptoms = [row.split(" | ")[0] for row in rows.splitlines() if row.startswith("| ")]
        named = {code for one in symptoms for code in re.findall(r"`([a-z]+(?:_[a-z]+)+)`", one)}
        assert named <= set(Code), page.name


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
