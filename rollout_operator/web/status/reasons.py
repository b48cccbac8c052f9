"""All reasons with their meaning and remedy, as a page that links lead to."""

from collections.abc import Iterator
from functools import cache

from rollout_operator.model.outcome import Code
from rollout_operator.model.reasons.meanings import MEANINGS
from rollout_operator.model.reasons.remedies import REMEDIES
from rollout_operator.web.status.group import render_remedy
from rollout_operator.web.status.markup import render_prose
from rollout_operator.web.status.page import list_plain_page


@cache
def render_reasons() -> bytes:
    """Return the page: one anchor for each code."""
    return b"".join(list_plain_page("Reasons - rollout-operator", _list_codes()))


@cache
def render_plain_reasons() -> str:
    """Return the same as text."""
    return "".join(f"{line}\n" for code in Code for line in _list_lines(code))


def _list_codes() -> Iterator[str]:
    yield (
        '<header class="top"><h1><span>rollout-operator</span> <b>Reasons</b></h1>'
        '<p><a href="status">status</a></p></header><div class="card"><dl class="code-list">'
    )
    for code in Code:
        to_do = render_remedy(REMEDIES.get(code, ""))
        yield (
            f'<dt id="{code}"><a class="code" href="#{code}">{code}</a></dt>'
            f"<dd>{render_prose(MEANINGS[code])}{to_do}</dd>"
        )
    yield "</dl></div>"


def _list_lines(code: Code) -> Iterator[str]:
    yield f"{code}"
    yield f"    {MEANINGS[code]}"
    if code in REMEDIES:
        yield f"    To do: {REMEDIES[code]}"
