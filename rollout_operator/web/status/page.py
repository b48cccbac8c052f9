"""The whole HTML page around sections: style, script, icons, and what a browser may do with it.

It needs nothing from elsewhere: style sheet and script stand in the page, and the policy names them
by their hashes. Without the script the page is loaded again every few seconds.
"""

from base64 import b64encode
from collections.abc import Iterable, Iterator
from datetime import datetime
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Final

from rollout_operator import __version__
from rollout_operator.web.status.group import POD_ICONS
from rollout_operator.web.status.markup import escape, gather, render_icon, render_time

RELOAD_SECONDS: Final = 5

# Each in a square of 16, drawn with the colour of the text beside it.
_ICONS: Final = {
    "done": '<path d="M3 8.5l3.5 3.5L13 4.5"/>',
    "moving": '<path d="M4 3l8 5-8 5z" class="f"/>',
    "scaling": '<path d="M8 2v12M4.5 5.5L8 2l3.5 3.5M4.5 10.5L8 14l3.5-3.5"/>',
    "waiting": '<circle cx="8" cy="8" r="6"/><path d="M8 4.5V8l2.5 2"/>',
    "held": '<path d="M8 1.5L15 14H1z"/><path d="M8 6v4M8 11.8v.4"/>',
    "turn": '<path d="M2 8h11M9 4l4 4-4 4"/>',
    "ready": '<path d="M3 8.5l3.5 3.5L13 4.5"/>',
    "starting": '<circle cx="8" cy="8" r="5.5"/><path d="M8 2.5a5.5 5.5 0 010 11z" class="f"/>',
    "unready": '<path d="M8 2.5v7M8 12.8v.4"/>',
    "going": '<path d="M4 4l8 8M12 4l-8 8"/>',
    "missing": '<path d="M4 8h8"/>',
    "unknown": '<path d="M5.5 6a2.5 2.5 0 115 0c0 2-2.5 2-2.5 4M8 12.8v.4"/>',
}
_FAVICON: Final = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E"
    "%3Crect width='16' height='16' rx='3' fill='%230b6bcb'/%3E"
    "%3Cpath d='M4 4h8M4 8h8M4 12h5' stroke='white' stroke-width='2'/%3E%3C/svg%3E"
)


@cache
def read_asset(name: str) -> str:
    """Return a file that lies beside this module."""
    return files(__package__).joinpath(name).read_text("utf-8")


@cache
def make_policy() -> str:
    """Return the Content-Security-Policy of every page here."""
    style, script = (_hash(read_asset(name)) for name in ("page.css", "page.js"))
    return "; ".join(
        (
            "default-src 'none'",
            f"style-src '{style}'",
            f"script-src '{script}'",
            "connect-src 'self'",
            "img-src data:",  # the icon in the tab
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
    )


def list_page(namespace: str, now: datetime, sections: Iterable[str]) -> Iterator[bytes]:
    """Yield the pieces of the status page."""
    yield _render_head(namespace, now).encode()
    yield from gather(sections)
    yield _render_foot().encode()


def list_plain_page(title: str, body: Iterable[str]) -> Iterator[bytes]:
    """Yield the pieces of a page that does not change while it is read."""
    head = f"{_begin_document(title, '')}<body><main>"
    yield head.encode()
    yield from gather(body)
    yield b"</main></body></html>\n"


def _render_head(namespace: str, now: datetime) -> str:
    name = escape(namespace)
    reload = f'<noscript><meta http-equiv="refresh" content="{RELOAD_SECONDS}"></noscript>'
    return (
        f"{_begin_document(f'{namespace} - rollout-operator', reload)}"
        f'<body data-now="{int(now.timestamp() * 1000)}">{_render_icons()}'
        f'<header class="top"><h1><span>rollout-operator</span> <b>{name}</b></h1>'
        f'<p id="link" class="link" role="status"><span id="link-text">'
        f"as of {render_time(now, 'at')}</span></p></header>{_render_legend()}<main>"
        f'<div id="live" data-name="{name}">'
    )


def _render_foot() -> str:
    links = " ".join(
        f'<a href="{path}">{word}</a>'
        for path, word in (
            ("status.json", "JSON"),
            ("status.schema.json", "schema"),
            ("reasons", "all reasons"),
            ("metrics", "metrics"),
        )
    )
    return (
        f"</div></main><footer><span>rollout-operator {__version__}</span>"
        f"<nav>{links}</nav></footer><script>{read_asset('page.js')}</script></body></html>\n"
    )


def _render_legend() -> str:
    cells = "".join(
        f"<li>{_render_cell(icon, 'new')}{state}</li>" for state, icon in POD_ICONS.items()
    )
    return (
        f'<aside class="legend" aria-label="Legend"><ul>{cells}'
        f"<li>{_render_cell('ready', 'new')}filled: update revision</li>"
        f"<li>{_render_cell('ready', 'old')}hollow: older revision</li>"
        "</ul></aside>"
    )


def _render_cell(icon: str, age: str) -> str:
    return f'<span class="cell {icon} {age}">{render_icon(icon)}</span>'


def _begin_document(title: str, extra: str) -> str:
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f'{extra}<title>{escape(title)}</title><link rel="icon" href="{_FAVICON}">'
        f"<style>{read_asset('page.css')}</style></head>"
    )


@cache
def _render_icons() -> str:
    symbols = "".join(
        f'<symbol id="i-{name}" viewBox="0 0 16 16">{shape}</symbol>'
        for name, shape in _ICONS.items()
    )
    return f'<svg class="icons" aria-hidden="true">{symbols}</svg>'


def _hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
