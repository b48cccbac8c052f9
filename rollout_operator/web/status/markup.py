"""Small pieces of HTML, in which nothing that a tenant wrote is more than text.

`escape` is the only way for such text into a page: escaped, without control characters and turned
text, and cut to a readable length.
"""

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from hashlib import sha256
from html import escape as escape_html
from typing import Final

from rollout_operator.model.condition import ConditionDescription
from rollout_operator.planning.wording import one_line

# Characters; a millisecond of rendering, about.
PIECE: Final = 1 << 14
_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_HASH_LENGTH: Final = 16


def escape(text: str) -> str:
    """Return `text` as one line of harmless HTML, in an element or a quoted attribute."""
    return escape_html(one_line(text))


def render_prose(text: str) -> str:
    """Return a sentence of ours, in which what stands between backticks is code."""
    pieces = one_line(text).split("`")
    # One backtick without a second is a character like others.
    if len(pieces) % 2 == 0:
        return escape(text)
    return "".join(
        f"<code>{escape_html(piece)}</code>" if number % 2 else escape_html(piece)
        for number, piece in enumerate(pieces)
    )


def render_link(link: str, label: str) -> str:
    """Return `label` as a link, relative so that it works behind a prefix; as code where none."""
    shown = escape(label)
    if not link.startswith(("/", "https://")):
        return f"<code>{shown}</code>"
    target = escape(link.lstrip("/") if link.startswith("/") else link)
    return f'<a class="code" href="{target}">{shown}</a>'


def render_time(time: datetime, form: str) -> str:
    """Return a time in full; the script of the page makes `for`, `ago` or `in` of it."""
    utc = time.astimezone(UTC)
    since = "since " if form == "for" else ""
    return (
        f'<time datetime="{utc:%Y-%m-%dT%H:%M:%SZ}" data-form="{form}">'
        f"{since}{utc:%Y-%m-%d %H:%M:%S} UTC</time>"
    )


def render_icon(name: str) -> str:
    """Return one of the icons that stand at the beginning of the page; words stand beside it."""
    return f'<svg class="i" aria-hidden="true"><use href="#i-{name}"/></svg>'


def render_items(items: Iterable[str], kind: str) -> str:
    """Return a list of pieces of HTML, nothing where there are none."""
    rows = "".join(f"<li>{item}</li>" for item in items)
    return f'<ul class="{kind}">{rows}</ul>' if rows else ""


def render_fact(title: str, items: Iterable[str]) -> str:
    """Return a list below its title, nothing where it is empty."""
    rows = render_items(items, "reasons")
    return f"<section><h3>{title}</h3>{rows}</section>" if rows else ""


def render_rest(rest: int, kind: str = "", key: str = "") -> str:
    """Return how many more of a kind stand in the JSON; nothing where none does."""
    if rest <= 0:
        return ""
    anchor = f' id="{key}"' if key else ""
    link = f'<a href="status.json">{rest} more{f" {kind}" if kind else ""}</a>'
    return f'<p{anchor} class="rest">and {link}</p>'


def gather(pieces: Iterable[str]) -> Iterator[bytes]:
    """Yield pieces of some size: none takes long to make, and there are few of them."""
    gathered: list[str] = []
    size = 0
    for piece in pieces:
        gathered.append(piece)
        size += len(piece)
        if size >= PIECE:
            yield "".join(gathered).encode()
            gathered, size = [], 0
    yield "".join(gathered).encode()


def make_anchor(name: str) -> str:
    """Return the id of a group's section: its name where that is valid, else a digest of it."""
    if _PLAIN_NAME.fullmatch(name):
        return f"g-{name}"
    return f"g--{sha256(name.encode('utf-8', 'replace')).hexdigest()[:_HASH_LENGTH]}"


def make_policy_anchor(title: str) -> str:
    """Return the id of a MultiAZRollout's section, never that of a group."""
    return f"p-{make_anchor(title)}"


def make_release_anchor(title: str) -> str:
    """Return the id of a Rollout's section, never that of a group or of a MultiAZRollout."""
    return f"r-{make_anchor(title)}"


def render_condition(condition: ConditionDescription) -> str:
    """Return a condition of a status, and since when it is like this."""
    since = f" {render_time(condition.since, 'for')}" if condition.since is not None else ""
    text = f": {escape(condition.message)}" if condition.message else ""
    state = f"{condition.is_true}, {escape(condition.reason)}"
    return f"<b>{escape(condition.type)}</b> is {state}{since}{text}"
