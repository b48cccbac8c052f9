"""Pages: links that lead somewhere, commands that are run, and the site that is made of them."""

import re
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urldefrag

import pytest
import yaml

from rollout_operator.model.outcome import Code
from tests.code_rules import ROOT
from tests.pages import DOCS, chapter_of, collect_anchors, list_links, rows_of
from tests.site.forge import FORGE, MOVED, TOP, adapt, fill, render_redirect

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
    "rollout-operator doctor -n rollouts": "tests/system/doctor.txt",
    "kubectl get statefulsets,pods,zpdb,pdb -o yaml > dump.yaml": SIMULATE,
    'rollout-operator simulate -f dump.yaml -change "new template"': SIMULATE,
}
SOURCES: Final = (ROOT, ROOT / "rollout_operator", ROOT / "lab")
FOLDERS: Final = "|".join(
    sorted({path.name for top in SOURCES for path in top.iterdir() if path.is_dir()} - {"site"})
)
NAMED: Final = re.compile(rf"`((?:{FOLDERS})/[\w./*-]+)`")


def _is_alive(page: Path, link: str) -> bool:
    path, anchor = urldefrag(link)
    if re.match(r"[a-z]+:", path):
        # An address on the forge would lead to another version, and dies with the branch.
        return not re.match(rf"{FORGE.removesuffix('blob/main/')}(blob|tree|raw)/", path)
    target = (page.parent / unquote(path)).resolve() if path else page
    if not target.exists() or not target.is_relative_to(ROOT):
        return False
    return not anchor or target.suffix != ".md" or anchor in collect_anchors(target.read_text())


def test_every_link_leads_to_a_file_and_a_heading_of_it() -> None:
    pages = [*ROOT.glob("*.md"), *DOCS.rglob("*.md")]
    links = [(page, link) for page in pages for link in list_links(page.read_text())]
    assert len(links) > 300
    assert [f"{page.name}: {link}" for page, link in links if not _is_alive(page, link)] == []


def test_every_file_of_the_source_that_a_page_names_is_there() -> None:
    """Modules are named without their ending, and those of the package without its name.

    The changelog names what has been.
    """
    pages = [page for page in (*ROOT.glob("*.md"), *DOCS.rglob("*.md")) if page.stem != "CHANGELOG"]
    lost = [
        f"{page.name}: {name}"
        for page in pages
        for name in {*NAMED.findall(page.read_text())}
        if not any([*top.glob(name + end)] for top in SOURCES for end in ("", ".py"))
    ]
    assert lost == []


def test_every_command_of_the_readme_is_tried() -> None:
    """Those of two sections are run by tests/system/test_pages.py."""
    parts = re.split(r"^## (.+)$", README, flags=re.MULTILINE)[1:]
    texts = dict(zip(parts[::2], parts[1::2], strict=True))
    run = texts["Roll out your own zones"] + texts["When a rollout stands still"]
    commands, tried = (re.findall(r"^\$ (.+)$", text, re.MULTILINE) for text in (README, run))
    assert {*commands} == {*tried, *TRIED}
    assert [file for file in TRIED.values() if not (ROOT / file).is_file()] == []
    speed = (DOCS / "speed.md").read_text()
    assert all(figure in README and figure in speed for figure in ("6.3 s", "6.9 s", "48.8 s"))


def test_each_guide_is_run_and_names_reasons_of_the_code() -> None:
    runs = (ROOT / "tests/system/test_pages.py").read_text()
    for page in (DOCS / "guides").glob("*.md"):
        assert f'"{page.name}"' in runs
        for title in ("What you need", "How to undo"):
            assert chapter_of(f"guides/{page.name}", title)
        symptoms = rows_of(chapter_of(f"guides/{page.name}", "When it stands still"))
        named = re.findall(r"`([a-z]+(?:_[a-z]+)+)`", " ".join(row[0] for row in symptoms))
        assert {*named} <= set(Code), page.name


# The site


class PlainLoader(yaml.SafeLoader):
    """YAML without the Python objects that mkdocs lets it name."""


PlainLoader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)
SETTINGS: Final[dict[str, Any]] = yaml.load((ROOT / "mkdocs.yml").read_text(), PlainLoader)  # noqa: S506


def _list_entries(entry: Any) -> list[str]:
    if isinstance(entry, str):
        return [entry]
    inner = entry.values() if isinstance(entry, dict) else entry
    return [found for each in inner for found in _list_entries(each)]


def test_every_page_is_in_the_navigation_once() -> None:
    """A new page has its place in `nav` of mkdocs.yml."""
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    nav = [found for entry in SETTINGS["nav"] for found in fill(entry)]
    assert sorted(_list_entries(nav)) == sorted(pages | {*TOP.values()})
    for old, target in MOVED.items():
        page, _, anchor = target.partition("#")
        assert not (DOCS / old).exists()
        assert not anchor or anchor in collect_anchors((DOCS / page).read_text())
        assert f'"../{page.removesuffix(".md")}/"' in render_redirect(target)


def test_nothing_is_sent_to_others_by_settings() -> None:
    """Fonts come from a service, and stars from the forge, unless set otherwise."""
    assert (SETTINGS["strict"], SETTINGS["theme"]["font"]) == (True, False)
    assert "repo_url" not in SETTINGS
    assert [path for path in SETTINGS.get("extra_javascript", []) if "//" in path] == []


@pytest.mark.parametrize(
    ("own", "text", "adapted"),
    [
        ("a.md", "[x](b.md#c)", "[x](b.md#c)"),
        ("a.md", "[x](../SECURITY.md#c)", "[x](security.md#c)"),
        ("guides/a.md", "![x](../pictures/b.svg)", "![x](../pictures/b.svg)"),
        ("guides/a.md", "[x](../../LICENSE)", f"[x]({FORGE}LICENSE)"),
        ("security.md", "[x](CHANGELOG.md), [y](#z)", "[x](changelog.md), [y](#z)"),
        ("security.md", "[x](docs/webhooks.md)", "[x](webhooks.md)"),
        ("a.md", "[x](https://example.org/y)", "[x](https://example.org/y)"),
    ],
)
def test_links_lead_to_pages_or_to_the_forge(own: str, text: str, adapted: str) -> None:
    assert adapt(text, own) == adapted
