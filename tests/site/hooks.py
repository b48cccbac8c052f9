"""How pages that are written for a forge become pages of a site, as mkdocs builds it.

Files beside docs/ that readers want become pages; links to other files of the repository lead to
the forge; diagrams that a browser would need a library from elsewhere for become tables. A page
that would look otherwise here than on the forge ends a strict build.
"""

import logging
import re
from pathlib import Path
from typing import Final

from markdown_it import MarkdownIt
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from tests.code_rules import ROOT
from tests.site.forge import MOVED, TOP, adapt, fill, render_redirect

log: Final = logging.getLogger("mkdocs.site")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Fill folders of the navigation with their pages."""
    config.nav = [found for entry in config.nav or [] for found in fill(entry)]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made of files of the top."""
    for source, page in TOP.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text("utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    return adapt(markdown, page.file.src_uri)


def on_post_build(config: MkDocsConfig) -> None:
    """Leave a page that leads on at each address that has moved."""
    for old, target in MOVED.items():
        path = Path(config.site_dir, old.removesuffix(".md"), "index.html")
        path.parent.mkdir()
        path.write_text(render_redirect(target), "utf-8")


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Warn where the site's renderer sees other blocks than those of forges do."""
    theirs = MarkdownIt("commonmark").enable("table").render(page.markdown or "")
    for tag in ("li", "tr", "pre", "h2", "h3"):
        here, there = (len(re.findall(rf"<{tag}[ >]", text)) for text in (html, theirs))
        if here != there:
            log.warning("%s: %s <%s> here, %s on a forge", page.file.src_uri, here, tag, there)
    return html
