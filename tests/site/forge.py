"""What a page that is written for a forge needs to be a page of the site."""

import posixpath
import re
from typing import Any, Final

from tests.code_rules import ROOT

DOCS: Final = ROOT / "docs"
FORGE: Final = "https://github.com/rollout-operator/rollout-operator/blob/main/"
# Files of the repository's top that are pages, by the names they have there.
TOP: Final = {
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
}
# Pages that were merged into others, by where links to them lead now.
MOVED: Final = {
    "alerts.md": "monitoring.md#alerts",
    "availability.md": "install.md#availability",
    "comparison.md": "moving.md#how-it-compares",
    "compatibility.md": "moving.md#compatibility",
    "demo.md": "tutorial.md#the-demo",
    "doctor.md": "commands.md#doctor",
    "endpoints.md": "monitoring.md#endpoints",
    "events.md": "monitoring.md#events",
    "faq.md": "troubleshooting.md#questions",
    "kustomize.md": "install.md#kustomize-or-one-file",
    "metrics.md": "monitoring.md#metrics",
    "migrate.md": "moving.md",
    "namespaces.md": "install.md#several-namespaces",
    "reasons.md": "monitoring.md#reasons",
    "shadow.md": "moving.md#shadow-mode",
    "status-page.md": "commands.md#the-status-page",
    "tracing.md": "monitoring.md#tracing",
}
RELATIVE: Final = re.compile(r"(!?\[[^\]]*\]\()(?![a-z]+:|#|/)([^)#\s]+)")
DIAGRAM: Final = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BOX: Final = re.compile(r'^\s*(\w+)\["<b>(\w+)</b>', re.MULTILINE)
ARROW: Final = re.compile(r"^\s*(\w+) --> (\w+)$", re.MULTILINE)


def adapt(markdown: str, own: str) -> str:
    """Return the text of the page `own` with links and diagrams as the site wants them."""
    source = {made: name for name, made in TOP.items()}.get(own, f"docs/{own}")
    linked = RELATIVE.sub(lambda link: link[1] + _lead(source, own, link[2]), markdown)
    return DIAGRAM.sub(lambda found: _tabulate(found[1]), linked)


def render_redirect(target: str) -> str:
    """Return a page that leads to `PAGE.md#ANCHOR`; an anchor of the old address wins."""
    page, _, anchor = target.partition("#")
    url = f"../{page.removesuffix('.md')}/"
    whole = f"{url}#{anchor}" if anchor else url
    return (
        f'<!doctype html><meta charset="utf-8"><title>Moved</title>'
        f'<script>location.replace("{url}" + (location.hash || "{"#" + anchor if anchor else ""}"))'
        f'</script><noscript><meta http-equiv="refresh" content="0; url={whole}"></noscript>'
        f'<p>This page has moved to <a href="{whole}">{whole}</a>.</p>\n'
    )


def fill(entry: Any) -> list[Any]:
    """Return an entry of the navigation, with folders as their pages."""
    if isinstance(entry, str):
        return _list_pages(entry) if (DOCS / entry).is_dir() else [entry]
    ((title, inner),) = entry.items()
    if isinstance(inner, str):
        return [{title: fill(inner)} if (DOCS / inner).is_dir() else entry]
    return [{title: [page for each in inner for page in fill(each)]}]


def _list_pages(folder: str) -> list[str]:
    """Return the pages of a folder by name, what introduces them first."""
    names = [page.name for page in (DOCS / folder).glob("*.md")]
    return [
        f"{folder}/{name}" for name in sorted(names, key=lambda each: (each != "index.md", each))
    ]


def _lead(source: str, own: str, target: str) -> str:
    """Return where a link leads on the site, or else on the forge."""
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
    if path.startswith("docs/"):
        path = path.removeprefix("docs/")
    elif path in TOP:
        path = TOP[path]
    else:
        return FORGE + path
    return posixpath.relpath(path, posixpath.dirname(own) or ".")


def _tabulate(diagram: str) -> str:
    """Return what the arrows of a diagram say as a table."""
    names = dict(BOX.findall(diagram))
    arrows = ARROW.findall(diagram)
    rows = [
        f"| {name} | {', '.join(names[end] for begin, end in arrows if begin == box) or 'none'} |"
        for box, name in names.items()
    ]
    return "\n".join(["| layer | imports |", "| --- | --- |", *rows])
