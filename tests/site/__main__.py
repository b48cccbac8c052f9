"""Build the site strictly, and check what has come of it: `make docs`."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Final

from tests.code_rules import ROOT

SITE: Final = ROOT / "site"
# What a browser fetches by itself. Links that a reader follows may lead anywhere.
FETCHED: Final = {"script": "src", "img": "src", "iframe": "src", "source": "src"}
LINKED: Final = {"stylesheet", "icon", "preload", "preconnect", "dns-prefetch", "manifest"}
ELSEWHERE: Final = re.compile(r"^(?:[a-z][a-z0-9+.-]*:)?//", re.IGNORECASE)
STYLE: Final = re.compile(r"url\(\s*['\"]?(https?:[^)'\"]+)")


class PageReader(HTMLParser):
    """What one page fetches."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value for name, value in attrs if value is not None}
        if values.get(FETCHED.get(tag, "")):
            self.fetched.append(values[FETCHED[tag]])
        if tag == "link" and LINKED & {*values.get("rel", "").split()}:
            self.fetched.append(values.get("href", ""))


def read_site(site: Path) -> dict[Path, PageReader]:
    pages = {}
    for path in sorted(site.rglob("*.html")):
        pages[path] = PageReader()
        pages[path].feed(path.read_text("utf-8"))
    return pages


def list_faults(site: Path) -> Iterator[str]:
    """Yield what is fetched from elsewhere; mkdocs checks the links."""
    pages = read_site(site)
    for path, page in pages.items():
        name = path.relative_to(site)
        yield from (f"{name}: fetches {url}" for url in page.fetched if ELSEWHERE.match(url))
    for path in sorted(site.rglob("*.css")):
        for url in STYLE.findall(path.read_text("utf-8")):
            yield f"{path.relative_to(site)}: fetches {url}"


def main() -> int:
    """Build and check; return the exit code."""
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--clean"],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        check=False,
    )
    faults = [*list_faults(SITE)] if built.returncode == 0 else []
    for fault in faults:
        sys.stderr.write(f"{fault}\n")
    if built.returncode == 0 and not faults:
        sys.stdout.write(f"{len(read_site(SITE))} pages in {SITE.relative_to(ROOT)}/\n")
    return built.returncode or bool(faults)


if __name__ == "__main__":
    sys.exit(main())
